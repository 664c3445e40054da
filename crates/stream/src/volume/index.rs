//! The tree in a mapped file.
//!
//! ```text
//! nodes of files and links as they come; when a directory is left: its entries in the order of
//! their names, the table of those, its node; at the end the number of nodes and the root's slot
//! ```
//!
//! An entry is the slot of its node (8 bytes), the length of its name (1) and the name. A table
//! has four bytes for each entry, which say how far before the table the entry lies; finding a
//! name is a binary search in it. A slot is a place divided by 32.

use std::path::Path;

use penstock_vfs::FileKind;

use super::node::{NODE, Node};
use crate::{SnapshotError, checked_file::CheckedFile};

pub(super) const MAGIC: [u8; 8] = *b"PnstTre1";

/// Bytes of the end: the number of nodes and the slot of the root.
pub(super) const END: u64 = 16;

/// Bytes of an entry before its name.
pub(super) const ENTRY_HEAD: u64 = 9;

/// Bytes of an entry in a table.
pub(super) const TABLE_ENTRY: u64 = 4;

/// The tree of a snapshot, ready to be asked. All errors say that the file is damaged.
#[derive(Debug)]
pub struct DirectoryIndex {
    file: CheckedFile,
    nodes: u64,
    root: u64,
}

impl DirectoryIndex {
    /// Opens the index at `path`, which a [`super::DirectoryIndexWriter`] wrote.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let file = CheckedFile::open(path, MAGIC)?;
        let end = file.length().checked_sub(END);
        let end = end.ok_or_else(|| file.damaged("its length"))?;
        let (nodes, root) = (file.number(end)?, file.number(end + 8)?);
        Ok(Self { file, nodes, root })
    }

    /// Tells this tree from others.
    pub(super) fn checksum(&self) -> u32 {
        self.file.checksum()
    }

    /// Files, directories and links.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    pub(super) fn root(&self) -> u64 {
        self.root
    }

    pub(super) fn node(&self, slot: u64) -> Result<Node, SnapshotError> {
        let start = slot.saturating_mul(NODE);
        let bytes = self.file.bytes(start..start.saturating_add(NODE))?;
        Node::decode(bytes).ok_or_else(|| self.file.damaged("a node"))
    }

    /// The node that a name in a directory leads to.
    pub(super) fn lookup(
        &self,
        directory: &Node,
        name: &[u8],
    ) -> Result<Option<(u64, Node)>, SnapshotError> {
        let behind = self.after(directory, name)?;
        let Some(position) = behind.checked_sub(1) else {
            return Ok(None);
        };
        let (found, slot) = self.entry(directory, position)?;
        if found != name {
            return Ok(None);
        }
        Ok(Some((slot, self.node(slot)?)))
    }

    /// The position of the first entry of a directory that comes after `name`.
    pub(super) fn after(&self, directory: &Node, name: &[u8]) -> Result<u64, SnapshotError> {
        let (mut low, mut high) = (0, directory.size);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(directory, middle)?.0 <= name {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The directory that has an entry for the node at `slot`.
    pub(super) fn parent_of(&self, slot: u64) -> Result<Option<u64>, SnapshotError> {
        let mut open = vec![self.root];
        while let Some(directory) = open.pop() {
            let node = self.node(directory)?;
            for position in 0..node.size {
                let (_, found) = self.entry(&node, position)?;
                if found == slot {
                    return Ok(Some(directory));
                }
                if self.node(found)?.kind == FileKind::Directory {
                    open.push(found);
                }
            }
        }
        Ok(None)
    }

    /// The name and the slot of an entry of a directory.
    pub(super) fn entry(
        &self,
        directory: &Node,
        position: u64,
    ) -> Result<(&[u8], u64), SnapshotError> {
        let table = directory.place;
        let at = table.saturating_add(position.saturating_mul(TABLE_ENTRY));
        let distance = self.file.bytes(at..at.saturating_add(TABLE_ENTRY))?;
        let distance = u32::from_le_bytes(distance.try_into().expect("four bytes"));
        let start = table.checked_sub(distance.into());
        let start = start.ok_or_else(|| self.file.damaged("the place of an entry"))?;
        let behind = start.saturating_add(ENTRY_HEAD);
        let head = self.file.bytes(start..behind)?;
        let (slot, length) = head.split_first_chunk().expect("an entry has a head");
        let end = behind.saturating_add(u64::from(length[0]));
        let name = self.file.bytes(behind..end)?;
        Ok((name, u64::from_le_bytes(*slot)))
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, link: &Node) -> Result<Option<&[u8]>, SnapshotError> {
        if link.kind != FileKind::Symlink {
            return Ok(None);
        }
        let end = link.place.saturating_add(link.size);
        self.file.bytes(link.place..end).map(Some)
    }
}
