//! Reading once fills the disk cache: whatever has room there is never fetched again, however fast
//! the store, small the memory or busy the disk.

#![allow(clippy::disallowed_methods)]

use std::{
    ops::Range,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    BUCKET, Bucket, Disk, Kind, Mount, Patience, Scratch,
    data::{digest, digest_of},
    stats::metric,
    system,
};

const MIB: u64 = 1 << 20;
/// Longer than any read may wait for a disk that does not go on.
const NEVER: Patience = Patience::seconds(45);

/// A bucket with objects of `size` each.
fn filled(count: usize, size: &str) -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    bucket.fill(&format!("objects/:{count}:{size}"));
    bucket
}

fn mount(bucket: &Bucket, directory: &Path, more: &[(&str, &str)]) -> Mount {
    let options = bucket
        .options()
        .option("cache-dir", &directory.display().to_string())
        .option("cache-free-ratio", "0");
    let options = more.iter().fold(options, |options, (name, value)| {
        options.option(name, value)
    });
    bucket.mount_with(&options)
}

fn paths(bucket: &Bucket, mount: &Mount) -> Vec<PathBuf> {
    let keys = bucket.data().keys(BUCKET);
    keys.iter().map(|key| mount.join(key)).collect()
}

fn stored(bucket: &Bucket) -> Vec<u64> {
    let keys = bucket.data().keys(BUCKET);
    let contents = keys.iter().map(|key| bucket.data().get(BUCKET, key));
    contents
        .map(|content| digest_of(&content.expect("it is there")))
        .collect()
}

fn read_all(bucket: &Bucket, mount: &Mount) -> Vec<u64> {
    let paths = paths(bucket, mount);
    paths
        .iter()
        .map(|path| digest(path).expect("a read"))
        .collect()
}

fn given_up(mount: &Mount) -> u64 {
    metric(mount, "cache_skipped_bytes_total", "")
}

/// Runs `read` on an empty cache, which gives nothing up.
#[track_caller]
fn fill(bucket: &Bucket, directory: &Path, more: &[(&str, &str)], read: impl FnOnce(&Mount)) {
    let mounted = mount(bucket, directory, more);
    read(&mounted);
    assert_eq!(given_up(&mounted), 0, "{more:?}");
    mounted.unmount();
}

/// How often the store is asked by a mount that reads everything again, once its cache knows what it has: on a busy machine it
/// is mounted before.
#[track_caller]
fn read_again(bucket: &Bucket, directory: &Path, more: &[(&str, &str)]) -> u64 {
    let mounted = mount(bucket, directory, more);
    let all = bucket.data().keys(BUCKET).len() as u64;
    Patience::seconds(60).until("all objects to be in the cache", || {
        metric(&mounted, "cache_objects", "") == all
    });
    assert!(read_all(bucket, &mounted) == stored(bucket));
    let gets = metric(&mounted, "object_operations_total", "\"get\"");
    mounted.unmount();
    gets
}

/// Runs `read` on an empty cache, and checks that nothing is missing there afterwards.
#[track_caller]
fn check_filled_by(bucket: &Bucket, more: &[(&str, &str)], read: impl FnOnce(&Mount)) {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    fill(bucket, &directory, more, read);
    let gets = read_again(bucket, &directory, more);
    assert_eq!(gets, 0, "something was fetched again: {more:?}");
}

#[test]
fn the_first_read_leaves_the_whole_file_in_the_cache() {
    let bucket = filled(1, "300MiB");
    for memory in ["64MiB", "512MiB"] {
        let more = [("memory", memory)];
        check_filled_by(&bucket, &more, |mounted| {
            assert!(read_all(&bucket, mounted) == stored(&bucket));
        });
    }
}

#[test]
fn small_files_are_all_in_the_cache_after_one_read() {
    let bucket = filled(200, "300KiB");
    check_filled_by(&bucket, &[("memory", "64MiB")], |mounted| {
        let paths = paths(&bucket, mounted);
        thread::scope(|scope| {
            for paths in paths.chunks(40) {
                scope.spawn(move || paths.iter().for_each(|path| assert!(digest(path).is_ok())));
            }
        });
    });
}

/// They disturb the kernel's read-ahead, so many blocks come in two pieces.
#[test]
fn many_readers_with_little_memory_leave_everything_in_the_cache() {
    let bucket = filled(16, "12MiB");
    check_filled_by(&bucket, &[("memory", "64MiB")], |mounted| {
        let paths = paths(&bucket, mounted);
        thread::scope(|scope| {
            for path in paths.iter().chain(&paths) {
                scope.spawn(move || digest(path).expect("a read"));
            }
        });
    });
}

#[test]
fn of_a_file_that_is_read_in_two_halves_the_border_is_there_too() {
    let bucket = filled(1, "80MiB");
    let middle = 40 * MIB + 12_288;
    check_filled_by(&bucket, &[], |mounted| {
        let path = paths(&bucket, mounted).remove(0);
        for range in [middle..80 * MIB, 0..middle] {
            read_range(&path, range);
        }
    });
}

/// Reads `range` in pieces past the kernel's cache.
fn read_range(path: &Path, range: Range<u64>) {
    let file = system::open(path, libc::O_RDONLY | libc::O_DIRECT).expect("an open");
    let mut position = range.start;
    while position < range.end {
        let length = (range.end - position).min(64 << 10) as usize;
        let read = system::read_at(&file, length, position).expect("a read");
        position += read.len() as u64;
    }
}

#[test]
fn a_disk_that_stands_still_for_a_moment_loses_nothing() {
    let Some(disk) = Disk::new() else { return };
    let bucket = filled(1, "48MiB");
    let directory = disk.path().join("cache");
    let more = [("memory", "64MiB"), ("cache-size", "60MiB")];
    fill(&bucket, &directory, &more, |mounted| {
        let path = paths(&bucket, mounted).remove(0);
        let frozen = disk.freeze();
        let reader = thread::spawn(move || digest(&path).expect("a read"));
        thread::sleep(Duration::from_secs(2));
        drop(frozen);
        assert_eq!(reader.join().expect("no panic"), stored(&bucket)[0]);
    });
    assert_eq!(read_again(&bucket, &directory, &more), 0);
}

#[test]
fn a_disk_that_stands_still_for_long_holds_up_no_reader() {
    let Some(disk) = Disk::new() else { return };
    let bucket = filled(4, "40MiB");
    let directory = disk.path().join("cache");
    let mounted = mount(&bucket, &directory, &[("memory", "64MiB")]);
    let frozen = disk.freeze();
    let started = Instant::now();
    assert!(read_all(&bucket, &mounted) == stored(&bucket));
    assert!(started.elapsed() < NEVER.0);
    assert!(given_up(&mounted) > 100 * MIB, "and it says so");
    drop(frozen);
    mounted.unmount();
}
