//! Which bytes of a file lie in its staging file.
//!
//! Ranges that are not here are *clean*: only the store has them. Neighbours of one kind are
//! joined, so a file that is written from front to end is one extent however often it was written.

use std::{collections::BTreeMap, ops::Range};

/// Where bytes are that are not only in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// In the staging file, the same as in the store.
    Local,
    /// In the staging file, not in the store yet.
    Dirty,
    /// Nowhere: they are zero, which the store does not know yet.
    Zero,
}

impl Held {
    /// Whether the staging file has the bytes.
    pub fn is_backed(self) -> bool {
        matches!(self, Self::Local | Self::Dirty)
    }

    /// Whether the store lacks the bytes.
    pub(crate) fn is_unsaved(self) -> bool {
        matches!(self, Self::Dirty | Self::Zero)
    }
}

/// A part of a range; `None` is clean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Where they are.
    pub held: Option<Held>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    end: u64,
    held: Held,
}

/// A map from bytes to where they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents {
    map: BTreeMap<u64, Extent>,
    backed: u64,
    dirty: u64,
}

impl Extents {
    /// Extents in the map.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Bytes in the staging file.
    pub(crate) fn backed(&self) -> u64 {
        self.backed
    }

    /// Bytes in the staging file that the store lacks.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Whether the store lacks anything.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.dirty > 0 || self.map.values().any(|extent| extent.held.is_unsaved())
    }

    /// Whether all of `range` is in one extent of this kind.
    pub(crate) fn covers(&self, range: &Range<u64>, held: Held) -> bool {
        let around = self.map.range(..=range.start).next_back();
        around.is_some_and(|(_, extent)| extent.held == held && extent.end >= range.end)
    }

    /// Notes where `range` is from now on.
    pub(crate) fn set(&mut self, range: Range<u64>, held: Held) {
        if range.is_empty() {
            return;
        }
        self.clear(range.clone());
        let Range { mut start, mut end } = range;
        if let Some((before, extent)) = self.before(start)
            && extent.end == start
            && extent.held == held
        {
            self.take(before);
            start = before;
        }
        if self.map.get(&end).is_some_and(|after| after.held == held)
            && let Some(after) = self.take(end)
        {
            end = after.end;
        }
        self.put(start, Extent { end, held });
    }

    /// Makes `range` clean.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((start, extent)) = self.before(range.start)
            && extent.end > range.start
        {
            self.take(start);
            self.put(
                start,
                Extent {
                    end: range.start,
                    ..extent
                },
            );
            self.put(range.start, extent);
        }
        while let Some((&start, &extent)) = self.map.range(range.clone()).next() {
            self.take(start);
            if extent.end > range.end {
                self.put(range.end, extent);
            }
        }
    }

    /// The parts of `range` in order, clean ones among them.
    pub(crate) fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let (mut pieces, mut at) = (Vec::new(), range.start);
        let first = self
            .before(range.start)
            .map_or(range.start, |(start, _)| start);
        for (&start, extent) in self.map.range(first..range.end) {
            let (from, to) = (start.max(range.start), extent.end.min(range.end));
            if from >= to {
                continue;
            }
            if at < from {
                pieces.push(Piece {
                    range: at..from,
                    held: None,
                });
            }
            pieces.push(Piece {
                range: from..to,
                held: Some(extent.held),
            });
            at = to;
        }
        if at < range.end {
            pieces.push(Piece {
                range: at..range.end,
                held: None,
            });
        }
        pieces
    }

    /// Every extent in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, Held)> {
        self.map
            .iter()
            .map(|(start, extent)| (*start..extent.end, extent.held))
    }

    /// What the store lacks, in order, neighbours joined.
    pub(crate) fn unsaved(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (range, _) in self.iter().filter(|(_, held)| held.is_unsaved()) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// The extent that begins before `at`.
    fn before(&self, at: u64) -> Option<(u64, Extent)> {
        let found = self.map.range(..at).next_back();
        found.map(|(start, extent)| (*start, *extent))
    }

    fn put(&mut self, start: u64, extent: Extent) {
        let bytes = extent.end - start;
        self.backed += if extent.held.is_backed() { bytes } else { 0 };
        self.dirty += if extent.held == Held::Dirty { bytes } else { 0 };
        self.map.insert(start, extent);
    }

    fn take(&mut self, start: u64) -> Option<Extent> {
        let extent = self.map.remove(&start)?;
        let bytes = extent.end - start;
        self.backed -= if extent.held.is_backed() { bytes } else { 0 };
        self.dirty -= if extent.held == Held::Dirty { bytes } else { 0 };
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 48;

    fn change() -> impl Strategy<Value = (Range<u64>, Option<Held>)> {
        let held = prop::sample::select(vec![
            None,
            Some(Held::Local),
            Some(Held::Dirty),
            Some(Held::Zero),
        ]);
        let range = (0..SIZE, 0..SIZE).prop_map(|(one, other)| one.min(other)..one.max(other));
        (range, held)
    }

    proptest! {
        #[test]
        fn every_byte_is_where_the_last_change_put_it(
            changes in prop::collection::vec(change(), 0..40),
            asked in change(),
        ) {
            let mut extents = Extents::default();
            let mut bytes = vec![None; SIZE as usize];
            for (range, held) in changes {
                bytes[range.start as usize..range.end as usize].fill(held);
                match held {
                    Some(held) => extents.set(range, held),
                    None => extents.clear(range),
                }
            }
            let range = asked.0;
            let pieces = extents.pieces(range.clone());
            let found: Vec<_> = pieces
                .iter()
                .flat_map(|piece| piece.range.clone().map(|_| piece.held))
                .collect();
            prop_assert_eq!(&found[..], &bytes[range.start as usize..range.end as usize]);
            prop_assert!(pieces.is_sorted_by(|one, next| one.range.end == next.range.start
                && one.held != next.held));
            let count = |wanted: fn(Held) -> bool| {
                bytes.iter().flatten().filter(|held| wanted(**held)).count() as u64
            };
            prop_assert_eq!(extents.backed(), count(Held::is_backed));
            prop_assert_eq!(extents.dirty(), count(|held| held == Held::Dirty));
            prop_assert_eq!(extents.has_unsaved(), count(Held::is_unsaved) > 0);
            let unsaved: u64 = extents.unsaved().iter().map(|range| range.end - range.start).sum();
            prop_assert_eq!(unsaved, count(Held::is_unsaved));
            prop_assert!(extents.unsaved().is_sorted_by(|one, next| one.end < next.start));
        }
    }
}
