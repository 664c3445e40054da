//! Extent trees: which blocks a file has. All files here lie in one piece, but an extent has at
//! most 32,768 blocks, so a file over 512 MiB has more of them than an inode can hold.

use crate::BLOCK_SIZE;

/// Blocks of an extent, at most: 128 MiB.
const EXTENT_BLOCKS_MAX: u64 = 32_768;
/// Blocks of a file, at most.
pub(super) const FILE_BLOCKS_MAX: u64 = (1 << 32) - 1;

const MAGIC: u16 = 0xf30a;
/// Bytes of the head of a node, and of each of its entries.
const PIECE: usize = 12;
/// Entries that fit into an inode.
const INODE_ENTRIES: usize = 4;
/// Entries that fit into a block.
const BLOCK_ENTRIES: usize = (BLOCK_SIZE as usize - PIECE) / PIECE;

/// The part of a tree that lies in the inode.
pub(super) const INODE_PART: usize = PIECE * (1 + INODE_ENTRIES);

/// A tree as it lies in the image.
#[derive(Debug)]
pub(super) struct ExtentTree {
    /// In the inode.
    pub(super) root: [u8; INODE_PART],
    /// The blocks of the tree itself.
    pub(super) blocks: Vec<Vec<u8>>,
}

/// A node's entry with the first block of the file that it is about.
type NodeEntry = (u64, [u8; PIECE]);

impl ExtentTree {
    /// How many blocks the tree of a file with so many blocks has.
    pub(super) fn blocks_for(blocks: u64) -> u64 {
        let mut entries = blocks.div_ceil(EXTENT_BLOCKS_MAX);
        let mut needed = 0;
        while entries > INODE_ENTRIES as u64 {
            entries = entries.div_ceil(BLOCK_ENTRIES as u64);
            needed += entries;
        }
        needed
    }

    /// Of `count` blocks from `start` on; its own blocks begin at `place`.
    pub(super) fn build(start: u64, count: u64, place: u64) -> Self {
        let mut entries: Vec<NodeEntry> = (0..count)
            .step_by(EXTENT_BLOCKS_MAX as usize)
            .map(|logical| (logical, extent(logical, start + logical, count - logical)))
            .collect();
        let mut blocks = Vec::new();
        let mut depth = 0;
        while entries.len() > INODE_ENTRIES {
            let first = place + blocks.len() as u64;
            let mut above = Vec::new();
            for (index, group) in entries.chunks(BLOCK_ENTRIES).enumerate() {
                let mut block = node(group, BLOCK_ENTRIES, depth);
                block.resize(BLOCK_SIZE as usize, 0);
                blocks.push(block);
                let logical = group[0].0;
                above.push((logical, index_entry(logical, first + index as u64)));
            }
            entries = above;
            depth += 1;
        }
        let bytes = node(&entries, INODE_ENTRIES, depth);
        let mut root = [0; INODE_PART];
        root[..bytes.len()].copy_from_slice(&bytes);
        Self { root, blocks }
    }
}

fn node(entries: &[NodeEntry], room: usize, depth: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PIECE * (1 + entries.len()));
    for field in [MAGIC, entries.len() as u16, room as u16, depth] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    for (_, entry) in entries {
        bytes.extend_from_slice(entry);
    }
    bytes
}

fn extent(logical: u64, physical: u64, left: u64) -> [u8; PIECE] {
    let length = left.min(EXTENT_BLOCKS_MAX) as u16;
    let mut bytes = [0; PIECE];
    bytes[..4].copy_from_slice(&(logical as u32).to_le_bytes());
    bytes[4..6].copy_from_slice(&length.to_le_bytes());
    bytes[6..8].copy_from_slice(&((physical >> 32) as u16).to_le_bytes());
    bytes[8..].copy_from_slice(&(physical as u32).to_le_bytes());
    bytes
}

fn index_entry(logical: u64, block: u64) -> [u8; PIECE] {
    let mut bytes = [0; PIECE];
    bytes[..4].copy_from_slice(&(logical as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(block as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&((block >> 32) as u16).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_as_many_blocks_as_was_said() {
        for extents in [0, 1, 4, 5, 340, 341, 1360, 1361, 100_000] {
            let count = extents * EXTENT_BLOCKS_MAX;
            let tree = ExtentTree::build(7, count, 9);
            assert_eq!(tree.blocks.len() as u64, ExtentTree::blocks_for(count));
            assert!(tree.blocks.iter().all(|block| block.len() == 4096));
        }
    }
}
