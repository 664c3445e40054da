//! Which process writes which handle.
//!
//! The kernel flushes a handle whenever a descriptor of it is closed, in any process. A program
//! that forks while it writes a file has a copy of the descriptor closed by the child, mostly
//! within a millisecond by `exec`; were that taken for "the writer is done", half a file would
//! become visible. So a flush counts only when it comes from the descriptor table through which
//! the last write came, or when nobody wrote yet. Whoever wrote last flushes when it closes or
//! exits, so nothing goes unreported; what is left is saved at the release of the handle.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_vfs::HandleId;

use crate::protocol::DescriptorTable;

/// The table through which each handle was last written. As many entries as handles are open.
#[derive(Debug, Default)]
pub(super) struct Writers {
    last: Mutex<HashMap<HandleId, DescriptorTable>>,
}

impl Writers {
    /// Notes a write, before it is carried out.
    pub(super) fn wrote(&self, handle: HandleId, table: Option<DescriptorTable>) {
        if let Some(table) = table {
            self.last().insert(handle, table);
        }
    }

    /// Whether closing a descriptor in `table` may mean that the writer is done.
    pub(super) fn concerns(&self, handle: HandleId, table: DescriptorTable) -> bool {
        self.last().get(&handle).is_none_or(|last| *last == table)
    }

    /// Forgets a handle.
    pub(super) fn closed(&self, handle: HandleId) {
        self.last().remove(&handle);
    }

    fn last(&self) -> MutexGuard<'_, HashMap<HandleId, DescriptorTable>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: HandleId = HandleId(7);
    const PARENT: DescriptorTable = DescriptorTable(1);
    const CHILD: DescriptorTable = DescriptorTable(2);

    #[test]
    fn only_the_last_writer_is_heard() {
        let writers = Writers::default();
        assert!(writers.concerns(HANDLE, CHILD), "nobody wrote yet");
        writers.wrote(HANDLE, Some(PARENT));
        writers.wrote(HANDLE, None);
        assert!(!writers.concerns(HANDLE, CHILD));
        assert!(writers.concerns(HANDLE, PARENT));
        writers.wrote(HANDLE, Some(CHILD));
        assert!(!writers.concerns(HANDLE, PARENT));
        writers.closed(HANDLE);
        assert!(writers.concerns(HANDLE, PARENT));
    }
}
