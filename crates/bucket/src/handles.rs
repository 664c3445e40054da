//! Open files and directories by number.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult};
use penstock_vfs::{HandleId, Unsaved};

use crate::{listing::DirectoryHandle, open_file::FileHandle};

/// Handles that may be open at once.
const HANDLES_MAX: usize = 1 << 20;

/// An open file or directory.
#[derive(Debug, Clone)]
pub(crate) enum Handle {
    File(Arc<FileHandle>),
    Directory(Arc<DirectoryHandle>),
}

/// All open handles of a volume. Numbers are never given out twice.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    open: Mutex<HashMap<HandleId, Handle>>,
}

impl Handles {
    /// A number for a handle that is about to be opened. Fails when too many are open.
    pub(crate) fn next_id(&self) -> FsResult<HandleId> {
        if self.len() >= HANDLES_MAX {
            return Err(FsError::LimitReached("too many open files; close some"));
        }
        Ok(HandleId(self.last.fetch_add(1, Ordering::Relaxed) + 1))
    }

    pub(crate) fn insert(&self, id: HandleId, handle: Handle) {
        self.lock().insert(id, handle);
    }

    /// An open file. Fails with `BadHandle`.
    pub(crate) fn file(&self, id: HandleId) -> FsResult<Arc<FileHandle>> {
        match self.lock().get(&id) {
            Some(Handle::File(file)) => Ok(Arc::clone(file)),
            _ => Err(FsError::BadHandle),
        }
    }

    /// An open directory. Fails with `BadHandle`.
    pub(crate) fn directory(&self, id: HandleId) -> FsResult<Arc<DirectoryHandle>> {
        match self.lock().get(&id) {
            Some(Handle::Directory(directory)) => Ok(Arc::clone(directory)),
            _ => Err(FsError::BadHandle),
        }
    }

    pub(crate) fn remove(&self, id: HandleId) -> Option<Handle> {
        self.lock().remove(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many open files are not saved, and how many bytes they have.
    pub(crate) fn unsaved(&self) -> Unsaved {
        let mut sizes = HashMap::new();
        for handle in self.lock().values() {
            if let Handle::File(handle) = handle {
                let view = handle.file.view();
                if view.dirty && !view.removed {
                    sizes.insert(handle.file.inode, view.size);
                }
            }
        }
        Unsaved {
            files: sizes.len() as u64,
            bytes: sizes.values().sum(),
            ..Unsaved::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HandleId, Handle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
