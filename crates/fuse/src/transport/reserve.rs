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
//! memory for short WRITEs is out, no more than [`TINY_WRITE`] bytes are kept, which count as
//! bookkeeping, and the WRITE waits as a task of its own until there is memory, at most
//! [`MEMORY_WAIT_MAX`]. The thread that received it never waits: somebody must hear the INTERRUPT
//! of who is to die, and the close that frees the memory that all others wait for.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use penstock_base::{
    BLOCK_SIZE, Buffer, BufferPool, FsError, FsResult, KIB, MemoryBudget, Reservation, clock,
    metrics::{Counter, Registry},
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
/// Bytes of a WRITE that are kept when there is no memory for a short one either: no more than
/// what any request costs that waits.
const TINY_WRITE: usize = 512;
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
    shortened: Arc<Counter>,
    _held: Reservation,
}

/// The right to handle a WRITE.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Bytes of it that may be handled: all, or the first few.
    pub(crate) length: usize,
    pub(crate) memory: WriteMemory,
}

/// What pays for the data of a WRITE until the volume has accepted it.
#[derive(Debug, Default)]
pub(crate) enum WriteMemory {
    /// There is no data.
    #[default]
    Nothing,
    /// It is paid for.
    Paid(Reservation),
    /// Memory has to be waited for first.
    Owed(Arc<ReceiveReserve>),
}

impl WriteMemory {
    /// Waits for the memory if it is owed. Fails with [`FsError::OutOfMemory`] when none has come
    /// back for [`MEMORY_WAIT_MAX`].
    pub(crate) async fn paid(self) -> FsResult<Option<Reservation>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Paid(memory) => Ok(Some(memory)),
            Self::Owed(reserve) => reserve.wait().await.map(Some),
        }
    }
}

impl ReceiveReserve {
    /// Bytes that a mount with `threads` takes out of a budget of `total`.
    pub(crate) fn size(threads: usize, total: u64) -> u64 {
        (threads as u64 + in_hand_blocks(total)) * BLOCK_SIZE as u64 + short_size()
    }

    /// Takes the memory out of the pool's budget, or `None` when that has no room.
    pub(crate) fn new(pool: &Arc<BufferPool>, threads: usize, metrics: &Registry) -> Option<Self> {
        let total = pool.budget().total();
        Some(Self {
            pool: Arc::clone(pool),
            in_hand: MemoryBudget::new(in_hand_blocks(total) * BLOCK_SIZE as u64),
            short: MemoryBudget::new(short_size()),
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

    /// Admits a WRITE of `length` bytes, all of it or its beginning. Never waits.
    pub(crate) fn admit(self: &Arc<Self>, length: usize) -> Admitted {
        let paid = |(length, memory)| Admitted {
            length,
            memory: WriteMemory::Paid(memory),
        };
        if let Some(memory) = self.for_all_of(length) {
            return paid((length, memory));
        }
        let short = length.min(SHORT_WRITE);
        let memory = self.short.try_reserve(BufferPool::cost(short));
        let admitted = match memory {
            Some(memory) => paid((short, memory)),
            None => Admitted {
                length: length.min(TINY_WRITE),
                memory: WriteMemory::Owed(Arc::clone(self)),
            },
        };
        self.shortened.add(u64::from(admitted.length < length));
        admitted
    }

    /// Memory that is held for this, or of the whole budget if there is some or if others give
    /// some back when asked.
    fn for_all_of(&self, length: usize) -> Option<Reservation> {
        let cost = BufferPool::cost(length);
        if let Some(memory) = self.in_hand.try_reserve(cost) {
            return Some(memory);
        }
        let asked = pin!(self.pool.budget().reserve(cost));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(memory) => memory.ok(),
            Poll::Pending => None,
        }
    }

    /// Waits until there is memory for a short WRITE. It is not taken from what is held for whole
    /// ones, which bring a store more for the same memory.
    async fn wait(&self) -> FsResult<Reservation> {
        let cost = SHORT_WRITE as u64;
        let memory = async {
            tokio::select! {
                biased;
                memory = self.short.reserve(cost) => memory,
                memory = self.pool.budget().reserve(cost) => memory,
            }
        };
        let waited = clock::deadline(MEMORY_WAIT_MAX, memory).await;
        waited.unwrap_or(Err(FsError::OutOfMemory))
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

    fn reserve(total: u64) -> Arc<ReceiveReserve> {
        let pool = BufferPool::new(MemoryBudget::new(total));
        Arc::new(ReceiveReserve::new(&pool, 1, &Registry::new()).expect("room"))
    }

    #[tokio::test]
    async fn writes_are_shortened_and_never_waited_for() {
        let reserve = reserve(8 * MIB);
        let admit = |length| reserve.admit(length);
        // One block for the thread and two MiB for short ones leave four in hand and one more.
        let whole: Vec<_> = (0..5).map(|_| admit(BLOCK_SIZE)).collect();
        assert!(whole.iter().all(|admitted| admitted.length == BLOCK_SIZE));
        let short: Vec<_> = (0..32).map(|_| admit(BLOCK_SIZE)).collect();
        assert!(short.iter().all(|admitted| admitted.length == SHORT_WRITE));
        let tiny: Vec<_> = (0..1000).map(|_| admit(BLOCK_SIZE)).collect();
        assert!(tiny.iter().all(|admitted| admitted.length == TINY_WRITE));
        drop(whole);
        assert_eq!(admit(BLOCK_SIZE).length, BLOCK_SIZE);
    }

    #[tokio::test]
    async fn small_writes_cost_what_they_hold() {
        let reserve = reserve(8 * MIB);
        let many: Vec<_> = (0..1000).map(|_| reserve.admit(4096)).collect();
        assert!(many.iter().all(|admitted| admitted.length == 4096));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_owed_is_paid_when_memory_returns_or_not_at_all() {
        let reserve = reserve(8 * MIB);
        let mut all: Vec<_> = (0..37).map(|_| reserve.admit(BLOCK_SIZE)).collect();
        let late = reserve.admit(BLOCK_SIZE).memory.paid().await;
        assert_eq!(late.err(), Some(FsError::OutOfMemory));
        let owed = reserve.admit(BLOCK_SIZE).memory.paid();
        all.pop();
        let memory = owed.await.expect("a short one is done");
        assert_eq!(
            memory.map(|memory| memory.bytes()),
            Some(SHORT_WRITE as u64)
        );
    }
}
