//! Whose close ends an upload.
//!
//! The kernel tells of every descriptor that is closed, in any process: copies that a fork or a
//! `dup2` made among them. Were each taken for "the writer is done", half a file would become
//! visible. So this is the rule:
//!
//! **A close saves when it comes from the process that wrote last (before the first write: from
//! the one that opened the file), unless that process can still write the file through another
//! descriptor.**
//!
//! - A shell's `> file` opens, copies the descriptor to 1 and closes the first: nothing happens.
//! - A child that closes its copy at `exec`, or exits, without having written: nothing happens.
//! - A command that inherited the descriptor, writes and ends: saves, and its close reports it.
//!   Whoever writes next, the parent or the next command, goes on at the end.
//! - `exec 3>file; echo a >&3; echo b >&3; exec 3>&-`: the shell has 3 open until the end.
//! - When everything was saved or has failed since the last write, every close may ask again: it
//!   costs nothing, and the parent hears of what failed in a child.
//!
//! The kernel names the table of descriptors of writes that go past its cache. The first close after the first of these is
//! believed without a look at the other descriptors, which would cost every small file a few microseconds. Of writes through
//! the cache the thread alone is known, and each close looks. Whatever is left is saved when the last descriptor is gone.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_vfs::{HandleId, Inode};

use super::descriptors::{MountId, can_still_write};
use crate::protocol::DescriptorTable;

/// Who writes each handle. As many entries as handles are open for writing.
#[derive(Debug)]
pub(super) struct Writers {
    known: Mutex<HashMap<HandleId, Writer>>,
    mount: MountId,
}

#[derive(Debug, Clone, Copy)]
struct Writer {
    last: Last,
    /// Counts the writes.
    writes: u64,
    /// Whether a close saved before.
    saved: bool,
}

/// What happened to a handle last.
#[derive(Debug, Clone, Copy)]
enum Last {
    /// Nobody wrote yet; this thread opened the file.
    Opened(u32),
    /// A write came from there.
    Wrote(Source),
    /// All that was written was saved, or could not be.
    Settled,
}

/// Where a write came from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Table(DescriptorTable),
    Thread(u32),
}

/// A descriptor that was closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed {
    pub(super) handle: HandleId,
    pub(super) inode: Inode,
    /// The table that it was in.
    pub(super) table: DescriptorTable,
    /// The thread that closed it.
    pub(super) thread: u32,
}

/// A save that a close began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Save {
    handle: HandleId,
    /// Writes that there were by then.
    writes: u64,
}

impl Writers {
    /// `mount` is where the handles are open.
    pub(super) fn new(mount: MountId) -> Self {
        Self {
            known: Mutex::default(),
            mount,
        }
    }

    /// Notes which thread opened a handle for writing.
    pub(super) fn opened(&self, handle: HandleId, thread: u32) {
        let writer = Writer {
            last: Last::Opened(thread),
            writes: 0,
            saved: false,
        };
        self.known().insert(handle, writer);
    }

    /// Notes a write, before it is carried out.
    pub(super) fn wrote(&self, handle: HandleId, source: Source) {
        if let Some(writer) = self.known().get_mut(&handle) {
            writer.last = Last::Wrote(source);
            writer.writes += 1;
        }
    }

    /// Whether to save, now that a descriptor was closed.
    pub(super) fn close(&self, closed: Closed) -> Option<Save> {
        let Closed {
            handle,
            table,
            thread,
            ..
        } = closed;
        let known = self.known().get(&handle).copied();
        let save = |writes| Some(Save { handle, writes });
        let Some(writer) = known else {
            return save(0);
        };
        let (is_theirs, look) = match writer.last {
            Last::Settled => return save(writer.writes),
            Last::Wrote(Source::Table(last)) => (last == table, writer.saved),
            Last::Wrote(Source::Thread(last)) => (share_process(last, thread), true),
            Last::Opened(opener) => (share_process(opener, thread), true),
        };
        if !is_theirs || look && can_still_write(thread, &self.mount, closed.inode) {
            return None;
        }
        save(writer.writes)
    }

    /// A save ended, in whatever way.
    pub(super) fn settled(&self, save: Save) {
        if let Some(writer) = self.known().get_mut(&save.handle) {
            writer.saved = true;
            if writer.writes == save.writes {
                writer.last = Last::Settled;
            }
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
    if one == other {
        return true;
    }
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
    use crate::adapter::descriptors::tests::mount_of;

    const HANDLE: HandleId = HandleId(7);
    const PARENT: DescriptorTable = DescriptorTable(1);
    const CHILD: DescriptorTable = DescriptorTable(2);
    /// The first process of the system, which is none of ours.
    const INIT: u32 = 1;

    fn writers() -> Writers {
        // No mount has this number, so nothing is open there.
        Writers::new(MountId {
            number: u64::MAX,
            device: String::new(),
        })
    }

    fn close(writers: &Writers, table: DescriptorTable, thread: u32) -> Option<Save> {
        writers.close(Closed {
            handle: HANDLE,
            inode: Inode(9),
            table,
            thread,
        })
    }

    #[test]
    fn only_the_last_writer_saves() {
        let writers = writers();
        assert!(close(&writers, CHILD, INIT).is_some(), "nothing is known");
        writers.opened(HANDLE, INIT);
        writers.wrote(HANDLE, Source::Table(PARENT));
        assert!(close(&writers, CHILD, INIT).is_none());
        assert!(close(&writers, PARENT, INIT).is_some());
        writers.wrote(HANDLE, Source::Table(CHILD));
        assert!(close(&writers, PARENT, INIT).is_none());
        writers.closed(HANDLE);
        assert!(close(&writers, PARENT, INIT).is_some());
    }

    #[test]
    fn before_the_first_write_only_the_opening_process_saves() {
        let process = std::process::id();
        let thread = fs::read_link("/proc/thread-self").expect("Linux has it");
        let thread = thread.file_name().and_then(|name| name.to_str());
        let thread: u32 = thread.and_then(|name| name.parse().ok()).expect("a number");
        let writers = writers();
        writers.opened(HANDLE, process);
        assert!(close(&writers, CHILD, process).is_some());
        assert!(close(&writers, CHILD, thread).is_some());
        assert!(close(&writers, CHILD, INIT).is_none());
        assert!(close(&writers, CHILD, u32::MAX).is_some(), "gone");
    }

    #[test]
    fn a_close_by_the_thread_that_wrote_saves_unless_its_process_can_still_write() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let still_open = fs::File::create(&path).expect("writable");
        let writers = Writers::new(mount_of(&still_open));
        let process = std::process::id();
        let inode = std::os::linux::fs::MetadataExt::st_ino(&still_open.metadata().expect("open"));
        let closed = |thread| Closed {
            handle: HANDLE,
            inode: Inode(inode),
            table: PARENT,
            thread,
        };
        writers.opened(HANDLE, process);
        assert_eq!(writers.close(closed(process)), None, "nothing is written");
        writers.wrote(HANDLE, Source::Thread(process));
        assert_eq!(writers.close(closed(INIT)), None, "it did not write");
        assert_eq!(writers.close(closed(process)), None, "it goes on");
        drop(still_open);
        assert!(writers.close(closed(process)).is_some(), "it wrote");
    }

    #[test]
    fn everybody_hears_how_it_went_until_somebody_writes_again() {
        let writers = writers();
        writers.opened(HANDLE, INIT);
        writers.wrote(HANDLE, Source::Table(CHILD));
        let save = close(&writers, CHILD, INIT).expect("it wrote");
        writers.settled(save);
        assert!(close(&writers, PARENT, INIT).is_some());
        writers.wrote(HANDLE, Source::Table(CHILD));
        // An older save that ends now says nothing about what was written since.
        writers.settled(save);
        assert!(close(&writers, PARENT, INIT).is_none());
    }
}
