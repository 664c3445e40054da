//! Memory to receive requests into.
//!
//! Each receiving thread needs a block of one mebibyte at all times, and a WRITE whose data is
//! handed over whole takes its block along, so another is needed at once. New blocks come from
//! the mount's budget while that has room: data on its way into the store is then paid for where
//! all data in flight is. When the budget is exhausted there is a fixed reserve, taken out of the
//! budget at the start, of one block per thread and [`WRITES_IN_HAND`] more. When that is out too,
//! the thread waits for either to come back, and after [`MEMORY_WAIT_MAX`] the WRITE fails with
//! `ENOMEM`: writers wait for memory, but nothing waits for ever. All threads may wait like this at
//! once and then hear no INTERRUPT, so each looks itself whether its writer is about to die.

use std::{sync::Arc, time::Duration};

use penstock_base::{
    BLOCK_SIZE, Buffer, BufferPool, FsError, FsResult, MemoryBudget, Reservation, clock,
};
use tokio::runtime::Handle;

use crate::{
    errno::{Errno, errno_of},
    signals,
};

/// Blocks in the reserve beside those of the threads.
const WRITES_IN_HAND: usize = 4;
/// How long a WRITE waits for memory.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(20);

/// Memory to receive requests into.
#[derive(Debug)]
pub(crate) struct ReceiveReserve {
    pool: Arc<BufferPool>,
    /// Hands out what `held` pays for, so that blocks return to the reserve, not to the budget.
    reserve: Arc<MemoryBudget>,
    runtime: Handle,
    _held: Reservation,
}

impl ReceiveReserve {
    /// Bytes in the reserve for `threads`.
    pub(crate) fn size(threads: usize) -> u64 {
        ((threads + WRITES_IN_HAND) * BLOCK_SIZE) as u64
    }

    /// Takes the reserve out of the pool's budget, or `None` when that has no room.
    pub(crate) fn new(pool: &Arc<BufferPool>, threads: usize, runtime: Handle) -> Option<Self> {
        let size = Self::size(threads);
        Some(Self {
            pool: Arc::clone(pool),
            reserve: MemoryBudget::new(size),
            runtime,
            _held: pool.budget().try_reserve(size)?,
        })
    }

    /// A thread's first block; the reserve was made large enough for one per thread.
    pub(crate) fn first_block(&self) -> Option<Buffer> {
        self.take_reserved(BLOCK_SIZE)
    }

    /// A buffer of at least `capacity` bytes for a WRITE of `process`. Blocks the calling thread
    /// while memory is short, but not for a process that is about to die.
    pub(crate) fn take(&self, capacity: usize, process: u32) -> Result<Buffer, Errno> {
        if let Some(buffer) = self.pool.try_take(capacity) {
            return Ok(buffer);
        }
        if let Some(buffer) = self.take_reserved(capacity) {
            return Ok(buffer);
        }
        let waited = clock::deadline(MEMORY_WAIT_MAX, self.wait(capacity, process));
        let taken = self.runtime.block_on(waited);
        taken
            .unwrap_or(Err(FsError::OutOfMemory))
            .map_err(|error| errno_of(&error))
    }

    fn take_reserved(&self, capacity: usize) -> Option<Buffer> {
        let reservation = self.reserve.try_reserve(BufferPool::cost(capacity))?;
        Some(self.pool.take_reserved(capacity, reservation))
    }

    async fn wait(&self, capacity: usize, process: u32) -> FsResult<Buffer> {
        tokio::select! {
            buffer = self.pool.take(capacity) => buffer,
            reservation = self.reserve.reserve(BufferPool::cost(capacity)) => {
                Ok(self.pool.take_reserved(capacity, reservation?))
            }
            () = signals::until_dying(process) => Err(FsError::Interrupted),
        }
    }
}
