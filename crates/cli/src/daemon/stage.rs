//! Where a mount is between its first step and its end, as others are told.

use std::{
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{control::Phase, mount_table};

/// The phase of one mount. It never goes back: whoever asks once the mount is gone has it stay gone,
/// also when the kernel gives its number to the next one.
#[derive(Debug)]
pub(super) struct Stage {
    mountpoint: PathBuf,
    /// Its number in the mount table, once it is there.
    mounted: OnceLock<Option<u64>>,
    gone: AtomicBool,
}

impl Stage {
    /// Nothing is mounted yet.
    pub(super) fn new(mountpoint: PathBuf) -> Self {
        Self {
            mountpoint,
            mounted: OnceLock::new(),
            gone: AtomicBool::new(false),
        }
    }

    /// The mount is there.
    pub(super) fn enter(&self) {
        let number = mount_table::find(&self.mountpoint).map(|entry| entry.id);
        self.mounted.get_or_init(|| number);
    }

    pub(super) fn phase(&self) -> Phase {
        let Some(number) = self.mounted.get() else {
            return Phase::Starting;
        };
        let is_there = number.is_some_and(|number| mount_table::has(number, &self.mountpoint));
        if !is_there {
            self.gone.store(true, Ordering::Relaxed);
        }
        match self.gone.load(Ordering::Relaxed) {
            true => Phase::Saving,
            false => Phase::Mounted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_told_and_what_is_not_saves() {
        let root = Stage::new("/".into());
        assert_eq!(root.phase(), Phase::Starting);
        root.enter();
        assert_eq!(root.phase(), Phase::Mounted);
        let nowhere = Stage::new("/no/such/place".into());
        nowhere.enter();
        assert_eq!(nowhere.phase(), Phase::Saving);
    }
}
