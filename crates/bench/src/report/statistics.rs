//! The repeats of one figure as three numbers, and the one rule of what counts as a difference.
//!
//! A benchmark is repeated three to ten times. With so few runs the median is the middle that one bad run does not move, and
//! the range is the spread that hides nothing: an estimator such as the median absolute deviation would leave out just the
//! run that a reader should know of. So the spread that is printed is **half the range**, `(max - min) / 2`, in percent of
//! the median; whiskers in charts reach from the least to the greatest run.
//!
//! Two summaries *differ* ([`Summary::differs_from`])
//! - with two or more runs on each side: when their ranges do not overlap and their medians are more than [`CLEAR`] apart;
//! - with a single run on either side the noise is unknown: when, besides, the medians are more than [`CLEAR_ALONE`] apart.
//!
//! "Apart" is relative to the smaller of the two medians, so that the rule is the same in both directions.

use serde::Serialize;

/// How far apart the medians of repeated runs must be, as a fraction of the smaller one.
pub const CLEAR: f64 = 0.05;
/// The same when one side ran only once.
pub const CLEAR_ALONE: f64 = 0.20;

/// What is known of one figure after some runs. Values are in the figure's base unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many runs gave the figure.
    pub count: usize,
    /// The middle run, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Summary {
    /// Summarises `values`; those that are not finite are left out. `None` when nothing is left.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
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

    /// Half the range, in the figure's unit; `None` after a single run, when the spread is unknown.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        (self.count > 1).then_some(self.high / 2.0 - self.low / 2.0)
    }

    /// [`Self::spread`] as a fraction of the median.
    #[must_use]
    pub fn relative_spread(&self) -> Option<f64> {
        let fraction = self.spread()? / self.median.abs();
        fraction.is_finite().then_some(fraction)
    }

    /// Whether some run of the one lies within the range of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether both sides ran often enough to know their noise.
    #[must_use]
    pub fn knows_noise_with(&self, other: &Self) -> bool {
        self.count > 1 && other.count > 1
    }

    /// Whether the two differ beyond the noise: see the module's head for the rule.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        let needed = if self.knows_noise_with(other) {
            CLEAR
        } else {
            CLEAR_ALONE
        };
        !self.overlaps(other) && self.distance(other) > needed
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

/// The middle of sorted values.
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
        let summary = of(&[110.0, 90.0, 100.0]);
        assert_eq!((summary.median, summary.spread()), (100.0, Some(10.0)));
        assert_eq!(summary.relative_spread(), Some(0.1));
        assert_eq!(of(&[1.0, 2.0, 4.0, 9.0]).median, 3.0);
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
        assert!(of(&[100.0, 101.0]).differs_from(&of(&[107.0, 108.0])));
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
    }
}
