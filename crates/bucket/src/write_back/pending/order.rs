//! Which of the changes that wait may be begun, and when each of them is due.
//!
//! What is under way, held, or a marker above something that is to be removed stands nowhere here, so a look costs as
//! much as there is to begin, however much waits. Of removals those that are not due go along with one that is, in the
//! order of their keys: so those of one directory are asked for together.

use std::{
    collections::{BTreeSet, btree_set},
    ops::Bound,
};

use penstock_base::clock::Instant;
use penstock_object::Key;

use super::is_below;

/// Where a change stands that may be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) is_removal: bool,
    /// Whether an attempt failed, so that it has its own time whatever else is due.
    pub(super) is_failed: bool,
    pub(super) at: Instant,
}

/// Changes that may be begun.
#[derive(Debug, Default)]
pub(super) struct Order {
    writes: Schedule,
    removals: Schedule,
    /// The removals among them of which no attempt failed.
    fresh_removals: BTreeSet<Key>,
    /// Removals, whether they may be begun or not.
    all_removals: BTreeSet<Key>,
}

/// Changes of one kind, by when they are due.
#[derive(Debug, Default)]
struct Schedule {
    fresh: BTreeSet<(Instant, Key)>,
    failed: BTreeSet<(Instant, Key)>,
}

impl Schedule {
    fn of(&mut self, is_failed: bool) -> &mut BTreeSet<(Instant, Key)> {
        match is_failed {
            true => &mut self.failed,
            false => &mut self.fresh,
        }
    }

    /// What is due, of what did not fail all if `is_crowded`.
    fn due(&self, now: Instant, is_crowded: bool) -> impl Iterator<Item = &Key> {
        let is_due = move |(at, _): &&(Instant, Key)| *at <= now;
        let fresh = self.fresh.iter();
        let fresh = fresh.take_while(move |one| is_crowded || is_due(one));
        let due = fresh.chain(self.failed.iter().take_while(is_due));
        due.map(|(_, key)| key)
    }

    /// When the first is due that is not due yet.
    fn next(&self, now: Instant) -> Option<Instant> {
        let later = |set: &BTreeSet<(Instant, Key)>| {
            let first = set.iter().next().map(|(at, _)| *at);
            // What is due and found no room stands first.
            first.filter(|at| *at > now)
        };
        let times = [later(&self.fresh), later(&self.failed)];
        times.into_iter().flatten().min()
    }
}

impl Order {
    /// Puts a change where it stands now.
    pub(super) fn put(&mut self, key: &Key, before: Option<Slot>, after: Option<Slot>) {
        if let Some(slot) = before {
            self.schedule(slot).remove(&(slot.at, key.clone()));
            self.fresh_removals.remove(key);
        }
        if let Some(slot) = after {
            self.schedule(slot).insert((slot.at, key.clone()));
            if slot.is_removal && !slot.is_failed {
                self.fresh_removals.insert(key.clone());
            }
        }
    }

    fn schedule(&mut self, slot: Slot) -> &mut BTreeSet<(Instant, Key)> {
        let schedule = match slot.is_removal {
            true => &mut self.removals,
            false => &mut self.writes,
        };
        schedule.of(slot.is_failed)
    }

    /// Notes whether what waits for a key is a removal. Returns the marker that this holds back, or no longer does.
    pub(super) fn note_removal(&mut self, key: &Key, is_removal: bool) -> Option<Key> {
        let is_changed = match is_removal {
            true => self.all_removals.insert(key.clone()),
            false => self.all_removals.remove(key),
        };
        // The markers above that one are held back by it, whatever this is.
        let above = (Bound::Unbounded, Bound::Excluded(key));
        let above = self.all_removals.range::<Key, _>(above).next_back();
        above
            .filter(|above| is_changed && is_below(key, above))
            .cloned()
    }

    /// The removal that a marker goes after, if there is one.
    pub(super) fn held_back_by(&self, marker: &Key) -> Option<&Key> {
        let after = (Bound::Excluded(marker), Bound::Unbounded);
        let next = self.all_removals.range::<Key, _>(after).next();
        next.filter(|next| is_below(next, marker))
    }

    /// The removals of keys that begin with a prefix.
    pub(super) fn removals_below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Key> {
        let from: (Bound<&str>, Bound<&str>) = (Bound::Included(prefix), Bound::Unbounded);
        let removals: btree_set::Range<'_, Key> = self.all_removals.range::<str, _>(from);
        removals.take_while(move |key| key.as_str().starts_with(prefix))
    }

    /// What is to be written now, at most so many.
    pub(super) fn due_writes(&self, now: Instant, is_crowded: bool, most: usize) -> Vec<Key> {
        let due = self.writes.due(now, is_crowded);
        due.take(most).cloned().collect()
    }

    /// What is to be removed now, at most so many, in order.
    pub(super) fn due_removals(&self, now: Instant, is_crowded: bool, most: usize) -> Vec<Key> {
        if self.removals.due(now, is_crowded).next().is_none() {
            return Vec::new();
        }
        let failed = self.removals.failed.iter();
        let failed = failed.take_while(|(at, _)| *at <= now).map(|(_, key)| key);
        let due = failed.chain(&self.fresh_removals);
        let mut due: Vec<Key> = due.take(most).cloned().collect();
        due.sort();
        due
    }

    /// When the next is due that is not due yet.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let times = [self.writes.next(now), self.removals.next(now)];
        times.into_iter().flatten().min()
    }
}
