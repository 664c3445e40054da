//! Staged mounts whose memory is short while the store is slow: what the kernel writes back from its
//! page cache arrives whole.
//!
//! Nobody tells a program that a write from the page cache was shortened: what is not taken is lost.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{path::Path, thread, time::Duration};

use penstock_devserver::{Fault, FaultRule, Faults};
use penstock_tests::{
    BUCKET, Bucket, Kind, MountOptions, Scratch,
    data::noise,
    files::{ANY, open},
    stats::metric,
    system,
};

const MIB: usize = 1 << 20;
const SLOW: Duration = Duration::from_millis(800);
const AWAY: Duration = Duration::from_millis(1500);

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
            scope.spawn(move || form.write(&path, &content(number)))
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
    for number in 0..burst.files {
        let stored = bucket.data().get(BUCKET, &format!("file-{number}"));
        let same = stored.is_some_and(|stored| stored == content(number));
        assert!(same, "file-{number} differs from what was written");
    }
    spilled
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
    fn write(self, path: &Path, content: &[u8]) {
        match self {
            Self::Gathered => write_and_sync(path, content),
            Self::Mapped => map_and_sync(path, content),
        }
    }
}

#[track_caller]
fn check(form: Form, fails: &[Fault]) {
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
