//! Two clients of one bucket, both of which save behind the close.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_base::{FsResult, clock};
use penstock_object::{ErrorKind, Operation};
use penstock_vfs::OpenOptions;

use crate::{
    behind::{behind, saved, shut_down},
    stress::Dice,
    support::{Bed, WRITE},
};

/// Seeds, unless the environment says how many.
const SEEDS: u64 = 25;
const STEPS: usize = 80;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

// A test is told by its environment.
#[allow(clippy::disallowed_methods)]
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("PENSTOCK_TEST_TWO_CLIENTS_SEEDS");
    0..count.map_or(SEEDS, |count| count.parse().unwrap())
}

fn two_beds(dice: &mut Dice) -> [Bed; 2] {
    let mut settings = || behind(Duration::from_millis(1 + dice.roll(20) as u64));
    let (one, other) = (settings(), settings());
    let one = Bed::staged_with(one);
    let other = one.staged_beside(other);
    [one, other]
}

/// Time goes by in which saves happen.
async fn rest(dice: &mut Dice) {
    if dice.roll(4) == 0 {
        clock::sleep(Duration::from_millis(dice.roll(15) as u64)).await;
    }
}

/// The store fails for a moment.
fn disturb(bed: &Bed, dice: &mut Dice) {
    let failing = [
        Operation::Put,
        Operation::Delete,
        Operation::Head,
        Operation::Copy,
    ];
    let failing = failing[dice.roll(failing.len())];
    if dice.roll(12) == 0 {
        bed.probe.fail(failing, ErrorKind::Unavailable, 1);
    }
}

/// Each has a directory for itself: what its programs see and what the bucket has in the end is as if it were alone.
#[tokio::test]
async fn two_clients_in_different_directories_do_not_notice_each_other() {
    for seed in seeds() {
        let mut dice = Dice(seed);
        let beds = two_beds(&mut dice);
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for (bed, directory) in beds.iter().zip(["one", "two"]) {
            bed.mkdir(directory).await.unwrap();
        }
        for step in 0..STEPS {
            let which = dice.roll(2);
            let (bed, model) = (&beds[which], &mut models[which]);
            let mut path = || format!("{}/{}", ["one", "two"][which], NAMES[dice.roll(5)]);
            let (path, other) = (path(), path());
            let content = format!("{seed} {step}").into_bytes();
            match dice.roll(6) {
                0 => {
                    let removed = bed.unlink(&path).await;
                    assert_eq!(removed.is_ok(), model.remove(&path).is_some(), "{seed}");
                }
                1 if path != other => {
                    let renamed = bed.rename(&path, &other).await;
                    let moved = model.remove(&path);
                    assert_eq!(renamed.is_ok(), moved.is_some(), "{seed}: {renamed:?}");
                    model.extend(moved.map(|content| (other, content)));
                }
                2 => {
                    let changed = bed.chmod(&path, 0o600).await;
                    assert_eq!(changed.is_ok(), model.contains_key(&path), "{seed}");
                }
                3 => {
                    let read = bed.read_file(&path).await.ok();
                    assert_eq!(read.as_ref(), model.get(&path), "{seed}: {path}");
                }
                _ => {
                    bed.write_file(&path, &content).await.unwrap();
                    model.insert(path, content);
                }
            }
            rest(&mut dice).await;
        }
        for bed in &beds {
            saved(bed).await;
            assert_eq!(shut_down(bed).await, [""; 0], "{seed}");
        }
        let expected: BTreeMap<String, Vec<u8>> = models.into_iter().flatten().collect();
        let mut found = BTreeMap::new();
        for key in beds[0].keys().await {
            if !key.ends_with('/') {
                found.insert(key.clone(), beds[0].object(&key).await.unwrap());
            }
        }
        assert_eq!(found, expected, "{seed}");
    }
}

/// What two clients did to the same names.
#[derive(Debug, Default)]
struct Story {
    written: BTreeSet<Vec<u8>>,
    /// What somebody was told is in the store, and nobody changed since.
    synced: BTreeMap<&'static str, Vec<u8>>,
}

impl Story {
    /// Somebody changed what is under a name: what was synced before may be gone.
    fn touched(&mut self, name: &'static str) {
        self.synced.remove(name);
    }
}

async fn write_and_sync(bed: &Bed, path: &str, content: &[u8]) -> FsResult<()> {
    let truncate = OpenOptions {
        truncate: true,
        ..WRITE
    };
    let handle = bed.created(path, truncate).await?.opened.handle;
    let written = bed.write(handle, 0, content).await;
    let synced = bed.sync(handle).await;
    bed.close(handle).await.and(written).and(synced)
}

async fn step(bed: &Bed, dice: &mut Dice, story: &mut Story, content: Vec<u8>) {
    let (name, other) = (NAMES[dice.roll(5)], NAMES[dice.roll(5)]);
    match dice.roll(6) {
        0 => {
            if bed.unlink(name).await.is_ok() {
                story.touched(name);
            }
        }
        1 if name != other => {
            if bed.rename(name, other).await.is_ok() {
                story.touched(name);
                story.touched(other);
            }
        }
        2 => {
            if let Ok(read) = bed.read_file(name).await {
                assert!(read.is_empty() || story.written.contains(&read), "{read:?}");
            }
        }
        3 => {
            story.written.insert(content.clone());
            story.touched(name);
            if write_and_sync(bed, name, &content).await.is_ok() {
                story.synced.insert(name, content);
            }
        }
        _ => {
            story.written.insert(content.clone());
            story.touched(name);
            // Whether it says so, or its save puts it aside, another version is left alone.
            drop(bed.write_file(name, &content).await);
        }
    }
}

/// Both change the same names. Nobody's version is lost without being told: what was synced and nobody changed since is
/// there, and what is there is what somebody wrote.
#[tokio::test]
async fn what_one_client_synced_is_not_undone_by_what_the_other_saves_behind() {
    let mut checked = 0;
    for seed in seeds() {
        let mut dice = Dice(seed);
        let beds = two_beds(&mut dice);
        let mut story = Story::default();
        for number in 0..STEPS {
            let bed = &beds[dice.roll(2)];
            let content = format!("{seed} {number}").into_bytes();
            step(bed, &mut dice, &mut story, content).await;
            disturb(bed, &mut dice);
            rest(&mut dice).await;
        }
        for bed in &beds {
            shut_down(bed).await;
        }
        checked += story.synced.len();
        for (name, synced) in &story.synced {
            let found = beds[0].object(name).await;
            assert_eq!(found.as_ref(), Some(synced), "seed {seed}: {name}");
        }
        for key in beds[0].keys().await {
            assert!(NAMES.contains(&key.as_str()), "seed {seed}: {key}");
            let found = beds[0].object(&key).await.unwrap();
            assert!(
                story.written.contains(&found),
                "seed {seed}: {key} has {found:?}"
            );
        }
        let seen = beds[0].fresh().ls("").await.unwrap();
        assert_eq!(seen, beds[0].keys().await, "seed {seed}");
    }
    assert!(checked > 0);
}
