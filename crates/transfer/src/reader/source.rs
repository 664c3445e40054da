//! Where the bytes of what is read lie: in one object, or in extents.
//!
//! What a reader knows and decides goes by offsets. Only what has to be fetched asks here: a part lies in one object, is
//! received by one GET, and may arrive with bytes before and behind it that come along.

use std::{ops::Range, sync::Arc};

use penstock_base::Payload;
use penstock_object::AtHand;
use smallvec::SmallVec;

use super::{extent::Grains, extent_map::ExtentMap, grains::Comparison, stream::part_end};
use crate::{ObjectVersion, cache::BLOCK as CACHE_BLOCK, memory};

/// Ranges of bytes, in order.
pub(super) type Ranges = SmallVec<[Range<u64>; 2]>;

/// What several GETs bring, each with what it brings of it.
pub(crate) type Errands = SmallVec<[(Range<u64>, Errand); 1]>;

/// What one GET brings.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    /// The object.
    pub(super) version: Arc<ObjectVersion>,
    /// Which places of it: see [`Grains::run`].
    pub(super) range: Range<u64>,
    /// How many of them lie before those that are wanted.
    pub(super) lead: u64,
    /// What they are compared with.
    pub(super) grains: Option<Grains>,
}

impl Errand {
    /// Brings a range of an object.
    pub(super) fn of_object(version: Arc<ObjectVersion>, range: &Range<u64>) -> Self {
        Self {
            version,
            range: range.clone(),
            lead: 0,
            grains: None,
        }
    }

    /// Bytes of the budget that it needs.
    pub(super) fn cost(&self) -> u64 {
        let unpacking = self.grains.as_ref().map_or(0, Grains::unpacking_cost);
        memory::cost(self.range.end - self.range.start) + unpacking
    }
}

/// What an errand would have brought.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) errand: Errand,
    pub(super) found: AtHand,
}

impl Found {
    /// The first `length` bytes that are wanted of it, if all of it are those that were written.
    pub(super) fn compared(self, length: u64) -> Option<Payload> {
        let Self { errand, found } = self;
        if !found.compared.has(&errand.range) {
            let mut comparison = Comparison::new(errand.grains?, errand.range.start);
            let is_right = comparison.add(&found.bytes);
            if !is_right || comparison.compared() < comparison.seen() {
                return None;
            }
            found.compared.add(&errand.range);
        }
        let wanted = errand.lead as usize..(errand.lead + length) as usize;
        Some(found.bytes.slice(wanted).into())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) enum Source {
    Object {
        version: Arc<ObjectVersion>,
        /// Whether it is never fetched in pieces.
        comes_whole: bool,
    },
    Extents(ExtentMap),
}

impl Source {
    /// Bytes in all.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Object { version, .. } => version.size,
            Self::Extents(map) => map.size(),
        }
    }

    /// Whether any read fetches all of it.
    pub(super) fn comes_whole(&self) -> bool {
        matches!(self, Self::Object { comes_whole, .. } if *comes_whole)
    }

    /// Cuts ranges where one GET cannot go on. What is not known of them is left out.
    pub(super) fn cut(&self, ranges: Ranges) -> Ranges {
        let Self::Extents(map) = self else {
            return ranges;
        };
        let parts = ranges.iter().flat_map(|range| {
            let extents = map.within(range);
            extents.map(|extent| clipped(&extent.range, range))
        });
        parts.collect()
    }

    /// Where a part ends that has `wanted`, which one GET can bring, and about `length` bytes if that is more. `None` where it is not
    /// known what lies there.
    pub(super) fn part_end(&self, wanted: &Range<u64>, length: u64) -> Option<u64> {
        match self {
            Self::Object { version, .. } => {
                Some(version.size.min(part_end(wanted, length, CACHE_BLOCK)))
            }
            Self::Extents(map) => Some(map.at(wanted.start)?.part_end(wanted, length)),
        }
    }

    /// What comes along with `range`, which one GET can bring, and can be of use.
    pub(super) fn widened(&self, range: Range<u64>) -> Range<u64> {
        let Self::Extents(map) = self else {
            return range;
        };
        match map.at(range.start) {
            Some(extent) => extent.widened(&range, map.whole_max()),
            None => range,
        }
    }

    /// Bytes of the budget that fetching `range`, which one GET can bring, takes.
    pub(super) fn cost(&self, range: &Range<u64>) -> u64 {
        let received = match self {
            Self::Object {
                version,
                comes_whole,
            } if *comes_whole => 0..version.size,
            Self::Object { .. } => range.clone(),
            Self::Extents(map) => match map.at(range.start) {
                Some(extent) => return extent.cost(range, map.whole_max()),
                None => range.clone(),
            },
        };
        memory::cost(received.end - received.start)
    }

    /// What brings `range`, which one GET can bring; `None` where it is not known what lies there.
    pub(super) fn errand(&self, range: &Range<u64>) -> Option<Errand> {
        match self {
            Self::Object {
                version,
                comes_whole,
            } => {
                let (received, lead) = match comes_whole {
                    true => (0..version.size, range.start),
                    false => (range.clone(), 0),
                };
                Some(Errand {
                    version: Arc::clone(version),
                    range: received,
                    lead,
                    grains: None,
                })
            }
            Self::Extents(map) => {
                let extent = map.at(range.start)?;
                let received = extent.received(range, map.whole_max());
                Some(Errand {
                    version: Arc::clone(&extent.object),
                    lead: extent.place(range.start) - received.start,
                    range: received,
                    grains: extent.grains.clone(),
                })
            }
        }
    }

    /// What brings all of `range`, each with what it brings of it; `None` where it is not known what lies there.
    pub(super) fn errands(&self, range: &Range<u64>) -> Option<Errands> {
        let is_known = match self {
            Self::Object { .. } => true,
            Self::Extents(map) => map.known_until(range.start) >= range.end,
        };
        let parts = self.cut(std::iter::once(range.clone()).collect());
        let errands = parts.into_iter();
        let errands = errands.map(|part| self.errand(&part).map(|errand| (part, errand)));
        errands.collect::<Option<_>>().filter(|_| is_known)
    }
}

fn clipped(range: &Range<u64>, limits: &Range<u64>) -> Range<u64> {
    range.start.max(limits.start)..range.end.min(limits.end)
}
