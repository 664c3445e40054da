//! How far ahead of its reader a stream fetches.
//!
//! Bytes in flight are worth having up to the bandwidth-delay product: what the reader consumes
//! per second, times the seconds from asking for a part to having it. The consumption that is
//! measured is itself limited by the window, so the window aims at a multiple of the product and
//! thereby grows by that factor in each round trip until the reader, the network or the share of
//! memory is the limit. Two parts are added so that one is always on its way while another is read.

use penstock_base::clock::Instant;

/// By how much the window exceeds the bandwidth-delay product.
const GAIN: f64 = 2.0;

/// Samples that are this much above the estimate show that the window was the limit.
const GROWTH: f64 = 1.25;

/// Samples without growth after which the limit is taken to be another.
const PLATEAU: u32 = 3;

/// Weight of a sample once the limit was found: bytes arrive in bursts, and a reader that pauses
/// keeps its window for a few round trips.
const WEIGHT: f64 = 1.0 / 4.0;

/// The least time over which consumption is measured, in seconds: shorter spans see bursts.
const SAMPLE_SECONDS_MIN: f64 = 2e-3;

/// How fast a stream is read.
#[derive(Debug, Clone)]
pub(crate) struct Consumption {
    bytes_per_second: f64,
    since: Instant,
    bytes: u64,
    /// Samples in a row that brought no growth.
    plateau: u32,
}

impl Consumption {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            bytes_per_second: 0.0,
            since: now,
            bytes: 0,
            plateau: 0,
        }
    }

    /// `bytes` more were read; `delay` is the time of a round trip in seconds.
    pub(crate) fn record(&mut self, bytes: u64, now: Instant, delay: f64) {
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        if elapsed < delay.max(SAMPLE_SECONDS_MIN) {
            return;
        }
        self.take_in(self.bytes as f64 / elapsed);
        (self.since, self.bytes) = (now, 0);
    }

    fn take_in(&mut self, sample: f64) {
        if self.plateau >= PLATEAU {
            self.bytes_per_second += (sample - self.bytes_per_second) * WEIGHT;
            return;
        }
        let grown = sample > self.bytes_per_second * GROWTH;
        self.plateau = if grown { 0 } else { self.plateau + 1 };
        self.bytes_per_second = self.bytes_per_second.max(sample);
    }

    /// Bytes that are worth having in flight, for parts of `part` bytes that take `delay` seconds.
    pub(crate) fn window(&self, part: u64, delay: f64) -> u64 {
        ((GAIN * self.bytes_per_second * delay) as u64).saturating_add(2 * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{MIB, clock};
    use std::time::Duration;

    /// The window after `rounds` in each of which the reader consumes all that it is given.
    fn grown(delay: Duration, rounds: u32, rate_max: f64) -> u64 {
        let seconds = delay.as_secs_f64();
        let mut now = clock::now();
        let mut consumption = Consumption::new(now);
        let mut window = 2 * MIB;
        for _ in 0..rounds {
            now += delay;
            let bytes = window.min((rate_max * seconds) as u64);
            consumption.record(bytes, now, seconds);
            window = consumption.window(8 * MIB, seconds);
        }
        window
    }

    #[test]
    fn grows_to_twice_the_bandwidth_delay_product_and_no_further() {
        let slow = grown(Duration::from_millis(30), 50, 2e9);
        assert_eq!(slow / MIB, (2.0 * 2e9 * 0.030) as u64 / MIB + 16);
        let fast = grown(Duration::from_millis(4), 50, 2e9);
        assert_eq!(fast / MIB, (2.0 * 2e9 * 0.004) as u64 / MIB + 16);
    }

    #[test]
    fn opens_within_a_few_round_trips() {
        assert!(grown(Duration::from_millis(30), 5, 2e9) > 120 * MIB);
    }

    #[test]
    fn a_slow_reader_has_a_small_window() {
        assert!(grown(Duration::from_millis(30), 50, 1e6) <= 17 * MIB);
    }

    #[test]
    fn a_short_pause_does_not_close_it() {
        let start = clock::now();
        let mut consumption = Consumption::new(start);
        consumption.record(100 * MIB, start + Duration::from_millis(100), 0.1);
        let before = consumption.window(MIB, 0.1);
        for pause in 2..6 {
            consumption.record(0, start + Duration::from_millis(100 * pause), 0.1);
        }
        let after = consumption.window(MIB, 0.1);
        assert!((before / 2..before).contains(&after), "{before} {after}");
    }
}
