//! Which process writes which handle.
//!
//! The kernel flushes a handle whenever a descriptor of it is closed, in any process. A program
//! that forks while it writes a file has a copy of the descriptor closed by the child, mostly
//! within a millisecond by `exec`; were that taken for "the writer is done", half a file would
//! become visible. So a flush counts only when it comes from the descriptor table through which
//! the last write came, or, as long as nobody wrote, from the process that opened the file.
//! Whoever wrote last flushes when it closes or exits, so nothing goes unreported; what is left
//! is saved at the release of the handle.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_vfs::HandleId;

use crate::protocol::DescriptorTable;

/// Who writes each handle. As many entries as handles are open for writing.
#[derive(Debug, Default)]
pub(super) struct Writers {
    known: Mutex<HashMap<HandleId, Writer>>,
}

#[derive(Debug, Clone, Copy)]
enum Writer {
    /// Nobody wrote yet; this thread opened the file.
    Opened(u32),
    /// The last write came through this table.
    Wrote(DescriptorTable),
}

impl Writers {
    /// Notes which thread opened a handle for writing.
    pub(super) fn opened(&self, handle: HandleId, thread: u32) {
        self.known().insert(handle, Writer::Opened(thread));
    }

    /// Notes a write, before it is carried out.
    pub(super) fn wrote(&self, handle: HandleId, table: Option<DescriptorTable>) {
        if let Some(table) = table {
            self.known().insert(handle, Writer::Wrote(table));
        }
    }

    /// Whether a descriptor closed by `thread` in `table` may mean that the writer is done.
    pub(super) fn concerns(&self, handle: HandleId, table: DescriptorTable, thread: u32) -> bool {
        let known = self.known().get(&handle).copied();
        match known {
            None => true,
            Some(Writer::Wrote(last)) => last == table,
            Some(Writer::Opened(opener)) => opener == thread || share_process(opener, thread),
        }
    }

    /// Forgets a handle.
    pub(super) fn closed(&self, handle: HandleId) {
        self.known().remove(&handle);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<HandleId, Writer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two threads belong to one process. Those that cannot be seen any more, or from here,
/// are taken to: saving too early is better than not at all.
fn share_process(one: u32, other: u32) -> bool {
    match (process_of(one), process_of(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// The process of a thread, as proc(5) tells.
fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: HandleId = HandleId(7);
    const PARENT: DescriptorTable = DescriptorTable(1);
    const CHILD: DescriptorTable = DescriptorTable(2);
    /// The first process of the system, which is none of ours.
    const INIT: u32 = 1;

    #[test]
    fn only_the_last_writer_is_heard() {
        let writers = Writers::default();
        assert!(writers.concerns(HANDLE, CHILD, INIT), "nothing is known");
        writers.wrote(HANDLE, Some(PARENT));
        writers.wrote(HANDLE, None);
        assert!(!writers.concerns(HANDLE, CHILD, INIT));
        assert!(writers.concerns(HANDLE, PARENT, INIT));
        writers.wrote(HANDLE, Some(CHILD));
        assert!(!writers.concerns(HANDLE, PARENT, INIT));
        writers.closed(HANDLE);
        assert!(writers.concerns(HANDLE, PARENT, INIT));
    }

    #[test]
    fn before_the_first_write_only_the_opening_process_is_heard() {
        let process = std::process::id();
        let thread = fs::read_link("/proc/thread-self").expect("Linux has it");
        let thread = thread.file_name().and_then(|name| name.to_str());
        let thread: u32 = thread.and_then(|name| name.parse().ok()).expect("a number");
        let writers = Writers::default();
        writers.opened(HANDLE, process);
        assert!(writers.concerns(HANDLE, CHILD, process));
        assert!(writers.concerns(HANDLE, CHILD, thread));
        assert!(!writers.concerns(HANDLE, CHILD, INIT));
        assert!(writers.concerns(HANDLE, CHILD, u32::MAX), "gone");
    }
}
