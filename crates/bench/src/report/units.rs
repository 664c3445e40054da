//! Numbers and units as people read them: as many digits as a measurement deserves, thousands apart, one unit for a column.
//!
//! A column of numbers is compared by eye, so all of it is shown in the unit that fits its greatest value. MiB/s stays until
//! 10 GiB/s, because "1,619" and "1,218" are told apart sooner than "1.58" and "1.19".

use super::statistics::Summary;

/// A unit and what one of it is in the figure's base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    /// As printed behind a number or in the head of a column.
    pub(crate) name: &'static str,
    pub(crate) size: f64,
}

/// Units of one thing, smallest first: the least value that each is used for, its size and its name.
pub(crate) type Units = &'static [(f64, f64, &'static str)];

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;
const TIB: f64 = KIB * GIB;

/// Of the larger ones there must be ten.
pub(crate) const BYTES: Units = &[
    (0.0, 1.0, "B"),
    (KIB, KIB, "KiB"),
    (MIB, MIB, "MiB"),
    (10.0 * GIB, GIB, "GiB"),
    (10.0 * TIB, TIB, "TiB"),
];

pub(crate) const BYTES_PER_OPERATION: Units = &[
    (0.0, 1.0, "B/op"),
    (10.0 * KIB, KIB, "KiB/op"),
    (10.0 * MIB, MIB, "MiB/op"),
];

pub(crate) const BYTE_RATES: Units = &[
    (0.0, 1.0, "B/s"),
    (KIB, KIB, "KiB/s"),
    (MIB, MIB, "MiB/s"),
    (10.0 * GIB, GIB, "GiB/s"),
    (10.0 * TIB, TIB, "TiB/s"),
];

pub(crate) const SECONDS: Units = &[(0.0, 1e-6, "µs"), (1e-3, 1e-3, "ms"), (1.0, 1.0, "s")];

pub(crate) const SECONDS_PER_OPERATION: Units = &[
    (0.0, 1e-6, "µs/op"),
    (1e-2, 1e-3, "ms/op"),
    (10.0, 1.0, "s/op"),
];

/// The unit among `units` for numbers of which `greatest` is the greatest.
pub(crate) fn unit_for(units: Units, greatest: f64) -> Unit {
    let fitting = units.iter().rev().find(|(from, ..)| greatest >= *from);
    let (_, size, name) = *fitting.unwrap_or(&units[0]);
    Unit { name, size }
}

impl Unit {
    /// `value`, given in the base unit, as a number of this unit.
    pub(crate) fn number(&self, value: f64) -> String {
        number(value / self.size)
    }

    pub(crate) fn quantity(&self, value: f64) -> String {
        format!("{} {}", self.number(value), self.name)
            .trim_end()
            .to_owned()
    }
}

/// Numbers from here on are written with an exponent.
const EXPONENT_FROM: f64 = 1e9;

/// Three digits of a measurement, more only before the decimal point: `0.051`, `0.51`, `5.12`, `51.2`, `512`, `5,120`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    match size {
        0.0 => "0".to_owned(),
        _ if !(1e-6..EXPONENT_FROM).contains(&size) => format!("{value:.1e}"),
        _ if size >= 99.95 => thousands(value),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.095 => format!("{value:.2}"),
        _ => small(value),
    }
}

/// A round number, for a tick: no zeros behind the decimal point.
pub(crate) fn round(value: f64) -> String {
    let text = number(value);
    if !text.contains('.') || text.contains('e') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Two digits, however many zeros come first.
fn small(value: f64) -> String {
    let zeros = -value.abs().log10().floor();
    format!("{value:.*}", zeros as usize + 1)
}

/// Rounded to a whole, with a comma before each three digits.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A fraction as percent, `±3 %` without the sign.
pub(crate) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent > 0.0 && percent < 0.95 {
        return "<1 %".to_owned();
    }
    format!("{} %", thousands(percent))
}

/// The spread of repeats behind their median: "±3 %". Empty when there is none: one run, or all alike.
pub(crate) fn spread(summary: &Summary) -> String {
    let relative = summary.relative_spread().filter(|spread| *spread > 0.0);
    relative.map_or(String::new(), |spread| format!("±{}", percent(spread)))
}

/// A scale below one as people say it: `1/50`; any other as a number.
pub(crate) fn scale(scale: f64) -> String {
    let parts = (1.0 / scale).round();
    let is_part = scale > 0.0 && scale < 1.0 && (parts * scale - 1.0).abs() < 1e-6;
    if is_part {
        format!("1/{}", thousands(parts))
    } else {
        number(scale)
    }
}

/// How often one number goes into another: `1.33×`, `12×`, `1,200×`.
pub(crate) fn factor(value: f64) -> String {
    let text = match value {
        _ if !value.is_finite() => "∞".to_owned(),
        _ if value >= 9.95 => thousands(value),
        _ if value >= 1.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    format!("{text}×")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_the_digits_that_a_measurement_deserves() {
        let cases = [
            (0.0, "0"),
            (0.00123, "0.0012"),
            (0.0512, "0.051"),
            (0.512, "0.51"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (51.23, "51.2"),
            (99.96, "100"),
            (1_243.4, "1,243"),
            (1_234_567.0, "1,234,567"),
            (1e18, "1.0e18"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn round_numbers_have_no_empty_digits() {
        let shown = [10.0, 2.5, 0.05, 0.5, 1500.0, 0.0, 1e18].map(round);
        assert_eq!(shown, ["10", "2.5", "0.05", "0.5", "1,500", "0", "1.0e18"]);
    }

    #[test]
    fn a_column_has_the_unit_of_its_greatest_value() {
        let shown = |units: Units, value: f64| unit_for(units, value).quantity(value);
        assert_eq!(shown(BYTE_RATES, 1_619.0 * MIB), "1,619 MiB/s");
        assert_eq!(shown(BYTE_RATES, 12.5 * GIB), "12.5 GiB/s");
        assert_eq!(shown(BYTES, 17.0 * MIB), "17.0 MiB");
        assert_eq!(shown(BYTES, 0.0), "0 B");
        assert_eq!(shown(SECONDS, 0.0004), "400 µs");
        assert_eq!(shown(SECONDS, 0.07), "70.0 ms");
        assert_eq!(shown(SECONDS_PER_OPERATION, 38e-6), "38.0 µs/op");
        assert_eq!(shown(&[(0.0, 1.0, "")], 1.0), "1.00");
    }

    #[test]
    fn percent_and_factor_stay_short() {
        assert_eq!(percent(0.031), "3 %");
        assert_eq!(percent(0.004), "<1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(
            [scale(0.02), scale(1e-9), scale(0.3), scale(2.0)],
            ["1/50", "1/1,000,000,000", "0.30", "2.00"]
        );
        let spread_of = |values: &[f64]| Summary::of(values.iter().copied()).map(|it| spread(&it));
        assert_eq!(
            spread_of(&[100.0, 106.0, 103.0, 103.0, 103.0]).as_deref(),
            Some("±3 %")
        );
        assert_eq!(spread_of(&[5.0]).as_deref(), Some(""));
        assert_eq!(spread_of(&[5.0, 5.0]).as_deref(), Some(""));
        assert_eq!(factor(1.327), "1.33×");
        assert_eq!(factor(3.31), "3.3×");
        assert_eq!(factor(1234.0), "1,234×");
        assert_eq!(factor(f64::INFINITY), "∞×");
    }

    proptest! {
        #[test]
        fn a_number_reads_back_as_what_it_was(value in 1e-5..1e14_f64) {
            let back: f64 = number(value).replace(',', "").parse().expect("a number");
            prop_assert!((back - value).abs() <= value * 0.051, "{value} as {}", number(value));
        }
    }
}
