//! Memory for object bodies: mapped, huge, and used again.
//!
//! What a body costs is decided here. Bytes are received from the socket straight into a
//! [`Block`] and sent from it by `sendfile`, so nothing is copied in between; what is left is
//! what the kernel does for each page. Three things keep that small (CPU seconds per GiB, measured
//! on two busy cores over loopback):
//!
//! - memory is huge pages: sending costs server and client together 0.3 instead of 0.55, as page
//!   after page of one huge page travels as one piece;
//! - memory is used again, still mapped and present: receiving costs the server 0.25 instead of
//!   0.8, as a fresh page must be found and cleared. Up to a limit free memory is kept;
//! - bodies are received into where they stay: through a buffer and `write` it is 0.55 at best,
//!   with `splice` 0.47.
//!
//! A [`region::Region`] is a file in memory and its mapping; [`blocks::Blocks`] keeps account of
//! which piece is whose. Sent pages may still be on their way to a slow client when their object
//! is gone: a block that may be is *tainted*, and its memory is given up, never used again.
//! Pages that are given up live on until the last byte was read.

mod blocks;
// Slices of a mapping: whose they are is what the account is about.
#[allow(unsafe_code)]
mod region;

use std::{
    fmt,
    fs::File,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use blocks::{Blocks, Freed};
use region::Region;

use crate::sync;

/// Bytes in the largest block: one huge page.
pub(crate) const BLOCK_MAX: u64 = 2 << 20;
/// Bytes in the smallest block: one page.
const BLOCK_MIN: u64 = 4 << 10;
/// Bytes in a region.
const REGION: u64 = 1 << 30;
/// Regions at most: 4 TiB.
const REGIONS_MAX: usize = 4096;
/// Bytes of free memory that are kept if nobody says.
const KEPT_DEFAULT: u64 = 1 << 30;

/// See the module's head.
#[derive(Clone)]
pub(crate) struct Arena {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    blocks: Blocks,
    regions: Vec<Arc<Region>>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        let blocks = Blocks::new(KEPT_DEFAULT / BLOCK_MAX);
        let state = State {
            blocks,
            regions: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
            }),
        }
    }

    /// Makes `bytes` of memory ready, and keeps as much when it becomes free: what is stored
    /// then costs no more the first time than the next.
    pub(crate) fn prepare(&self, bytes: u64) -> io::Result<()> {
        let count = bytes.div_ceil(BLOCK_MAX);
        sync::lock(&self.shared.state)
            .blocks
            .keep(count.max(KEPT_DEFAULT / BLOCK_MAX));
        let ready: Vec<_> = (0..count)
            .map(|_| self.block(BLOCK_MAX))
            .collect::<io::Result<_>>()?;
        drop(ready);
        Ok(())
    }

    /// A block of at least `length` bytes, which is at most [`BLOCK_MAX`], with anything in it.
    pub(crate) fn block(&self, length: u64) -> io::Result<Block> {
        let size = length.clamp(BLOCK_MIN, BLOCK_MAX).next_power_of_two();
        loop {
            let (address, region) = {
                let mut state = sync::lock(&self.shared.state);
                if let Some(address) = state.blocks.take(size) {
                    let region = state.region_of(address);
                    return Ok(Block {
                        arena: self.clone(),
                        region,
                        address,
                        size,
                        tainted: AtomicBool::new(false),
                    });
                }
                let address = state.empty_chunk()?;
                (address, state.region_of(address))
            };
            // Finding and clearing memory takes its time; others need not wait for it.
            let populated = region.populate(address % REGION, BLOCK_MAX);
            let mut state = sync::lock(&self.shared.state);
            match populated {
                Ok(()) => state.blocks.supply(address),
                Err(error) => {
                    state.blocks.add_empty(address);
                    return Err(error);
                }
            }
        }
    }
}

impl State {
    fn region_of(&self, address: u64) -> Arc<Region> {
        Arc::clone(&self.regions[(address / REGION) as usize])
    }

    /// The address of a chunk that has no memory yet.
    fn empty_chunk(&mut self) -> io::Result<u64> {
        if let Some(address) = self.blocks.take_empty() {
            return Ok(address);
        }
        if self.regions.len() == REGIONS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let start = self.regions.len() as u64 * REGION;
        self.regions.push(Arc::new(Region::new(REGION)?));
        for chunk in (0..REGION / BLOCK_MAX).rev() {
            self.blocks.add_empty(start + chunk * BLOCK_MAX);
        }
        self.blocks
            .take_empty()
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

/// A piece of memory that belongs to whoever holds it.
pub(crate) struct Block {
    arena: Arena,
    region: Arc<Region>,
    address: u64,
    size: u64,
    tainted: AtomicBool,
}

impl Block {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The file that the block lies in, and where it begins there.
    pub(crate) fn place(&self) -> (&File, u64) {
        (self.region.file(), self.address % REGION)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.region.bytes(self)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Region::bytes_mut(self)
    }

    /// Says that its pages may be on their way to a client for as long as that likes.
    pub(crate) fn taint(&self) {
        self.tainted.store(true, Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = sync::lock(&self.arena.shared.state);
        let tainted = self.tainted.load(Ordering::Relaxed);
        let Freed::Surplus(address) = state.blocks.give_back(self.address, self.size, tainted)
        else {
            return;
        };
        drop(state);
        if let Err(error) = self.region.discard(address % REGION, BLOCK_MAX) {
            // It stays out of use then, which is safe.
            tracing::warn!(%error, "memory of deleted objects could not be given back");
            return;
        }
        sync::lock(&self.arena.shared.state)
            .blocks
            .add_empty(address);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("address", &self.address)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_is_theirs() {
        let arena = Arena::new();
        let mut blocks = Vec::new();
        for (index, length) in [1, 4096, 5000, 100_000, 2 << 20, 1 << 20, 12]
            .into_iter()
            .cycle()
            .take(60)
            .enumerate()
        {
            let mut block = arena.block(length).expect("memory");
            assert!(block.size() >= length);
            block.bytes_mut().fill(index as u8);
            blocks.push(block);
        }
        for (index, block) in blocks.iter().enumerate() {
            assert!(block.bytes().iter().all(|byte| usize::from(*byte) == index));
        }
        let (file, offset) = blocks[3].place();
        let mut bytes = [0; 10];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, offset).expect("readable");
        assert_eq!(bytes, [3; 10]);
    }

    #[test]
    fn memory_is_used_again_unless_it_may_be_on_its_way() {
        let arena = Arena::new();
        let mut block = arena.block(BLOCK_MAX).expect("memory");
        block.bytes_mut().fill(1);
        let address = block.address;
        drop(block);
        let block = arena.block(BLOCK_MAX).expect("memory");
        assert_eq!((block.address, block.bytes()[0]), (address, 1));
        block.taint();
        drop(block);
        let block = arena.block(BLOCK_MAX).expect("memory");
        assert_eq!(block.bytes()[0], 0, "fresh memory is zero");
    }
}
