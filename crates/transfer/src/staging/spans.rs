//! What to ask the store for when a file is here except for gaps.
//!
//! A request for each gap is the least that can be fetched, and after thousands of small writes at
//! random it is thousands of requests, one for each. Two gaps are one request when what lies between
//! them is less than a request is worth.

use std::ops::Range;

use penstock_base::MIB;

use crate::{ObjectVersion, Transfer};

/// Bytes that are rather fetched in vain than left out by a request more: about what arrives while a
/// request waits for its answer, on 100 MB/s after 10 ms as on 1 GB/s after 1 ms.
const WORTH_A_REQUEST: u64 = MIB;

/// The ranges of `base` to fetch for `gaps`, which are in order and apart: each of at most `limit`
/// bytes, but a small object whole, with its checksum.
pub(super) fn to_fetch(
    transfer: &Transfer,
    base: &ObjectVersion,
    gaps: Vec<Range<u64>>,
    limit: u64,
) -> Vec<Range<u64>> {
    if !gaps.is_empty() && transfer.settings().comes_whole(base.size) {
        return std::iter::once(0..base.size).collect();
    }
    spans(gaps, limit)
}

/// Ranges of at most `limit` bytes that cover `gaps`.
fn spans(gaps: Vec<Range<u64>>, limit: u64) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    for gap in gaps {
        match spans.last_mut() {
            Some(last)
                if gap.start - last.end < WORTH_A_REQUEST && gap.end - last.start <= limit =>
            {
                last.end = gap.end;
            }
            _ => spans.extend(cut(gap, limit)),
        }
    }
    spans
}

fn cut(range: Range<u64>, limit: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (range.start..range.end).step_by(limit as usize);
    starts.map(move |start| start..range.end.min(start + limit))
}

#[cfg(test)]
mod tests {
    use penstock_base::KIB;
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 8 * MIB;

    /// Gaps of `gap` bytes with `between` bytes between them.
    fn every(gap: u64, between: u64, count: u64) -> Vec<Range<u64>> {
        let starts = (0..count).map(|index| index * (gap + between));
        starts.map(|start| start..start + gap).collect()
    }

    fn bytes(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn gaps_between_small_changes_are_one_span() {
        assert_eq!(spans(every(12 * KIB, 4 * KIB, 640), LIMIT).len(), 2);
    }

    #[test]
    fn what_the_disk_has_much_of_is_not_fetched_in_vain() {
        let gaps = every(4 * KIB, MIB, 20);
        assert_eq!(spans(gaps.clone(), LIMIT), gaps);
    }

    #[test]
    fn a_large_gap_is_cut() {
        let spans = spans(every(20 * MIB, 0, 1), LIMIT);
        assert_eq!(spans, [0..LIMIT, LIMIT..2 * LIMIT, 2 * LIMIT..20 * MIB]);
    }

    proptest! {
        #[test]
        fn spans_cover_the_gaps_and_no_more_in_vain_than_requests_are_worth(
            lengths in prop::collection::vec((1..3 * MIB, 1..2 * MIB), 0..40),
        ) {
            let (mut gaps, mut at) = (Vec::new(), 0);
            for (between, length) in lengths {
                gaps.push(at + between..at + between + length);
                at += between + length;
            }
            let spans = spans(gaps.clone(), LIMIT);
            prop_assert!(spans.iter().all(|span| !span.is_empty() && span.end - span.start <= LIMIT));
            prop_assert!(spans.is_sorted_by(|one, next| one.end <= next.start));
            for gap in &gaps {
                let inside = |span: &Range<u64>| span.start < gap.end && gap.start < span.end;
                let covered = spans.iter().filter(|span| inside(span)).map(|span| {
                    span.end.min(gap.end) - span.start.max(gap.start)
                });
                prop_assert_eq!(covered.sum::<u64>(), gap.end - gap.start);
            }
            let spared = (gaps.len() as u64).saturating_sub(spans.len() as u64);
            prop_assert!(bytes(&spans) - bytes(&gaps) <= spared * WORTH_A_REQUEST);
        }
    }
}
