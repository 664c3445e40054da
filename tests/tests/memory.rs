//! Memory stays within what the user allowed, in every workload.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{FaultRule, Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount,
    faults::{cut_body, passing_faults},
    system,
};

const MIB: usize = 1 << 20;
/// What `--memory=256MiB` may come to with code, stacks and the rest.
const RESIDENT_MAX: u64 = 320 << 20;
/// The same for `--memory=64MiB`.
const RESIDENT_MAX_OF_LITTLE: u64 = 128 << 20;
/// How long a crowd of readers may take. Debug binaries on a busy machine need a fraction of that.
const CROWD_MAX: Duration = Duration::from_secs(150);
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

/// Faults that readers ride out, all at once, rarely enough that ten attempts suffice.
fn bad_weather() -> Faults {
    let passing = passing_faults(300_000).into_iter();
    let rules = passing.chain([cut_body(300_000)]);
    let rules = rules.filter(|(name, _)| *name != "hang");
    let rare = |(_, rule): (&str, FaultRule)| rule.rate(0.03).on(&[Operation::GetObject]);
    Faults {
        latency_ms: 30,
        rules: rules.map(rare).collect(),
        ..Faults::default()
    }
}

/// Reads a file past the kernel's cache, so that each reader asks for itself.
fn compare(path: &Path, content: &[u8]) {
    let file = system::open(path, libc::O_RDONLY | libc::O_DIRECT).expect("an open");
    for (number, expected) in content.chunks(MIB / 4).enumerate() {
        let start = (number * MIB / 4) as u64;
        let mut read = Vec::new();
        while read.len() < expected.len() {
            let left = expected.len() - read.len();
            let piece = system::read_at(&file, left, start + read.len() as u64);
            read.extend(piece.expect("a read"));
        }
        assert!(read == expected, "{} at {start}", path.display());
    }
}

/// So many readers with `--memory=64MiB` and a store that is slow and fails: each gets its bytes.
#[track_caller]
fn check_crowd(bucket: &Bucket, readers: usize, faults: Faults) {
    bucket.fill("objects/:16:9MiB");
    let data = bucket.data();
    let files = data.keys(BUCKET).into_iter().map(|key| {
        let content = data.get(BUCKET, &key).expect("it is there");
        (key, content)
    });
    let files: Vec<_> = files.collect();
    let mount = bucket.mount_with(&bucket.options().option("memory", "64MiB"));
    bucket.fail(faults);
    let started = Instant::now();
    thread::scope(|scope| {
        for number in 0..readers {
            let (key, content) = &files[number % files.len()];
            let path = mount.join(key);
            scope.spawn(move || compare(&path, content));
        }
    });
    let took = started.elapsed();
    assert!(took < CROWD_MAX, "{readers} readers took {took:?}");
    let peak = mount.process().peak_resident();
    assert!(peak < RESIDENT_MAX_OF_LITTLE, "peak of {} MiB", peak >> 20);
    bucket.heal();
    mount.unmount();
}

#[test]
fn a_crowd_of_readers_gets_on_with_little_memory_and_a_slow_store() {
    for readers in [64, 256] {
        let faults = Faults::latency(Duration::from_millis(50));
        check_crowd(&Bucket::new(Kind::S3), readers, faults);
    }
}

#[test]
fn a_crowd_of_readers_gets_on_with_little_memory_and_a_failing_store() {
    for readers in [64, 256] {
        check_crowd(&Bucket::new(Kind::S3), readers, bad_weather());
    }
}

/// Each connection has records of its own that are not whole yet.
#[test]
fn a_crowd_of_readers_stays_within_little_memory_over_https() {
    let faults = Faults::latency(Duration::from_millis(50));
    check_crowd(&Bucket::secure(Kind::S3), 256, faults);
}

/// Each connection has records of its own that are not sent yet: a thin line leaves them waiting.
#[test]
fn a_crowd_of_writers_stays_within_little_memory_over_https() {
    const WRITERS: usize = 256;
    const BYTES: usize = MIB / 4;
    let bucket = Bucket::secure(Kind::S3);
    let mount = bucket.mount_with(&bucket.options().option("memory", "64MiB"));
    bucket.fail(Faults {
        latency_ms: 20,
        bandwidth_total: Some(30 << 20),
        ..Faults::default()
    });
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let path = mount.join(format!("written-{number}"));
            scope.spawn(move || std::fs::write(path, vec![number as u8; BYTES]).expect("a write"));
        }
    });
    let peak = mount.process().peak_resident();
    println!("{WRITERS} writers over HTTPS: peak of {} MiB", peak >> 20);
    assert!(peak < RESIDENT_MAX_OF_LITTLE, "peak of {} MiB", peak >> 20);
    bucket.heal();
    for number in 0..WRITERS {
        let stored = bucket.data().get(BUCKET, &format!("written-{number}"));
        assert!(stored.expect("it is there") == vec![number as u8; BYTES]);
    }
    let log = mount.unmount();
    assert!(!log.contains("panicked"), "{log}");
}
