//! Memory for requests that are being received and for WRITEs that are being handled.
//!
//! All of it is taken out of the mount's budget at the start and never grows:
//!
//! - A block of one mebibyte per receiving thread, to receive into.
//! - Memory for the data of WRITEs *in hand*: from their arrival until the volume has accepted
//!   them. A volume that keeps the data pays for it before it accepts, so memory is paid for
//!   once and at every moment, and what is in hand comes back as fast as the volume accepts.
//!
//! When a store is slower than its writers, volumes accept slowly and what is in hand adds up: one
//! WRITE per writer. Then the budget is asked for more; when that is exhausted too, a WRITE is
//! *shortened*: its first [`SHORT_WRITE`] bytes are handled and the rest is left to the program
//! to write again, as write(2) allows. So many more writers can wait at the same time, and a
//! writer that could free memory is not stuck behind those that wait for it. When even the
//! memory for short WRITEs is out, the thread waits, at most [`MEMORY_WAIT_MAX`]. All threads may
//! wait like this at once and then hear no INTERRUPT, so each looks itself whether its writer is
//! about to die.

use std::{sync::Arc, time::Duration};

use penstock_base::{
    BLOCK_SIZE, Buffer, BufferPool, FsError, FsResult, KIB, MemoryBudget, Reservation, clock,
    metrics::{Counter, Registry},
};
use tokio::runtime::Handle;

use crate::{
    errno::{Errno, errno_of},
    signals,
};

/// The fewest and the most blocks for WRITEs in hand.
const IN_HAND_MIN: u64 = 4;
const IN_HAND_MAX: u64 = 32;
/// The part of the budget that WRITEs in hand may take between those: one in this many.
const IN_HAND_SHARE: u64 = 16;
/// Bytes of a WRITE that are handled when there is no memory for all of it.
const SHORT_WRITE: usize = 64 * KIB as usize;
/// Short WRITEs that may be in hand.
const SHORT_WRITES_MAX: u64 = 32;
/// How long a WRITE waits for memory before it fails with `ENOMEM`.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(20);

/// Memory for requests that are being received and for WRITEs that are being handled.
#[derive(Debug)]
pub(crate) struct ReceiveReserve {
    pool: Arc<BufferPool>,
    /// Hands out parts of `held`.
    in_hand: Arc<MemoryBudget>,
    /// Hands out parts of `held`, to short WRITEs.
    short: Arc<MemoryBudget>,
    runtime: Handle,
    shortened: Arc<Counter>,
    _held: Reservation,
}

/// The right to handle a WRITE.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Bytes of it that may be handled: all, or the first few.
    pub(crate) length: usize,
    /// To be held until the volume has accepted them.
    pub(crate) memory: Reservation,
}

impl ReceiveReserve {
    /// Bytes that a mount with `threads` takes out of a budget of `total`.
    pub(crate) fn size(threads: usize, total: u64) -> u64 {
        (threads as u64 + in_hand_blocks(total)) * BLOCK_SIZE as u64 + short_size()
    }

    /// Takes the memory out of the pool's budget, or `None` when that has no room.
    pub(crate) fn new(
        pool: &Arc<BufferPool>,
        threads: usize,
        runtime: Handle,
        metrics: &Registry,
    ) -> Option<Self> {
        let total = pool.budget().total();
        Some(Self {
            pool: Arc::clone(pool),
            in_hand: MemoryBudget::new(in_hand_blocks(total) * BLOCK_SIZE as u64),
            short: MemoryBudget::new(short_size()),
            runtime,
            shortened: metrics.counter(
                "fuse_writes_shortened_total",
                "Writes of which only the beginning was handled, for want of memory.",
                &[],
            ),
            _held: pool.budget().try_reserve(Self::size(threads, total))?,
        })
    }

    /// A buffer that is paid for otherwise: by what is held for threads, or by an [`Admitted`].
    pub(crate) fn buffer(&self, capacity: usize) -> Buffer {
        let nothing = self.in_hand.try_reserve(0);
        let nothing = nothing.expect("nothing is always there");
        self.pool.take_reserved(capacity, nothing)
    }

    /// Admits a WRITE of `length` bytes by `process`. Blocks the calling thread while memory is
    /// short, but not for a process that is about to die.
    pub(crate) fn admit(&self, length: usize, process: u32) -> Result<Admitted, Errno> {
        let cost = BufferPool::cost(length);
        if let Some(memory) = self.in_hand.try_reserve(cost) {
            return Ok(Admitted { length, memory });
        }
        if let Some(memory) = self.runtime.block_on(self.at_once(cost)) {
            return Ok(Admitted { length, memory });
        }
        let length = length.min(SHORT_WRITE);
        self.shortened.increment();
        let waited = clock::deadline(MEMORY_WAIT_MAX, self.wait(length as u64, process));
        let memory = self.runtime.block_on(waited);
        let memory = memory.unwrap_or(Err(FsError::OutOfMemory));
        match memory {
            Ok(memory) => Ok(Admitted { length, memory }),
            Err(error) => Err(errno_of(&error)),
        }
    }

    /// Memory of the whole budget if there is some, or if others give some back when asked.
    async fn at_once(&self, cost: u64) -> Option<Reservation> {
        tokio::select! {
            biased;
            memory = self.pool.budget().reserve(cost) => memory.ok(),
            () = std::future::ready(()) => None,
        }
    }

    async fn wait(&self, cost: u64, process: u32) -> FsResult<Reservation> {
        tokio::select! {
            biased;
            memory = self.short.reserve(cost) => memory,
            memory = self.in_hand.reserve(cost) => memory,
            memory = self.pool.budget().reserve(cost) => memory,
            () = signals::until_dying(process) => Err(FsError::Interrupted),
        }
    }
}

fn in_hand_blocks(total: u64) -> u64 {
    (total / IN_HAND_SHARE / BLOCK_SIZE as u64).clamp(IN_HAND_MIN, IN_HAND_MAX)
}

fn short_size() -> u64 {
    SHORT_WRITES_MAX * SHORT_WRITE as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::MIB;

    fn reserve(total: u64) -> (tokio::runtime::Runtime, ReceiveReserve) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let pool = BufferPool::new(MemoryBudget::new(total));
        let handle = runtime.handle().clone();
        let reserve = ReceiveReserve::new(&pool, 1, handle, &Registry::new()).expect("room");
        (runtime, reserve)
    }

    #[test]
    fn writes_are_shortened_before_they_wait() {
        let (_runtime, reserve) = reserve(8 * MIB);
        let admit = |length| reserve.admit(length, std::process::id()).expect("memory");
        // One block for the thread and two MiB for short ones leave four in hand and one more.
        let whole: Vec<_> = (0..5).map(|_| admit(BLOCK_SIZE)).collect();
        assert!(whole.iter().all(|admitted| admitted.length == BLOCK_SIZE));
        let short: Vec<_> = (0..32).map(|_| admit(BLOCK_SIZE)).collect();
        assert!(short.iter().all(|admitted| admitted.length == SHORT_WRITE));
        drop(whole);
        assert_eq!(admit(BLOCK_SIZE).length, BLOCK_SIZE);
    }

    #[test]
    fn small_writes_cost_what_they_hold() {
        let (_runtime, reserve) = reserve(8 * MIB);
        let admit = || reserve.admit(4096, std::process::id()).expect("memory");
        let many: Vec<_> = (0..1000).map(|_| admit()).collect();
        assert!(many.iter().all(|admitted| admitted.length == 4096));
    }

    #[test]
    fn nobody_waits_for_a_process_that_is_gone() {
        let (_runtime, reserve) = reserve(8 * MIB);
        let admit = |process| reserve.admit(BLOCK_SIZE, process);
        let _all: Vec<_> = (0..37).map(|_| admit(std::process::id())).collect();
        // No process has the number 0.
        assert_eq!(admit(0).err(), Some(Errno(libc::EINTR)));
    }
}
