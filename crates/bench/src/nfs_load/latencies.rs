//! How long operations took: counts by length, in buckets that are a sixty-fourth of their length wide.

use std::time::Duration;

/// Bits of a length that tell its bucket, the highest one aside.
const BITS: u32 = 6;
/// Buckets of lengths between two powers of two.
const STEPS: usize = 1 << BITS;
/// Buckets for all lengths that 64 bits hold.
const BUCKETS: usize = (64 - BITS as usize + 1) * STEPS;

#[derive(Debug, Clone)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl Latencies {
    pub(super) fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.sum += took;
        self.max = self.max.max(took);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    pub(super) fn mean(&self) -> Duration {
        self.sum.div_f64(self.count.max(1) as f64)
    }

    /// The length that this fraction of all does not exceed, to the width of a bucket.
    pub(super) fn percentile(&self, fraction: f64) -> Duration {
        let wanted = ((self.count as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let most = found.map_or(self.max, |bucket| Duration::from_nanos(longest(bucket)));
        most.min(self.max)
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let shift = (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(BITS + 1);
    shift as usize * STEPS + (nanoseconds >> shift) as usize
}

/// The longest of a bucket.
fn longest(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let next = (bucket - shift * STEPS + 1) as u128;
    u64::try_from((next << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_length_is_in_the_bucket_that_ends_behind_it(nanoseconds: u64, shift in 0_u32..64) {
            let nanoseconds = nanoseconds >> shift;
            let end = longest(bucket(nanoseconds));
            prop_assert!(end >= nanoseconds && end - nanoseconds <= nanoseconds / 64);
            prop_assert!(bucket(end) == bucket(nanoseconds));
            prop_assert!(bucket(nanoseconds) < BUCKETS);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_lengths(
            mut lengths in prop::collection::vec(0_u64..10_000_000_000, 1..200), cut in 0_usize..200,
            fraction in 0.01_f64..1.0,
        ) {
            let (mut all, mut others) = (Latencies::default(), Latencies::default());
            for (index, length) in lengths.iter().enumerate() {
                let some = if index < cut { &mut all } else { &mut others };
                some.record(Duration::from_nanos(*length));
            }
            all.add(&others);
            let sum: u64 = lengths.iter().sum();
            lengths.sort_unstable();
            let at = (lengths.len() as f64 * fraction).ceil() as usize;
            let exact = lengths[at.max(1) - 1];
            let told = all.percentile(fraction).as_nanos() as u64;
            prop_assert!(told >= exact && told - exact <= exact / 64);
            let last = Duration::from_nanos(lengths[lengths.len() - 1]);
            prop_assert_eq!((all.count(), all.max()), (lengths.len() as u64, last));
            let mean = sum as f64 / lengths.len() as f64;
            prop_assert!((all.mean().as_nanos() as f64 - mean).abs() <= 1.0 + mean * 1e-9);
        }
    }

    #[test]
    fn nothing_took_no_time() {
        let none = Latencies::default();
        assert_eq!(
            (none.mean(), none.percentile(0.99)),
            (Duration::ZERO, Duration::ZERO)
        );
    }
}
