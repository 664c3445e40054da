//! Inodes, byte for byte.

use super::{
    extents::{ExtentTree, INODE_PART},
    geometry::INODE_SIZE,
    records::Record,
};
use crate::{BLOCK_SIZE, Permissions, Timestamp, image::entries::NodeKind};

const REGULAR: u16 = 0o100_000;
const DIRECTORY: u16 = 0o040_000;
const SYMLINK: u16 = 0o120_000;

/// The directory has an index.
const FLAG_INDEX: u32 = 0x1000;
/// The blocks are told by extents.
const FLAG_EXTENTS: u32 = 0x8_0000;

/// Bytes of the fields behind the first 128 that are used.
const EXTRA_SIZE: u16 = 32;

/// The unit in which an inode counts its blocks.
const SECTOR: u64 = 512;

/// Bytes of a link's target that the inode itself can hold.
pub(super) const TARGET_MAX: usize = INODE_PART - 1;

/// Where the contents of an inode are.
pub(super) enum NodeBlocks<'a> {
    Extents(ExtentTree),
    /// The target of a short link, in the inode.
    Target(&'a [u8]),
}

/// An inode to be encoded.
pub(super) struct Inode<'a> {
    pub(super) record: &'a Record,
    pub(super) permissions: Permissions,
}

impl Inode<'_> {
    pub(super) fn encode(&self, blocks: &NodeBlocks<'_>) -> [u8; INODE_SIZE as usize] {
        let mut bytes = [0; INODE_SIZE as usize];
        let record = self.record;
        let Permissions { uid, gid, .. } = self.permissions;
        let sectors = self.sectors(blocks);
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.mode().to_le_bytes());
        put(2, &(uid as u16).to_le_bytes());
        put(4, &(record.size as u32).to_le_bytes());
        put(24, &(gid as u16).to_le_bytes());
        put(26, &record.links.to_le_bytes());
        put(28, &(sectors as u32).to_le_bytes());
        put(32, &self.flags(blocks).to_le_bytes());
        match blocks {
            NodeBlocks::Extents(tree) => put(40, &tree.root),
            NodeBlocks::Target(target) => put(40, target),
        }
        put(108, &((record.size >> 32) as u32).to_le_bytes());
        put(116, &((sectors >> 32) as u16).to_le_bytes());
        put(120, &((uid >> 16) as u16).to_le_bytes());
        put(122, &((gid >> 16) as u16).to_le_bytes());
        put(128, &EXTRA_SIZE.to_le_bytes());
        let (low, high) = time_fields(record.modified);
        // Accessed, changed, modified, created: an object has one time.
        for (at, extra_at) in [(8, 140), (12, 132), (16, 136), (144, 148)] {
            put(at, &low.to_le_bytes());
            put(extra_at, &high.to_le_bytes());
        }
        bytes
    }

    fn mode(&self) -> u16 {
        match self.record.kind {
            NodeKind::File => REGULAR | self.permissions.file_mode,
            NodeKind::Directory => DIRECTORY | self.permissions.directory_mode,
            NodeKind::Symlink => SYMLINK | 0o777,
        }
    }

    fn flags(&self, blocks: &NodeBlocks<'_>) -> u32 {
        let mut flags = 0;
        if self.record.indexed {
            flags |= FLAG_INDEX;
        }
        if matches!(blocks, NodeBlocks::Extents(_)) {
            flags |= FLAG_EXTENTS;
        }
        flags
    }

    fn sectors(&self, blocks: &NodeBlocks<'_>) -> u64 {
        let NodeBlocks::Extents(tree) = blocks else {
            return 0;
        };
        let count = self.record.size.div_ceil(BLOCK_SIZE) + tree.blocks.len() as u64;
        count * (BLOCK_SIZE / SECTOR)
    }
}

/// The low 32 bits of the seconds, and nanoseconds beside two more bits of the seconds. Times
/// that this cannot tell, before 1901 and after 2446, become the first or last that it can.
fn time_fields(time: Timestamp) -> (u32, u32) {
    const FIRST: i64 = i32::MIN as i64;
    let seconds = time.seconds.clamp(FIRST, FIRST + (4 << 32) - 1);
    let low = seconds as i32;
    let epoch = ((seconds - i64::from(low)) >> 32) as u32 & 3;
    (low as u32, epoch | (time.nanoseconds << 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        let fields = |seconds| {
            time_fields(Timestamp {
                seconds,
                nanoseconds: 3,
            })
        };
        assert_eq!(fields(1), (1, 12));
        assert_eq!(fields(-1), (u32::MAX, 12));
        assert_eq!(fields(1 << 31), (1 << 31, 13));
        assert_eq!(fields(i64::MAX), (0x7fff_ffff, 15));
        assert_eq!(fields(i64::MIN), (0x8000_0000, 12));
    }
}
