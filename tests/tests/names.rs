//! Very many names: what the kernel holds of them leaves room for everything else.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use penstock_devserver::Crowd;
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, Scratch, run_within, stats::metric,
};

/// Names in one directory: far more than the budget has room for.
const NAMES: u64 = 100_000;
const BUDGET: u64 = 64 << 20;
/// What that budget may come to with code, stacks and the rest.
const RESIDENT_MAX: u64 = BUDGET / 4 * 5;
/// What a change may take while other tests run. One that waits for memory takes a minute.
const CHANGE_MAX: Duration = Duration::from_secs(10);
const PATIENCE: Patience = Patience::seconds(30);

/// A bucket with [`NAMES`] objects, spread over `directories`.
fn crowded(directories: u64) -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    let crowd = Crowd {
        bucket: BUCKET.to_owned(),
        prefix: "crowd/".to_owned(),
        count: NAMES,
        size: 7,
        directories,
    };
    bucket.data().add_crowd(&crowd).expect("memory");
    bucket
}

fn mount(bucket: &Bucket, options: MountOptions) -> Mount {
    bucket.mount_with(&options.option("memory", &BUDGET.to_string()))
}

/// What `ls -lR` does; returns how many files there are.
fn look_at_all(directory: &Path) -> u64 {
    let mut seen = 0;
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("a stat");
        if metadata.is_dir() {
            seen += look_at_all(&path);
        } else {
            assert_eq!(metadata.size(), 7, "{}", path.display());
            seen += 1;
        }
    }
    seen
}

/// Everything that must go on whatever was looked at before.
#[track_caller]
fn change_something(directory: &Path) {
    let begun = Instant::now();
    let (new, moved) = (directory.join("new"), directory.join("moved"));
    fs::write(&new, "acknowledged").expect("a write");
    assert_eq!(fs::read_to_string(&new).expect("a read"), "acknowledged");
    fs::rename(&new, &moved).expect("a rename");
    fs::remove_file(&moved).expect("an unlink");
    let took = begun.elapsed();
    assert!(took < CHANGE_MAX, "{took:?}");
}

/// Looks at everything, changes something, and asks what that came to.
#[track_caller]
fn check(mount: Mount) {
    let directory = mount.join("crowd");
    assert_eq!(look_at_all(&directory), NAMES);
    println!(
        "{} inodes held, {} MiB resident",
        metric(&mount, "bucket_inodes", ""),
        mount.process().resident() >> 20
    );
    change_something(&directory);
    let peak = mount.process().peak_resident();
    assert!(peak < RESIDENT_MAX, "peak of {} MiB", peak >> 20);
    mount.unmount();
}

#[test]
fn a_directory_of_more_names_than_memory_leaves_room_for_writes() {
    let bucket = crowded(0);
    let options = bucket.options();
    check(mount(&bucket, options));
}

#[test]
fn directories_of_more_names_than_memory_leave_room_for_writes() {
    let bucket = crowded(100);
    let options = bucket.options();
    check(mount(&bucket, options));
}

#[test]
fn a_directory_of_more_names_than_memory_leaves_room_for_staged_writes() {
    let (bucket, scratch) = (crowded(0), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    check(mount(&bucket, options.option("readdir-optimize", "true")));
}

/// Has the kernel forget what it caches of one file system and nothing else.
#[track_caller]
fn forget_names(mount: &Mount) {
    let mut remount = Command::new("mount");
    remount.args(["-i", "-o", "remount"]).arg(mount.path());
    run_within(PATIENCE, &mut remount).expect_success();
}

#[test]
fn what_names_took_comes_back() {
    let bucket = crowded(0);
    let options = bucket.options();
    let mount = mount(&bucket, options);
    let before = mount.process().resident();
    assert_eq!(look_at_all(&mount.join("crowd")), NAMES);
    assert!(metric(&mount, "bucket_inodes", "") > NAMES / 10);
    forget_names(&mount);
    PATIENCE.until("the kernel to forget", || {
        metric(&mount, "bucket_inodes", "") < 10
    });
    // A few blocks to receive into, and what is remembered.
    PATIENCE.until("memory to come back", || {
        mount.process().resident() < before + BUDGET / 8 * 3
    });
    mount.unmount();
}
