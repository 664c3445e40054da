//! Who lists what.
//!
//! The board has every range that is being listed or waits to be. All changes happen here, under
//! one lock, for a moment each: taking a range, splitting one, moving its position when a page came.
//! That is what keeps ranges apart: the end of a range may come nearer at any time, but never
//! before its position.

use std::collections::{BTreeMap, VecDeque};

use penstock_object::{Alphabet, FlatPage};

use super::{
    ListingSettings,
    limits::{Allowance, Pace},
    range::Range,
};
use crate::spool::Span;

/// Keys that a range must seem to have left to be split, in pages: less is faster listed than shared.
const PAGES_TO_SPLIT: f64 = 3.0;

/// Keys of each page that the alphabet learns from.
const SAMPLES_PER_PAGE: usize = 16;

/// Beginnings of directories that are kept.
const DIRECTORIES_MAX: usize = 16_384;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Board {
    ranges: BTreeMap<u64, Range>,
    waiting: VecDeque<Range>,
    /// Beginnings of directories, in order.
    directories: Vec<String>,
    alphabet: Alphabet,
    pub(super) allowance: Allowance,
    pub(super) pace: Pace,
    /// Keys that a range must seem to have left to be split.
    worth_splitting: f64,
    next_id: u64,
}

/// What somebody who asks for work gets.
#[derive(Debug)]
pub(super) enum Turn {
    /// The range of this id, to be listed after this key.
    List { id: u64, after: String },
    /// There may be work later.
    Wait,
    /// There is none, and will not be.
    Done,
}

/// What became of a page.
#[derive(Debug)]
pub(super) struct Taken {
    /// Keys at its front that belong to the range.
    pub(super) keys: usize,
    /// Whether it was the range's first page.
    pub(super) first: bool,
    /// The range's last key if it is done, which is `None` for the end of all keys.
    pub(super) done: Option<Option<String>>,
}

impl Board {
    /// With `gaps` to list.
    pub(super) fn new(gaps: Vec<Span>, settings: &ListingSettings) -> Self {
        let concurrency = settings.concurrency.max(1);
        let waiting = gaps.into_iter().map(|gap| Range::new(gap, f64::INFINITY));
        Self {
            ranges: BTreeMap::new(),
            waiting: waiting.collect(),
            directories: Vec::new(),
            alphabet: Alphabet::default(),
            allowance: Allowance::new(concurrency),
            pace: Pace::new(concurrency),
            worth_splitting: PAGES_TO_SPLIT * f64::from(settings.page_keys),
            next_id: 0,
        }
    }

    /// Ranges that are being listed.
    pub(super) fn under_way(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is left to list.
    pub(super) fn is_done(&self) -> bool {
        self.ranges.is_empty() && self.waiting.is_empty()
    }

    /// Keys that all ranges seem to have left.
    pub(super) fn left(&self) -> f64 {
        let all = self.ranges.values().chain(&self.waiting);
        all.map(|range| range.left).sum()
    }

    /// Gives out a range that waits, or a part of one that is being listed.
    pub(super) fn take(&mut self) -> Turn {
        if self.is_done() {
            return Turn::Done;
        }
        if self.ranges.len() >= self.pace.limit() {
            return Turn::Wait;
        }
        if let Some(range) = self.waiting.pop_front() {
            return self.give_out(range);
        }
        match self.steal() {
            Some(range) => self.give_out(range),
            None => Turn::Wait,
        }
    }

    /// Moves the range `id` forward by `page`.
    pub(super) fn receive(&mut self, id: u64, page: &FlatPage) -> Option<Taken> {
        let step = (page.len() / SAMPLES_PER_PAGE).max(1);
        for index in (0..page.len()).step_by(step) {
            self.alphabet.learn(page.key(index));
        }
        let range = self.ranges.get_mut(&id)?;
        let first = !range.seen;
        let keys = range.advance(page);
        self.allowance.received(keys, page.len());
        let at_end = range.end.as_ref() == Some(&range.position);
        if keys < page.len() || page.continuation.is_none() || at_end {
            let end = self.ranges.remove(&id).and_then(|range| range.end);
            return Some(Taken {
                keys,
                first,
                done: Some(end),
            });
        }
        range.estimate(&self.alphabet);
        Some(Taken {
            keys,
            first,
            done: None,
        })
    }

    /// Puts the range `id` back, whose request failed.
    pub(super) fn give_back(&mut self, id: u64) {
        self.waiting.extend(self.ranges.remove(&id));
    }

    /// Takes notice of directories: texts that keys begin with.
    pub(super) fn learn_directories(&mut self, directories: Vec<String>) {
        self.directories.extend(directories);
        self.directories.sort_unstable();
        self.directories.dedup();
        self.directories.truncate(DIRECTORIES_MAX);
    }

    fn give_out(&mut self, range: Range) -> Turn {
        let id = self.next_id;
        self.next_id += 1;
        let after = range.position.clone();
        self.ranges.insert(id, range);
        Turn::List { id, after }
    }

    /// Takes the upper part of a range: of the one that seems to have the most left, and every
    /// other time of one that is known to have keys. The latter closes in on keys that all lie
    /// in one small place, the former spreads over those that lie everywhere.
    fn steal(&mut self) -> Option<Range> {
        if !self.allowance.permits_split() {
            return None;
        }
        let sure = self.next_id.is_multiple_of(2);
        self.steal_from(sure).or_else(|| self.steal_from(!sure))
    }

    fn steal_from(&mut self, sure: bool) -> Option<Range> {
        loop {
            let known = |range: &Range| range.seen || (!sure && range.left.is_finite());
            let candidates = self.ranges.iter().filter(|(_, range)| known(range));
            let heaviest = candidates.max_by(|(_, one), (_, other)| {
                let [one, other] = [one, other].map(|range| range.weight());
                one.total_cmp(&other)
            });
            let (id, range) = heaviest.filter(|(_, range)| range.left >= self.worth_splitting)?;
            let (id, middle) = (*id, self.middle(range));
            let range = self.ranges.get_mut(&id)?;
            match middle {
                Some(middle) => return Some(range.split(&middle, &self.alphabet)),
                None => range.left = 0.0,
            }
        }
    }

    /// Where to split: at the middle one of the directories that begin in the range; else, as the
    /// directories after it are known, in the directory that is being listed; else anywhere.
    fn middle(&self, range: &Range) -> Option<String> {
        let (after, end) = (&range.position, &range.end);
        let first = self.directories.partition_point(|begin| begin <= after);
        let last = match end {
            Some(end) => self.directories.partition_point(|begin| begin < end),
            None => self.directories.len(),
        };
        if first < last {
            return Some(self.directories[first.midpoint(last)].clone());
        }
        let bound = self.directory_end(after);
        let nearer = bound.filter(|bound| end.as_ref().is_none_or(|end| bound < end));
        let inside = nearer.and_then(|bound| self.alphabet.between(after, Some(&bound)));
        inside.or_else(|| self.alphabet.between(after, end.as_deref()))
    }

    /// Where the innermost known directory that `position` lies in ends: behind its last key.
    fn directory_end(&self, position: &str) -> Option<String> {
        let slashes = position.rmatch_indices('/').map(|(at, _)| at);
        let known = |at: &usize| {
            let begin = &position[..=*at];
            let found = self
                .directories
                .binary_search_by(|other| other.as_str().cmp(begin));
            found.is_ok()
        };
        let at = slashes.into_iter().find(known)?;
        // `0` is the character after `/`.
        Some(format!("{}0", &position[..at]))
    }
}
