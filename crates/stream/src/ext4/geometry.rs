//! Where everything lies, once it is known how much there is.

use std::io;

use crate::BLOCK_SIZE;

/// Blocks of a group: as many as a bitmap of one block has bits.
pub(super) const GROUP_BLOCKS: u64 = 8 * BLOCK_SIZE;
/// Inodes of a group, at most.
const GROUP_INODES_MAX: u64 = 8 * BLOCK_SIZE;

/// Bytes of a group's descriptor.
pub(super) const DESCRIPTOR_SIZE: u64 = 64;
/// Groups that 32 bits of block numbers have: 16 TiB.
const GROUPS_MAX: u64 = (1 << 32) / GROUP_BLOCKS;

/// The first block behind the room for descriptors, where directories begin.
pub(super) const FIRST_DIRECTORY: u64 = 1 + GROUPS_MAX * DESCRIPTOR_SIZE / BLOCK_SIZE;

/// Bytes of an inode.
pub(super) const INODE_SIZE: u64 = 256;
/// Inodes in a block. Tables have whole blocks.
const BLOCK_INODES: u64 = BLOCK_SIZE / INODE_SIZE;

/// The numbers of the file system, and the first blocks of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) groups: u64,
    /// Inodes of each group.
    pub(super) group_inodes: u64,
    /// Inodes that are used, with the reserved ones; they are the first.
    pub(super) used_inodes: u64,
    /// Blocks of the device.
    pub(super) blocks: u64,
    pub(super) extents_start: u64,
    pub(super) tables_start: u64,
    pub(super) block_bitmaps_start: u64,
    pub(super) inode_bitmaps_start: u64,
    /// The first block behind all that is not data.
    pub(super) metadata_end: u64,
    pub(super) data_start: u64,
}

impl Geometry {
    /// For inodes up to `last_inode` and directories up to the block `directories_end`.
    pub(super) fn new(
        last_inode: u32,
        directories_end: u64,
        extent_blocks: u64,
        data_blocks: u64,
    ) -> io::Result<Self> {
        let inodes = u64::from(last_inode);
        let tables_start = directories_end + extent_blocks;
        let mut groups = inodes
            .div_ceil(GROUP_INODES_MAX)
            .max((tables_start + data_blocks).div_ceil(GROUP_BLOCKS));
        loop {
            let group_inodes = inodes.div_ceil(groups).next_multiple_of(BLOCK_INODES);
            let block_bitmaps_start = tables_start + groups * (group_inodes / BLOCK_INODES);
            let inode_bitmaps_start = block_bitmaps_start + groups;
            let metadata_end = inode_bitmaps_start + groups;
            let needed = (metadata_end + data_blocks).div_ceil(GROUP_BLOCKS);
            if needed.max(groups) > GROUPS_MAX || inodes > u64::from(u32::MAX) {
                return Err(io::Error::other(
                    "the volume is larger than the 16 TiB of an ext4 image; use EROFS",
                ));
            }
            if needed > groups {
                groups = needed;
                continue;
            }
            // Where inodes need more groups than blocks do, a hole in front of the data fills up.
            let least = (groups - 1) * GROUP_BLOCKS + 1;
            let blocks = (metadata_end + data_blocks).max(least);
            return Ok(Self {
                groups,
                group_inodes,
                used_inodes: inodes,
                blocks,
                extents_start: directories_end,
                tables_start,
                block_bitmaps_start,
                inode_bitmaps_start,
                metadata_end,
                data_start: blocks - data_blocks,
            });
        }
    }

    /// Blocks of the descriptors.
    pub(super) fn descriptor_blocks(&self) -> u64 {
        (self.groups * DESCRIPTOR_SIZE).div_ceil(BLOCK_SIZE)
    }

    /// The first block of a group's inode table.
    pub(super) fn table(&self, group: u64) -> u64 {
        self.tables_start + group * (self.group_inodes / BLOCK_INODES)
    }

    /// Where an inode lies. Tables follow one another, so all inodes lie in a row.
    pub(super) fn inode_position(&self, number: u32) -> u64 {
        self.tables_start * BLOCK_SIZE + u64::from(number - 1) * INODE_SIZE
    }

    pub(super) fn group_of(&self, inode: u32) -> u64 {
        u64::from(inode - 1) / self.group_inodes
    }

    /// Inodes of a group that are used.
    pub(super) fn inodes_used_in(&self, group: u64) -> u64 {
        let before = group * self.group_inodes;
        self.used_inodes
            .saturating_sub(before)
            .min(self.group_inodes)
    }

    /// Inodes of all groups.
    pub(super) fn inodes(&self) -> u64 {
        self.groups * self.group_inodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_and_hold_what_they_must() {
        for inodes in [11, 1000, 40_000, 10_000_000] {
            for data_blocks in [0, 1, 40_000, 1 << 30] {
                let geometry =
                    Geometry::new(inodes, FIRST_DIRECTORY + 7, 3, data_blocks).expect("fits");
                assert!(geometry.inodes() >= u64::from(inodes));
                assert!(geometry.group_inodes <= GROUP_INODES_MAX);
                assert_eq!(geometry.blocks.div_ceil(GROUP_BLOCKS), geometry.groups);
                assert_eq!(geometry.data_start + data_blocks, geometry.blocks);
                assert!(geometry.metadata_end <= geometry.data_start);
                assert!(geometry.descriptor_blocks() < FIRST_DIRECTORY);
                let used = (0..geometry.groups).map(|group| geometry.inodes_used_in(group));
                assert_eq!(used.sum::<u64>(), u64::from(inodes));
            }
        }
        let error = Geometry::new(11, FIRST_DIRECTORY, 0, 1 << 32).expect_err("too large");
        assert!(error.to_string().contains("use EROFS"));
    }
}
