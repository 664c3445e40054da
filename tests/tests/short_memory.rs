//! Staged mounts whose memory is short while the store is slow: what the kernel writes back from its
//! page cache arrives whole.
//!
//! Nobody tells a program that a write from the page cache was shortened: what is not taken is lost.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    path::Path,
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation as Served};
use penstock_tests::{
    BUCKET, Bucket, Kind, MountOptions, Patience, Scratch, SmallDisk,
    data::noise,
    files::{self, ANY, open},
    run_within,
    stats::metric,
    system,
};

const MIB: usize = 1 << 20;
const SLOW: Duration = Duration::from_millis(800);
const AWAY: Duration = Duration::from_millis(1500);
/// Longer than a program may take that waits for room.
const PATIENCE: Patience = Patience::seconds(300);

/// How many rounds of each kind are run: those of short memory, and if this is given more writers with
/// more of it, which write more.
const ROUNDS_VARIABLE: &str = "PENSTOCK_TEST_BURST_ROUNDS";

/// Files that are written side by side.
#[derive(Debug, Clone, Copy)]
struct Burst {
    /// `None` for the default.
    memory: Option<&'static str>,
    /// More of them at a time than blocks are held for writes where memory is short.
    files: u64,
    bytes: usize,
}

const SHORT: Burst = Burst {
    memory: Some("64MiB"),
    files: 4,
    bytes: 48 * MIB + 12_345,
};

/// What is tried when rounds are asked for.
const LARGE: [Burst; 3] = [
    Burst {
        bytes: 200 * MIB + 12_345,
        ..SHORT
    },
    Burst {
        memory: Some("256MiB"),
        files: 16,
        bytes: 100 * MIB + 12_345,
    },
    Burst {
        memory: None,
        files: 16,
        bytes: 100 * MIB + 12_345,
    },
];

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

/// Fills a new file through a mapping and syncs it, in a process of its own. The store is in this one, and
/// gets no memory while a thread of it waits for the mount with its mappings locked.
fn map_and_sync(path: &Path, content: &[u8], scratch: &Scratch) {
    const SCRIPT: &str = "import mmap, sys\n\
        content = open(sys.argv[1], 'rb').read()\n\
        with open(sys.argv[2], 'w+b') as file:\n    \
            file.truncate(len(content))\n    \
            with mmap.mmap(file.fileno(), len(content)) as mapping:\n        \
                mapping[:] = content\n        \
                mapping.flush()\n";
    let source = scratch.path().join(path.file_name().expect("a name"));
    std::fs::write(&source, content).expect("scratch is writable");
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).arg(&source).arg(path);
    run_within(PATIENCE, &mut python).expect_success();
}

/// Writes files side by side while the store is slow, and `fails` now and then, and looks at what came
/// of each. Returns how many writes found no memory.
#[track_caller]
fn burst(burst: Burst, (form, fails): (Form, &[Fault]), seed: u64) -> u64 {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let mount = bucket.mount_with(&options(&bucket, &scratch, (burst, form)));
    bucket.fail(Faults::latency(SLOW));
    let content = |number| noise(seed * 100 + number, burst.bytes);
    thread::scope(|scope| {
        let writers = (0..burst.files).map(|number| {
            let path = mount.join(format!("file-{number}"));
            let scratch = &scratch;
            scope.spawn(move || form.write(&path, &content(number), scratch))
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
    assert_arrived(&bucket, burst.files, content);
    spilled
}

/// The store has what was written into each of so many files.
#[track_caller]
fn assert_arrived(bucket: &Bucket, files: u64, content: impl Fn(u64) -> Vec<u8>) {
    for number in 0..files {
        let stored = bucket.data().get(BUCKET, &format!("file-{number}"));
        let same = stored.is_some_and(|stored| stored == content(number));
        assert!(same, "file-{number} differs from what was written");
    }
}

fn options(bucket: &Bucket, scratch: &Scratch, (burst, form): (Burst, Form)) -> MountOptions {
    let staging = bucket.staged_options(&scratch.path().join("staging"));
    let options = staging.option("max-dirty-data", "5MiB");
    let options = match burst.memory {
        Some(memory) => options.option("memory", memory),
        None => options,
    };
    match form {
        Form::Gathered => options.option("writeback-cache", "on"),
        Form::Mapped => options,
    }
}

/// How the bytes get into the page cache.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The kernel gathers what is written.
    Gathered,
    /// Through a shared mapping.
    Mapped,
}

impl Form {
    fn write(self, path: &Path, content: &[u8], scratch: &Scratch) {
        match self {
            Self::Gathered => write_and_sync(path, content),
            Self::Mapped => map_and_sync(path, content, scratch),
        }
    }
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("-V").output().is_ok();
    if !found {
        penstock_skips::skipped("there is no python3");
    }
    found
}

#[track_caller]
fn check(form: Form, fails: &[Fault]) {
    if matches!(form, Form::Mapped) && !has_python() {
        return;
    }
    let rounds = std::env::var(ROUNDS_VARIABLE).map(|text| text.parse().expect("a whole number"));
    let Ok(rounds) = rounds else {
        burst(SHORT, (form, fails), 0);

        return;
    };
    for size in LARGE {
        for round in 0..rounds {
            let spilled = burst(size, (form, fails), round);
            println!(
                "{size:?}, {form:?}, {fails:?}, round {round}: {spilled} writes found no memory"
            );
        }
    }
}

const AWAY_EACH_WAY: &[Fault] = &[Fault::InternalError, Fault::Hang { duration_ms: 1000 }];

#[test]
fn what_the_kernel_gathered_arrives_whole() {
    check(Form::Gathered, &[]);
}

#[test]
fn what_was_written_through_mappings_arrives_whole() {
    check(Form::Mapped, &[]);
}

#[test]
fn what_the_kernel_gathered_arrives_whole_when_the_store_was_away() {
    check(Form::Gathered, AWAY_EACH_WAY);
}

#[test]
fn what_was_written_through_mappings_arrives_whole_when_the_store_was_away() {
    check(Form::Mapped, AWAY_EACH_WAY);
}

/// Files are saved to make room, and those who write wait for that: the kernel holds back what has no
/// place meanwhile.
#[test]
fn what_the_kernel_gathered_waits_while_the_staging_disk_is_full() {
    let Some(disk) = SmallDisk::new(200) else {
        return;
    };
    let bucket = Bucket::new(Kind::S3);
    let options = bucket.staged_options(&disk.path().join("staging"));
    let options = options.option("memory", "64MiB");
    let mount = bucket.mount_with(&options.option("writeback-cache", "on"));
    bucket.fail(Faults {
        bandwidth_total: Some(60 << 20),
        ..Faults::default()
    });
    let content = |number| noise(number, 40 * MIB);
    thread::scope(|scope| {
        for number in 0..8 {
            let path = mount.join(format!("file-{number}"));
            scope.spawn(move || write_and_sync(&path, &content(number)));
        }
    });
    mount.unmount();
    assert_arrived(&bucket, 8, content);
}

/// Programs that write(2) can wait, and the kernel's page cache cannot: room that is held for that is not
/// theirs.
#[test]
fn what_was_written_through_mappings_arrives_whole_beside_many_writers_and_a_full_staging_disk() {
    const WRITERS: u64 = 100;
    let Some(disk) = SmallDisk::new(200) else {
        return;
    };
    if !has_python() {
        return;
    }
    let bucket = Bucket::new(Kind::S3);
    let options = bucket.staged_options(&disk.path().join("staging"));
    let mount = bucket.mount_with(&options.option("memory", "64MiB"));
    bucket.fail(Faults {
        bandwidth_total: Some(60 << 20),
        ..Faults::default()
    });
    let content = |number| noise(number, 20 * MIB);
    let (block, scratch) = (noise(99, MIB), Scratch::new());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let path = mount.join(format!("busy-{number}"));
            let (block, done) = (&block, &done);
            scope.spawn(move || keep_writing(&path, block, done));
        }
        thread::sleep(AWAY);
        let mapped = (0..4).map(|number| {
            let path = mount.join(format!("file-{number}"));
            let scratch = &scratch;
            scope.spawn(move || map_and_sync(&path, &content(number), scratch))
        });
        let mapped: Vec<_> = mapped.collect();
        let ended: Vec<_> = mapped.into_iter().map(ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        bucket.heal();
    });
    mount.unmount();
    assert_arrived(&bucket, 4, content);
}

/// Writes `block` to eight places of a file in turn until it is `done`.
fn keep_writing(path: &Path, block: &[u8], done: &AtomicBool) {
    let file = open(path, ANY);
    for number in (0..8).cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let (mut at, begin) = (0, number * block.len());
        while at < block.len() {
            let written = system::write_at(&file, &block[at..], (begin + at) as u64);
            at += written.expect("a write");
        }
    }
    assert_eq!(system::close(file), Ok(()));
}

/// What lies on the disk here needs no store, and a read of it no memory that writes wait for.
#[test]
fn what_is_here_is_read_while_writers_wait_for_a_store_that_is_away() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    let options = options.option("memory", "64MiB");
    let options = options.option("staging-size", "100MiB");
    let mount = bucket.mount_with(&options.option("writeback-cache", "on"));
    let here = noise(77, 8 * MIB);
    write_and_sync(&mount.join("here"), &here);
    let file = open(&mount.join("here"), libc::O_RDWR);
    files::write(&file, 0, &here);
    assert_eq!(system::sync(&file), Ok(()));
    let away = FaultRule::new(Fault::SlowDown { retry_after: None });
    bucket.fail(Faults::rule(
        away.on(&[Served::PutObject, Served::UploadPart]),
    ));
    let content = |number| noise(number, 40 * MIB);
    thread::scope(|scope| {
        for number in 0..6 {
            let path = mount.join(format!("file-{number}"));
            scope.spawn(move || write_and_sync(&path, &content(number)));
        }
        // No program is started meanwhile: it would close what it inherits, and wait for these writes.
        thread::sleep(5 * AWAY);
        system::forget_pages(&file);
        let (tell, told) = mpsc::channel();
        let (file, here) = (&file, &here[..MIB]);
        scope.spawn(move || tell.send(system::read_at(file, MIB, 0)));
        let read = told.recv_timeout(4 * AWAY);
        // Before anything is asserted: the writers would wait for ever.
        bucket.heal();
        assert!(read.expect("at once").as_deref() == Ok(here));
    });
    assert!(
        metric(&mount, "fuse_writes_spilled_total", "") > 0,
        "nobody waited"
    );
    assert_eq!(system::close(file), Ok(()));
    mount.unmount();
    assert_arrived(&bucket, 6, content);
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
