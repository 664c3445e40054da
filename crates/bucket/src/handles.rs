//! Open files and directories by number.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use penstock_base::{FsError, FsResult};
use penstock_vfs::HandleId;

/// Handles that may be open at once.
const HANDLES_MAX: usize = 1 << 20;

/// The numbers of all handles of a volume. None is given out twice.
#[derive(Debug, Default)]
pub(crate) struct HandleIds {
    last: AtomicU64,
    open: AtomicUsize,
}

/// All open handles of a kind.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    ids: Arc<HandleIds>,
    open: Mutex<HashMap<HandleId, Arc<T>>>,
}

impl HandleIds {
    /// A number for a handle that is about to be opened. Fails when too many are open.
    pub(crate) fn next(&self) -> FsResult<HandleId> {
        if self.open() >= HANDLES_MAX {
            return Err(FsError::LimitReached("too many open files; close some"));
        }
        Ok(HandleId(self.last.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// Handles that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl<T> Handles<T> {
    /// None yet, with numbers from `ids`.
    pub(crate) fn new(ids: &Arc<HandleIds>) -> Self {
        Self {
            ids: Arc::clone(ids),
            open: Mutex::default(),
        }
    }

    pub(crate) fn insert(&self, id: HandleId, handle: Arc<T>) {
        self.ids.open.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, handle);
    }

    /// An open handle. Fails with `BadHandle`.
    pub(crate) fn get(&self, id: HandleId) -> FsResult<Arc<T>> {
        let open = self.lock();
        open.get(&id).map(Arc::clone).ok_or(FsError::BadHandle)
    }

    pub(crate) fn remove(&self, id: HandleId) -> Option<Arc<T>> {
        let removed = self.lock().remove(&id);
        if removed.is_some() {
            self.ids.open.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Looks at each of them while none is opened or closed.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&T)) {
        self.lock().values().for_each(|handle| look(handle));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HandleId, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
