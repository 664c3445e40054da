//! Percentiles of what was measured.

use std::collections::BTreeMap;

/// The percentiles that are kept, by their names.
pub(crate) const KEPT: [(&str, f64); 4] =
    [("50", 0.5), ("95", 0.95), ("99", 0.99), ("99.9", 0.999)];

/// The kept percentiles of `values`, which get sorted; nothing of nothing.
pub(crate) fn table(values: &mut [f64]) -> BTreeMap<String, f64> {
    values.sort_by(f64::total_cmp);
    let at = |fraction| nearest_rank(values, fraction);
    KEPT.iter()
        .filter_map(|(name, fraction)| Some(((*name).to_owned(), at(*fraction)?)))
        .collect()
}

/// The smallest value that at least this fraction of the sorted values does not exceed.
fn nearest_rank(sorted: &[f64], fraction: f64) -> Option<f64> {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_of_a_hundred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let table = table(&mut values);
        assert_eq!(
            (table["50"], table["95"], table["99"], table["99.9"]),
            (50.0, 95.0, 99.0, 100.0)
        );
        assert!(super::table(&mut []).is_empty());
    }
}
