//! Scales: where a value stands on an axis, and which values deserve a tick.

/// A straight axis from zero.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Linear {
    /// The value at its end.
    pub(in crate::report) end: f64,
    step: f64,
}

impl Linear {
    /// An axis that ends at `greatest`, with at most about `ticks` ticks at round values.
    pub(in crate::report) fn to(greatest: f64, ticks: f64) -> Self {
        let greatest = if greatest.is_finite() && greatest > 0.0 {
            greatest
        } else {
            1.0
        };
        let step = round_step(greatest / ticks);
        Self {
            end: greatest,
            step,
        }
    }

    /// The place of `value` as a fraction of the axis, within it.
    pub(in crate::report) fn place(&self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }

    /// The values of the ticks, zero included.
    pub(in crate::report) fn ticks(&self) -> Vec<f64> {
        let count = (self.end / self.step * 1.000_001).floor() as usize;
        (0..=count).map(|index| index as f64 * self.step).collect()
    }
}

/// The least of 1, 2, 5, 10 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    // A little slack, so that 1.9999999 does not become 2.5.
    steps
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Logarithmic {
    low: f64,
    high: f64,
}

impl Logarithmic {
    /// An axis of whole powers of ten around `low` and `high`, which must be above zero.
    pub(in crate::report) fn decades(low: f64, high: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE).log10().floor();
        let high = high.max(f64::MIN_POSITIVE).log10().ceil();
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
        }
    }

    /// An axis from exactly `low` to `high`.
    pub(in crate::report) fn between(low: f64, high: f64) -> Self {
        let (low, high) = (
            low.max(f64::MIN_POSITIVE).log10(),
            high.max(f64::MIN_POSITIVE).log10(),
        );
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
        }
    }

    /// The place of `value` as a fraction of the axis, within it.
    pub(in crate::report) fn place(&self, value: f64) -> f64 {
        let logarithm = value.max(f64::MIN_POSITIVE).log10();
        ((logarithm - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Its powers of ten; of many, every second or third.
    pub(in crate::report) fn ticks(&self) -> Vec<f64> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let stride = ((last - first) / 5 + 1).max(1) as usize;
        (first..=last)
            .step_by(stride)
            .map(|power| 10_f64.powi(power))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            Linear::to(1619.0, 4.0).ticks(),
            [0.0, 500.0, 1000.0, 1500.0]
        );
        assert_eq!(Linear::to(0.0, 4.0).end, 1.0);
        assert_eq!(Linear::to(f64::NAN, 4.0).end, 1.0);
        let powers = Logarithmic::decades(0.0004, 0.3).ticks();
        assert_eq!(powers.len(), 5);
        assert!((powers[0] - 1e-4).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_linear_axis_holds_its_values_with_few_ticks(greatest in 1e-9..1e30_f64, ticks in 2.0..6.0_f64) {
            let axis = Linear::to(greatest, ticks);
            let found = axis.ticks();
            prop_assert!(found.len() >= 2 && found.len() as f64 <= ticks + 2.0, "{found:?}");
            prop_assert!(found.iter().all(|tick| *tick <= greatest * 1.000_01));
        }

        #[test]
        fn places_keep_order(a in 1e-9..1e9_f64, b in 1e-9..1e9_f64) {
            let axis = Logarithmic::decades(a.min(b), a.max(b));
            prop_assert_eq!(axis.place(a) < axis.place(b), a < b && axis.place(a) != axis.place(b));
            prop_assert!(axis.ticks().len() <= 8);
        }
    }
}
