//! Bytes that the cache occupies on the disk, and will.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use penstock_base::metrics::Gauge;

/// The sum over all files, including those that have no name any more and are still open.
#[derive(Debug)]
pub(super) struct Ledger {
    used: Arc<Gauge>,
    leaving: AtomicU64,
}

impl Ledger {
    /// Nothing is used. `used` shows how much is.
    pub(super) fn new(used: Arc<Gauge>) -> Arc<Self> {
        Arc::new(Self {
            used,
            leaving: AtomicU64::new(0),
        })
    }

    /// Bytes that are occupied or reserved.
    pub(super) fn used(&self) -> u64 {
        self.used.value()
    }

    /// Bytes of these that are free as soon as somebody closes a file.
    pub(super) fn leaving(&self) -> u64 {
        self.leaving.load(Ordering::Relaxed)
    }

    /// A version that was charged with `before` occupies `after` now.
    pub(super) fn change(&self, before: u64, after: u64) {
        self.used.add(after);
        self.used.subtract(before);
    }

    /// `bytes` will be free soon.
    pub(super) fn leave(&self, bytes: u64) {
        self.leaving.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` that were to be free soon are.
    pub(super) fn free(&self, bytes: u64) {
        self.used.subtract(bytes);
        self.leaving.fetch_sub(bytes, Ordering::Relaxed);
    }
}
