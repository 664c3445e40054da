//! Small objects in memory, shared by all readers.
//!
//! A small object is fetched whole, once: whoever wants any byte of it while its GET is under way
//! waits for that GET. When the last of those who wait gives up, the GET is given up, too. What
//! arrived is kept until its room is needed, the least recently read first.
//!
//! The cache has a size of its own and pays from the memory budget like everybody else. When
//! others wait for memory it gives back what it keeps; nothing in it is lost for good.
//!
//! Objects may be fetched ahead of their readers (`prefetch`). That never waits for memory, takes
//! at most half of the cache, and leaves the last eighth of the budget to those who wait. What
//! goes away without having been read is counted.

mod compact;
mod slots;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use penstock_base::{Payload, Reclaim, Reservation};
use penstock_transfer::{ObjectVersion, Transfer, TransferResult};

use self::slots::{Evicted, Slots};
use crate::disk::Metrics;

/// The part of the cache that may hold what nobody has read yet: one in so many.
const AHEAD_SHARE: u64 = 2;

/// The part of the budget that is left to those who wait: one in so many.
const LEFT_FREE_SHARE: u64 = 8;

/// A GET under way, driven by whoever waits for it.
pub(crate) type Flight = Shared<BoxFuture<'static, TransferResult<Payload>>>;

/// What a reader finds.
#[derive(Debug)]
pub(crate) enum Found {
    /// The whole object.
    Held(Payload),
    /// Its GET, which may have been begun just now.
    Coming(Flight),
}

/// The objects in memory.
#[derive(Debug)]
pub(crate) struct ObjectCache {
    transfer: Arc<Transfer>,
    metrics: Arc<Metrics>,
    slots: Mutex<Slots>,
    ahead_max: u64,
}

impl ObjectCache {
    /// Keeps at most `capacity` bytes.
    pub(crate) fn new(transfer: Arc<Transfer>, capacity: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        let cache = Arc::new(Self {
            transfer,
            metrics,
            slots: Mutex::new(Slots::new(capacity)),
            ahead_max: capacity / AHEAD_SHARE,
        });
        let reclaim: Arc<dyn Reclaim> = Arc::<Self>::clone(&cache);
        let budget = cache.transfer.pool().budget();
        budget.register(Arc::downgrade(&reclaim));
        cache
    }

    /// The object of a number, whose GET is begun if need be. Without a reader that waits for it
    /// nothing happens.
    pub(crate) fn demand(self: &Arc<Self>, number: u32, version: ObjectVersion) -> Found {
        let mut slots = self.lock();
        let found = slots.find(number);
        if let Some(found) = found {
            drop(slots);
            match found {
                Found::Held(_) => self.metrics.cache_hits.increment(),
                Found::Coming(_) => self.metrics.shared_gets.increment(),
            }
            return found;
        }
        self.metrics.cache_misses.increment();
        let landing = self.begin(&mut slots, number);
        let flight = landing.fetch(version, None).boxed().shared();
        slots.is_coming(number, &flight, 0);
        Found::Coming(flight)
    }

    /// Begins to fetch an object that nobody asked for yet, unless it is there. `None` when there
    /// is no room for it.
    pub(crate) fn ahead(
        self: &Arc<Self>,
        number: u32,
        version: ObjectVersion,
    ) -> Option<Option<Flight>> {
        let mut slots = self.lock();
        if slots.contains(number) {
            return Some(None);
        }
        let cost = Transfer::cost(version.size);
        if slots.ahead() + cost > self.ahead_max {
            return None;
        }
        let memory = self.spare_memory(cost)?;
        self.metrics.prefetched_objects.increment();
        self.metrics.prefetched_bytes.add(version.size);
        let landing = self.begin(&mut slots, number);
        let flight = landing.fetch(version, Some(memory)).boxed().shared();
        slots.is_coming(number, &flight, cost);
        Some(Some(flight))
    }

    fn spare_memory(&self, cost: u64) -> Option<Reservation> {
        let budget = self.transfer.pool().budget();
        let enough = budget.available() >= cost + budget.total() / LEFT_FREE_SHARE;
        enough.then(|| budget.try_reserve(cost)).flatten()
    }

    fn begin(self: &Arc<Self>, slots: &mut Slots, number: u32) -> Landing {
        Landing {
            cache: Arc::clone(self),
            number,
            flight: slots.next_flight(),
            landed: false,
        }
    }

    fn account(&self, evicted: Evicted) -> u64 {
        self.metrics.wasted_objects.add(evicted.wasted);
        self.metrics.cache_bytes.set(evicted.held_now);
        drop(evicted.payloads);
        evicted.bytes
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reclaim for ObjectCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let evicted = match self.slots.try_lock() {
            Ok(mut slots) => slots.evict(bytes),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().evict(bytes),
            Err(TryLockError::WouldBlock) => return 0,
        };
        self.account(evicted)
    }
}

/// A GET on its way into the cache. When it is dropped before it arrived, its place is free again.
struct Landing {
    cache: Arc<ObjectCache>,
    number: u32,
    flight: u64,
    landed: bool,
}

impl Landing {
    async fn fetch(
        mut self,
        version: ObjectVersion,
        memory: Option<Reservation>,
    ) -> TransferResult<Payload> {
        let transfer = Arc::clone(&self.cache.transfer);
        let size = version.size;
        let memory = match memory {
            Some(memory) => memory,
            None => transfer.read_memory(Transfer::cost(size)).await?,
        };
        let payload = transfer.fetch(version, 0..size, memory).await?;
        self.land(&payload);
        Ok(payload)
    }

    fn land(&mut self, payload: &Payload) {
        let Some(kept) = compact::compacted(payload, self.cache.transfer.pool()) else {
            return;
        };
        let cost = compact::cost(&kept);
        let evicted = self.cache.lock().land(self.number, self.flight, kept, cost);
        self.cache.account(evicted);
        self.landed = true;
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.landed && self.cache.lock().abandon(self.number, self.flight) {
            self.cache.metrics.wasted_objects.increment();
        }
    }
}
