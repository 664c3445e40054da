//! The bytes of a node.
//!
//! ```text
//! kind 1 | unused 1 | disk 2 | nanoseconds 4 | seconds 8 | size 8 | place 8
//! ```
//!
//! | kind | size | place |
//! |---|---|---|
//! | file | bytes | its first block on the disk |
//! | directory | entries | where its table of entries lies in the index |
//! | symbolic link | bytes of the target | where that lies in the index |

use penstock_vfs::FileKind;

use crate::{BlockAddress, FileNode, Timestamp};

/// Bytes of a node, and what places of nodes are multiples of.
pub(super) const NODE: u64 = 32;

/// A file, directory or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    pub(super) modified: Timestamp,
    pub(super) size: u64,
    pub(super) disk: u16,
    pub(super) place: u64,
}

impl Node {
    pub(super) fn file(node: &FileNode) -> Self {
        Self {
            kind: FileKind::Regular,
            modified: node.modified,
            size: node.size,
            disk: node.start.disk,
            place: node.start.block,
        }
    }

    /// Where a file begins.
    pub(super) fn start(&self) -> Option<BlockAddress> {
        (self.kind == FileKind::Regular).then_some(BlockAddress {
            disk: self.disk,
            block: self.place,
        })
    }

    pub(super) fn encode(&self) -> [u8; NODE as usize] {
        let mut bytes = [0; NODE as usize];
        bytes[0] = match self.kind {
            // An index has no special files.
            FileKind::Regular | FileKind::Special(_) => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
        };
        bytes[2..4].copy_from_slice(&self.disk.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.modified.nanoseconds.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.modified.seconds.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    /// `None` where no node is.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (seconds, rest) = rest.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let kind = match head[0] {
            0 => FileKind::Regular,
            1 => FileKind::Directory,
            2 => FileKind::Symlink,
            _ => return None,
        };
        Some(Self {
            kind,
            disk: u16::from_le_bytes([head[2], head[3]]),
            modified: Timestamp {
                seconds: i64::from_le_bytes(*seconds),
                nanoseconds: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            },
            size: u64::from_le_bytes(*size),
            place: u64::from_le_bytes(rest.try_into().ok()?),
        })
    }
}
