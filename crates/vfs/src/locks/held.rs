//! What is held of one file.

use std::ops::Range;

use super::{Lock, LockMode, LockOwner};

/// Locks of one file and family that are held, those of an owner never overlapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldLocks(Vec<Lock>);

impl Lock {
    /// Whether two locks of different owners cannot be held at once.
    pub fn excludes(&self, other: &Self) -> bool {
        let is_exclusive = [self.mode, other.mode].contains(&LockMode::Exclusive);
        is_exclusive && overlap(&self.range, &other.range)
    }

    /// The part of it that is in a range.
    fn within(&self, range: &Range<u64>) -> Option<Self> {
        let range = self.range.start.max(range.start)..self.range.end.min(range.end);
        (!range.is_empty()).then(|| Self {
            range,
            ..self.clone()
        })
    }
}

impl HeldLocks {
    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Lock> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Locks of others that keep `wanted` from being given.
    pub fn blocking(&self, wanted: &Lock) -> impl Iterator<Item = &Lock> {
        let others = self.iter().filter(move |held| held.owner != wanted.owner);
        others.filter(move |held| held.excludes(wanted))
    }

    /// What an owner holds of a range.
    pub fn within(&self, owner: LockOwner, range: &Range<u64>) -> Vec<Lock> {
        let own = self.iter().filter(|lock| lock.owner == owner);
        own.filter_map(|lock| lock.within(range)).collect()
    }

    /// Takes back that a lock was given: what its owner held of the range before, it holds again, but for what it gave back
    /// since. Where others are in the way of that by now (`is_blocked`) it holds what it was given.
    pub fn take_back(&mut self, given: &Lock, before: &[Lock], is_blocked: impl Fn(&Lock) -> bool) {
        let now = self.within(given.owner, &given.range);
        self.cut(given.owner, &given.range);
        for left in now {
            for old in before.iter().filter_map(|old| old.within(&left.range)) {
                let mode = match is_blocked(&old) {
                    true => left.mode,
                    false => old.mode,
                };
                self.add(Lock { mode, ..old });
            }
        }
    }

    /// Takes a range out of what an owner holds, and says whether any was.
    pub fn cut(&mut self, owner: LockOwner, range: &Range<u64>) -> bool {
        let mut left = Vec::new();
        let mut any = false;
        self.0.retain_mut(|lock| {
            if lock.owner != owner || !overlap(&lock.range, range) {
                return true;
            }
            any = true;
            let before = lock.range.start..range.start;
            let after = range.end..lock.range.end;
            for range in [before, after]
                .into_iter()
                .filter(|range| !range.is_empty())
            {
                left.push(Lock {
                    range,
                    ..lock.clone()
                });
            }
            false
        });
        self.0.append(&mut left);
        any
    }

    /// Adds a lock and joins it with its neighbours of the same owner and mode.
    pub fn add(&mut self, mut lock: Lock) {
        self.0.retain(|held| {
            let is_alike = held.owner == lock.owner && held.mode == lock.mode;
            let touches = held.range.end == lock.range.start || lock.range.end == held.range.start;
            if is_alike && touches {
                lock.range =
                    lock.range.start.min(held.range.start)..lock.range.end.max(held.range.end);
            }
            !(is_alike && touches)
        });
        self.0.push(lock);
    }

    /// Takes all locks of a client away.
    pub fn drop_client(&mut self, client: u64) {
        self.0.retain(|lock| lock.owner.client != client);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
