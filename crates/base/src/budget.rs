//! The one account of memory.
//!
//! Every buffer, window and cache holds a [`Reservation`] for the bytes it occupies, so the sum
//! never exceeds what the user allowed. There are three ways to ask:
//!
//! - [`MemoryBudget::try_reserve_spare`] for what is kept because it may be asked for again (names,
//!   listings), and for what has memory of its own that does for the worst (saves, writes that wait on
//!   a disk): a part of the budget is never given to it, so that whatever must go on finds some.
//! - [`MemoryBudget::try_reserve`] for what is merely useful (read-ahead): short memory means no.
//! - [`MemoryBudget::reserve`] for what a caller waits for (a demanded read, a write): waits in
//!   line, and asks the registered [`Reclaim`]ers again and again to give back what nobody waits
//!   for: bytes that somebody was still waiting for a moment ago may be idle now.
//!
//! The line is first come, first served, so a large request cannot starve. Reclaimers hold only
//! memory that can be dropped at once (prefetched bytes that nobody asked for yet), therefore a
//! demanded read can always go on while other handles sit idle.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{FsError, FsResult, Mutex, clock};

/// Bytes are accounted in pages, which keeps a large budget within a semaphore's range.
pub(crate) const PAGE: u64 = 4096;

/// How long a waiter waits before it asks the reclaimers again.
const RECLAIM_PERIOD: Duration = Duration::from_millis(20);

/// How often who waits for spare memory looks.
const SPARE_PERIOD: Duration = Duration::from_millis(20);

/// The part of the budget that [`MemoryBudget::try_reserve_spare`] leaves free: one in this many.
const KEPT_FREE_SHARE: u64 = 4;

/// Something that can give memory back when others wait for it.
pub trait Reclaim: Send + Sync {
    /// Drops memory that nobody waits for, about `bytes` of it, and returns how much that was.
    /// Must not block and must not reserve memory.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// A fixed number of bytes that buffers and caches share.
pub struct MemoryBudget {
    total: u64,
    pages: Arc<Semaphore>,
    peak: AtomicU64,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl MemoryBudget {
    /// A budget of `total` bytes, rounded down to whole pages.
    pub fn new(total: u64) -> Arc<Self> {
        let pages = usize::try_from(total / PAGE).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            total: total / PAGE * PAGE,
            pages: Arc::new(Semaphore::new(pages.min(Semaphore::MAX_PERMITS))),
            peak: AtomicU64::new(0),
            reclaimers: Mutex::default(),
        })
    }

    /// Bytes in the whole budget.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.total - self.available()
    }

    /// Bytes that could be reserved now.
    pub fn available(&self) -> u64 {
        self.pages.available_permits() as u64 * PAGE
    }

    /// The most bytes that were ever reserved at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Registers somebody who can give memory back. Dropped reclaimers are forgotten.
    pub fn register(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.reclaimers.lock();
        reclaimers.retain(|known| known.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    /// Reserves `bytes` if they are free right now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        let permit = Arc::clone(&self.pages)
            .try_acquire_many_owned(pages_of(bytes)?)
            .ok()?;
        Some(self.granted(permit))
    }

    /// Reserves `bytes` if they are free right now and a quarter of the budget still is then.
    pub fn try_reserve_spare(&self, bytes: u64) -> Option<Reservation> {
        let reservation = self.try_reserve(bytes)?;
        (self.available() >= self.total / KEPT_FREE_SHARE).then_some(reservation)
    }

    /// The same, waiting until there is as much. Who waits so stands in nobody's way, and gets nothing as
    /// long as others take what becomes free.
    pub async fn reserve_spare(&self, bytes: u64) -> Reservation {
        loop {
            if let Some(reservation) = self.try_reserve_spare(bytes) {
                return reservation;
            }
            clock::sleep(SPARE_PERIOD).await;
        }
    }

    /// Reserves `bytes`, waiting until others have given them back.
    ///
    /// Fails with [`FsError::OutOfMemory`] only when the whole budget is smaller than `bytes`.
    /// Dropping the future leaves the line.
    pub async fn reserve(&self, bytes: u64) -> FsResult<Reservation> {
        if bytes > self.total {
            return Err(FsError::OutOfMemory);
        }
        if let Some(reservation) = self.try_reserve(bytes) {
            return Ok(reservation);
        }
        let pages = pages_of(bytes).ok_or(FsError::OutOfMemory)?;
        let turn = Arc::clone(&self.pages).acquire_many_owned(pages);
        tokio::pin!(turn);
        loop {
            self.ask_reclaimers(bytes);
            if let Ok(permit) = clock::deadline(RECLAIM_PERIOD, turn.as_mut()).await {
                return permit
                    .map(|permit| self.granted(permit))
                    .map_err(|_| FsError::OutOfMemory);
            }
        }
    }

    fn granted(&self, permit: OwnedSemaphorePermit) -> Reservation {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
        Reservation { permit }
    }

    fn ask_reclaimers(&self, bytes: u64) {
        let reclaimers: Vec<_> = {
            let known = self.reclaimers.lock();
            known.iter().filter_map(Weak::upgrade).collect()
        };
        let mut missing = bytes;
        for reclaimer in reclaimers {
            missing = missing.saturating_sub(reclaimer.reclaim(missing));
            if missing == 0 {
                break;
            }
        }
    }
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("total", &self.total)
            .field("used", &self.used())
            .field("peak", &self.peak())
            .finish_non_exhaustive()
    }
}

fn pages_of(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(PAGE)).ok()
}

/// Memory that its holder may use; returned to the budget on drop.
#[derive(Debug)]
pub struct Reservation {
    permit: OwnedSemaphorePermit,
}

impl Reservation {
    /// Bytes held, in whole pages.
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64 * PAGE
    }

    /// Takes `bytes` (rounded up to pages) out into a reservation of its own, or `None` when
    /// fewer are held.
    pub fn split(&mut self, bytes: u64) -> Option<Reservation> {
        let pages = pages_of(bytes)? as usize;
        self.permit
            .split(pages)
            .map(|permit| Reservation { permit })
    }

    /// Joins `other`, which must be of the same budget.
    pub fn merge(&mut self, other: Reservation) {
        self.permit.merge(other.permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;

    #[tokio::test]
    async fn never_grants_more_than_the_total() {
        let budget = MemoryBudget::new(4 * MIB);
        let first = budget.try_reserve(3 * MIB).expect("three of four are free");
        assert!(budget.try_reserve(2 * MIB).is_none());
        assert_eq!(budget.used(), 3 * MIB);
        drop(first);
        assert_eq!((budget.used(), budget.peak()), (0, 3 * MIB));
    }

    #[tokio::test]
    async fn what_is_merely_kept_leaves_a_quarter_free() {
        let budget = MemoryBudget::new(4 * MIB);
        let kept = budget.try_reserve_spare(3 * MIB);
        assert!(kept.is_some());
        assert!(budget.try_reserve_spare(4096).is_none());
        assert_eq!(budget.available(), MIB);
        assert!(budget.try_reserve(MIB).is_some());
    }

    #[tokio::test]
    async fn a_waiter_is_served_when_memory_returns() {
        let budget = MemoryBudget::new(MIB);
        let held = budget.reserve(MIB).await.expect("all is free");
        let waiting = budget.reserve(MIB);
        tokio::pin!(waiting);
        assert!(futures_poll_once(waiting.as_mut()).await.is_none());
        drop(held);
        assert_eq!(waiting.await.expect("memory came back").bytes(), MIB);
    }

    #[tokio::test]
    async fn asks_reclaimers_before_it_waits() {
        struct Idle(Mutex<Option<Reservation>>);
        impl Reclaim for Idle {
            fn reclaim(&self, _bytes: u64) -> u64 {
                let taken = self.0.lock().take();
                taken.map_or(0, |reservation| reservation.bytes())
            }
        }
        let budget = MemoryBudget::new(MIB);
        let idle = Arc::new(Idle(Mutex::new(budget.try_reserve(MIB))));
        let weak: Weak<dyn Reclaim> = Arc::downgrade(&(Arc::clone(&idle) as Arc<dyn Reclaim>));
        budget.register(weak);
        assert_eq!(budget.reserve(MIB).await.expect("reclaimed").bytes(), MIB);
    }

    #[tokio::test]
    async fn asks_again_for_what_becomes_idle_while_it_waits() {
        struct BusyAtFirst(Mutex<(u32, Option<Reservation>)>);
        impl Reclaim for BusyAtFirst {
            fn reclaim(&self, _bytes: u64) -> u64 {
                let mut asked = self.0.lock();
                asked.0 += 1;
                let idle = if asked.0 > 2 { asked.1.take() } else { None };
                idle.map_or(0, |reservation| reservation.bytes())
            }
        }
        let budget = MemoryBudget::new(MIB);
        let held = BusyAtFirst(Mutex::new((0, budget.try_reserve(MIB))));
        let holder: Arc<dyn Reclaim> = Arc::new(held);
        budget.register(Arc::downgrade(&holder));
        assert_eq!(budget.reserve(MIB).await.expect("reclaimed").bytes(), MIB);
    }

    #[tokio::test]
    async fn refuses_what_can_never_fit() {
        let budget = MemoryBudget::new(MIB);
        assert_eq!(
            budget.reserve(2 * MIB).await.err(),
            Some(FsError::OutOfMemory)
        );
    }

    async fn futures_poll_once<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! { biased; output = future => Some(output), () = std::future::ready(()) => None }
    }
}
