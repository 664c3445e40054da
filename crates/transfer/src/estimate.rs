//! What the way to the store is like: how long until a response begins, and how fast one
//! response then arrives.
//!
//! Both are kept per [`crate::Transfer`], because they belong to the way and not to a file: the
//! second file that is opened starts with what the first has learned. What matters is the way
//! when it is not crowded by our own requests (a window that grows because its own growth made
//! responses slower would never stop growing), so the estimates follow the best samples at once
//! and forget them slowly.

use std::{sync::Mutex, time::Duration};

use penstock_base::clock::{self, Instant};

use crate::lock::lock;

/// How much of the difference a slower sample adds to the latency.
const LATENCY_RISE: f64 = 1.0 / 32.0;

/// Time after which half of a high rate is forgotten, in seconds.
const RATE_HALF_LIFE: f64 = 30.0;

/// Time after which it is forgotten that there was one: nobody can tell any more how long a response takes.
const RATE_KNOWN: f64 = 10.0 * RATE_HALF_LIFE;

/// Responses shorter than this say more about latency than about rate.
const RATE_SAMPLE_BYTES: u64 = 512 << 10;

/// The least time that a rate is computed from, below the clock's useful resolution.
const RATE_SAMPLE_SECONDS: f64 = 20e-6;

#[derive(Debug, Default)]
pub(crate) struct PathEstimate(Mutex<Estimate>);

#[derive(Debug, Default)]
struct Estimate {
    /// Seconds from sending a request to the head of its response.
    latency: Option<f64>,
    /// Bytes per second of one response, and when that was.
    rate: Option<(f64, Instant)>,
}

impl PathEstimate {
    /// A response began `elapsed` after its request was sent.
    pub(crate) fn began(&self, elapsed: Duration) {
        let sample = elapsed.as_secs_f64();
        let mut estimate = lock(&self.0);
        estimate.latency = Some(match estimate.latency {
            Some(latency) if sample > latency => latency + (sample - latency) * LATENCY_RISE,
            _ => sample,
        });
    }

    /// `bytes` of one response arrived within `elapsed` of its head.
    pub(crate) fn received(&self, bytes: u64, elapsed: Duration) {
        if bytes < RATE_SAMPLE_BYTES {
            return;
        }
        let sample = bytes as f64 / elapsed.as_secs_f64().max(RATE_SAMPLE_SECONDS);
        let now = clock::now();
        let mut estimate = lock(&self.0);
        if estimate.rate_at(now).is_none_or(|rate| sample > rate) {
            estimate.rate = Some((sample, now));
        }
    }

    /// Seconds from sending a request for `bytes` until all have arrived; 0 while unknown.
    pub(crate) fn delay(&self, bytes: u64, now: Instant) -> f64 {
        let estimate = lock(&self.0);
        let arriving = estimate
            .rate_at(now)
            .map_or(0.0, |rate| bytes as f64 / rate);
        estimate.latency.unwrap_or(0.0) + arriving
    }
}

impl Estimate {
    fn rate_at(&self, now: Instant) -> Option<f64> {
        let (rate, measured) = self.rate?;
        let age = now.saturating_duration_since(measured).as_secs_f64();
        (age < RATE_KNOWN).then(|| rate * 0.5f64.powf(age / RATE_HALF_LIFE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::MIB;

    #[test]
    fn latency_falls_at_once_and_rises_slowly() {
        let path = PathEstimate::default();
        let now = clock::now();
        path.began(Duration::from_millis(30));
        path.began(Duration::from_millis(10));
        assert!((path.delay(0, now) - 0.010).abs() < 1e-9);
        path.began(Duration::from_millis(42));
        assert!((path.delay(0, now) - 0.011).abs() < 1e-9);
    }

    #[test]
    fn the_best_rate_counts_until_it_is_forgotten() {
        let path = PathEstimate::default();
        path.received(100 * MIB, Duration::from_secs(1));
        path.received(10 * MIB, Duration::from_secs(1));
        let now = clock::now();
        assert!((path.delay(100 * MIB, now) - 1.0).abs() < 0.01);
        assert!((path.delay(100 * MIB, now + Duration::from_secs(30)) - 2.0).abs() < 0.01);
    }

    /// It went on being halved, until a part seemed to take longer than the world is old.
    #[test]
    fn a_rate_of_long_ago_is_not_known() {
        let path = PathEstimate::default();
        path.began(Duration::from_millis(10));
        path.received(100 * MIB, Duration::from_secs(1));
        for hours in [1, 3, 24 * 365] {
            let later = clock::now() + Duration::from_secs(hours * 60 * 60);
            let delay = path.delay(100 * MIB, later);
            assert!((delay - 0.010).abs() < 1e-9, "{delay} s after {hours} h");
        }
    }
}
