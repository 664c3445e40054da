//! The account of memory: which blocks are free.
//!
//! Memory comes in chunks of [`BLOCK_MAX`]. A chunk is *empty* while it has no memory. One that
//! has is split in halves until a half is as small as wanted, and halves that are free again
//! are joined. Whole free chunks are kept up to a limit; more are surplus.
//!
//! A chunk that got a tainted block back hands out nothing any more; when all its blocks are
//! back it is surplus.

use std::collections::{BTreeMap, BTreeSet};

use super::{BLOCK_MAX, BLOCK_MIN};

/// Sizes of blocks, each twice the one before.
const ORDERS: usize = (BLOCK_MAX / BLOCK_MIN).ilog2() as usize + 1;

/// What came of giving a block back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    Kept,
    /// The memory of this chunk is to be discarded; it is then empty.
    Surplus(u64),
}

/// A chunk that has memory.
#[derive(Debug, Default)]
struct Chunk {
    /// Bytes in blocks that are not back.
    used: u64,
    tainted: bool,
}

/// See the module's head. Addresses count bytes over all regions.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Free blocks by size, smallest first.
    free: [BTreeSet<u64>; ORDERS],
    chunks: BTreeMap<u64, Chunk>,
    empty: Vec<u64>,
    /// Whole free chunks to keep.
    kept_max: u64,
}

fn order_of(size: u64) -> usize {
    (size / BLOCK_MIN).ilog2() as usize
}

fn chunk_of(address: u64) -> u64 {
    address / BLOCK_MAX * BLOCK_MAX
}

impl Blocks {
    pub(super) fn new(kept_max: u64) -> Self {
        Self {
            free: std::array::from_fn(|_| BTreeSet::new()),
            chunks: BTreeMap::new(),
            empty: Vec::new(),
            kept_max,
        }
    }

    /// Changes how many free chunks are kept.
    pub(super) fn keep(&mut self, chunks: u64) {
        self.kept_max = chunks;
    }

    /// Takes a block of `size`, a power of two; `None` if a chunk must be supplied first.
    pub(super) fn take(&mut self, size: u64) -> Option<u64> {
        let wanted = order_of(size);
        let found = (wanted..ORDERS).find(|order| !self.free[*order].is_empty())?;
        let address = self.free[found].pop_first()?;
        for order in (wanted..found).rev() {
            self.free[order].insert(address + (BLOCK_MIN << order));
        }
        self.chunks.entry(chunk_of(address)).or_default().used += size;
        Some(address)
    }

    /// Takes a chunk that has no memory, to give it some.
    pub(super) fn take_empty(&mut self) -> Option<u64> {
        self.empty.pop()
    }

    pub(super) fn add_empty(&mut self, address: u64) {
        self.empty.push(address);
    }

    /// Adds a chunk that has memory now.
    pub(super) fn supply(&mut self, address: u64) {
        self.chunks.insert(address, Chunk::default());
        self.free[ORDERS - 1].insert(address);
    }

    pub(super) fn give_back(&mut self, address: u64, size: u64, tainted: bool) -> Freed {
        let start = chunk_of(address);
        let chunk = self.chunks.entry(start).or_default();
        chunk.used -= size;
        if tainted && !chunk.tainted {
            chunk.tainted = true;
            for blocks in &mut self.free {
                blocks.retain(|block| chunk_of(*block) != start);
            }
        }
        match (chunk.tainted, chunk.used) {
            (true, 0) => self.surplus(start),
            (true, _) => Freed::Kept,
            (false, _) => self.join(address, order_of(size)),
        }
    }

    fn surplus(&mut self, chunk: u64) -> Freed {
        self.chunks.remove(&chunk);
        Freed::Surplus(chunk)
    }

    /// Makes a block free, together with its other half if that is free too, and so on.
    fn join(&mut self, mut address: u64, mut order: usize) -> Freed {
        while order + 1 < ORDERS {
            let size = BLOCK_MIN << order;
            if !self.free[order].remove(&(address ^ size)) {
                break;
            }
            address &= !size;
            order += 1;
        }
        if order + 1 == ORDERS && self.free[order].len() as u64 >= self.kept_max {
            return self.surplus(address);
        }
        self.free[order].insert(address);
        Freed::Kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes a block, supplying chunks in order as needed.
    fn take(blocks: &mut Blocks, size: u64, next: &mut u64) -> u64 {
        loop {
            if let Some(address) = blocks.take(size) {
                return address;
            }
            let chunk = blocks.take_empty().unwrap_or_else(|| {
                *next += BLOCK_MAX;
                *next - BLOCK_MAX
            });
            blocks.supply(chunk);
        }
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((0..ORDERS, any::<prop::sample::Index>(), 0..10u8), 1..200),
        ) {
            let mut blocks = Blocks::new(2);
            let mut next = 0;
            let mut held: BTreeMap<u64, u64> = BTreeMap::new();
            for (order, index, kind) in steps {
                if kind < 5 || held.is_empty() {
                    let size = BLOCK_MIN << order;
                    let address = take(&mut blocks, size, &mut next);
                    prop_assert_eq!(address % size, 0);
                    let before = held.range(..=address).next_back().map(|(start, size)| start + size);
                    prop_assert!(before.is_none_or(|end| end <= address));
                    let after = held.range(address..).next().map(|(start, _)| *start);
                    prop_assert!(after.is_none_or(|start| address + size <= start));
                    held.insert(address, size);
                } else {
                    let address = *index.get(&held.keys().copied().collect::<Vec<_>>());
                    let size = held.remove(&address).expect("held");
                    if let Freed::Surplus(chunk) = blocks.give_back(address, size, kind == 9) {
                        prop_assert!(held.keys().all(|address| chunk_of(*address) != chunk));
                        blocks.add_empty(chunk);
                    }
                }
            }
            for (address, size) in held {
                if let Freed::Surplus(chunk) = blocks.give_back(address, size, false) {
                    blocks.add_empty(chunk);
                }
            }
            let whole = blocks.free[ORDERS - 1].len() as u64;
            prop_assert!(whole <= 2);
            prop_assert!(blocks.free[..ORDERS - 1].iter().all(BTreeSet::is_empty));
            prop_assert_eq!((whole + blocks.empty.len() as u64) * BLOCK_MAX, next);
        }
    }
}
