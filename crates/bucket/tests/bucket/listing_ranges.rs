//! Reading large directories, which are listed in ranges.

use penstock_base::{FsError, MIB, random};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Dentry, Inode, RemoveKind, Volume};
use tokio::sync::OnceCell;

use crate::support::{Bed, CALLER, Listed, name};

/// Names in a directory that is large enough.
const MANY: usize = 40_000;

/// A bucket with a large directory, which is made once for all tests.
async fn numbered() -> MemoryStore {
    static NUMBERED: OnceCell<MemoryStore> = OnceCell::const_new();
    let make = async || {
        let bed = Bed::new();
        for number in 0..MANY {
            bed.put(&format!("many/{number:08}.bin"), "x").await;
        }
        bed.remote.copied()
    };
    NUMBERED.get_or_init(make).await.copied()
}

async fn numbered_bed(memory: u64) -> Bed {
    Bed::with_memory(numbered().await, BucketSettings::default(), memory)
}

/// Removes what was listed of the directory `parent`, and returns how much that was.
async fn remove_all(bed: &Bed, parent: Inode, listed: &[Listed]) -> usize {
    for file in listed {
        let kind = RemoveKind::File;
        let name = name(&file.name);
        bed.volume
            .remove(&CALLER, Dentry::new(parent, &name), kind)
            .await
            .unwrap();
    }
    listed.len()
}

fn names(listed: &[Listed]) -> Vec<String> {
    listed.iter().map(|file| file.name.clone()).collect()
}

fn expected() -> Vec<String> {
    (0..MANY).map(|number| format!("{number:08}.bin")).collect()
}

/// How many pages were asked for since the last call.
fn pages(bed: &Bed) -> usize {
    let requests = bed.requests();
    let mut words = requests
        .split([' ', ','])
        .skip_while(|word| *word != "list");
    words
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_large_directory_is_listed_in_ranges_at_the_same_time() {
    let bed = numbered_bed(256 * MIB).await;
    bed.probe.slow_pages();
    assert!(names(&bed.list("many", 170).await.unwrap()) == expected());
    assert!(bed.probe.most_pages() >= 8, "{}", bed.probe.most_pages());
    let pages = pages(&bed);
    assert!(
        (MANY / 1000..MANY / 1000 * 2).contains(&pages),
        "{pages} requests"
    );
}

#[tokio::test(start_paused = true)]
async fn names_without_any_pattern_are_listed_once_each_and_in_order() {
    let bed = Bed::new();
    let mut keys: Vec<String> = (0..MANY as u64)
        .map(|number| {
            let word = format!("{:016x}", random::number());
            match number % 7 {
                0 => format!("many/{word}/below"),
                1 => format!("many/ü{word}"),
                2 => format!("many/{}-{}", &word[..1], &word[3..]),
                _ => format!("many/{word}"),
            }
        })
        .collect();
    // Hidden by directories that come much later in the order of keys.
    keys.extend((0..50).flat_map(|number| {
        let word = format!("many/{number:02x}");
        [word.clone(), format!("{word}/below")]
    }));
    for key in &keys {
        bed.put(key, "x").await;
    }
    bed.requests();
    let mut shown = names(&bed.list("many", 500).await.unwrap());
    let pages = pages(&bed);
    let in_order = shown.len();
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown.len(), in_order, "each once");
    let first = |key: &String| key.split('/').nth(1).unwrap().to_owned();
    let mut expected: Vec<String> = keys.iter().map(first).collect();
    expected.sort_unstable();
    expected.dedup();
    assert!(shown == expected, "{} of {}", shown.len(), expected.len());
    assert!(pages < MANY / 1000 * 4, "{pages} requests");
}

#[tokio::test(start_paused = true)]
async fn a_listing_in_ranges_goes_on_from_any_position() {
    let bed = numbered_bed(256 * MIB).await;
    let handle = bed.open_dir("many").await.unwrap();
    let all = bed.list_all(handle, 1000).await.unwrap();
    for position in [39_999u64, 20_000, 1, 16_001, 33_333, 39_990, 0, 25_000] {
        let rest = bed.list_from(handle, position, 1500).await.unwrap();
        let from = position as usize;
        let until = all.len().min(from + 1500);
        assert!(names(&rest) == names(&all[from..until]), "{position}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lists_from_the_beginning_only_is_listed_page_after_page() {
    let bed = numbered_bed(256 * MIB).await;
    bed.probe.deafen();
    assert!(names(&bed.list("many", 700).await.unwrap()) == expected());
}

#[tokio::test(start_paused = true)]
async fn a_range_that_fails_in_passing_is_listed_again() {
    for skip in [17, 18, 20, 30] {
        let bed = numbered_bed(256 * MIB).await;
        bed.probe
            .fail_after(skip, Operation::List, ErrorKind::Throttled, 3);
        let handle = bed.open_dir("many").await.unwrap();
        let mut all: Vec<Listed> = Vec::new();
        let mut failures = 0;
        while all.len() < MANY {
            let position = all.last().map_or(0, |last| last.next);
            match bed.list_from(handle, position, 700).await {
                Ok(more) => all.extend(more),
                Err(error) => {
                    assert!(
                        matches!(error, FsError::Io(_) | FsError::Busy(_)),
                        "{error}"
                    );
                    failures += 1;
                }
            }
            assert!(failures < 4);
        }
        assert!(names(&all) == expected(), "{skip}");
    }
}

#[tokio::test(start_paused = true)]
async fn removing_all_of_a_large_directory_while_listing_misses_nothing() {
    let bed = numbered_bed(256 * MIB).await;
    let parent = bed.inode("many").await.unwrap();
    let handle = bed.open_dir("many").await.unwrap();
    let (mut position, mut removed) = (0, 0);
    loop {
        let listed = bed.list_from(handle, position, 300).await.unwrap();
        let Some(last) = listed.last() else { break };
        position = last.next;
        removed += remove_all(&bed, parent, &listed).await;
    }
    assert_eq!(removed, MANY);
    assert_eq!(bed.keys().await, ["many/"], "only its marker is left");
}

#[tokio::test(start_paused = true)]
async fn removing_all_while_listing_misses_nothing_where_a_range_fails() {
    for skip in [17, 18, 25] {
        let bed = numbered_bed(256 * MIB).await;
        bed.probe
            .fail_after(skip, Operation::List, ErrorKind::Throttled, 1);
        let parent = bed.inode("many").await.unwrap();
        let handle = bed.open_dir("many").await.unwrap();
        let (mut position, mut removed, mut failures) = (0, 0, 0);
        loop {
            let listed = match bed.list_from(handle, position, 300).await {
                Ok(listed) => listed,
                Err(error) => {
                    failures += 1;
                    assert!(failures < 4, "{error}");
                    continue;
                }
            };
            let Some(last) = listed.last() else { break };
            position = last.next;
            removed += remove_all(&bed, parent, &listed).await;
        }
        assert_eq!(removed, MANY, "{skip}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_wait_are_paid_for_and_leave_a_quarter_free() {
    let memory = 16 * MIB;
    let bed = numbered_bed(memory).await;
    let handle = bed.open_dir("many").await.unwrap();
    let mut position = 0;
    while let Some(last) = bed.list_from(handle, position, 500).await.unwrap().last() {
        position = last.next;
        bed.forget_all();
        tokio::task::yield_now().await;
        assert!(bed.budget.available() >= memory / 4);
    }
    assert_eq!(position, MANY as u64);
}

#[tokio::test(start_paused = true)]
async fn open_directories_pay_for_the_pages_that_they_keep() {
    let memory = 16 * MIB;
    let bed = numbered_bed(memory).await;
    let before = bed.budget.used();
    for _ in 0..10 {
        let handle = bed.open_dir("many").await.unwrap();
        bed.list_from(handle, 0, 1500).await.unwrap();
        bed.forget_all();
    }
    let kept = bed.budget.used() - before;
    assert!(kept >= 10 * 2000 * 256, "{kept} bytes");
    for _ in 0..20 {
        let handle = bed.open_dir("many").await.unwrap();
        assert_eq!(bed.list_from(handle, 0, 3500).await.unwrap().len(), 3500);
        bed.forget_all();
    }
    assert!(bed.budget.available() >= memory / 4);
}
