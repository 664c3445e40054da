//! Nodes of the index in the words of files.

use std::time::{Duration, SystemTime};

use penstock_vfs::{Attributes, Entry, FileKind, Inode};

use super::{TTL, node::Node};
use crate::{Permissions, Timestamp};

/// The inode number of the first slot. Number 1 is the root, wherever it lies.
const FIRST_INODE: u64 = 2;

/// Makes what the kernel is told.
#[derive(Debug)]
pub(super) struct Answers {
    permissions: Permissions,
    generation: u32,
}

impl Answers {
    pub(super) fn new(permissions: Permissions, generation: u32) -> Self {
        Self {
            permissions,
            generation,
        }
    }

    pub(super) fn inode(slot: u64) -> Inode {
        Inode(slot + FIRST_INODE)
    }

    /// The slot of an inode that is not the root.
    pub(super) fn slot_of(number: u64) -> Option<u64> {
        number.checked_sub(FIRST_INODE)
    }

    pub(super) fn entry(&self, inode: Inode, node: &Node) -> Entry {
        let time = system_time(node.modified);
        let (permissions, size) = match node.kind {
            FileKind::Directory => (self.permissions.directory_mode, 0),
            FileKind::Regular | FileKind::Special(_) => (self.permissions.file_mode, node.size),
            FileKind::Symlink => (0o777, node.size),
        };
        Entry {
            attributes: Attributes {
                generation: self.generation,
                permissions,
                uid: self.permissions.uid,
                gid: self.permissions.gid,
                size,
                allocated: size,
                ..Attributes::new(inode, node.kind, time)
            },
            entry_ttl: TTL,
            attributes_ttl: TTL,
        }
    }
}

/// Times that the system cannot express become 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    let fraction = Duration::from_nanos(time.nanoseconds.into());
    let exact = whole.and_then(|whole| whole.checked_add(fraction));
    exact.unwrap_or(SystemTime::UNIX_EPOCH)
}
