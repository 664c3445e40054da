//! Renames of directories that could not be finished.
//!
//! When originals cannot be deleted after everything was copied, the copies are worth keeping:
//! repeating the rename skips what is unchanged and deletes the rest, provided that the copies are
//! all there as they were made. The journal is in memory;
//! after a restart both directories are simply there.

use std::collections::VecDeque;

use crate::rename::descendants::Descendants;

/// Unfinished renames that are remembered; the oldest is forgotten first.
const UNFINISHED_MAX: usize = 4;

/// Renames of directories that could not be finished.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    unfinished: VecDeque<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    from: String,
    to: String,
    copied: Descendants,
}

impl Journal {
    /// Remembers that everything in `copied` is below both prefixes.
    pub(super) fn remember(&mut self, from: &str, to: &str, copied: Descendants) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.unfinished.push_back(Unfinished { from, to, copied });
        if self.unfinished.len() > UNFINISHED_MAX {
            self.unfinished.pop_front();
        }
    }

    /// Remembers again what was taken, unless a later attempt is remembered by now.
    pub(super) fn keep(&mut self, from: &str, to: &str, copied: Descendants) {
        let mut unfinished = self.unfinished.iter();
        if !unfinished.any(|known| known.from == from && known.to == to) {
            self.remember(from, to, copied);
        }
    }

    /// What an earlier attempt at this rename copied.
    pub(super) fn take(&mut self, from: &str, to: &str) -> Option<Descendants> {
        let index = self
            .unfinished
            .iter()
            .position(|known| known.from == from && known.to == to);
        self.unfinished.remove(index?).map(|known| known.copied)
    }
}
