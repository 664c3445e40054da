//! Staged mounts whose memory is short while the store is slow: what the kernel writes back from its
//! page cache arrives whole.
//!
//! Nobody tells a program that a write from the page cache was shortened: what is not taken is lost.

#![allow(clippy::disallowed_methods)]

use std::{path::Path, thread, time::Duration};

use penstock_devserver::{Fault, FaultRule, Faults};
use penstock_tests::{
    BUCKET, Bucket, Kind, Scratch,
    data::noise,
    files::{ANY, open},
    stats::metric,
    system,
};

const MIB: usize = 1 << 20;
const SLOW: Duration = Duration::from_millis(800);
/// More of them at a time than blocks are held for writes at this memory.
const FILES: u64 = 4;
const FILE_BYTES: usize = 48 * MIB + 12_345;

/// Memory is short, and saves that are under way hold it.
const SHORT: &[(&str, &str)] = &[("memory", "64MiB"), ("max-dirty-data", "5MiB")];
const AWAY: Duration = Duration::from_millis(1500);

/// Writes it as `dd bs=1M conv=fsync` does.
fn write_and_sync(path: &Path, content: &[u8]) {
    let file = open(path, ANY);
    let mut at = 0;
    while at < content.len() {
        let end = content.len().min(at + MIB);
        at += system::write_at(&file, &content[at..end], at as u64).expect("a write");
    }
    assert_eq!(system::sync(&file), Ok(()));
    assert_eq!(system::close(file), Ok(()));
}

fn map_and_sync(path: &Path, content: &[u8]) {
    let file = open(path, ANY);
    assert_eq!(system::truncate_open(&file, content.len() as u64), Ok(()));
    assert_eq!(
        system::write_mapped(&file, content.len(), 0, content),
        Ok(())
    );
    assert_eq!(system::sync(&file), Ok(()));
    assert_eq!(system::close(file), Ok(()));
}

/// Writes files side by side while the store is slow, and `fails` now and then, and looks at what came
/// of each.
#[track_caller]
fn check(options: &[(&str, &str)], fails: &[Fault], write: fn(&Path, &[u8])) {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let staging = bucket.staged_options(&scratch.path().join("staging"));
    let options = SHORT.iter().chain(options);
    let options = options.fold(staging, |all, (name, value)| all.option(name, value));
    let mount = bucket.mount_with(&options);
    bucket.fail(Faults::latency(SLOW));
    thread::scope(|scope| {
        let writers = (0..FILES).map(|number| {
            let path = mount.join(format!("file-{number}"));
            scope.spawn(move || write(&path, &noise(number, FILE_BYTES)))
        });
        let writers: Vec<_> = writers.collect();
        let busy = || writers.iter().any(|writer| !writer.is_finished());
        for fault in fails.iter().cycle().take_while(|_| busy()) {
            bucket.fail(Faults::rule(FaultRule::new(fault.clone())));
            thread::sleep(AWAY);
            bucket.fail(Faults::latency(SLOW));
            thread::sleep(2 * AWAY);
        }
    });
    let spilled = metric(&mount, "fuse_writes_spilled_total", "");
    mount.unmount();
    for number in 0..FILES {
        let stored = bucket.data().get(BUCKET, &format!("file-{number}"));
        let same = stored.is_some_and(|stored| stored == noise(number, FILE_BYTES));
        assert!(same, "file-{number} differs from what was written");
    }
    assert!(spilled > 0, "memory was never short");
}

const GATHERED: &[(&str, &str)] = &[("writeback-cache", "on")];
const AWAY_EACH_WAY: &[Fault] = &[Fault::InternalError, Fault::Hang { duration_ms: 1000 }];

#[test]
fn what_the_kernel_gathered_arrives_whole() {
    check(GATHERED, &[], write_and_sync);
}

#[test]
fn what_was_written_through_mappings_arrives_whole() {
    check(&[], &[], map_and_sync);
}

#[test]
fn what_the_kernel_gathered_arrives_whole_when_the_store_was_away() {
    check(GATHERED, AWAY_EACH_WAY, write_and_sync);
}

#[test]
fn what_was_written_through_mappings_arrives_whole_when_the_store_was_away() {
    check(&[], AWAY_EACH_WAY, map_and_sync);
}

/// The kernel writes a mapping back through any descriptor that may write, and says where to.
#[test]
fn a_mapping_of_a_file_that_is_open_for_appending_is_written_where_it_lies() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let mount = bucket.mount_with(&bucket.staged_options(&scratch.path().join("staging")));
    let mut content = noise(9, 100_000);
    std::fs::write(mount.join("log"), &content).expect("a write");
    let appending = open(&mount.join("log"), libc::O_RDWR | libc::O_APPEND);
    let mapped = system::write_mapped(&appending, content.len(), 5000, b"in its place");
    assert_eq!(mapped, Ok(()));
    content[5000..5012].copy_from_slice(b"in its place");
    assert_eq!(system::sync(&appending), Ok(()));
    assert_eq!(system::write_at(&appending, b"at the end", 0), Ok(10));
    content.extend(b"at the end");
    assert_eq!(system::close(appending), Ok(()));
    assert!(bucket.data().get(BUCKET, "log") == Some(content));
    mount.unmount();
}
