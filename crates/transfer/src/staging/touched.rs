//! What was changed since a save began.
//!
//! That many ranges are remembered for each save beside the map of the file itself. Where there are more,
//! everything counts as changed: what was unsaved when the save began stays so when it ends, and is sent
//! once more.

use std::ops::Range;

use crate::staging::extents::{Extents, Held};

/// Ranges that are remembered of one save: a few for each request that arrives while it runs.
const RANGES_MAX: usize = 1 << 14;

/// What was changed since a save began; `None` stands for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Touched(Option<Extents>);

impl Default for Touched {
    /// Nothing.
    fn default() -> Self {
        Self(Some(Extents::default()))
    }
}

impl Touched {
    pub(crate) const EVERYTHING: Self = Self(None);

    /// Notes that `range` was changed, and where it is from now on.
    pub(crate) fn set(&mut self, range: Range<u64>, held: Held) {
        if let Some(ranges) = &mut self.0 {
            ranges.set(range, held);
            if ranges.count() > RANGES_MAX {
                *self = Self::EVERYTHING;
            }
        }
    }

    /// Forgets `range`, which the file has no longer.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        if let Some(ranges) = &mut self.0 {
            ranges.clear(range);
        }
    }

    /// Whether all of `range` is known to be changed, and where it is.
    pub(crate) fn covers(&self, range: &Range<u64>, held: Held) -> bool {
        self.0
            .as_ref()
            .is_some_and(|ranges| ranges.covers(range, held))
    }

    /// What was changed; `None` if that is everything.
    pub(crate) fn ranges(&self) -> Option<&Extents> {
        self.0.as_ref()
    }
}
