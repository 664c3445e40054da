//! The tree alone, without a store: whatever is done to it, its books must balance.

use std::{sync::Arc, time::Duration};

use penstock_base::{FileName, FsError, MIB, MemoryBudget, Utf8Name, clock};
use penstock_object::ObjectKind;
use penstock_vfs::{FileKind, Inode};
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Utf8Name {
    Utf8Name::new(text).expect("a valid name")
}

fn known(kind: FileKind, lifetime: u64) -> Known {
    let until = clock::now() + Duration::from_secs(lifetime);
    Known {
        kind,
        object: ObjectKind::Normal,
        size: 1,
        modified: None,
        stored: None,
        etag: None,
        until,
        kept: None,
        old_marker: None,
    }
}

fn tree(remembered_max: usize) -> Tree {
    let settings = TreeSettings {
        remembered_max,
        ..TreeSettings::default()
    };
    Tree::new(&MemoryBudget::new(64 * MIB), settings)
}

/// Checks what must always hold.
fn check(tree: &Tree, held: &[Inode], pinned: &[Inode]) {
    let (mut remembered, mut idle) = (0, 0);
    for (inode, node) in tree.nodes() {
        let children: Vec<Inode> = tree
            .nodes()
            .filter(|(_, child)| {
                child
                    .place
                    .as_ref()
                    .is_some_and(|place| place.parent == inode)
            })
            .map(|(child, _)| child)
            .collect();
        let pins = pinned.iter().filter(|pinned| **pinned == inode).count();
        assert_eq!(
            node.pins as usize,
            children.len() + pins,
            "pins of {inode:?}"
        );
        let own = u64::from(inode == Inode::ROOT);
        let lookups = held.iter().filter(|held| **held == inode).count() as u64;
        assert_eq!(node.lookups, lookups + own, "references to {inode:?}");
        let Some(directory) = &node.directory else {
            assert!(node.lookups > 0 || node.pins > 0, "{inode:?} is of no use");
            continue;
        };
        let is_idle = |inode: &Inode| tree.directory(*inode).is_ok_and(|below| below.idle);
        let idle_below = children.iter().filter(|child| is_idle(child)).count() as u64;
        assert_eq!(directory.idle_below, idle_below, "idle in {inode:?}");
        let is_unused = node.lookups == 0 && node.pins == idle_below;
        assert_eq!(directory.idle, is_unused, "idleness of {inode:?}");
        let in_turn = directory.filled_at.is_some() || idle_below > 0;
        assert!(!is_unused || in_turn, "{inode:?} never goes");
        idle += usize::from(is_unused);
        let mut entries: Vec<Inode> = directory
            .entries
            .values()
            .filter_map(Dentry::held)
            .collect();
        entries.sort_unstable();
        let mut expected = children;
        expected.sort_unstable();
        assert_eq!(entries, expected, "entries of {inode:?}");
        let count = directory.entries.len() - entries.len();
        assert_eq!(directory.remembered, count, "remembered in {inode:?}");
        remembered += count;
    }
    assert_eq!((tree.remembered(), tree.cache.idle()), (remembered, idle));
    for inode in held {
        assert!(tree.node(*inode).is_ok(), "{inode:?} is held and gone");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Link(usize, usize, bool),
    Settle(usize, usize, Option<bool>, bool),
    Hold(usize, usize),
    Forget(usize),
    Pin(usize),
    Unpin(usize),
    Unlink(usize, usize),
    Relocate(usize, usize, usize),
    Distrust(usize),
    /// A listing that ended, and whether it is still believed.
    List(usize, bool),
    Doubt(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let index = || 0usize..40;
    let name = || 0usize..4;
    prop_oneof![
        (index(), name(), any::<bool>()).prop_map(|(at, name, file)| Link(at, name, file)),
        (index(), name(), any::<Option<bool>>(), any::<bool>())
            .prop_map(|(at, name, file, hold)| Settle(at, name, file, hold)),
        (index(), name()).prop_map(|(at, name)| Hold(at, name)),
        index().prop_map(Forget),
        index().prop_map(Forget),
        index().prop_map(Pin),
        index().prop_map(Unpin),
        (index(), name()).prop_map(|(at, name)| Unlink(at, name)),
        (index(), index(), name()).prop_map(|(at, to, name)| Relocate(at, to, name)),
        index().prop_map(Distrust),
        (index(), any::<bool>()).prop_map(|(at, fresh)| List(at, fresh)),
        (index(), name()).prop_map(|(at, name)| Doubt(at, name)),
    ]
}

/// A tree and what is held of it.
struct Bench {
    tree: Tree,
    held: Vec<Inode>,
    pinned: Vec<Inode>,
}

impl Bench {
    /// A held directory, or the root.
    fn directory(&self, index: usize) -> Inode {
        let held = self.held.get(index).copied().unwrap_or(Inode::ROOT);
        let is_directory = self.tree.directory(held).is_ok();
        if is_directory { held } else { Inode::ROOT }
    }

    fn apply(&mut self, step: &Step) {
        let names = [name("a"), name("b"), name("c"), name("d")];
        let kind = |file| {
            if file {
                FileKind::Regular
            } else {
                FileKind::Directory
            }
        };
        match *step {
            Step::Link(at, which, file) => {
                let parent = self.directory(at);
                let known = Some(known(kind(file), 60));
                let inode = self.tree.link((parent, &names[which]), kind(file), known);
                self.held.push(inode);
            }
            Step::Settle(at, which, file, hold) => {
                let parent = self.directory(at);
                let epoch = self.tree.begin_observation(parent).expect("a directory");
                let answer = file.map(|file| known(kind(file), 60));
                let place = (parent, &names[which]);
                if hold {
                    self.held
                        .extend(self.tree.settle_and_hold(place, epoch, answer));
                } else {
                    self.tree
                        .settle(place, Question::of_the_name(epoch), answer);
                }
                self.tree.end_observation(parent, epoch);
            }
            Step::Hold(at, which) => {
                let parent = self.directory(at);
                self.held.extend(self.tree.hold(parent, &names[which]));
            }
            Step::Unlink(at, which) => {
                let parent = self.directory(at);
                self.tree.unlink(parent, &names[which]);
            }
            Step::Doubt(at, which) => {
                let parent = self.directory(at);
                self.tree.doubt(parent, &names[which]);
            }
            _ => self.apply_held(step, &names),
        }
    }

    fn apply_held(&mut self, step: &Step, names: &[Utf8Name]) {
        match *step {
            Step::Forget(index) if index < self.held.len() => {
                let inode = self.held.swap_remove(index);
                self.tree.forget(inode, 1);
            }
            Step::Pin(index) if index < self.held.len() => {
                self.tree.pin(self.held[index]);
                self.pinned.push(self.held[index]);
            }
            Step::Unpin(index) if index < self.pinned.len() => {
                let inode = self.pinned.swap_remove(index);
                self.tree.unpin(inode);
            }
            Step::Relocate(index, to, which) if index < self.held.len() => {
                let (inode, parent) = (self.held[index], self.directory(to));
                let name = names[which].clone();
                if !self.tree.is_below(parent, inode) {
                    self.tree.relocate(inode, &Place { parent, name });
                }
            }
            Step::List(index, fresh) => {
                let at = self.directory(index);
                let until = clock::now() + Duration::from_secs(if fresh { 60 } else { 0 });
                let directory = self.tree.directory_mut(at).expect("a directory");
                directory.complete_until = Some(until);
            }
            Step::Distrust(index) => {
                let top = self.directory(index);
                self.tree.distrust_below(top, clock::now());
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn the_books_balance(steps in prop::collection::vec(step(), 1..80), limit in 0usize..12) {
        let mut bench = Bench { tree: tree(limit), held: Vec::new(), pinned: Vec::new() };
        for step in &steps {
            bench.apply(step);
            check(&bench.tree, &bench.held, &bench.pinned);
            prop_assert!(bench.tree.remembered() <= limit);
        }
        for inode in std::mem::take(&mut bench.pinned) {
            bench.tree.unpin(inode);
        }
        for inode in std::mem::take(&mut bench.held) {
            bench.tree.forget(inode, 1);
        }
        check(&bench.tree, &[], &[]);
        prop_assert!(bench.tree.remembered() + 2 * bench.tree.cache.idle() <= limit);
        bench.tree.distrust_below(Inode::ROOT, clock::now());
        check(&bench.tree, &[], &[]);
        prop_assert_eq!(bench.tree.nodes().count(), 1);
    }
}

#[test]
fn keys_are_built_from_parents() {
    let mut tree = tree(10);
    let a = tree.link((Inode::ROOT, &name("a")), FileKind::Directory, None);
    let b = tree.link((a, &name("b")), FileKind::Directory, None);
    let file = tree.link((b, &name("c")), FileKind::Regular, None);
    let key = |tree: &Tree| tree.file_key(file).map(|key| key.to_string());
    assert_eq!(key(&tree), Ok("a/b/c".to_owned()));
    // Renaming a directory changes one node.
    let target = Place {
        parent: Inode::ROOT,
        name: name("moved"),
    };
    tree.relocate(a, &target);
    assert_eq!(key(&tree), Ok("moved/b/c".to_owned()));
    assert_eq!(tree.prefix(b), Ok("moved/b/".to_owned()));
    tree.orphan(b);
    assert_eq!(key(&tree), Err(FsError::Stale));
}

#[test]
fn an_older_answer_does_not_undo_a_change() {
    let mut tree = tree(10);
    let (root, a) = (Inode::ROOT, name("a"));
    let epoch = tree.begin_observation(root).expect("a directory");
    tree.unlink(root, &a);
    tree.settle(
        (root, &a),
        Question::of_the_name(epoch),
        Some(known(FileKind::Regular, 60)),
    );
    assert_eq!(tree.hold(root, &a), None);
    // A question asked after the change is answered.
    let epoch = tree.begin_observation(root).expect("a directory");
    tree.settle(
        (root, &a),
        Question::of_the_name(epoch),
        Some(known(FileKind::Regular, 60)),
    );
    assert!(tree.hold(root, &a).is_some());
}

/// Without its marks, an answer could have taken it off the tree.
#[test]
fn what_was_taken_off_the_tree_is_placed_where_it_was_moved_to() {
    let mut tree = tree(10);
    let (root, a, b) = (Inode::ROOT, name("a"), name("b"));
    let inode = tree.link((root, &a), FileKind::Regular, None);
    tree.unlink(root, &b);
    let epoch = tree.begin_observation(root).expect("a directory");
    tree.orphan(inode);
    let (parent, name) = (root, b.clone());
    tree.relocate(inode, &Place { parent, name });
    tree.settle((root, &b), Question::of_the_name(epoch), None);
    assert_eq!(tree.hold(root, &b), Some(inode));
    assert_eq!(
        tree.file_key(inode).map(|key| key.to_string()),
        Ok("b".to_owned())
    );
}

#[test]
fn inodes_are_paid_for_as_far_as_memory_is_to_spare() {
    let budget = MemoryBudget::new(MIB);
    let mut tree = Tree::new(&budget, TreeSettings::default());
    let inodes: Vec<Inode> = (0..5000)
        .map(|number| {
            let name = name(&number.to_string());
            tree.link((Inode::ROOT, &name), FileKind::Regular, None)
        })
        .collect();
    assert_eq!(budget.used(), MIB / 4 * 3);
    for inode in inodes {
        tree.forget(inode, 1);
    }
    assert!(budget.used() <= MIB / 2);
}

/// A door that only takes note.
#[derive(Debug, Default)]
struct Asked(std::sync::Mutex<Vec<Inode>>);

impl penstock_vfs::Watcher for Asked {
    fn references_wanted(&self, held: Vec<penstock_vfs::HeldFile>) {
        let inodes = held.into_iter().map(|held| held.inode);
        self.0.lock().expect("no panic").extend(inodes);
    }

    fn content_changed(&self, _: Inode) {}

    fn attributes_changed(&self, _: Inode) {}

    fn name_changed(&self, _: Inode, _: &FileName) {}
}

impl Asked {
    fn take(&self) -> Vec<Inode> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn look_up(tree: &mut Tree, numbers: std::ops::Range<usize>) -> Vec<Inode> {
    let make = |number: usize| {
        let name = name(&number.to_string());
        tree.link((Inode::ROOT, &name), FileKind::Regular, None)
    };
    numbers.map(make).collect()
}

#[test]
fn a_door_is_asked_for_what_was_looked_up_longest_ago() {
    let mut tree = Tree::new(&MemoryBudget::new(8 * MIB), TreeSettings::default());
    let door = Arc::new(Asked::default());
    tree.watch(Arc::downgrade(&door) as _);
    let first = look_up(&mut tree, 0..5000);
    assert_eq!(door.take(), [], "a quarter of the memory is theirs");
    let (pinned, again) = (first[0], first[2]);
    tree.pin(pinned);
    tree.hold(Inode::ROOT, &name("2"));
    look_up(&mut tree, 5000..6000);
    let asked = door.take();
    assert_eq!(asked[..3], [first[1], first[3], first[4]]);
    assert!(!asked.contains(&pinned) && !asked.contains(&again));
}

#[test]
fn what_a_door_keeps_is_asked_for_again_in_its_turn() {
    let mut tree = Tree::new(&MemoryBudget::new(8 * MIB), TreeSettings::default());
    let door = Arc::new(Asked::default());
    tree.watch(Arc::downgrade(&door) as _);
    let all = look_up(&mut tree, 0..20_000);
    let asked = door.take();
    let times = asked.iter().filter(|inode| **inode == all[0]).count();
    assert!((2..=5).contains(&times), "{times}");
    let few = asked.len() <= 2 * all.len();
    assert!(few, "{} for {}", asked.len(), all.len());
}
