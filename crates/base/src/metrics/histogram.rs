//! How values are spread.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many values there were, how large, and what they sum up to.
#[derive(Debug)]
pub struct Histogram {
    /// The largest value of each bucket but the last, which takes all others.
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// One without values, with buckets up to `bounds`, which ascend, and one for what is beyond.
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Adds a value.
    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was recorded so far.
    pub fn distribution(&self) -> Distribution {
        let mut count = 0;
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        let buckets = bounds.zip(&self.counts).map(|(bound, values)| {
            count += values.load(Ordering::Relaxed);
            Bucket { bound, count }
        });
        Distribution {
            buckets: buckets.collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// The values of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// By bound, the one without a bound last.
    pub buckets: Vec<Bucket>,
    /// The sum of the values.
    pub sum: u64,
}

impl Distribution {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |bucket| bucket.count)
    }
}

/// Values up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The largest of them; none where they have no bound.
    pub bound: Option<u64>,
    /// How many there are, those of smaller bounds included.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bounds() {
        let histogram = Histogram::new(&[10, 100]);
        for value in [0, 10, 11, 100, 101] {
            histogram.record(value);
        }
        let distribution = histogram.distribution();
        let counts: Vec<_> = distribution
            .buckets
            .iter()
            .map(|bucket| bucket.count)
            .collect();
        assert_eq!(counts, [2, 4, 5]);
        assert_eq!((distribution.count(), distribution.sum), (5, 222));
    }
}
