//! What waits to be carried out, and when each of it is due.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use penstock_base::{
    FsError,
    clock::{self, Instant},
};
use penstock_object::{DELETE_MANY_MAX, Key};
use penstock_transfer::staging::NameChange;
use penstock_vfs::{UnsavedItem, UnsavedKind};

use crate::{
    files::not_removed, inode::Reference, staged::retry::PAUSES, write_back::REMOVALS_AT_ONCE,
};

/// Changes that wait, by key.
#[derive(Debug, Default)]
pub(super) struct Pending {
    changes: BTreeMap<Key, Waiting>,
    /// Counts what began to wait, and each change of it.
    last: u64,
    /// What was given up lately, for who waits for it.
    given_up: VecDeque<GivenUp>,
}

/// A change that was given up.
#[derive(Debug)]
struct GivenUp {
    at: u64,
    key: Key,
    reason: FsError,
}

/// Changes given up that are kept in mind: all that are carried out at once may be refused before who waits for the
/// first of them looks.
const GIVEN_UP_MAX: usize = (REMOVALS_AT_ONCE + 1) * DELETE_MANY_MAX;

/// A change that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) change: Arc<NameChange>,
    /// The node that waits for it.
    pub(super) node: Option<Reference>,
    /// The first change of this key that is not in the store.
    number: u64,
    /// The first that came while an earlier one is carried out.
    later: Option<u64>,
    /// Tells the change from one that takes its place while it is carried out.
    serial: u64,
    since: Instant,
    due: Instant,
    is_under_way: bool,
    /// Somebody decided by what waits what is to take its place, and the log does not have that yet: nothing is begun
    /// meanwhile.
    is_being_changed: bool,
    /// The store may have something of an earlier attempt.
    may_be_stored: bool,
    failed: Option<Failed>,
    /// For who waits for the key.
    told: Option<Told>,
}

/// The last attempt at the change failed.
#[derive(Debug)]
struct Failed {
    pause: Duration,
    reason: FsError,
}

/// The last attempt at any change of the key that failed.
#[derive(Debug)]
struct Told {
    at: u64,
    reason: FsError,
}

/// Which changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// That of one key.
    Key(&'a Key),
    /// Those of all keys below a prefix, and of the prefix.
    Below(&'a str),
}

impl Scope<'_> {
    fn has(&self, key: &Key) -> bool {
        match self {
            Self::Key(one) => *one == key,
            Self::Below(prefix) => key.as_str().starts_with(prefix),
        }
    }

    /// Its changes among `changes`, in order.
    fn of<'a>(&self, changes: &'a mut BTreeMap<Key, Waiting>) -> Vec<(&'a Key, &'a mut Waiting)> {
        let from = match self {
            Self::Key(key) => key.as_str(),
            Self::Below(prefix) => prefix,
        };
        let changes = changes.range_mut::<str, _>((Bound::Included(from), Bound::Unbounded));
        changes.take_while(|(key, _)| self.has(key)).collect()
    }
}

/// Whether a key is below a marker.
fn is_below(key: &Key, marker: &Key) -> bool {
    marker.as_str().ends_with('/') && key.as_str().starts_with(marker.as_str())
}

/// A change that is to be carried out now.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) key: Key,
    pub(super) change: Arc<NameChange>,
    pub(super) serial: u64,
}

/// What may be begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) writes: usize,
    /// Batches of them.
    pub(super) removals: usize,
}

/// What is to be carried out now.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) writes: Vec<Task>,
    pub(super) removals: Vec<Task>,
    /// When the next is due, if there was room for all.
    pub(super) next: Option<Instant>,
}

impl Waiting {
    pub(super) fn is_removal(&self) -> bool {
        matches!(*self.change, NameChange::Remove(_))
    }

    /// Whether the store may have it.
    pub(super) fn is_begun(&self) -> bool {
        self.may_be_stored || self.is_under_way
    }

    fn may_be_begun(&self) -> bool {
        !self.is_under_way && !self.is_being_changed
    }

    /// Whether it is a write that was not begun of what the store never had.
    pub(super) fn is_of_something_new(&self) -> bool {
        let is_new = matches!(&*self.change, NameChange::Write(object) if object.is_new);
        is_new && !self.is_begun()
    }
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Waiting> {
        self.changes.get(key)
    }

    pub(super) fn is_removed(&self, key: &str) -> bool {
        self.changes.get(key).is_some_and(Waiting::is_removal)
    }

    /// The changes of the keys below a prefix, and of the prefix.
    pub(super) fn below(&self, prefix: &str) -> impl Iterator<Item = (&Key, &Waiting)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let changes = self.changes.range::<str, _>(from);
        changes.take_while(move |(key, _)| key.as_str().starts_with(prefix))
    }

    /// Holds what waits for a key until it was changed, so that it stays as it is now.
    pub(super) fn hold(&mut self, key: &Key) {
        self.set_being_changed(key, true);
    }

    /// Lets go of what was held and was not changed.
    pub(super) fn release(&mut self, key: &Key) {
        self.set_being_changed(key, false);
    }

    fn set_being_changed(&mut self, key: &Key, is_being_changed: bool) {
        if let Some(waiting) = self.changes.get_mut(key) {
            waiting.is_being_changed = is_being_changed;
        }
    }

    /// Lets a change wait in place of the one that may wait for its key. Returns what is not held any more.
    pub(super) fn add(
        &mut self,
        key: Key,
        change: Arc<NameChange>,
        node: Option<Reference>,
        due: Instant,
    ) -> Option<Reference> {
        self.last += 1;
        let serial = self.last;
        let Some(there) = self.changes.get_mut(&key) else {
            let waiting = Waiting {
                change,
                node,
                number: serial,
                later: None,
                serial,
                since: clock::now(),
                due,
                is_under_way: false,
                is_being_changed: false,
                may_be_stored: false,
                failed: None,
                told: None,
            };
            self.changes.insert(key, waiting);
            return None;
        };
        if there.is_under_way {
            there.later.get_or_insert(serial);
        }
        there.is_being_changed = false;
        there.change = change;
        there.serial = serial;
        there.due = due;
        there.failed = None;
        std::mem::replace(&mut there.node, node)
    }

    /// Lets a change wait that an earlier mount left, and may have begun.
    pub(super) fn add_left(
        &mut self,
        key: &Key,
        change: Arc<NameChange>,
        node: Option<Reference>,
    ) -> Option<Reference> {
        let displaced = self.add(key.clone(), change, node, clock::now());
        if let Some(waiting) = self.changes.get_mut(key) {
            waiting.may_be_stored = true;
        }
        displaced
    }

    /// Takes out what waits for a key. Returns what is not held any more.
    pub(super) fn take(&mut self, key: &Key) -> Option<Reference> {
        self.changes.remove(key)?.node
    }

    /// What somebody who asks now waits for.
    pub(super) fn asked(&self) -> Asked {
        Asked(self.last)
    }

    /// Makes due what is asked for and did not fail since, and says what is left of it.
    pub(super) fn hasten(&mut self, scope: &Scope<'_>, Asked(asked): Asked) -> Left {
        let (now, mut left) = (clock::now(), Left::default());
        let old = self.given_up.partition_point(|one| one.at <= asked);
        let mut given_up = self.given_up.range(old..);
        left.failure = given_up
            .find(|one| scope.has(&one.key))
            .map(|one| one.reason.clone());
        // The removal behind the one that is looked at, and why it failed since.
        let mut behind: Option<(&Key, Option<FsError>)> = None;
        for (key, waiting) in scope.of(&mut self.changes).into_iter().rev() {
            let told = waiting.told.as_ref().filter(|told| told.at > asked);
            let mut failure = told.map(|told| told.reason.clone());
            if waiting.is_removal() {
                // A marker that goes after what is below it is never tried before.
                if let Some((_, below)) = behind.take().filter(|(below, _)| is_below(below, key)) {
                    failure = failure.or(below);
                }
                behind = Some((key, failure.clone()));
            }
            if waiting.number > asked {
                continue;
            }
            match failure {
                Some(reason) => {
                    left.failure.get_or_insert(reason);
                }
                None => {
                    left.is_going_on = true;
                    waiting.due = now;
                }
            }
        }
        left
    }

    /// Takes what is due, as far as there is room, and marks it as under way.
    pub(super) fn take_due(&mut self, age_max: Duration, is_crowded: bool, room: Room) -> Due {
        let (now, mut due) = (clock::now(), Due::default());
        let removals_max = room.removals * DELETE_MANY_MAX;
        // One request takes many: those that are not due yet go with the first that is.
        let is_due = |waiting: &Waiting| waiting.due(age_max, is_crowded) <= now;
        let mut removals = self.changes.values().filter(|one| one.is_removal());
        let removes = removals.any(|one| one.may_be_begun() && is_due(one));
        let parents = self.busy_parents();
        for (key, waiting) in &mut self.changes {
            if !waiting.may_be_begun() || (waiting.is_removal() && parents.contains(key)) {
                continue;
            }
            let at = waiting.due(age_max, is_crowded);
            let goes_along = removes && waiting.is_removal() && waiting.failed.is_none();
            if at > now && !goes_along {
                due.next = Some(due.next.map_or(at, |next| next.min(at)));
                continue;
            }
            let (tasks, most) = match waiting.is_removal() {
                true => (&mut due.removals, removals_max),
                false => (&mut due.writes, room.writes),
            };
            if tasks.len() < most {
                waiting.is_under_way = true;
                tasks.push(Task {
                    key: key.clone(),
                    change: Arc::clone(&waiting.change),
                    serial: waiting.serial,
                });
            }
        }
        due
    }

    /// Markers below which something is to be removed: they go after it, or the directory would be seen again.
    fn busy_parents(&self) -> HashSet<Key> {
        let keys = self.changes.iter().filter(|(_, one)| one.is_removal());
        let keys: Vec<&Key> = keys.map(|(key, _)| key).collect();
        let pairs = keys.iter().zip(keys.iter().skip(1));
        let busy = pairs.filter(|(marker, next)| is_below(next, marker));
        busy.map(|(marker, _)| Key::clone(marker)).collect()
    }

    /// Whether no other change took the place of this one.
    pub(super) fn is_current(&self, task: &Task) -> bool {
        let waiting = self.changes.get(&task.key);
        waiting.is_some_and(|waiting| waiting.serial == task.serial)
    }

    /// A change was carried out. Returns what waited, unless another change of the key waits now.
    pub(super) fn end(&mut self, task: &Task) -> Option<Waiting> {
        let waiting = self.changes.get_mut(&task.key)?;
        if waiting.serial == task.serial {
            return self.changes.remove(&task.key);
        }
        // Who waits for what was carried out waits no longer, however often the key is changed meanwhile.
        waiting.number = waiting.later.take().unwrap_or(waiting.serial);
        waiting.is_under_way = false;
        waiting.may_be_stored = true;
        None
    }

    /// A change is not to be made any more.
    pub(super) fn note_given_up(&mut self, key: &Key, reason: FsError) {
        self.last += 1;
        if self.given_up.len() == GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
        self.given_up.push_back(GivenUp {
            at: self.last,
            key: key.clone(),
            reason,
        });
    }

    /// An attempt failed. It is repeated later, unless another change of the key took its place: that is due when it was.
    pub(super) fn fail(&mut self, task: &Task, reason: FsError) {
        self.last += 1;
        let Some(waiting) = self.changes.get_mut(&task.key) else {
            return;
        };
        waiting.later = None;
        waiting.is_under_way = false;
        waiting.may_be_stored = true;
        waiting.told = Some(Told {
            at: self.last,
            reason: reason.clone(),
        });
        if waiting.serial == task.serial {
            let before = waiting.failed.as_ref().map(|failed| failed.pause);
            let pause = before.map_or(PAUSES[0], |pause| (pause * 2).min(PAUSES[1]));
            waiting.due = clock::now() + pause;
            waiting.failed = Some(Failed { pause, reason });
        }
    }

    /// Everything that waits, as people are told.
    pub(super) fn items(&self) -> Vec<UnsavedItem> {
        let items = self.changes.iter().map(|(key, waiting)| UnsavedItem {
            path: key.to_string(),
            kind: match waiting.is_removal() {
                true => UnsavedKind::Removal,
                false => UnsavedKind::Name,
            },
            bytes: 0,
            age: Some(waiting.since.elapsed()),
            failure: waiting.failed.as_ref().map(|failed| failed.reason.clone()),
        });
        items.collect()
    }

    /// The keys of everything that waits, each with why it could not be done, or with `other`.
    pub(super) fn left_over(&self, other: &FsError) -> Vec<(String, FsError)> {
        let left = self.changes.iter().map(|(key, waiting)| {
            let failed = waiting.failed.as_ref().map(|failed| &failed.reason);
            let reason = failed.unwrap_or(other);
            let told = match waiting.is_removal() {
                true => not_removed(reason),
                false => reason.clone(),
            };
            (key.to_string(), told)
        });
        left.collect()
    }
}

impl Waiting {
    fn due(&self, age_max: Duration, is_crowded: bool) -> Instant {
        match &self.failed {
            Some(_) => self.due,
            None if is_crowded => self.since,
            None => self.due.min(self.since + age_max),
        }
    }
}

/// What somebody waits for: what began to wait before this number, or what took its place. Failures after it count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked(u64);

/// What is left of what was asked for.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Whether something waits that did not fail since.
    pub(super) is_going_on: bool,
    /// Why something failed since.
    pub(super) failure: Option<FsError>,
}

#[cfg(test)]
mod tests {
    use penstock_transfer::staging::Removal;

    use super::*;

    /// It never begins, so it never fails by itself: who waited for it waited as long as what is below it failed.
    #[test]
    fn a_marker_that_is_held_back_fails_with_what_is_below_it() {
        let mut pending = Pending::default();
        for key in [
            "folder/",
            "folder/file",
            "folder/inner/",
            "folder/inner/file",
        ] {
            let key = Key::new(key).expect("valid");
            let removal = Arc::new(NameChange::Remove(Removal::default()));
            pending.add(key, removal, None, clock::now());
        }
        let asked = pending.asked();
        assert!(pending.hasten(&Scope::Below("folder/"), asked).is_going_on);
        let room = Room {
            writes: 1,
            removals: 1,
        };
        let due = pending.take_due(Duration::ZERO, false, room);
        let keys: Vec<_> = due.removals.iter().map(|task| task.key.as_str()).collect();
        assert_eq!(keys, ["folder/file", "folder/inner/file"]);
        let reason = FsError::Busy("for a test");
        pending.fail(&due.removals[0], reason.clone());
        assert!(pending.hasten(&Scope::Below("folder/"), asked).is_going_on);
        pending.fail(&due.removals[1], reason.clone());
        let left = pending.hasten(&Scope::Below("folder/"), asked);
        assert!(!left.is_going_on);
        assert_eq!(left.failure, Some(reason));
    }

    /// Who waited for one of the first keys of a batch was told that all is well.
    #[test]
    fn each_removal_of_a_batch_that_is_given_up_is_told() {
        let mut pending = Pending::default();
        let asked = pending.asked();
        let reason = FsError::Busy("for a test");
        let key = |number| Key::new(format!("file-{number}")).expect("valid");
        for number in 0..REMOVALS_AT_ONCE * DELETE_MANY_MAX {
            pending.note_given_up(&key(number), reason.clone());
        }
        for number in 0..REMOVALS_AT_ONCE * DELETE_MANY_MAX {
            let left = pending.hasten(&Scope::Key(&key(number)), asked);
            assert_eq!(left.failure.as_ref(), Some(&reason), "file-{number}");
        }
    }
}
