//! The open files of a volume.
//!
//! What an open file is, is said in [`crate::open_file`]; what becomes of it in staged mode in [`crate::staged`].
//! Here is what all of them share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Unsaved;

use crate::{
    handles::{HandleIds, Handles},
    lookup::Lookups,
    metadata::Metadata,
    mount::Mount,
    open_file::{FileHandle, Mode},
    staged::behind::Behind,
};

/// Lost files that are kept in mind. Of more those go first that a program heard of.
const UNHEARD_MAX: usize = 1000;

/// Files that were lost while no program that wrote them was there to hear so.
#[derive(Debug, Default)]
pub(crate) struct Unheard(Mutex<Vec<Lost>>);

/// A file that was lost.
#[derive(Debug)]
struct Lost {
    path: String,
    reason: FsError,
    /// Whether it was to be removed, and is there again.
    was_removed: bool,
    /// Whether a program heard of it since.
    is_told: bool,
}

impl Unheard {
    fn lost(&self) -> MutexGuard<'_, Vec<Lost>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file in mind.
    pub(crate) fn add(&self, path: String, reason: FsError) {
        self.keep(path, reason, false);
    }

    /// Keeps a file in mind that was to be removed and is there again.
    pub(crate) fn add_removed(&self, path: String, reason: FsError) {
        self.keep(path, reason, true);
    }

    fn keep(&self, path: String, reason: FsError, was_removed: bool) {
        let mut lost = self.lost();
        if lost.len() == UNHEARD_MAX {
            let Some(told) = lost.iter().position(|lost| lost.is_told) else {
                return;
            };
            lost.remove(told);
        }
        lost.push(Lost {
            path,
            reason,
            was_removed,
            is_told: false,
        });
    }

    /// Tells a program of the files in `scope` that no program was told of. Returns why the first was lost, if any was.
    pub(crate) fn tell(&self, scope: impl Fn(&str) -> bool) -> FsResult<()> {
        let mut lost = self.lost();
        let untold = lost.iter_mut().filter(|lost| !lost.is_told);
        let mut told = Ok(());
        for lost in untold.filter(|lost| scope(&lost.path)) {
            lost.is_told = true;
            told = told.and_then(|()| Err(lost.reason.clone()));
        }
        told
    }

    /// Everything that was kept in mind, whether a program was told or not.
    pub(crate) fn take(&self) -> Vec<(String, FsError)> {
        let lost = std::mem::take(&mut *self.lost());
        let lost = lost.into_iter().map(|lost| match lost.was_removed {
            true => (lost.path, not_removed(&lost.reason)),
            false => (lost.path, lost.reason),
        });
        lost.collect()
    }
}

/// What is told at the end of something that was to be removed and is not.
pub(crate) fn not_removed(reason: &FsError) -> FsError {
    FsError::Io(format!(
        "it was removed here, and not in the store: {reason}"
    ))
}

/// Opens, reads, writes and saves files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) mount: Arc<Mount>,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) ids: Arc<HandleIds>,
    pub(crate) handles: Handles<FileHandle>,
    pub(crate) unheard: Unheard,
    /// Staged files that are closed and saved later.
    pub(crate) behind: Behind,
}

impl Files {
    /// No file is open yet. Handles get their numbers from `ids`.
    pub(crate) fn new(
        mount: &Arc<Mount>,
        lookups: &Arc<Lookups>,
        metadata: &Arc<Metadata>,
        ids: &Arc<HandleIds>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(mount),
            lookups: Arc::clone(lookups),
            metadata: Arc::clone(metadata),
            ids: Arc::clone(ids),
            handles: Handles::new(ids),
            unheard: Unheard::default(),
            behind: Behind::new(mount.save_behind()),
        })
    }

    /// Files that are not saved, and their bytes. Those that no handle has open any more are among them.
    pub(crate) fn unsaved(&self) -> Unsaved {
        match &self.mount.mode {
            Mode::Streaming => self.unsaved_streams(),
            Mode::Staged(mode) => {
                let unsaved = mode.unsaved();
                let names = self.mount.write_back().map_or(0, |names| names.len());
                Unsaved {
                    files: unsaved.files + names as u64,
                    ..unsaved
                }
            }
        }
    }

    fn unsaved_streams(&self) -> Unsaved {
        let mut sizes = std::collections::HashMap::new();
        self.handles.for_each(|handle| {
            let view = handle.file.view();
            if view.dirty && !view.removed {
                sizes.insert(handle.file.inode, view.size);
            }
        });
        Unsaved {
            files: sizes.len() as u64,
            bytes: sizes.values().sum(),
            ..Unsaved::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many that were told nothing was told any more.
    #[test]
    fn what_was_told_makes_room_for_what_was_not() {
        let unheard = Unheard::default();
        let reason = FsError::Busy("for a test");
        for number in 0..UNHEARD_MAX {
            let path = format!("old/{number}");
            unheard.add(path.clone(), reason.clone());
            unheard.tell(|lost| lost == path).unwrap_err();
        }
        unheard.add("new".to_owned(), reason.clone());
        assert_eq!(unheard.tell(|lost| lost == "new"), Err(reason));
        assert_eq!(unheard.take().len(), UNHEARD_MAX);
    }
}
