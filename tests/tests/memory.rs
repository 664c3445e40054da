//! Memory stays within what the user allowed, in every workload.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    thread,
};

use penstock_tests::{BUCKET, Bucket, Kind, Mount};

const MIB: usize = 1 << 20;
/// What `--memory=256MiB` may come to with code, stacks and the rest.
const RESIDENT_MAX: u64 = 320 << 20;
const STREAMS: usize = 8;
const STREAM_BYTES: usize = 192 * MIB;

/// A bucket with one object for each stream.
fn filled() -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    bucket.fill(&format!("objects/:{STREAMS}:{}MiB", STREAM_BYTES / MIB));
    bucket
}

fn mount(bucket: &Bucket) -> Mount {
    bucket.mount_with(&bucket.options().option("memory", "256MiB"))
}

fn read_all(path: &Path) {
    let mut file = File::open(path).expect("an open");
    let mut buffer = vec![0; MIB];
    let mut total = 0;
    loop {
        match file.read(&mut buffer).expect("a read") {
            0 => break,
            count => total += count,
        }
    }
    assert_eq!(total, STREAM_BYTES);
}

fn write_all(path: &Path) {
    let mut file = File::create(path).expect("a create");
    let buffer = vec![7; MIB];
    for _ in 0..STREAM_BYTES / MIB {
        file.write_all(&buffer).expect("a write");
    }
    file.sync_all().expect("a sync");
}

/// Runs `readers` and `writers` at once and checks the peak.
#[track_caller]
fn check(readers: usize, writers: usize) {
    let bucket = filled();
    let keys: Vec<_> = bucket.data().keys(BUCKET);
    let mount = mount(&bucket);
    thread::scope(|scope| {
        for key in keys.iter().take(readers) {
            let path = mount.join(key);
            scope.spawn(move || read_all(&path));
        }
        for number in 0..writers {
            let path = mount.join(format!("written-{number}"));
            scope.spawn(move || write_all(&path));
        }
    });
    let peak = mount.process().peak_resident();
    assert!(
        peak < RESIDENT_MAX,
        "{readers} readers and {writers} writers: peak of {} MiB",
        peak >> 20
    );
    println!(
        "{readers} readers, {writers} writers: peak of {} MiB",
        peak >> 20
    );
    mount.unmount();
}

#[test]
fn eight_readers_stay_within_256_mib() {
    check(8, 0);
}

#[test]
fn eight_writers_stay_within_256_mib() {
    check(0, 8);
}

#[test]
fn four_readers_and_four_writers_stay_within_256_mib() {
    check(4, 4);
}
