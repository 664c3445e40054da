use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use proptest::prelude::*;

use super::*;
use crate::BlockAddress;

type Calls = Arc<Mutex<Vec<String>>>;

/// Writes down what is asked of it.
struct Recorder(Calls);

impl Recorder {
    fn note(&self, call: String) -> io::Result<()> {
        self.0.lock().expect("not poisoned").push(call);
        Ok(())
    }
}

impl ImageWriter for Recorder {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        self.note(format!("{}/", String::from_utf8_lossy(name)))
    }

    fn leave(&mut self, modified: Timestamp) -> io::Result<()> {
        self.note(format!("^{}", modified.seconds))
    }

    fn file(&mut self, name: &[u8], node: &FileNode) -> io::Result<()> {
        self.note(format!("{} {}", String::from_utf8_lossy(name), node.size))
    }

    fn symlink(&mut self, _: &[u8], _: &[u8], _: Timestamp) -> io::Result<()> {
        unreachable!("objects are files")
    }

    fn finish(
        self: Box<Self>,
        modified: Timestamp,
        disk_blocks: &[u64],
    ) -> io::Result<ImageSummary> {
        assert_eq!(disk_blocks, [9]);
        self.note(format!("${}", modified.seconds))?;
        Ok(ImageSummary::default())
    }
}

/// The calls that keys make, each of which is its number large and old.
fn calls(keys: &[impl AsRef<[u8]>]) -> (Vec<String>, Hidden) {
    let calls = Calls::default();
    let mut tree = TreeBuilder::new(Box::new(Recorder(Arc::clone(&calls))));
    for (number, key) in keys.iter().enumerate() {
        let node = FileNode {
            size: number as u64,
            modified: Timestamp {
                seconds: number as i64,
                nanoseconds: 0,
            },
            start: BlockAddress { disk: 0, block: 0 },
        };
        tree.add(key.as_ref(), &node).expect("recorded");
    }
    let (_, hidden) = tree.finish(&[9]).expect("recorded");
    let calls = calls.lock().expect("not poisoned").clone();
    (calls, hidden)
}

fn assert_calls(keys: &[&str], expected: &[&str]) -> Hidden {
    assert!(keys.is_sorted(), "the test's keys are in order");
    let (calls, hidden) = calls(keys);
    assert_eq!(calls, expected);
    hidden
}

#[test]
fn directories_are_entered_and_left_as_keys_come() {
    let keys = ["a/b/c", "a/b/d", "a/e", "f"];
    let expected = ["a/", "b/", "c 0", "d 1", "^1", "e 2", "^2", "f 3", "$3"];
    assert_eq!(assert_calls(&keys, &expected), Hidden::default());
}

#[test]
fn nothing_makes_an_empty_root() {
    assert_calls(&[], &["$0"]);
}

#[test]
fn a_marker_gives_its_directory_a_time() {
    assert_calls(&["", "a/", "a/b", "c"], &["a/", "b 2", "^1", "c 3", "$0"]);
    assert_calls(&["x/y/"], &["x/", "y/", "^0", "^0", "$0"]);
}

#[test]
fn a_directory_hides_the_file_of_its_name_however_much_later_it_comes() {
    let keys = ["a", "a-x", "a-x/y", "a.txt", "a/b"];
    let expected = ["a-x/", "y 2", "^2", "a.txt 3", "a/", "b 4", "^4", "$4"];
    let hidden = assert_calls(&keys, &expected);
    assert_eq!(hidden.count(HiddenReason::DirectoryOfTheSameName), 2);
    assert_eq!(hidden.to_string(), "2 hidden (directory_of_same_name 2)");
    assert_eq!(
        hidden.lines().collect::<Vec<_>>(),
        [
            "the object \"a-x\" is hidden: a directory has the same name, and is shown instead; \
             rename it in the store to see it (and 1 more)"
        ]
    );
}

#[test]
fn a_file_that_waited_in_vain_is_written_after_what_came_meanwhile() {
    let keys = ["a", "a-x/y", "a.txt", "b"];
    assert_calls(&keys, &["a-x/", "y 1", "^1", "a.txt 2", "a 0", "b 3", "$3"]);
    let keys = ["d/a", "d/a-", "d/a--/b", "e"];
    let expected = ["d/", "a--/", "b 2", "^2", "a- 1", "a 0", "^2", "e 3", "$3"];
    assert_calls(&keys, &expected);
}

#[test]
fn keys_without_names_are_hidden_but_their_directories_are_there() {
    let keys = ["a", "a/../c", "a//b", "b\0", "c/./"];
    let hidden = assert_calls(&keys, &["a/", "^0", "c/", "^0", "$0"]);
    let counts = HiddenReason::ALL.map(|reason| hidden.count(reason));
    assert_eq!(counts, [1, 1, 2, 1, 0]);
    assert_eq!(hidden.total(), 5);
}

#[test]
fn files_that_wait_are_never_more_than_bytes_in_a_key() {
    let calls = Calls::default();
    let mut tree = TreeBuilder::new(Box::new(Recorder(Arc::clone(&calls))));
    let node = FileNode {
        size: 0,
        modified: Timestamp::default(),
        start: BlockAddress { disk: 0, block: 0 },
    };
    tree.add(b"a", &node).expect("recorded");
    for number in 0..10_000 {
        tree.add(format!("a-{number:05}").as_bytes(), &node)
            .expect("recorded");
        assert!(tree.waiting.len() <= 2);
    }
}

/// What the policy makes of keys, said in another way: from the whole set of them.
fn expected_tree(keys: &BTreeSet<Vec<u8>>) -> BTreeMap<Vec<u8>, bool> {
    let is_name = |name: &[u8]| {
        !name.is_empty() && name != b"." && name != b".." && !name.contains(&0) && name.len() < 256
    };
    let mut nodes = BTreeMap::new();
    for key in keys {
        let mut path = Vec::new();
        let mut parts = key.split(|byte| *byte == b'/').peekable();
        while let Some(name) = parts.next() {
            if !is_name(name) {
                break;
            }
            path.extend_from_slice(name);
            let is_directory = parts.peek().is_some();
            *nodes.entry(path.clone()).or_default() |= is_directory;
            path.push(b'/');
        }
    }
    nodes
}

/// The tree that calls describe.
fn described_tree(calls: &[String]) -> BTreeMap<Vec<u8>, bool> {
    let mut path = String::new();
    let mut nodes = BTreeMap::new();
    for call in calls {
        let known = if let Some(name) = call.strip_suffix('/') {
            let known = nodes.insert(format!("{path}{name}").into_bytes(), true);
            path.push_str(call);
            known
        } else if call.starts_with('^') {
            let parent = path[..path.len() - 1]
                .rfind('/')
                .map_or(0, |slash| slash + 1);
            path.truncate(parent);
            None
        } else if call.starts_with('$') {
            None
        } else {
            let name = call.split(' ').next().expect("a name");
            nodes.insert(format!("{path}{name}").into_bytes(), false)
        };
        assert_eq!(known, None, "names are unique: {call}");
    }
    nodes
}

proptest! {
    #[test]
    fn the_tree_is_what_the_policy_says(
        keys in proptest::collection::btree_set("[ab\0.!/-]{0,9}", 0..40)
    ) {
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        let list: Vec<&Vec<u8>> = keys.iter().collect();
        let (calls, hidden) = calls(&list);
        let expected = expected_tree(&keys);
        prop_assert_eq!(described_tree(&calls), expected.clone());
        let files = expected.values().filter(|is_directory| !**is_directory).count();
        let markers = keys.iter().filter(|key| {
            matches!(Components::of(key).leaf(), Ok(None))
        }).count();
        prop_assert_eq!(hidden.total() as usize, keys.len() - files - markers);
    }
}
