//! How many requests for metadata a listing has under way.
//!
//! Many at once hide the latency of a store that is far. Of one that is near they hide nothing, and
//! each more takes a connection and makes both sides wake more often: 16 were a third faster than 128
//! at 0.2 ms. So a listing begins with few, and each answer that takes long allows one more, which
//! doubles them in each round trip. What was learned holds for the next listing.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Requests at once when answers come fast.
const FEW: usize = 16;
/// An answer that takes longer is worth another request at the same time.
const SLOW: Duration = Duration::from_millis(3);

/// What was learned of how long answers take.
#[derive(Debug)]
pub(crate) struct Pace {
    allowed: AtomicUsize,
    max: usize,
}

impl Pace {
    /// At most `max` requests at once, and at least one.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            allowed: AtomicUsize::new(FEW.min(max)),
            max,
        }
    }

    /// Requests that may be under way now.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Notes how long an answer took.
    pub(crate) fn note(&self, took: Duration) {
        let allowed = self.allowed();
        let next = if took > SLOW {
            (allowed + 1).min(self.max)
        } else {
            (allowed - 1).max(FEW.min(self.max))
        };
        // Of two that note at once one may be lost: nothing depends on it.
        self.allowed.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_only_where_answers_take_long() {
        let pace = Pace::new(64);
        assert_eq!(pace.allowed(), FEW);
        (0..100).for_each(|_| pace.note(Duration::from_millis(30)));
        assert_eq!(pace.allowed(), 64);
        (0..100).for_each(|_| pace.note(Duration::from_micros(300)));
        assert_eq!(pace.allowed(), FEW);
        for max in [0, 1, 5] {
            let pace = Pace::new(max);
            pace.note(Duration::ZERO);
            pace.note(Duration::from_secs(1));
            assert_eq!(pace.allowed(), max.max(1));
        }
    }
}
