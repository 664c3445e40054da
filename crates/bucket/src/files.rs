//! The open files of a volume.
//!
//! What an open file is, is said in [`crate::open_file`]; what becomes of it in staged mode in [`crate::staged`].
//! Here is what all of them share.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_base::FsError;
use penstock_vfs::Unsaved;

use crate::{
    handles::{HandleIds, Handles},
    lookup::Lookups,
    metadata::Metadata,
    mount::Mount,
    open_file::{FileHandle, Mode},
    staged::behind::Behind,
};

/// Lost files that are kept in mind because no program heard of them.
const UNHEARD_MAX: usize = 1000;

/// Files that were lost while no program that wrote them was there to hear so.
#[derive(Debug, Default)]
pub(crate) struct Unheard(Mutex<Vec<(String, FsError)>>);

impl Unheard {
    /// Keeps a file in mind.
    pub(crate) fn add(&self, path: String, error: FsError) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.len() < UNHEARD_MAX {
            lost.push((path, error));
        }
    }

    /// Everything that was kept in mind.
    pub(crate) fn take(&self) -> Vec<(String, FsError)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
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
            behind: Behind::default(),
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
