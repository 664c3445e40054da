//! Memory for saves, and whose turn it is to use it.
//!
//! A part of the budget is kept for saves, so that writes which wait for space cannot keep the memory from the
//! save that would make it. A save that finds memory for all it may need elsewhere takes that; the others take
//! turns with what is kept, for several that each have a part of it would wait for each other.

use std::sync::Arc;

use penstock_base::{BLOCK_SIZE, FsResult, MIB, MemoryBudget, Reservation};
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// Bytes of the base version that are fetched at once where memory is short.
pub(super) const FETCH_SHORT: u64 = BLOCK_SIZE as u64;
/// Parts that are put together at once, of all files.
const AT_ONCE: usize = 8;
/// The share of the memory budget that is kept for saves, so that writes which wait for space
/// cannot keep the memory from the save that would make it.
const SAVE_SHARE: u64 = 8;
/// The most that is kept for saves.
const SAVE_MEMORY_MAX: u64 = 32 * MIB;
/// Enough for a part of S3, which has at most twice its smallest size unless the file is very large.
const SAVE_MEMORY_WANTED: u64 = 10 * MIB + FETCH_SHORT;
/// The share of a small budget that may be kept for that.
const SAVE_SHARE_MAX: u64 = 4;

/// Memory for saves. See the module.
#[derive(Debug)]
pub(crate) struct SaveMemory {
    /// What is kept, and what it is taken from.
    kept: Option<(Arc<MemoryBudget>, Reservation)>,
    places: Semaphore,
    /// Of those that do not have all their memory.
    turn: Mutex<()>,
}

/// Bytes of a budget of `total` that are kept for saves.
fn kept_for_saves(total: u64) -> u64 {
    let share = (total / SAVE_SHARE).min(SAVE_MEMORY_MAX);
    share.max(SAVE_MEMORY_WANTED.min(total / SAVE_SHARE_MAX))
}

impl SaveMemory {
    /// Keeps some of `budget`, if it is there.
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        let memory = budget.try_reserve(kept_for_saves(budget.total()));
        Self {
            kept: memory.map(|backing| (MemoryBudget::new(backing.bytes()), backing)),
            places: Semaphore::new(AT_ONCE),
            turn: Mutex::default(),
        }
    }

    /// Waits until one more part may be put together.
    pub(super) async fn place(&self) -> SemaphorePermit<'_> {
        let place = self.places.acquire().await;
        place.expect("the semaphore is never closed")
    }

    /// Waits for the turn of a part that does not have all its memory.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Bytes of the longest body that what is kept holds.
    pub(super) fn longest(&self) -> u64 {
        let kept = self.kept.as_ref();
        kept.map_or(MIB, |(memory, _)| {
            memory.total().saturating_sub(FETCH_SHORT)
        })
    }

    /// Memory for a save which needs `whole` bytes at once at most: from what is kept for saves, or from
    /// `budget`, in whose line only a save stands that is larger than what is kept. A store that is away
    /// has saves hold their memory, and the rest of the volume goes on.
    pub(super) async fn take(
        &self,
        budget: &MemoryBudget,
        bytes: u64,
        whole: u64,
    ) -> FsResult<Reservation> {
        let Some((kept, _)) = &self.kept else {
            return budget.reserve(bytes).await;
        };
        if let Some(memory) = budget.try_reserve_spare(bytes) {
            return Ok(memory);
        }
        if whole > kept.total() {
            return tokio::select! {
                memory = kept.reserve(bytes) => memory,
                memory = budget.reserve(bytes) => memory,
            };
        }
        tokio::select! {
            biased;
            memory = kept.reserve(bytes) => memory,
            memory = budget.reserve_spare(bytes) => Ok(memory),
        }
    }
}
