//! Gives memory back that readers hold but nobody waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use penstock_base::{
    Reclaim,
    clock::{self, Instant},
};

use super::Shared;
use crate::lock::lock;

/// Milliseconds without a read after which a reader must make room for read-ahead of others.
const IDLE_MILLIS: u64 = 2000;

/// Milliseconds between two searches for idle readers.
const SEARCH_MILLIS: u64 = 100;

/// All readers of one [`crate::Transfer`] that hold anything.
#[derive(Debug)]
pub(crate) struct Readers {
    created: Instant,
    next_id: AtomicU64,
    last_search: AtomicU64,
    readers: Mutex<BTreeMap<u64, Weak<Shared>>>,
}

impl Readers {
    pub(crate) fn new() -> Self {
        Self {
            created: clock::now(),
            next_id: AtomicU64::new(0),
            last_search: AtomicU64::new(0),
            readers: Mutex::default(),
        }
    }

    /// Milliseconds of a clock that all readers share.
    pub(super) fn now(&self) -> u64 {
        clock::now().duration_since(self.created).as_millis() as u64
    }

    /// A name for a new reader.
    pub(super) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a reader's memory reclaimable.
    pub(super) fn add(&self, id: u64, reader: Weak<Shared>) {
        lock(&self.readers).insert(id, reader);
    }

    /// The reader is gone.
    pub(super) fn remove(&self, id: u64) {
        lock(&self.readers).remove(&id);
    }

    /// Makes readers that were idle for a while give back about `bytes`, so that others can fetch
    /// ahead. Does nothing when it was asked a moment ago.
    pub(super) fn reclaim_idle(&self, bytes: u64) {
        let now = self.now();
        let last = self.last_search.load(Ordering::Relaxed);
        if now >= last + SEARCH_MILLIS {
            self.last_search.store(now, Ordering::Relaxed);
            self.reclaim_older(bytes, now.saturating_sub(IDLE_MILLIS));
        }
    }

    /// Asks readers whose last read was before `limit`, in the order of their last read. One that
    /// is busy at this moment is passed over.
    fn reclaim_older(&self, bytes: u64, limit: u64) -> u64 {
        let mut readers: Vec<_> = {
            let known = lock(&self.readers);
            known.values().filter_map(Weak::upgrade).collect()
        };
        readers.retain(|reader| reader.last_read() < limit);
        // Who is asked goes on reading: its answer must not change while they are put in order.
        readers.sort_by_cached_key(|reader| reader.last_read());
        let mut freed = 0;
        for reader in readers {
            if freed >= bytes {
                break;
            }
            freed += reader.reclaim(bytes - freed);
        }
        freed
    }
}

impl Reclaim for Readers {
    fn reclaim(&self, bytes: u64) -> u64 {
        self.reclaim_older(bytes, u64::MAX)
    }
}
