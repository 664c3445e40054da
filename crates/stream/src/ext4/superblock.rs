//! The superblock.

use super::{FIRST_FREE, Geometry, geometry, hash};

/// Where the superblock lies.
pub(super) const START: u64 = 1024;
const SIZE: usize = 1024;
const MAGIC: u16 = 0xef53;

/// Indexed directories, and no copies of the superblock but those that are listed.
const COMPATIBLE: u32 = 0x20 | 0x200;
/// Entries tell what they lead to, extents, 64-bit descriptors, bitmaps anywhere.
const INCOMPATIBLE: u32 = 0x2 | 0x40 | 0x80 | 0x200;
/// Large files, block counts of 48 bits, uncounted links of directories, inodes of 256 bytes.
const READ_ONLY_COMPATIBLE: u32 = 0x2 | 0x8 | 0x20 | 0x40;

/// Blocks are 2^(10 + this) bytes.
const LOG_BLOCK_SIZE: u32 = 2;
/// Any number does where nothing is allocated.
const LOG_GROUPS_PER_FLEX: u8 = 4;
/// The hash takes bytes as numbers without sign.
const FLAG_UNSIGNED_HASH: u32 = 2;

/// What the superblock says.
pub(super) struct Superblock<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) free_blocks: u64,
    pub(super) uuid: [u8; 16],
    pub(super) volume_name: &'a str,
}

impl Superblock<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        self.put_numbers(&mut bytes);
        self.put_features(&mut bytes);
        bytes
    }

    fn put_numbers(&self, bytes: &mut [u8]) {
        let geometry = self.geometry;
        let free_inodes = geometry.inodes() - geometry.used_inodes;
        let mut put = |at: usize, number: u64| {
            bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        };
        put(0, geometry.inodes());
        put(4, geometry.blocks);
        put(12, self.free_blocks);
        put(16, free_inodes);
        put(24, u64::from(LOG_BLOCK_SIZE));
        put(28, u64::from(LOG_BLOCK_SIZE));
        put(32, geometry::GROUP_BLOCKS);
        put(36, geometry::GROUP_BLOCKS);
        put(40, geometry.group_inodes);
        put(336, geometry.blocks >> 32);
        put(344, self.free_blocks >> 32);
    }

    fn put_features(&self, bytes: &mut [u8]) {
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        // Never checked because of its age or mounts.
        put(54, &u16::MAX.to_le_bytes());
        put(56, &MAGIC.to_le_bytes());
        // Clean; errors are only noted.
        put(58, &1_u16.to_le_bytes());
        put(60, &1_u16.to_le_bytes());
        put(76, &1_u32.to_le_bytes());
        put(84, &FIRST_FREE.to_le_bytes());
        put(88, &(geometry::INODE_SIZE as u16).to_le_bytes());
        put(92, &COMPATIBLE.to_le_bytes());
        put(96, &INCOMPATIBLE.to_le_bytes());
        put(100, &READ_ONLY_COMPATIBLE.to_le_bytes());
        put(104, &crate::image::uuid(self.uuid));
        put(120, crate::image::name_field(self.volume_name, 16));
        for (index, word) in hash::SEED.iter().enumerate() {
            put(236 + 4 * index, &word.to_le_bytes());
        }
        put(252, &[hash::VERSION]);
        put(254, &(geometry::DESCRIPTOR_SIZE as u16).to_le_bytes());
        // Bytes behind the first 128 of an inode that are used, and should be.
        put(348, &32_u16.to_le_bytes());
        put(350, &32_u16.to_le_bytes());
        put(352, &FLAG_UNSIGNED_HASH.to_le_bytes());
        put(372, &[LOG_GROUPS_PER_FLEX]);
    }
}
