//! Which blocks of which disk an object occupies.
//!
//! Objects are spread over the disks in turns, so that readers of neighbouring objects do not
//! queue behind one another at one disk, and lie back to back on each. An object never lies on
//! two disks. A disk of which an object would make more than [`DISK_BLOCKS_MAX`] is passed over.

use crate::BLOCK_SIZE;

/// Blocks of a disk, at most: images count them in 32 bits.
pub const DISK_BLOCKS_MAX: u64 = u32::MAX as u64;

/// Where the first block of an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress {
    /// The disk, from 0.
    pub disk: u16,
    /// The block on that disk, from 0.
    pub block: u64,
}

/// Gives out blocks in the order in which objects come.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The first free block of each disk.
    free: Vec<u64>,
    next: usize,
}

impl Placement {
    /// Over `disks` disks, at least one, that are all empty.
    pub fn new(disks: u16) -> Self {
        Self {
            free: vec![0; usize::from(disks.max(1))],
            next: 0,
        }
    }

    /// The place of the next object. Objects without bytes have one, too, which is free.
    /// When no disk has room for it, one becomes too large, which the image's writer refuses.
    pub fn place(&mut self, size: u64) -> BlockAddress {
        let blocks = size.div_ceil(BLOCK_SIZE);
        let disk = self.disk_with_room(blocks);
        self.next = (disk + 1) % self.free.len();
        let block = self.free[disk];
        self.free[disk] += blocks;
        BlockAddress {
            disk: disk as u16,
            block,
        }
    }

    /// The disk whose turn it is, or the next one that has room.
    fn disk_with_room(&self, blocks: u64) -> usize {
        let disks = self.free.len();
        let mut turns = (0..disks).map(|turn| (self.next + turn) % disks);
        let has_room = |disk: &usize| self.free[*disk] + blocks <= DISK_BLOCKS_MAX;
        turns.find(has_room).unwrap_or(self.next)
    }

    /// Blocks that are occupied on each disk.
    pub fn blocks(&self) -> &[u64] {
        &self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_lie_back_to_back_on_alternating_disks() {
        let mut placement = Placement::new(2);
        let sizes = [1, 4097, 0, 4096, 10];
        let places = sizes.map(|size| placement.place(size));
        let expected = [(0, 0), (1, 0), (0, 1), (1, 2), (0, 1)];
        assert_eq!(places.map(|place| (place.disk, place.block)), expected);
        assert_eq!(placement.blocks(), [2, 3]);
    }
    #[test]
    fn a_full_disk_is_passed_over() {
        let mut placement = Placement::new(2);
        let mut place = |terabytes: u64| placement.place(terabytes << 40).disk;
        assert_eq!([15, 1, 1, 1].map(&mut place), [0, 1, 1, 1]);
        assert_eq!(place(15), 0, "there is room nowhere");
    }
}
