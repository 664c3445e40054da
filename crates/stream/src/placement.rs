//! Which blocks of which disk an object occupies.
//!
//! Objects are spread over the disks in turns, so that readers of neighbouring objects do not
//! queue behind one another at one disk, and lie back to back on each. An object never lies on
//! two disks.

use crate::BLOCK_SIZE;

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
    pub fn place(&mut self, size: u64) -> BlockAddress {
        let disk = self.next;
        self.next = (disk + 1) % self.free.len();
        let block = self.free[disk];
        self.free[disk] += size.div_ceil(BLOCK_SIZE);
        BlockAddress {
            disk: disk as u16,
            block,
        }
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
}
