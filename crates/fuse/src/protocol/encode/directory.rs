//! Entries of READDIR and READDIRPLUS replies.

use penstock_vfs::Entry;

use super::{Body, entry, file_type};

/// The name of one directory entry and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectoryEntry<'a> {
    pub(crate) inode: u64,
    /// From where a later READDIR goes on.
    pub(crate) next: u64,
    /// The file type bits of a mode.
    pub(crate) file_type: u32,
    pub(crate) name: &'a [u8],
}

impl<'a> DirectoryEntry<'a> {
    pub(crate) fn new(entry: &Entry, next: u64, name: &'a [u8]) -> Self {
        Self {
            inode: entry.attributes.inode.0,
            next,
            file_type: file_type(entry.attributes.kind),
            name,
        }
    }
}

/// An entry of READDIR.
pub(crate) fn directory_entry(body: &mut Body, item: DirectoryEntry<'_>) {
    let length = u32::try_from(item.name.len()).expect("names are short");
    body.u64(item.inode).u64(item.next);
    // The kernel wants the four bits that `d_type` has.
    body.u32(length).u32(item.file_type >> 12);
    body.bytes(item.name);
    body.zeros(item.name.len().next_multiple_of(8) - item.name.len());
}

/// An entry of READDIRPLUS. Without `found` it is a name only and no reference is passed on.
pub(crate) fn directory_entry_plus(
    body: &mut Body,
    item: DirectoryEntry<'_>,
    found: Option<&Entry>,
) {
    match found {
        Some(found) => entry(body, found),
        None => {
            body.zeros(128);
        }
    }
    directory_entry(body, item);
}
