//! What waits to be carried out, and when each of it is due.

mod account;
mod order;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use penstock_base::{
    FsError, MemoryBudget,
    clock::{self, Instant},
};
use penstock_object::{DELETE_MANY_MAX, Key};
use penstock_transfer::staging::NameChange;
use penstock_vfs::{UnsavedItem, UnsavedKind};

use crate::{
    files::not_removed,
    inode::Reference,
    staged::retry::PAUSES,
    write_back::{
        REMOVALS_AT_ONCE,
        pending::{
            account::{Account, cost},
            order::{Order, Slot},
        },
    },
};

/// Changes that wait, by key.
#[derive(Debug)]
pub(super) struct Pending {
    changes: BTreeMap<Key, Waiting>,
    order: Order,
    account: Account,
    /// How long a change may wait.
    age_max: Duration,
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
    /// Where it stands, if it may be begun.
    slot: Option<Slot>,
    /// Bytes that it occupies, about.
    cost: u64,
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

    /// Its keys among those of `changes`, in order.
    fn keys_of(&self, changes: &BTreeMap<Key, Waiting>) -> Vec<Key> {
        let from = match self {
            Self::Key(key) => key.as_str(),
            Self::Below(prefix) => prefix,
        };
        let changes = changes.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        let keys = changes.map(|(key, _)| key);
        keys.take_while(|key| self.has(key)).cloned().collect()
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
    /// Nothing waits yet. Nothing will for longer than `age_max`, nor more than there is memory for.
    pub(super) fn new(age_max: Duration, budget: &Arc<MemoryBudget>) -> Self {
        Self {
            changes: BTreeMap::new(),
            order: Order::default(),
            account: Account::new(budget),
            age_max,
            last: 0,
            given_up: VecDeque::new(),
        }
    }

    /// Sees to memory for a change that is to wait. Returns whether there is enough.
    pub(super) fn make_room(&mut self, key: &Key, change: &NameChange) -> bool {
        let there = self.changes.get(key).map_or(0, |there| there.cost);
        self.account.has_room(there, cost(key, change))
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Waiting> {
        self.changes.get(key)
    }

    pub(super) fn is_removed(&self, key: &str) -> bool {
        self.changes.get(key).is_some_and(Waiting::is_removal)
    }

    /// The keys below a prefix whose objects are to be removed.
    pub(super) fn removals_below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Key> {
        self.order.removals_below(prefix)
    }

    /// Brings in line where a change stands, and the marker that it may hold back.
    fn settle_order(&mut self, key: &Key) {
        let is_removal = self.changes.get(key).is_some_and(Waiting::is_removal);
        let marker = self.order.note_removal(key, is_removal);
        self.settle_slot(key);
        if let Some(marker) = marker {
            self.settle_slot(&marker);
        }
    }

    fn settle_slot(&mut self, key: &Key) {
        let is_held_back = self.order.held_back_by(key).is_some();
        let Some(waiting) = self.changes.get_mut(key) else {
            return;
        };
        let may_be_begun = waiting.may_be_begun() && !(waiting.is_removal() && is_held_back);
        let slot = may_be_begun.then(|| waiting.slot_now(self.age_max));
        self.order.put(key, waiting.slot, slot);
        waiting.slot = slot;
    }

    /// Takes a change out, wherever it stands.
    fn remove(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.changes.remove(key)?;
        self.account.change(waiting.cost, 0);
        self.order.put(key, waiting.slot, None);
        self.settle_order(key);
        Some(waiting)
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
        self.settle_slot(key);
    }

    /// Lets a change wait in place of the one that may wait for its key. Returns what is not held any more.
    pub(super) fn add(
        &mut self,
        key: &Key,
        change: Arc<NameChange>,
        node: Option<Reference>,
        due: Instant,
    ) -> Option<Reference> {
        self.last += 1;
        let serial = self.last;
        let cost = cost(key, &change);
        let displaced = match self.changes.get_mut(key) {
            Some(there) => {
                if there.is_under_way {
                    there.later.get_or_insert(serial);
                }
                there.is_being_changed = false;
                there.change = change;
                there.serial = serial;
                there.due = due;
                there.failed = None;
                self.account.change(there.cost, cost);
                there.cost = cost;
                std::mem::replace(&mut there.node, node)
            }
            None => {
                let waiting = Waiting {
                    cost,
                    ..Waiting::new(change, node, (serial, due))
                };
                self.account.change(0, cost);
                self.changes.insert(key.clone(), waiting);
                None
            }
        };
        self.settle_order(key);
        displaced
    }

    /// Lets a change wait that an earlier mount left, and may have begun.
    pub(super) fn add_left(
        &mut self,
        key: &Key,
        change: Arc<NameChange>,
        node: Option<Reference>,
    ) -> Option<Reference> {
        let displaced = self.add(key, change, node, clock::now());
        if let Some(waiting) = self.changes.get_mut(key) {
            waiting.may_be_stored = true;
        }
        displaced
    }

    /// Takes out what waits for a key. Returns what is not held any more.
    pub(super) fn take(&mut self, key: &Key) -> Option<Reference> {
        self.remove(key)?.node
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
        for key in scope.keys_of(&self.changes).into_iter().rev() {
            let number = self.changes.get(&key).map(|waiting| waiting.number);
            if number.is_none_or(|number| number > asked) {
                continue;
            }
            match self.failure_since(&key, asked) {
                Some(reason) => drop(left.failure.get_or_insert(reason)),
                None => {
                    self.make_due(&key, now);
                    left.going_on.push(key);
                }
            }
        }
        left
    }

    /// Makes due once more what is asked for. Returns whether it neither ended nor failed since.
    pub(super) fn press(&mut self, key: &Key, Asked(asked): Asked) -> bool {
        let waiting = self.changes.get(key);
        let is_asked_for = waiting.is_some_and(|waiting| waiting.number <= asked);
        let is_going_on = is_asked_for && self.failure_since(key, asked).is_none();
        if is_going_on {
            self.make_due(key, clock::now());
        }
        is_going_on
    }

    fn make_due(&mut self, key: &Key, now: Instant) {
        if let Some(waiting) = self.changes.get_mut(key) {
            waiting.due = waiting.due.min(now);
        }
        self.settle_slot(key);
    }

    /// Why the change of a key failed since. A marker that goes after what is below it is never tried before.
    fn failure_since(&self, key: &Key, asked: u64) -> Option<FsError> {
        let mut key = key;
        loop {
            let waiting = self.changes.get(key)?;
            let told = waiting.told.as_ref().filter(|told| told.at > asked);
            if let Some(told) = told {
                return Some(told.reason.clone());
            }
            key = self
                .order
                .held_back_by(key)
                .filter(|_| waiting.is_removal())?;
        }
    }

    /// Takes what is due, as far as there is room, and marks it as under way.
    pub(super) fn take_due(&mut self, room: Room) -> Due {
        let (now, is_crowded) = (clock::now(), self.account.is_crowded());
        let removals_max = room.removals * DELETE_MANY_MAX;
        let writes = self.order.due_writes(now, is_crowded, room.writes);
        // One request takes many: those that are not due yet go with the first that is.
        let removals = self.order.due_removals(now, is_crowded, removals_max);
        Due {
            writes: self.begin(writes),
            removals: self.begin(removals),
            next: self.order.next(now),
        }
    }

    fn begin(&mut self, keys: Vec<Key>) -> Vec<Task> {
        let tasks = keys.into_iter().filter_map(|key| {
            let waiting = self.changes.get_mut(&key)?;
            waiting.is_under_way = true;
            let task = Task {
                key,
                change: Arc::clone(&waiting.change),
                serial: waiting.serial,
            };
            self.settle_slot(&task.key);
            Some(task)
        });
        tasks.collect()
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
            return self.remove(&task.key);
        }
        // Who waits for what was carried out waits no longer, however often the key is changed meanwhile.
        waiting.number = waiting.later.take().unwrap_or(waiting.serial);
        waiting.is_under_way = false;
        waiting.may_be_stored = true;
        self.settle_slot(&task.key);
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
        self.settle_slot(&task.key);
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
    fn new(
        change: Arc<NameChange>,
        node: Option<Reference>,
        (serial, due): (u64, Instant),
    ) -> Self {
        Self {
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
            slot: None,
            cost: 0,
        }
    }

    /// Where it stands as long as it may be begun.
    fn slot_now(&self, age_max: Duration) -> Slot {
        let at_last = self.since + age_max;
        Slot {
            is_removal: self.is_removal(),
            is_failed: self.failed.is_some(),
            at: match &self.failed {
                Some(_) => self.due,
                None => self.due.min(at_last),
            },
        }
    }
}

/// What somebody waits for: what began to wait before this number, or what took its place. Failures after it count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked(u64);

/// What is left of what was asked for.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Keys of what did not fail since.
    pub(super) going_on: Vec<Key>,
    /// Why something failed since.
    pub(super) failure: Option<FsError>,
}

#[cfg(test)]
mod tests;
