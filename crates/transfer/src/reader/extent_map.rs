//! What a reader knows of where the bytes of a file lie.
//!
//! Whoever reads says which *edition* of the map it means, a number that grows when the file is stored anew, cut or
//! punched. The map is of one edition and knows parts of the file, those near what was read last: what it does not know it
//! asks for.

use std::{collections::BTreeMap, ops::Range};

use smallvec::SmallVec;

use super::{
    extent::Extent,
    extents::{FileRead, MapPart, Refused},
};
/// Bytes of a file of which the extents are asked for at once, at least.
pub(super) const STEP: u64 = 4 << 20;

/// Extents and holes that are known, after which the map forgets all that it is not asked for.
const PLACES_MAX: usize = 1024;

/// Bytes of the budget that a read takes at once where its bytes lie in several extents: each may bring much more than
/// is wanted of it.
const COST_AT_ONCE: u64 = 4 << 20;

/// What a map learned.
#[derive(Debug)]
pub(super) struct Learned {
    /// Holes that were not known.
    pub(super) holes: Vec<Range<u64>>,
    /// What was known before, if it is forgotten.
    pub(super) former: Option<ExtentMap>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ExtentMap {
    edition: u64,
    /// Bytes in the file.
    size: u64,
    /// Objects of up to so many bytes are never fetched in pieces, but where they have grains.
    whole_max: u64,
    /// By where they begin; none overlap.
    extents: BTreeMap<u64, Extent>,
    /// Holes that are known, which the reader holds.
    holes: usize,
    /// What is known, as ranges that do not touch: their ends by where they begin.
    known: BTreeMap<u64, u64>,
}

impl ExtentMap {
    /// Of a file of which nothing is known.
    pub(super) fn new(whole_max: u64) -> Self {
        Self {
            whole_max,
            ..Self::default()
        }
    }

    /// Objects of up to so many bytes are never fetched in pieces, but where they have grains.
    pub(super) fn whole_max(&self) -> u64 {
        self.whole_max
    }

    /// Bytes in the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether a read can be planned that wants to know what lies in `reach` bytes behind it, and how much of it at
    /// once.
    pub(super) fn admit(&mut self, asked: &FileRead, reach: u64) -> Result<Range<u64>, Refused> {
        if asked.edition < self.edition {
            return Err(Refused::Outdated);
        }
        let range = &asked.range;
        if asked.edition > self.edition {
            let end = range.end.saturating_add(2 * reach);
            return Err(Refused::Unknown(stepped(&(range.start..end))));
        }
        self.size = asked.size;
        match self.missing(range, reach) {
            Some(missing) => Err(Refused::Unknown(missing)),
            None => Ok(range.start..self.affordable(range)),
        }
    }

    /// The end of what can be received of `range` at once: of one extent at least.
    fn affordable(&self, range: &Range<u64>) -> u64 {
        let mut cost = 0;
        let mut extents = self.within(range);
        let beyond = extents.find(|extent| {
            let wanted = range.start.max(extent.range.start)..range.end.min(extent.range.end);
            let before = cost;
            cost += extent.cost(&wanted, self.whole_max);
            before > 0 && cost > COST_AT_ONCE
        });
        beyond.map_or(range.end, |extent| extent.range.start)
    }

    /// Takes in what lies where. `None` if that is of an older edition. What was known before is forgotten if that was
    /// of an older one, or too much.
    pub(super) fn learn(&mut self, part: &MapPart) -> Option<Learned> {
        if part.edition < self.edition {
            return None;
        }
        let begins_anew = part.edition > self.edition || self.is_full();
        let former = begins_anew.then(|| {
            let anew = Self {
                edition: part.edition,
                size: self.size,
                ..Self::new(self.whole_max)
            };
            std::mem::replace(self, anew)
        });
        let holes = self.add(&part.range, &part.extents);
        Some(Learned { holes, former })
    }

    /// The extent that has the byte at `offset`.
    pub(super) fn at(&self, offset: u64) -> Option<&Extent> {
        let (_, extent) = self.extents.range(..=offset).next_back()?;
        (extent.range.end > offset).then_some(extent)
    }

    /// The extents that have bytes of `range`.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &Extent> {
        let first = self.at(range.start);
        let first = first.map_or(range.start, |extent| extent.range.start);
        let extents = self.extents.range(first..range.end.max(first));
        extents.map(|(_, extent)| extent)
    }

    /// The end of what is known from `offset` on; `offset` itself if nothing is.
    pub(super) fn known_until(&self, offset: u64) -> u64 {
        let before = self.known.range(..=offset).next_back();
        before.map_or(offset, |(_, end)| offset.max(*end))
    }

    /// What is to be asked for so that a read of `range`, and of `reach` bytes behind it, knows its extents.
    fn missing(&self, range: &Range<u64>, reach: u64) -> Option<Range<u64>> {
        let until = self.known_until(range.start);
        let needed = self.size.min(range.end.saturating_add(reach));
        if until >= range.end.max(needed) {
            return None;
        }
        let start = match self.is_full() {
            true => range.start,
            false => until,
        };
        Some(stepped(&(start..range.end.saturating_add(2 * reach))))
    }

    /// Whether all but what is asked for is to be forgotten.
    fn is_full(&self) -> bool {
        self.extents.len() + self.holes >= PLACES_MAX
    }

    /// Takes in what lies in `range`. Returns the holes in it that were not known.
    fn add(&mut self, range: &Range<u64>, extents: &[Extent]) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        for gap in self.unknown(range) {
            let mut start = gap.start;
            for part in extents.iter().filter_map(|extent| extent.part(&gap)) {
                if start < part.range.start {
                    holes.push(start..part.range.start);
                }
                start = part.range.end;
                self.extents.insert(part.range.start, part);
            }
            if start < gap.end {
                holes.push(start..gap.end);
            }
        }
        self.know(range);
        self.holes += holes.len();
        holes
    }

    /// Whether all of `range` lies where another map says.
    pub(super) fn agrees_with(&self, other: &Self, range: &Range<u64>) -> bool {
        let mut start = range.start;
        while start < range.end {
            let (Some(one), Some(another)) = (self.at(start), other.at(start)) else {
                return false;
            };
            if !one.shows_the_same_as(another, start) {
                return false;
            }
            start = one.range.end.min(another.range.end);
        }
        true
    }

    fn unknown(&self, range: &Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let mut unknown = SmallVec::new();
        let mut start = self.known_until(range.start);
        while start < range.end {
            let next = self.known.range(start..range.end).next();
            let end = next.map_or(range.end, |(begin, _)| *begin);
            unknown.push(start..end);
            start = self.known_until(end);
        }
        unknown
    }

    fn know(&mut self, range: &Range<u64>) {
        let before = self.known.range(..=range.start).next_back();
        let touching = before.filter(|(_, end)| **end >= range.start);
        let start = touching.map_or(range.start, |(start, _)| *start);
        let mut end = range.end;
        while let Some((begin, until)) = self.known.range(start..=end).next() {
            let begin = *begin;
            end = end.max(*until);
            self.known.remove(&begin);
        }
        self.known.insert(start, end);
    }
}

/// The steps that have `range`.
fn stepped(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(STEP);
    range.start / STEP * STEP..end.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_object::{ETag, Key};
    use proptest::prelude::*;

    use super::*;
    use crate::ObjectVersion;

    fn extent(range: Range<u64>, key: &str) -> Extent {
        let object = ObjectVersion {
            key: Key::new(key).expect("valid"),
            etag: ETag::new(""),
            size: 1 << 30,
        };
        Extent {
            at: range.start,
            range,
            object: Arc::new(object),
            grains: None,
        }
    }

    fn map(range: Range<u64>, extents: &[Extent]) -> ExtentMap {
        let mut map = ExtentMap {
            size: 1 << 30,
            ..ExtentMap::default()
        };
        map.add(&range, extents);
        map
    }

    #[test]
    fn what_is_not_known_is_asked_for_in_steps() {
        let map = map(0..STEP, &[]);
        assert_eq!(map.missing(&(5..STEP), 0), None);
        assert_eq!(map.missing(&(5..STEP + 1), 0), Some(STEP..2 * STEP));
        let ahead = map.missing(&(5..10), STEP);
        assert_eq!(ahead, Some(STEP..3 * STEP));
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end_of_the_file() {
        let mut map = map(0..STEP, &[]);
        map.size = STEP;
        assert_eq!(map.missing(&(5..10), 8 * STEP), None);
    }

    #[test]
    fn a_file_without_end_and_without_bytes_has_no_map_without_end() {
        let mut map = map(0..STEP, &[]);
        let mut most = 0;
        for step in 1..10 * PLACES_MAX as u64 {
            let part = MapPart {
                edition: 0,
                range: step * STEP..(step + 1) * STEP,
                extents: Vec::new(),
            };
            map.learn(&part);
            most = most.max(map.holes);
        }
        assert_eq!(most, PLACES_MAX);
    }

    #[test]
    fn maps_agree_where_the_same_bytes_of_the_same_object_are() {
        let whole = map(0..100, &[extent(0..100, "a")]);
        let cut = [
            extent(0..40, "a"),
            extent(40..60, "b"),
            extent(60..100, "a"),
        ];
        let cut = map(0..100, &cut);
        assert!(cut.agrees_with(&whole, &(0..40)) && cut.agrees_with(&whole, &(60..100)));
        assert!(!cut.agrees_with(&whole, &(30..41)) && !cut.agrees_with(&whole, &(59..70)));
        assert!(!map(0..100, &[]).agrees_with(&whole, &(0..1)));
    }

    proptest! {
        #[test]
        fn what_was_added_is_known_once(ranges in prop::collection::vec((0u64..100, 1u64..30), 1..12)) {
            let every = [extent(10..20, "a"), extent(20..50, "b"), extent(70..90, "c")];
            let (mut map, mut known) = (ExtentMap::default(), [false; 130]);
            let mut holes = [false; 130];
            for (start, length) in ranges {
                for hole in map.add(&(start..start + length), &every) {
                    for at in hole {
                        prop_assert!(!known[at as usize] && !holes[at as usize]);
                        holes[at as usize] = true;
                    }
                }
                known[start as usize..(start + length) as usize].fill(true);
            }
            for at in 0..130 {
                let is_written = (10..50).contains(&at) || (70..90).contains(&at);
                let is_known = known[at as usize];
                prop_assert_eq!(map.known_until(at) > at, is_known);
                prop_assert_eq!(map.at(at).is_some(), is_known && is_written);
                prop_assert_eq!(holes[at as usize], is_known && !is_written);
            }
        }
    }
}
