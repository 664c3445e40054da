//! Staged mounts on which the kernel gathers writes (`writeback-cache`).

#![allow(clippy::disallowed_methods)]

use std::{fs, process::Command};

use penstock_devserver::{Fault, FaultRule, Faults};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, Scratch,
    data::noise,
    files::{ANY, open, write},
    penstock, run_within,
    stats::metric,
    system, unmount_dead,
};

const PATIENCE: Patience = Patience::seconds(60);
const PAGE: usize = 4096;

fn options(bucket: &Bucket, scratch: &Scratch) -> MountOptions {
    let options = bucket.staged_options(&scratch.path().join("staging"));
    options.option("writeback-cache", "on")
}

/// Requests of one kind that the kernel made so far.
#[track_caller]
fn requests(mount: &Mount, operation: &str) -> u64 {
    metric(mount, "fuse_requests_total", &format!("\"{operation}\""))
}

#[test]
fn small_writes_are_gathered() {
    for kind in Kind::ALL {
        let (bucket, scratch) = (Bucket::new(kind), Scratch::new());
        let mount = bucket.mount_with(&options(&bucket, &scratch));
        let content = noise(1, 1000 * PAGE);
        let file = open(&mount.join("file"), ANY);
        for (number, page) in content.chunks(PAGE).enumerate() {
            write(&file, (number * PAGE) as u64, page);
        }
        assert_eq!(
            system::status_open(&file).map(|status| status.size),
            Ok(content.len() as u64)
        );
        assert_eq!(system::sync(&file), Ok(()));
        let (writes, looks) = (requests(&mount, "write"), requests(&mount, "getattr"));
        assert!(writes < 50, "{writes} writes for 1,000 pages");
        assert!(looks < 50, "{looks} looks at attributes for 1,000 pages");
        drop(file);
        assert!(fs::read(mount.join("file")).expect("readable") == content);
        mount.unmount();
        let again = bucket.mount_with(&options(&bucket, &scratch));
        assert!(fs::read(again.join("file")).expect("saved") == content);
        again.unmount();
    }
}

#[test]
fn a_file_that_is_only_written_and_appended_to_keeps_the_rest() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let mut content = noise(2, 3 * PAGE + 100);
    bucket.put_outside("file", &content);
    let mount = bucket.mount_with(&options(&bucket, &scratch));
    let path = mount.join("file");
    // The kernel has to read what surrounds these bytes in their page.
    let written = open(&path, libc::O_WRONLY);
    write(&written, PAGE as u64 + 10, b"in the middle of a page");
    content[PAGE + 10..][..23].copy_from_slice(b"in the middle of a page");
    let appended = [0, 1].map(|_| open(&path, libc::O_WRONLY | libc::O_APPEND));
    for round in 0..100 {
        let line = format!("line {round}\n");
        write(&appended[round % 2], 0, line.as_bytes());
        content.extend(line.as_bytes());
    }
    drop((written, appended));
    assert!(fs::read(&path).expect("readable") == content);
    assert!(bucket.data().get(BUCKET, "file") == Some(content));
    mount.unmount();
}

#[test]
fn what_another_client_stored_is_read_whole() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    bucket.put_outside("file", b"short");
    let options = options(&bucket, &scratch);
    let mount = bucket.mount_with(&options.option("close-to-open", "on"));
    let path = mount.join("file");
    for content in ["short", "much longer than before", "small", ""] {
        bucket.put_outside("file", content.as_bytes());
        assert_eq!(fs::read_to_string(&path).expect("readable"), content);
        assert_eq!(
            system::status(&path).map(|status| status.size),
            Ok(content.len() as u64)
        );
    }
    let file = open(&path, ANY);
    write(&file, 0, b"ours");
    drop(file);
    assert_eq!(bucket.data().get(BUCKET, "file"), Some(b"ours".to_vec()));
    mount.unmount();
}

#[test]
fn what_does_not_fit_is_told_to_whoever_syncs() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    // A child that another test starts closes its copy of the file first, which waits for the save.
    let options = options(&bucket, &scratch)
        .option("staging-size", "4MiB")
        .option("retry-timeout", "1s");
    let mount = bucket.mount_with(&options);
    let file = open(&mount.join("file"), ANY);
    bucket.fail(Faults::rule(FaultRule::new(Fault::InternalError)));
    for number in 0..6 {
        let _ = system::write_at(&file, &noise(number, 1 << 20), number << 20);
    }
    assert!(system::sync(&file).is_err(), "6 MiB cannot be in 4 MiB");
    bucket.heal();
    drop(file);
    mount.unmount();
}

#[test]
fn whoever_syncs_after_the_mount_was_killed_is_told() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let mount = bucket.mount_with(&options(&bucket, &scratch));
    let file = open(&mount.join("file"), ANY);
    write(&file, 0, b"nowhere else");
    mount.kill();
    assert!(system::sync(&file).is_err());
    drop(file);
    unmount_dead(mount.path());
}

#[test]
fn a_streaming_mount_refuses_to_have_its_writes_gathered() {
    let (bucket, scratch) = (Bucket::new(Kind::Local), Scratch::new());
    let mut mount: Command = penstock();
    mount
        .args(["mount", &bucket.source()])
        .arg(scratch.folder("mnt"))
        .arg("--writeback-cache");
    let finished = run_within(PATIENCE, &mut mount);
    assert!(!finished.succeeded());
    assert!(
        finished.stderr.contains("--mode=staged"),
        "{}",
        finished.stderr
    );
}
