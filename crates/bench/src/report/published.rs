//! Figures that others printed, read as numbers so that a chart can place them.
//!
//! Sources write "2,2 GB/s", "2.167 MB", "1,306.61" and "207%". A comma or point that has exactly three digits behind it
//! separates thousands when the number in front of it has one to three digits and is not zero; any other is the decimal
//! mark. "GB" is 10^9 and "GiB" 2^30 bytes. What cannot be read is still printed as it stands, it only has no mark.
//!
//! Where a source gives processor use as a percentage of one core beside a bandwidth, processor seconds per GiB follow from
//! the two.

use crate::{
    record::Published,
    report::figure::{Figure, GIB},
};

/// What the source says about `figure`, in base units.
pub(super) fn value(published: &Published, figure: Figure) -> Option<f64> {
    let mut columns = published
        .figures
        .iter()
        .map(|(column, text)| (column.as_str(), text));
    match figure {
        Figure::Bandwidth => columns.find_map(|(_, text)| byte_rate(text)),
        Figure::OperationRate => {
            columns.find_map(|(column, text)| operations_per_second(column, text))
        }
        Figure::Duration => columns.find_map(|(_, text)| positive(quantity_in(text, SECONDS))),
        Figure::PeakMemory => column_of_bytes(columns, "memory"),
        Figure::PeakDisk => column_of_bytes(columns, "disk"),
        Figure::CpuPerGib => {
            let cores = columns.find_map(|(column, text)| percent_of_core(column, text))?;
            let bandwidth = value(published, Figure::Bandwidth)?;
            let cost = cores / (bandwidth / GIB);
            cost.is_finite().then_some(cost)
        }
        _ => None,
    }
}

/// Unit names in lower case and what one of each is in base units.
type Units = &'static [(&'static str, f64)];

const BYTES: Units = &[
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", GIB),
    ("tib", 1024.0 * GIB),
];

const SECONDS: Units = &[
    ("µs", 1e-6),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("seconds", 1.0),
    ("min", 60.0),
    ("minutes", 60.0),
    ("h", 3600.0),
    ("hours", 3600.0),
];

fn column_of_bytes<'a>(
    mut columns: impl Iterator<Item = (&'a str, &'a String)>,
    word: &str,
) -> Option<f64> {
    let column = columns.find(|(column, _)| column.to_lowercase().contains(word));
    quantity_in(column?.1, BYTES)
}

/// `text` when it is a number and one of `units`.
fn quantity_in(text: &str, units: Units) -> Option<f64> {
    let (number, unit) = split(text)?;
    if number == 0.0 && unit.is_empty() {
        return Some(0.0);
    }
    let unit = units.iter().find(|(name, _)| *name == unit);
    unit.map(|(_, size)| number * size)
}

/// A bare 0 may be of any unit, and no speed and no time is 0.
fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// "2,2 GB/s", "10 Gbps".
fn byte_rate(text: &str) -> Option<f64> {
    let bits = &[("gbps", 1e9 / 8.0), ("mbps", 1e6 / 8.0)];
    let text = text.trim().to_lowercase();
    let bytes = text
        .strip_suffix("/s")
        .and_then(|text| quantity_in(text, BYTES));
    positive(bytes.or_else(|| quantity_in(&text, bits)))
}

/// "1,577 img/s", "391K IOPS", or "391K" in a column of IOPS: anything per second that is not bytes.
fn operations_per_second(column: &str, text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let (factor, unit) = match unit.strip_prefix('k').map(str::trim_start) {
        Some(rest) if rest.is_empty() || rest == "iops" => (1000.0, rest),
        _ => (1.0, unit.as_str()),
    };
    let in_column = unit.is_empty() && column.to_lowercase().contains("iops");
    let in_text = unit == "iops" || unit.ends_with("/s") && byte_rate(text).is_none();
    (in_column || in_text).then_some(number * factor)
}

fn percent_of_core(column: &str, text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    (column.to_lowercase().contains("cpu") && unit == "%").then_some(number / 100.0)
}

/// The number that `text` begins with and its unit in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number(digits)?, unit.trim().to_lowercase()))
}

fn number(digits: &str) -> Option<f64> {
    let last = digits.rfind(['.', ',']);
    let Some(mark) = last.filter(|mark| !separates_thousands(digits, *mark)) else {
        return digits.replace([',', '.'], "").parse().ok();
    };
    let whole = digits[..mark].replace([',', '.'], "");
    format!("{whole}.{}", &digits[mark + 1..]).parse().ok()
}

/// Whether the last mark of `digits`, at `mark`, stands before thousands.
fn separates_thousands(digits: &str, mark: usize) -> bool {
    let (before, after) = (&digits[..mark], &digits[mark + 1..]);
    let other = before.rfind(['.', ',']);
    let same_kind = other.is_none_or(|other| digits.as_bytes()[other] == digits.as_bytes()[mark]);
    let group = before.len() - other.map_or(0, |other| other + 1);
    after.len() == 3 && same_kind && (1..=3).contains(&group) && !before.starts_with('0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn published(figures: &[(&str, &str)]) -> Published {
        let figures = figures
            .iter()
            .map(|(column, text)| ((*column).into(), (*text).into()));
        Published {
            client: "x".into(),
            figures: figures.collect(),
            source: String::new(),
        }
    }

    #[test]
    fn numbers_of_both_conventions_are_read() {
        let cases = [
            ("2,2", 2.2),
            ("2.2", 2.2),
            ("2.167", 2167.0),
            ("1,306.61", 1306.61),
            ("1.306,61", 1306.61),
            ("0.125", 0.125),
            ("12,345,678", 12_345_678.0),
            ("118", 118.0),
        ];
        for (text, value) in cases {
            assert_eq!(number(text), Some(value), "{text}");
        }
        assert_eq!(number("1.2.3"), Some(12.3));
        assert_eq!(number(","), None);
    }

    #[test]
    fn a_published_row_is_read_by_unit_and_column() {
        let row = published(&[
            ("bandwidth", "2,2 GB/s"),
            ("CPU", "207%"),
            ("peak memory", "2.167 MB"),
        ]);
        assert_eq!(value(&row, Figure::Bandwidth), Some(2.2e9));
        assert_eq!(value(&row, Figure::PeakMemory), Some(2167e6));
        let cost = value(&row, Figure::CpuPerGib).expect("follows");
        assert!((cost - 1.0103).abs() < 0.001, "{cost}");
        assert_eq!(value(&row, Figure::OperationRate), None);
        assert_eq!(value(&row, Figure::PeakDisk), None);
    }

    #[test]
    fn operations_and_times_are_read() {
        let rate = |text| value(&published(&[("rate", text)]), Figure::OperationRate);
        assert_eq!(rate("1,577.12 img/s"), Some(1577.12));
        assert_eq!(rate("391K IOPS"), Some(391_000.0));
        assert_eq!(rate("5100 IOPS"), Some(5100.0));
        assert_eq!(rate("101.06 /s"), Some(101.06));
        let column = |text| value(&published(&[("IOPS", text)]), Figure::OperationRate);
        assert_eq!(
            [column("391K"), column("1,300")],
            [Some(391_000.0), Some(1300.0)]
        );
        assert_eq!(column("1,173K with 24 instances, 1,564K with 32"), None);
        assert_eq!(
            value(&published(&[("peak disk", "0")]), Figure::PeakDisk),
            Some(0.0)
        );
        assert_eq!(rate("12 MB/s"), None);
        assert_eq!(
            value(&published(&[("time", "39 minutes")]), Figure::Duration),
            Some(2340.0)
        );
        assert_eq!(
            value(&published(&[("bandwidth", "fast")]), Figure::Bandwidth),
            None
        );
    }

    const READ: [Figure; 7] = [
        Figure::Bandwidth,
        Figure::OperationRate,
        Figure::Duration,
        Figure::PeakMemory,
        Figure::PeakDisk,
        Figure::CpuPerGib,
        Figure::Requests,
    ];

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            let row = published(&[("CPU memory disk", &text)]);
            for figure in READ {
                prop_assert!(value(&row, figure).is_none_or(f64::is_finite));
            }
        }
    }
}
