//! The repeats of one figure as three numbers, and the one rule of what counts as a difference.
//!
//! A benchmark is repeated two to ten times. With so few runs the median is the middle that one bad run does not move, and
//! the range is the noise that hides nothing: an estimator such as the median absolute deviation would leave out just the
//! run that a reader should know of. Whiskers in charts reach from the least to the greatest run.
//!
//! The spread that is printed says how far off somebody may be who measures the same again: **two series of runs of the same
//! thing have medians that are at most both their spreads apart**, in 97 of 100 pairs. From five runs on half the range,
//! `(max - min) / 2`, is enough for that. Two runs are often close by chance, and three sometimes, so there half the range is
//! multiplied ([`WIDENING`]). The factors were found by drawing series from normal, log-normal and uniform noise; a test
//! draws them again.
//!
//! Two summaries *differ* ([`Summary::differs_from`])
//! - with two or more runs on each side: when their ranges do not overlap, and their medians are further apart than both
//!   spreads together and than [`CLEAR`];
//! - with a single run on either side the noise is unknown: when their ranges do not overlap and their medians are more than
//!   [`CLEAR_ALONE`] apart.
//!
//! "Apart" is relative to the smaller of the two medians, so that the rule is the same in both directions.

use serde::Serialize;

/// How far apart the medians of repeated runs must be, as a fraction of the smaller one.
pub(crate) const CLEAR: f64 = 0.05;
/// The same when one side ran only once.
pub(crate) const CLEAR_ALONE: f64 = 0.20;

/// What half the range is multiplied with after two, three and four runs.
pub(crate) const WIDENING: [f64; 3] = [5.5, 2.0, 1.2];

/// What is known of one figure after some runs. Values are in the figure's base unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    /// The middle run, or the mean of the two in the middle.
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    /// Summarises `values`; those that are not finite are left out. `None` when nothing is left.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median: median(&sorted)?,
            low: *sorted.first()?,
            high: *sorted.last()?,
        })
    }

    /// How far off another median may be, in the figure's unit; `None` after a single run, when that is unknown.
    pub(crate) fn spread(&self) -> Option<f64> {
        let factor = match self.count {
            0 | 1 => return None,
            count => WIDENING.get(count - 2).unwrap_or(&1.0),
        };
        Some(factor * (self.high / 2.0 - self.low / 2.0))
    }

    pub(crate) fn relative_spread(&self) -> Option<f64> {
        let fraction = self.spread()? / self.median.abs();
        fraction.is_finite().then_some(fraction)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether both sides ran often enough to know their noise.
    pub(crate) fn knows_noise_with(&self, other: &Self) -> bool {
        self.count > 1 && other.count > 1
    }

    /// Whether the two differ beyond the noise: see the module's head for the rule.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        let (noise, needed) = match self.spread().zip(other.spread()) {
            Some((one, another)) => (one + another, CLEAR),
            None => (0.0, CLEAR_ALONE),
        };
        let apart = (self.median - other.median).abs();
        !self.overlaps(other) && apart > noise && self.distance(other) > needed
    }

    /// The difference of the medians as a fraction of the smaller one; infinite when that is zero.
    fn distance(&self, other: &Self) -> f64 {
        let smaller = self.median.abs().min(other.median.abs());
        let difference = (self.median - other.median).abs();
        if difference == 0.0 {
            0.0
        } else {
            difference / smaller
        }
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(middle.checked_sub(1)?)?;
    Some(lower / 2.0 + upper / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Summary {
        Summary::of(values.iter().copied()).expect("there are values")
    }

    #[test]
    fn the_middle_and_half_the_range() {
        let summary = of(&[110.0, 90.0, 100.0, 101.0, 99.0]);
        assert_eq!((summary.median, summary.spread()), (100.0, Some(10.0)));
        assert_eq!(summary.relative_spread(), Some(0.1));
        assert_eq!(of(&[1.0, 2.0, 4.0, 9.0]).median, 3.0);
    }

    #[test]
    fn few_runs_have_a_wider_spread_than_their_range() {
        let spreads = [2, 3, 4, 5].map(|count| {
            let mut runs = vec![99.0; count];
            runs[0] = 101.0;
            of(&runs).spread().expect("more than one run")
        });
        assert_eq!(spreads, [5.5, 2.0, 1.2, 1.0]);
    }

    /// The share of pairs of series of the same thing whose medians are further apart than both
    /// spreads together, in a thousand.
    fn disagreements(runs: usize, noise: fn(&mut u64) -> f64) -> usize {
        const PAIRS: usize = 20_000;
        let mut state = 1;
        let mut series = || {
            let values: Vec<f64> = (0..runs).map(|_| noise(&mut state)).collect();
            of(&values)
        };
        let beyond = (0..PAIRS).filter(|_| {
            let (a, b) = (series(), series());
            let spreads = a
                .spread()
                .zip(b.spread())
                .map(|(one, another)| one + another);
            spreads.is_some_and(|spreads| (a.median - b.median).abs() > spreads)
        });
        beyond.count() * 1000 / PAIRS
    }

    /// A number between 0 and 1 (SplitMix64).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Nearly normal: the sum of twelve.
    fn normal(state: &mut u64) -> f64 {
        100.0 + (0..12).map(|_| uniform(state)).sum::<f64>() - 6.0
    }

    fn log_normal(state: &mut u64) -> f64 {
        ((normal(state) - 100.0) / 2.0).exp()
    }

    #[test]
    fn two_series_of_the_same_thing_agree_within_their_spreads() {
        for runs in [2, 3, 4, 5, 7, 10] {
            for noise in [uniform, normal, log_normal] {
                let beyond = disagreements(runs, noise);
                assert!(beyond <= 33, "{beyond} of 1000 pairs of {runs} runs differ");
            }
        }
    }

    #[test]
    fn a_single_run_has_no_spread_and_none_is_nothing() {
        assert_eq!(of(&[5.0]).spread(), None);
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(of(&[f64::NAN, 3.0]).count, 1);
    }

    #[test]
    fn zero_has_no_relative_spread() {
        assert_eq!(of(&[0.0, 0.0]).relative_spread(), None);
    }

    #[test]
    fn repeated_runs_differ_when_apart_and_by_more_than_a_twentieth() {
        assert!(of(&[100.0, 100.5]).differs_from(&of(&[107.0, 107.5])));
        assert!(!of(&[100.0, 103.0]).differs_from(&of(&[107.0, 110.0])));
        let five = |base: f64| of(&[0.0, 1.0, 0.5, 0.2, 0.7].map(|it| base + it));
        assert!(five(100.0).differs_from(&five(107.0)));
        assert!(!of(&[100.0, 101.0]).differs_from(&of(&[103.0, 104.0])));
        assert!(!of(&[100.0, 120.0]).differs_from(&of(&[119.0, 140.0])));
    }

    #[test]
    fn single_runs_differ_only_by_more_than_a_fifth() {
        assert!(!of(&[100.0]).differs_from(&of(&[119.0])));
        assert!(of(&[100.0]).differs_from(&of(&[121.0])));
        assert!(!of(&[100.0, 101.0, 99.0]).differs_from(&of(&[115.0])));
        assert!(of(&[0.0]).differs_from(&of(&[1.0])));
        assert!(!of(&[0.0]).differs_from(&of(&[0.0])));
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.0..1e18_f64, 1..12)
    }

    proptest! {
        #[test]
        fn the_median_lies_in_the_range_and_half_the_runs_on_each_side(values in values()) {
            let summary = of(&values);
            prop_assert!(summary.low <= summary.median && summary.median <= summary.high);
            let half = values.len().div_ceil(2);
            prop_assert!(values.iter().filter(|value| **value <= summary.median).count() >= values.len() / 2);
            prop_assert!(values.iter().filter(|value| **value <= summary.high).count() >= half);
        }

        #[test]
        fn the_order_of_runs_does_not_matter(mut values in values()) {
            let forward = of(&values);
            values.reverse();
            prop_assert_eq!(forward, of(&values));
        }

        #[test]
        fn scaling_the_runs_scales_the_summary(values in values(), power in -20_i32..20) {
            let factor = 2.0_f64.powi(power);
            let scaled = Summary::of(values.iter().map(|value| value * factor)).expect("values");
            prop_assert_eq!(scaled.median, of(&values).median * factor);
            prop_assert_eq!(scaled.relative_spread(), of(&values).relative_spread());
        }

        #[test]
        fn nothing_differs_from_itself_and_difference_is_mutual(a in values(), b in values()) {
            let (a, b) = (of(&a), of(&b));
            prop_assert!(!a.differs_from(&a));
            prop_assert_eq!(a.differs_from(&b), b.differs_from(&a));
            prop_assert!(!(a.differs_from(&b) && a.overlaps(&b)));
        }

        #[test]
        fn what_differs_is_further_apart_than_both_spreads(a in values(), b in values()) {
            let (a, b) = (of(&a), of(&b));
            let spreads = a.spread().unwrap_or(0.0) + b.spread().unwrap_or(0.0);
            let apart = (a.median - b.median).abs();
            let knows = a.knows_noise_with(&b);
            prop_assert!(!(knows && a.differs_from(&b)) || apart > spreads);
        }
    }
}
