//! What is wrong in the trash: what lies there is a file of its own, in the directory of an hour that is called so.

use penstock_vfs::{FileKind, Inode};

use super::Seen;
use crate::schema::{Entry, Hour, TRASH, is_of_trash};

/// An entry that does not belong where it is.
#[derive(Debug)]
pub(super) struct Misplaced {
    pub(super) directory: Inode,
    pub(super) name: String,
    pub(super) inode: Inode,
}

/// Whether an entry belongs into a directory: into the trash only hours by their names, into an hour only files, and
/// directories of the trash nowhere else.
pub(super) fn belongs(directory: Inode, name: &[u8], entry: Entry) -> bool {
    match (directory == TRASH, Hour::of_inode(directory)) {
        (true, _) => Hour::named(name).is_some_and(|hour| hour.inode() == entry.inode),
        (false, Some(_)) => entry.kind == FileKind::Regular && !is_of_trash(entry.inode),
        (false, None) => !is_of_trash(entry.inode),
    }
}

/// Whether an inode needs no entry: the root and the trash have none.
pub(super) fn is_top(inode: u64) -> bool {
    [Inode::ROOT.0, TRASH.0].contains(&inode)
}

impl Seen {
    /// Whether it lies in an hour of the trash. Inodes of hours are the last ones that can have entries.
    pub(super) fn lies_in_trash(&self) -> bool {
        self.entries > 0 && Hour::of_inode(Inode(self.parent)).is_some()
    }

    /// The directory for whose quota it counts, as far as the trash is concerned.
    pub(super) fn right_project(&self, says: u64) -> u64 {
        match (self.lies_in_trash(), says == TRASH.0) {
            (true, _) => TRASH.0,
            (false, true) => 0,
            (false, false) => says,
        }
    }

    /// The directory in which a directory is, if the keys say one.
    pub(super) fn right_parent(&self, inode: u64) -> Option<u64> {
        match is_top(inode) {
            true => Some(Inode::ROOT.0),
            false => (self.entries > 0).then_some(self.parent),
        }
    }
}
