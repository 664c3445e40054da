//! `Range: bytes=…` with one range.

use std::ops::Range;

/// What a range header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RangeSpec {
    /// `a-b`, both inclusive.
    Between(u64, u64),
    /// `a-`.
    From(u64),
    /// `-n`: the last n bytes.
    Last(u64),
}

impl RangeSpec {
    /// `None` for what is not one byte range; such a header is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", last) => Some(Self::Last(last.parse().ok()?)),
            (first, "") => Some(Self::From(first.parse().ok()?)),
            (first, last) => {
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// The bytes of an object of `length`, clipped to its end; `None` if there are none.
    pub(crate) fn clip(&self, length: u64) -> Option<Range<u64>> {
        let range = match *self {
            Self::Between(first, last) => first..last.saturating_add(1).min(length),
            Self::From(first) => first..length,
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (range.start < range.end).then_some(range)
    }

    /// Whether it lies inside an object of `length` without clipping.
    pub(crate) fn fits(&self, length: u64) -> bool {
        match *self {
            Self::Between(_, last) => last < length,
            Self::From(first) => first < length,
            Self::Last(count) => count > 0 && count <= length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped() {
        let clip = |text, length| RangeSpec::parse(text).expect("a range").clip(length);
        assert_eq!(clip("bytes=0-0", 10), Some(0..1));
        assert_eq!(clip("bytes=5-99", 10), Some(5..10));
        assert_eq!(clip("bytes=5-", 10), Some(5..10));
        assert_eq!(clip("bytes=-3", 10), Some(7..10));
        assert_eq!(clip("bytes=-30", 10), Some(0..10));
        assert_eq!(clip("bytes=10-", 10), None);
        assert_eq!(clip("bytes=-0", 10), None);
        assert_eq!(clip("bytes=0-18446744073709551615", 10), Some(0..10));
    }

    #[test]
    fn what_is_no_single_range_is_ignored() {
        for text in [
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=",
            "bytes=a-b",
        ] {
            assert_eq!(RangeSpec::parse(text), None, "{text}");
        }
    }
}
