//! How many objects are fetched ahead of a reader.
//!
//! As many as it reads while one of them is on its way, which is not known. But a reader that has
//! to wait for an object says that there were too few. The window is therefore doubled whenever a
//! reader waited while it read one window, as long as that makes it faster. When the network or
//! the processor is the limit it does not, and the window stays.

use penstock_base::clock::Instant;

/// Objects in the first window.
const WINDOW_MIN: u32 = 4;

/// Objects in the largest window. What they cost is bounded by the cache.
const WINDOW_MAX: u32 = 512;

/// By how much a round must be faster than those before for the window to grow.
const GAIN: f64 = 1.1;

/// What is left of the best speed after each round, so that an old best does not hold the window
/// down for ever.
const MEMORY: f64 = 0.95;

#[derive(Debug)]
pub(super) struct Pace {
    window: u32,
    since: Instant,
    read: u32,
    waited: bool,
    /// Objects per second in the best round.
    best: f64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            window: WINDOW_MIN,
            since: now,
            read: 0,
            waited: false,
            best: 0.0,
        }
    }

    /// Objects that are worth having ahead.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// So many objects more were read; the reader had to wait or not.
    pub(super) fn read(&mut self, objects: u32, waited: bool, now: Instant) {
        self.read += objects;
        self.waited |= waited;
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        if self.read < self.window || elapsed <= 0.0 {
            return;
        }
        let speed = f64::from(self.read) / elapsed;
        if self.waited && speed > self.best * GAIN {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        self.best = (self.best * MEMORY).max(speed);
        (self.since, self.read, self.waited) = (now, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_base::clock;

    use super::*;

    /// The window of a reader that has all of its window every `latency`, but no more than
    /// `speed_max` objects per second.
    fn settled(latency: f64, speed_max: f64) -> u32 {
        let mut now = clock::now();
        let mut pace = Pace::new(now);
        for _ in 0..40 {
            let window = pace.window();
            let waiting = latency.max(f64::from(window) / speed_max);
            now += Duration::from_secs_f64(waiting);
            let waited = f64::from(window) / speed_max < latency;
            for _ in 0..window {
                pace.read(1, waited, now);
            }
        }
        pace.window()
    }

    #[test]
    fn the_window_covers_what_is_read_in_a_round_trip_and_little_more() {
        assert!((100..=256).contains(&settled(0.010, 10_000.0)));
        assert!((10..=32).contains(&settled(0.010, 1_000.0)));
        assert_eq!(settled(1.0, 10_000.0), WINDOW_MAX);
    }

    #[test]
    fn a_reader_that_never_waits_needs_no_more() {
        let start = clock::now();
        let mut pace = Pace::new(start);
        for second in 0..100 {
            pace.read(1, false, start + Duration::from_secs(second));
        }
        assert_eq!(pace.window(), WINDOW_MIN);
    }
}
