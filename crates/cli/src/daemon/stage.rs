//! Where a mount is between its first step and its end, as others are told.

use std::{
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tracing::warn;

use crate::{
    control::Phase,
    doors::DoorKind,
    mount_table::{self, Unreadable},
    sharing::Places,
};

/// What shows that a volume can be reached.
#[derive(Debug)]
enum Sign {
    /// This number in the mount table, if it has one.
    Mount(Option<u64>),
    /// One of the mount points of a fileset.
    Shared(Places),
    /// The process itself.
    Process,
}

/// The phase of one mount. It never goes back: whoever asks once the mount is gone has it stay gone,
/// also when the kernel gives its number to the next one.
#[derive(Debug)]
pub(super) struct Stage {
    mountpoint: PathBuf,
    /// What shows that it is there, once it is.
    sign: OnceLock<Sign>,
    gone: AtomicBool,
}

impl Stage {
    /// Nothing is mounted yet.
    pub(super) fn new(mountpoint: PathBuf) -> Self {
        Self {
            mountpoint,
            sign: OnceLock::new(),
            gone: AtomicBool::new(false),
        }
    }

    /// The door is open.
    pub(super) fn enter(&self, door: &DoorKind) {
        self.sign.get_or_init(|| match door {
            DoorKind::Kernel => self.in_table().unwrap_or_else(|error| {
                warn!(%error, "whether the mount is there is told by its process alone");
                Sign::Process
            }),
            DoorKind::Nfs(_) => Sign::Process,
        });
    }

    fn in_table(&self) -> Result<Sign, Unreadable> {
        Ok(match Places::of(&self.mountpoint)? {
            Some(places) => Sign::Shared(places),
            None => Sign::Mount(mount_table::find(&self.mountpoint)?.map(|entry| entry.id)),
        })
    }

    /// The mount points, where it may have several.
    pub(super) fn places(&self) -> Option<&Places> {
        match self.sign.get()? {
            Sign::Shared(places) => Some(places),
            Sign::Mount(_) | Sign::Process => None,
        }
    }

    /// One of the mount points: the first that there was as long as it is there, and when none is.
    pub(super) fn mountpoint(&self) -> PathBuf {
        let places = self.places().and_then(|places| places.list().ok());
        let places = places.unwrap_or_default();
        let other = places.iter().find(|place| **place == self.mountpoint);
        other.or(places.first()).unwrap_or(&self.mountpoint).clone()
    }

    pub(super) fn phase(&self) -> Phase {
        let is_there = match self.sign.get() {
            None => return Phase::Starting,
            Some(Sign::Mount(None)) => Ok(false),
            Some(Sign::Mount(Some(number))) => mount_table::has(*number, &self.mountpoint),
            Some(Sign::Shared(places)) => places.list().map(|left| !left.is_empty()),
            Some(Sign::Process) => Ok(true),
        };
        // Where nobody knows it is as it was.
        if is_there.is_ok_and(|is_there| !is_there) {
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
    use crate::{
        environment::Environment,
        options::{Given, Origin, Values, table},
        serving::Serving,
    };

    fn served() -> Serving {
        let listen = Given {
            spec: &table::LISTEN,
            spelling: "--listen".to_owned(),
            text: "127.0.0.1:2049".to_owned(),
            origin: Origin::CommandLine,
        };
        let values = Values::resolve(vec![listen]).expect("valid");
        let serving = Serving::of_source("file:///srv/bucket", &values, &Environment::default());
        serving.expect("valid")
    }

    #[test]
    fn what_is_mounted_is_told_and_what_is_not_saves() {
        let root = Stage::new("/".into());
        assert_eq!(root.phase(), Phase::Starting);
        root.enter(&DoorKind::Kernel);
        assert_eq!(root.phase(), Phase::Mounted);
        let nowhere = Stage::new("/no/such/place".into());
        nowhere.enter(&DoorKind::Kernel);
        assert_eq!(nowhere.phase(), Phase::Saving);
        let target = Stage::new("/no/such/place".into());
        target.enter(&DoorKind::Nfs(Box::new(served())));
        assert_eq!(target.phase(), Phase::Mounted);
    }
}
