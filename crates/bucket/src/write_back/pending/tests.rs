use std::collections::BTreeSet;

use penstock_transfer::staging::{Removal, SmallObject};
use proptest::prelude::*;

use super::*;

fn pending() -> Pending {
    Pending::new(Duration::ZERO, &MemoryBudget::new(64 << 20))
}

fn is_going_on(pending: &mut Pending, asked: Asked) -> bool {
    let left = pending.hasten(&Scope::Below("folder/"), asked);
    !left.going_on.is_empty()
}

/// It never begins, so it never fails by itself: who waited for it waited as long as what is below it failed.
#[test]
fn a_marker_that_is_held_back_fails_with_what_is_below_it() {
    let mut pending = pending();
    for key in [
        "folder/",
        "folder/file",
        "folder/inner/",
        "folder/inner/file",
    ] {
        let key = Key::new(key).expect("valid");
        let removal = Arc::new(NameChange::Remove(Removal::default()));
        pending.add(&key, removal, None, clock::now());
    }
    let asked = pending.asked();
    assert!(is_going_on(&mut pending, asked));
    let room = Room {
        writes: 1,
        removals: 1,
    };
    let due = pending.take_due(room);
    let keys: Vec<_> = due.removals.iter().map(|task| task.key.as_str()).collect();
    assert_eq!(keys, ["folder/file", "folder/inner/file"]);
    let reason = FsError::Busy("for a test");
    pending.fail(&due.removals[0], reason.clone());
    assert!(is_going_on(&mut pending, asked));
    pending.fail(&due.removals[1], reason.clone());
    let left = pending.hasten(&Scope::Below("folder/"), asked);
    assert!(left.going_on.is_empty());
    assert_eq!(left.failure, Some(reason));
}

/// Who waited for one of the first keys of a batch was told that all is well.
#[test]
fn each_removal_of_a_batch_that_is_given_up_is_told() {
    let mut pending = pending();
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

/// What may be begun, found by looking at everything that waits: markers above removals are left out, and what is not due
/// goes along with a removal that is.
fn found_by_looking(pending: &Pending) -> (BTreeSet<Key>, BTreeSet<Key>) {
    let now = clock::now();
    let changes = || pending.changes.iter();
    let is_busy = |marker: &Key| {
        changes().any(|(key, one)| one.is_removal() && key != marker && is_below(key, marker))
    };
    let may_be_begun =
        |(key, one): &(&Key, &Waiting)| one.may_be_begun() && !(one.is_removal() && is_busy(key));
    let is_due = |one: &Waiting| one.slot_now(pending.age_max).at <= now;
    let begins = || changes().filter(may_be_begun);
    let removes = begins().any(|(_, one)| one.is_removal() && is_due(one));
    let goes = begins()
        .filter(|(_, one)| is_due(one) || removes && one.is_removal() && one.failed.is_none());
    let (removals, writes): (Vec<_>, Vec<_>) = goes.partition(|(_, one)| one.is_removal());
    let keys =
        |found: Vec<(&Key, &Waiting)>| found.into_iter().map(|(key, _)| key.clone()).collect();
    (keys(writes), keys(removals))
}

#[derive(Debug, Clone)]
enum Step {
    Write { key: usize, is_due: bool },
    Remove { key: usize, is_due: bool },
    TakeBack(usize),
    Hold(usize),
    Release(usize),
    Begin(usize),
    End(usize),
    Fail(usize),
}

const KEYS: [&str; 7] = ["a", "d/", "d/a", "d/e/", "d/e/a", "d/e/b", "z/"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let noted = || (key.clone(), any::<bool>());
    let step = prop_oneof![
        noted().prop_map(|(key, is_due)| Step::Write { key, is_due }),
        noted().prop_map(|(key, is_due)| Step::Remove { key, is_due }),
        key.clone().prop_map(Step::TakeBack),
        key.clone().prop_map(Step::Hold),
        key.clone().prop_map(Step::Release),
        (0..4_usize).prop_map(Step::Begin),
        key.clone().prop_map(Step::End),
        key.clone().prop_map(Step::Fail),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A volume's changes, and what of them was begun.
struct Model {
    pending: Pending,
    begun: Vec<Task>,
}

impl Model {
    fn run(&mut self, step: &Step) {
        let key = |index: usize| Key::new(KEYS[index]).expect("valid");
        match *step {
            Step::Write { key: index, is_due } => {
                let object = SmallObject {
                    body: Default::default(),
                    description: Default::default(),
                    is_new: false,
                };
                self.note(&key(index), NameChange::Write(object), is_due);
            }
            Step::Remove { key: index, is_due } => {
                self.note(&key(index), NameChange::Remove(Removal::default()), is_due);
            }
            Step::TakeBack(index) => drop(self.pending.take(&key(index))),
            Step::Hold(index) => self.pending.hold(&key(index)),
            Step::Release(index) => self.pending.release(&key(index)),
            Step::Begin(writes) => {
                let room = Room {
                    writes,
                    removals: 1,
                };
                let due = self.pending.take_due(room);
                self.begun
                    .extend(due.writes.into_iter().chain(due.removals));
            }
            Step::End(index) => {
                if let Some(task) = self.take_begun(&key(index)) {
                    drop(self.pending.end(&task));
                }
            }
            Step::Fail(index) => {
                if let Some(task) = self.take_begun(&key(index)) {
                    self.pending.fail(&task, FsError::Busy("for a test"));
                }
            }
        }
    }

    fn note(&mut self, key: &Key, change: NameChange, is_due: bool) {
        let later = Duration::from_secs(if is_due { 0 } else { 3600 });
        let due = clock::now() + later;
        drop(self.pending.add(key, Arc::new(change), None, due));
    }

    fn take_begun(&mut self, key: &Key) -> Option<Task> {
        let at = self.begun.iter().position(|task| task.key == *key)?;
        Some(self.begun.swap_remove(at))
    }
}

proptest! {
    #[test]
    fn what_is_begun_is_what_looking_at_everything_finds(steps in steps()) {
        let budget = MemoryBudget::new(64 << 20);
        let pending = Pending::new(Duration::from_secs(7200), &budget);
        let mut model = Model { pending, begun: Vec::new() };
        for step in steps {
            model.run(&step);
            let (writes, removals) = found_by_looking(&model.pending);
            let now = clock::now();
            let order = &model.pending.order;
            let due: BTreeSet<Key> = order.due_writes(now, false, usize::MAX).into_iter().collect();
            prop_assert_eq!(due, writes);
            let due: BTreeSet<Key> = order.due_removals(now, false, usize::MAX).into_iter().collect();
            prop_assert_eq!(due, removals);
        }
        let keys: Vec<Key> = model.pending.changes.keys().cloned().collect();
        for key in keys {
            drop(model.pending.take(&key));
        }
        prop_assert_eq!(model.pending.account.used(), 0);
        prop_assert_eq!(budget.used(), 0);
    }
}
