//! What a save sends, and what it lets the store copy from the version that it has.
//!
//! A small file is one PUT. Of a large one only what changed is sent; everything else becomes parts
//! that the store copies from the base version, so that a change of 4 KiB moves a few MiB however
//! large the file is. Stores want parts of at least 5 MiB: a change that is smaller is widened by
//! unchanged bytes behind it, and what would be too short to copy is sent with its neighbours. When
//! that makes more parts than a store takes, parts become larger and short copies fewer, until it
//! does not.
//!
//! This is a pure function, so that its rules can be tested on random files.

use std::ops::Range;

use penstock_base::KIB;

/// Bytes that are sent at least. A save whose answer is lost is known again by what it sent, where neither tags nor
/// checksums of the object tell; of one that sent nothing the store's own version would pass for another client's.
const TRACE: u64 = 64 * KIB;

/// What a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes up to which a file is sent in one request.
    pub(crate) put_max: u64,
    /// Bytes in the smallest part that is not the last.
    pub(crate) part_min: u64,
    /// Bytes in a part that is sent, unless that makes too many.
    pub(crate) part_size: u64,
    /// Bytes in the largest part that may be sent.
    pub(crate) part_max: u64,
    /// Bytes in a part that is copied, unless that makes too many.
    pub(crate) copy_size: u64,
    /// Bytes in the largest part that may be copied.
    pub(crate) copy_max: u64,
    /// Parts in an upload.
    pub(crate) parts_max: u64,
}

/// Where the bytes of a part come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From here.
    Send,
    /// From the base version, inside the store.
    Copy,
}

/// A part of the new object. It becomes that part of it which it was in the base version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) source: Source,
}

impl Part {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// How a file is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Whole, in one request.
    Put,
    /// In these parts, which cover the file in order.
    Parts(Vec<Part>),
}

/// How to save a file of `size` bytes of which the ranges `unsaved`, in order and apart, are not
/// in the base version. `None` when it is too large for `limits`.
pub(crate) fn plan(size: u64, unsaved: &[Range<u64>], limits: &Limits) -> Option<Plan> {
    let mut limits = *limits;
    let mut copy_min = limits.part_min.max(1);
    loop {
        let segments = segments(size, unsaved, copy_min, limits.part_min);
        if size <= limits.put_max && is_mostly_sent(size, &segments) {
            return Some(Plan::Put);
        }
        let parts: Vec<Part> = segments.iter().flat_map(|it| split(it, &limits)).collect();
        if parts.len() as u64 <= limits.parts_max {
            return Some(Plan::Parts(parts));
        }
        if limits.part_size == limits.part_max && copy_min > size {
            return None;
        }
        copy_min = copy_min.saturating_mul(2);
        limits.part_size = limits.part_size.saturating_mul(2).min(limits.part_max);
        limits.copy_size = limits.copy_size.saturating_mul(2).min(limits.copy_max);
    }
}

/// Whether copying would spare less than half.
fn is_mostly_sent(size: u64, segments: &[Part]) -> bool {
    let sent = segments.iter().filter(|part| part.source == Source::Send);
    sent.map(Part::length).sum::<u64>().saturating_mul(2) >= size
}

/// The file as runs that are sent and runs that are copied, in turns. Each but the last has at least
/// `part_min` bytes, and a copied one at least `copy_min`.
fn segments(size: u64, unsaved: &[Range<u64>], copy_min: u64, part_min: u64) -> Vec<Part> {
    let (mut segments, mut at) = (Vec::new(), 0);
    for range in unsaved {
        let (mut start, end) = (range.start.max(at), range.end.min(size));
        if start >= end {
            continue;
        }
        if start - at >= copy_min {
            push(&mut segments, at..start, Source::Copy);
        } else {
            start = at;
        }
        at = end.max(start.saturating_add(part_min)).min(size);
        push(&mut segments, start..at, Source::Send);
    }
    let source = if size - at >= copy_min {
        Source::Copy
    } else {
        Source::Send
    };
    push(&mut segments, at..size, source);
    send_something(&mut segments, copy_min, TRACE.min(part_min));
    segments
}

/// Sends the last `trace` bytes of a file of which all could be copied, or all that is too short to be copied then.
fn send_something(segments: &mut Vec<Part>, copy_min: u64, trace: u64) {
    let [only] = segments.as_mut_slice() else {
        return;
    };
    let (start, end) = (only.range.start, only.range.end);
    let border = end.saturating_sub(trace);
    if only.source == Source::Copy && border >= start.saturating_add(copy_min) {
        only.range.end = border;
        push(segments, border..end, Source::Send);
    } else {
        only.source = Source::Send;
    }
}

fn push(segments: &mut Vec<Part>, range: Range<u64>, source: Source) {
    match segments.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.source == source => last.range.end = range.end,
        _ => segments.push(Part { range, source }),
    }
}

/// A segment as parts of equal size: a short last one could be below the store's minimum.
fn split(segment: &Part, limits: &Limits) -> impl Iterator<Item = Part> + use<> {
    let size = match segment.source {
        Source::Send => limits
            .part_size
            .max(2 * limits.part_min)
            .min(limits.part_max),
        Source::Copy => limits.copy_size,
    };
    let (start, length, source) = (segment.range.start, segment.length(), segment.source);
    let parts = length.div_ceil(size.max(1));
    let border =
        move |part: u64| start + (u128::from(length) * u128::from(part) / u128::from(parts)) as u64;
    (0..parts).map(move |part| Part {
        range: border(part)..border(part + 1),
        source,
    })
}

#[cfg(test)]
mod tests {
    use penstock_base::{GIB, MIB};
    use proptest::prelude::*;

    use super::*;

    const S3: Limits = Limits {
        put_max: 25 * MIB,
        part_min: 5 * MIB,
        part_size: 10 * MIB,
        part_max: 5 * GIB,
        copy_size: 256 * MIB,
        copy_max: 5 * GIB,
        parts_max: 10_000,
    };

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    fn sent(plan: &Option<Plan>, size: u64) -> u64 {
        match plan {
            Some(Plan::Put) => size,
            Some(Plan::Parts(parts)) => {
                let sent = parts.iter().filter(|part| part.source == Source::Send);
                sent.map(Part::length).sum()
            }
            None => u64::MAX,
        }
    }

    #[test]
    fn a_small_change_of_a_huge_file_sends_a_few_mebibytes() {
        let size = 10 * GIB;
        for at in [0, 4096, 5 * GIB + 12_345, size - 4096, size - 6 * MIB] {
            let plan = plan(size, &one(at..at + 4096), &S3);
            assert!(sent(&plan, size) <= 10 * MIB, "at {at}: {plan:?}");
        }
        let appended = plan(size, &one(size - MIB..size), &S3);
        assert_eq!(sent(&appended, size), MIB);
    }

    #[test]
    fn what_is_truncated_is_copied_but_for_what_it_is_known_again_by() {
        let cut = plan(GIB, &[], &S3);
        assert_eq!(sent(&cut, GIB), TRACE);
        let short = 5 * MIB + 1;
        let limits = Limits { put_max: 0, ..S3 };
        assert_eq!(sent(&plan(short, &[], &limits), short), short);
    }

    #[test]
    fn small_files_are_one_request() {
        for (size, unsaved) in [(0, 0..0), (1, 0..1), (25 * MIB, 0..13 * MIB)] {
            assert_eq!(plan(size, &one(unsaved), &S3), Some(Plan::Put), "{size}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let limits = Limits {
            part_max: 10 * MIB,
            ..S3
        };
        let size = 10_001 * 10 * MIB;
        assert_eq!(plan(size, &one(0..size), &limits), None);
    }

    const TINY: Limits = Limits {
        put_max: 20,
        part_min: 5,
        part_size: 10,
        part_max: 64,
        copy_size: 30,
        copy_max: 60,
        parts_max: 12,
    };

    fn change() -> impl Strategy<Value = (u64, Vec<Range<u64>>)> {
        (0u64..700).prop_flat_map(|size| {
            let borders = prop::collection::btree_set(0..=size, 0..24);
            borders.prop_map(move |borders| {
                let borders: Vec<u64> = borders.into_iter().collect();
                let ranges = borders.as_chunks::<2>().0.iter();
                (size, ranges.map(|[start, end]| *start..*end).collect())
            })
        })
    }

    proptest! {
        #[test]
        fn a_plan_keeps_every_limit_and_sends_every_change((size, unsaved) in change()) {
            let Some(plan) = plan(size, &unsaved, &TINY) else {
                // Twelve parts of 64 bytes.
                prop_assert!(size > 12 * 32);
                return Ok(());
            };
            let Plan::Parts(parts) = plan else {
                prop_assert!(size <= TINY.put_max);
                return Ok(());
            };
            prop_assert!(parts.len() as u64 <= TINY.parts_max);
            prop_assert_eq!(parts.first().map(|part| part.range.start), Some(0));
            prop_assert_eq!(parts.last().map(|part| part.range.end), Some(size));
            prop_assert!(parts.is_sorted_by(|one, next| one.range.end == next.range.start));
            for (index, part) in parts.iter().enumerate() {
                let last = index + 1 == parts.len();
                prop_assert!(part.length() >= TINY.part_min || last && part.length() > 0);
                match part.source {
                    Source::Send => prop_assert!(part.length() <= TINY.part_max),
                    Source::Copy => {
                        prop_assert!(part.length() <= TINY.copy_max);
                        let changed = |range: &Range<u64>| {
                            range.start < part.range.end && part.range.start < range.end
                        };
                        prop_assert!(!unsaved.iter().any(changed), "{part:?} was changed");
                    }
                }
            }
        }
    }
}
