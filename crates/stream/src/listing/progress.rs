//! How far a listing is, for whoever watches.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use penstock_base::clock::{self, Instant};

/// Keys beyond which an estimate of what is left is none.
const ESTIMATE_MAX: f64 = 1e12;

/// The counts of a listing; shared with whoever shows them.
#[derive(Debug, Default)]
pub struct ListingProgress {
    begun: OnceLock<Instant>,
    /// Keys that were there before.
    taken_over: AtomicU64,
    keys: AtomicU64,
    requests: AtomicU64,
    under_way: AtomicU64,
    /// Keys left, plus one; zero while nobody knows.
    left: AtomicU64,
}

/// A listing at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListingStatus {
    /// Keys so far, with those that an earlier, interrupted listing left.
    pub keys: u64,
    /// Requests so far, without those that layers below repeated.
    pub requests: u64,
    /// Ranges that are being listed, each with one request under way.
    pub under_way: u64,
    /// Since the beginning.
    pub elapsed: Duration,
    /// Keys per second since the beginning.
    pub rate: f64,
    /// Time until the end, where it can be estimated.
    pub time_left: Option<Duration>,
}

impl ListingProgress {
    /// The counts now.
    pub fn status(&self) -> ListingStatus {
        let elapsed = self.begun.get().map(Instant::elapsed).unwrap_or_default();
        let keys = self.keys.load(Relaxed);
        let listed = keys - self.taken_over.load(Relaxed).min(keys);
        let rate = listed as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let left = self.left.load(Relaxed).checked_sub(1);
        let left = left.filter(|_| listed > 0);
        ListingStatus {
            keys,
            requests: self.requests.load(Relaxed),
            under_way: self.under_way.load(Relaxed),
            elapsed,
            rate,
            time_left: left.and_then(|left| Duration::try_from_secs_f64(left as f64 / rate).ok()),
        }
    }

    pub(crate) fn begin(&self, taken_over: u64) {
        let _ = self.begun.set(clock::now());
        self.taken_over.store(taken_over, Relaxed);
        self.keys.store(taken_over, Relaxed);
    }

    pub(crate) fn add_keys(&self, count: u64) {
        self.keys.fetch_add(count, Relaxed);
    }

    pub(crate) fn add_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn set_under_way(&self, ranges: usize) {
        self.under_way.store(ranges as u64, Relaxed);
    }

    pub(super) fn set_left(&self, keys: f64) {
        let known = keys.is_finite() && keys < ESTIMATE_MAX;
        self.left
            .store(if known { keys as u64 + 1 } else { 0 }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_left_follows_from_rate_and_estimate() {
        let progress = ListingProgress::default();
        assert_eq!(progress.status().time_left, None);
        progress.begin(500);
        progress.add_keys(1000);
        clock::sleep(Duration::from_secs(2)).await;
        assert_eq!(progress.status().time_left, None);
        progress.set_left(1500.0);
        let status = progress.status();
        assert_eq!((status.keys, status.rate), (1500, 500.0));
        assert_eq!(status.time_left, Some(Duration::from_secs(3)));
        progress.set_left(f64::INFINITY);
        assert_eq!(progress.status().time_left, None);
    }
}
