//! What an engine makes of files that are not what it wrote, and of a worker that ends before its time.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod keys;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{ChecksumKind, Summing, clock};
use penstock_fileset::engine::{
    Barrier, EmbeddedEngine, EmbeddedLock, Engine, EngineError, query, transact,
};

use keys::{Outcome, all, bytes, copy_files, put, settings};

#[tokio::test]
async fn a_log_of_which_something_is_missing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
        put(&engine, &format!("k{round}"), "v").await;
        engine.sync().await.unwrap();
        // As after a kill: nothing is brought into the tree.
        let copy = tempfile::tempdir().unwrap();
        copy_files(directory.path(), copy.path());
        drop(engine);
        copy_files(copy.path(), directory.path());
    }
    let mut segments: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    segments.retain(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("log.")
    });
    let mut segments: Vec<_> = segments
        .into_iter()
        .map(|entry| entry.unwrap().path())
        .collect();
    segments.sort();
    assert!(segments.len() >= 2, "{segments:?}");
    let whole = std::fs::read(&segments[0]).unwrap();
    // More than the mark that ends it.
    std::fs::write(&segments[0], &whole[..whole.len() - 40]).unwrap();
    let opened = EmbeddedEngine::open(&settings(directory.path()));
    assert!(matches!(opened, Err(EngineError::Corrupt(_))), "{opened:?}");
}

/// Bytes of each of their records, and of a mark.
const RECORD: usize = 29;
const MARK: usize = 32;
/// Bytes before the first of them: what it is, its history and its token.
const HEAD: usize = 24;

/// The log of an engine that was killed after each of five operations was synced, in a directory of its own.
async fn killed_after_five() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    for number in 0..5 {
        put(&engine, &format!("k{number}"), "value").await;
        engine.sync().await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    // The last mark is written behind the sync that was waited for.
    let marked =
        || std::fs::read(segment(directory.path())).unwrap().len() == HEAD + 5 * (RECORD + MARK);
    while !marked() {
        std::thread::yield_now();
    }
    copy_files(directory.path(), copy.path());
    let log = segment(copy.path());
    (copy, log)
}

fn segment(directory: &std::path::Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_log = |path: &std::path::PathBuf| path.to_string_lossy().contains("/log.");
    paths.find(is_log).unwrap()
}

/// How many of the five are there; none if the log is refused.
async fn found_of_five(directory: &std::path::Path) -> Option<usize> {
    let copy = tempfile::tempdir().unwrap();
    copy_files(directory, copy.path());
    let before = std::fs::read(segment(copy.path())).unwrap();
    let engine = match EmbeddedEngine::open(&settings(copy.path())) {
        Ok(engine) => engine,
        Err(EngineError::Corrupt(_)) => {
            let after = std::fs::read(segment(copy.path())).unwrap();
            assert!(before == after, "a damaged log is not changed");
            return None;
        }
        Err(error) => unreachable!("{error}"),
    };
    let mut found = 0;
    for number in 0..5 {
        let key = bytes(&format!("k{number}"));
        let value = query(&engine, |reads| -> Outcome<_> { reads.get(&key) });
        found += usize::from(value.await.unwrap().is_some());
    }
    Some(found)
}

#[tokio::test]
async fn a_flipped_byte_anywhere_in_the_log_loses_nothing_in_silence() {
    let (directory, log) = killed_after_five().await;
    let whole = std::fs::read(&log).unwrap();
    assert_eq!(found_of_five(directory.path()).await, Some(5));
    for place in 0..whole.len() {
        is_found_or_refused((directory.path(), &log), &whole, place).await;
    }
}

/// Whoever reads a log with a flipped byte finds all five, or that it is damaged.
async fn is_found_or_refused((directory, log): (&Path, &Path), whole: &[u8], place: usize) {
    let mut damaged = whole.to_vec();
    damaged[place] ^= 0x10;
    std::fs::write(log, damaged).unwrap();
    let found = found_of_five(directory).await;
    assert!(matches!(found, None | Some(5)), "byte {place}: {found:?}");
}

#[tokio::test]
async fn what_a_crash_left_of_records_that_were_not_synced_is_passed_over() {
    let (directory, log) = killed_after_five().await;
    let whole = std::fs::read(&log).unwrap();
    // A page that did not reach the disk, and one behind it that did: whole records, and no mark that covers them.
    let record = &whole[HEAD..HEAD + RECORD];
    for torn in [
        [&whole[..], &record[..20]].concat(),
        [&whole[..], &[0; 100]].concat(),
        [&whole[..], &[0; RECORD], record].concat(),
    ] {
        std::fs::write(&log, torn).unwrap();
        assert_eq!(found_of_five(directory.path()).await, Some(5));
    }
}

/// A mark as a user can make one, in the name of a file: it says that all up to an operation is on the disk.
fn imitated_mark(numbers: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let mut sum = Summing::new(ChecksumKind::Crc32c);
    sum.add(&body);
    let sum = sum.take().value() as u32;
    [
        &(body.len() as u32).to_le_bytes(),
        &sum.to_le_bytes(),
        &body[..],
    ]
    .concat()
}

#[tokio::test]
async fn content_that_imitates_a_mark_makes_no_torn_log_a_damaged_one() {
    let (directory, log) = killed_after_five().await;
    let whole = std::fs::read(&log).unwrap();
    let history = u64::from_le_bytes(whole[8..16].try_into().unwrap());
    let record = &whole[HEAD..HEAD + RECORD];
    for imitated in [
        imitated_mark(&[u64::MAX, 1000]),
        imitated_mark(&[u64::MAX, 1000, 0]),
        imitated_mark(&[u64::MAX, 1000, history]),
    ] {
        let torn = [&whole[..], &record[..20], &imitated].concat();
        std::fs::write(&log, torn).unwrap();
        assert_eq!(found_of_five(directory.path()).await, Some(5));
    }
}

/// Its segments have no token, and neither have its marks.
#[tokio::test]
async fn a_log_of_the_version_before_is_read_and_damage_in_it_is_found() {
    let (directory, log) = killed_after_five().await;
    let new = std::fs::read(&log).unwrap();
    let mut old = [b"PENSTKL2", &new[8..16]].concat();
    for number in 0..5 {
        let at = HEAD + number * (RECORD + MARK);
        old.extend_from_slice(&new[at..at + RECORD]);
        old.extend_from_slice(&imitated_mark(&[u64::MAX, number as u64 + 1]));
    }
    std::fs::write(&log, &old).unwrap();
    assert_eq!(found_of_five(directory.path()).await, Some(5));
    for place in (0..old.len()).step_by(5) {
        is_found_or_refused((directory.path(), &log), &old, place).await;
    }
}

/// A sync that failed left pages that the kernel takes for clean and the disk does not have: no sync brings them there.
#[tokio::test]
async fn what_no_mark_covers_is_written_again_before_it_counts_as_synced() {
    let (directory, log) = killed_after_five().await;
    let whole = std::fs::read(&log).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (is_marked, length) in [(true, whole.len()), (false, whole.len() - MARK)] {
        std::fs::write(&log, &whole[..length]).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let there = copy.path().join(log.file_name().unwrap());
        copy_files(directory.path(), copy.path());
        let file = std::fs::File::options().write(true).open(&there).unwrap();
        file.set_modified(long_ago).unwrap();
        let engine = EmbeddedEngine::open(&settings(copy.path())).unwrap();
        let is_untouched = std::fs::metadata(&there).unwrap().modified().unwrap() == long_ago;
        assert_eq!(is_untouched, is_marked);
        assert_eq!(std::fs::read(&there).unwrap(), whole[..length]);
        drop(engine);
    }
}

/// Keys of the tree that is damaged.
const KEYS: u64 = 300;

fn nth(number: u64) -> (String, String) {
    (
        format!("key {number:06}"),
        format!("value {number}").repeat(9),
    )
}

/// Opens what is there, looks for each key, changes something and closes. Returns how many keys were right, or the
/// first error.
async fn use_all(directory: &std::path::Path) -> Outcome<u64> {
    let engine = EmbeddedEngine::open(&settings(directory))?;
    let mut right = 0;
    for number in 0..KEYS {
        let (key, value) = nth(number);
        let key = bytes(&key);
        let found = query(&engine, |reads| reads.get(&key)).await?;
        assert!(found.is_none() || found.as_deref() == Some(value.as_bytes()));
        right += u64::from(found.is_some());
    }
    if engine.verify().await.is_ok() {
        assert_eq!(right, KEYS, "what is not found is damage that is found");
    }
    query(&engine, |reads| all(reads)).await?;
    let change = transact(&engine, |transaction| -> Outcome<()> {
        for number in (0..KEYS).step_by(7) {
            transaction.put(nth(number).0.as_bytes(), bytes("changed"));
        }
        Ok(())
    });
    change.await?;
    engine.sync().await?;
    engine.close().await?;
    Ok(right)
}

#[tokio::test]
async fn a_damaged_tree_is_an_error_to_who_asks_and_keeps_nobody_waiting() {
    let whole = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(whole.path())).unwrap();
    for number in 0..KEYS {
        let (key, value) = nth(number);
        put(&engine, &key, &value).await;
    }
    engine.close().await.unwrap();
    drop(engine);
    let tree = std::fs::read(whole.path().join("tree")).unwrap();
    let written = (0..tree.len()).filter(|at| tree[*at] != 0);
    let written: Vec<_> = written.collect();
    let mut refused = 0;
    for at in written.iter().step_by(written.len() / 200) {
        let mut damaged = tree.clone();
        damaged[*at] ^= 0xff;
        let directory = tempfile::tempdir().unwrap();
        copy_files(whole.path(), directory.path());
        std::fs::write(directory.path().join("tree"), damaged).unwrap();
        let used = clock::deadline(Duration::from_secs(20), use_all(directory.path()));
        refused += u64::from(used.await.expect("nobody waits for ever").is_err());
    }
    assert!(refused > 0);
}

/// What ends the worker the second time that something is synced.
#[derive(Debug, Default)]
struct Trap(AtomicBool);

impl Barrier for Trap {
    fn pass(&self) -> std::io::Result<()> {
        let is_set = self.0.swap(true, Ordering::SeqCst);
        assert!(!is_set, "as it was told");
        Ok(())
    }

    fn has(&self, _puts: &[(Bytes, Bytes)]) -> bool {
        true
    }
}

fn trapped(directory: &Path) -> EmbeddedEngine {
    let trap: Arc<dyn Barrier> = Arc::new(Trap::default());
    let lock = EmbeddedLock::take(&settings(directory)).unwrap();
    EmbeddedEngine::open_locked(lock, Some(trap)).unwrap()
}

#[tokio::test]
async fn a_worker_that_dies_fails_who_waits_and_who_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let engine = trapped(directory.path());
    put(&engine, "key", "value").await;
    let in_time = |synced| clock::deadline(Duration::from_secs(20), synced);
    let waiting = futures_util::future::join(engine.sync(), engine.sync());
    let (one, other) = in_time(waiting).await.unwrap();
    let told = one.unwrap_err();
    assert!(told.to_string().contains("ended unexpectedly"), "{told}");
    assert_eq!(other, Err(told.clone()));
    let later = transact(&engine, |transaction| -> Outcome<()> {
        transaction.put(b"late", bytes("value"));
        Ok(())
    });
    assert_eq!(later.await, Err(told.clone()));
    let closed = clock::deadline(Duration::from_secs(20), engine.close());
    assert_eq!(closed.await.unwrap(), Err(told));
    let found = query(&engine, |reads| all(reads)).await.unwrap();
    assert_eq!(
        found,
        [("key".to_owned(), "value".to_owned())],
        "reads go on"
    );
}

#[tokio::test]
async fn all_is_read_on_after_a_worker_died() {
    let directory = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    for number in 0..KEYS {
        let (key, value) = nth(number);
        put(&engine, &key, &value).await;
    }
    engine.close().await.unwrap();
    drop(engine);
    let engine = trapped(directory.path());
    put(&engine, "key", "value").await;
    assert!(engine.sync().await.is_err());
    // Its thread ends behind its last word.
    clock::sleep(Duration::from_millis(300)).await;
    for number in 0..KEYS {
        let (key, value) = nth(number);
        let found = query(&engine, |reads| -> Outcome<_> { reads.get(key.as_bytes()) });
        assert_eq!(found.await.unwrap(), Some(bytes(&value)));
    }
    assert_eq!(engine.verify().await, Ok(()));
}
