//! The mount process is killed, or told to stop, at bad moments.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{Bucket, Kind, Patience, data::noise, run_within, system};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(20);

/// Opens `path` and writes `length` bytes without closing. What the kernel still buffers is the
/// mount's problem, not ours: writes go through.
fn write_without_closing(path: &Path, length: usize) -> File {
    let mut file = File::create(path).expect("a create");
    for piece in noise(7, length).chunks(MIB) {
        file.write_all(piece).expect("a write");
    }
    file
}

#[track_caller]
fn uploads(bucket: &Bucket, arguments: &[&str]) -> String {
    run_within(PATIENCE, bucket.command("uploads").args(arguments))
        .expect_success()
        .stdout
}

#[test]
fn a_killed_mount_leaves_no_half_object() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        fs::write(mount.join("kept"), "kept").expect("a write");
        fs::write(mount.join("replaced"), "old version").expect("a write");
        let new = write_without_closing(&mount.join("new"), 40 * MIB);
        let replaced = write_without_closing(&mount.join("replaced"), 40 * MIB);
        mount.kill_and_unmount();
        drop((new, replaced));

        let mount = bucket.mount();
        assert_eq!(
            system::list(mount.path()),
            Ok(vec!["kept".into(), "replaced".into()])
        );
        assert_eq!(fs::read(mount.join("kept")).expect("a read"), b"kept");
        assert_eq!(
            fs::read(mount.join("replaced")).expect("a read"),
            b"old version"
        );
        mount.unmount();
    }
}

#[test]
fn unfinished_uploads_of_a_killed_mount_can_be_listed_and_removed() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let file = write_without_closing(&mount.join("folder-less upload"), 64 * MIB);
        mount.kill_and_unmount();
        drop(file);
        let listed = uploads(&bucket, &[]);
        assert!(listed.contains("folder-less upload"), "{listed:?}");
        uploads(&bucket, &["--abort", "--older-than=0s"]);
        let listed = uploads(&bucket, &[]);
        assert!(!listed.contains("folder-less upload"), "{listed:?}");
    }
}

#[test]
fn what_was_closed_or_synced_survives_a_kill() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let closed = noise(1, 9 * MIB);
        fs::write(mount.join("closed"), &closed).expect("a write");
        let mut file = File::create(mount.join("synced")).expect("a create");
        file.write_all(b"synced").expect("a write");
        file.sync_all().expect("a sync");
        mount.kill_and_unmount();
        drop(file);
        let mount = bucket.mount();
        assert!(fs::read(mount.join("closed")).expect("a read") == closed);
        assert_eq!(fs::read(mount.join("synced")).expect("a read"), b"synced");
        mount.unmount();
    }
}

#[test]
fn a_terminated_mount_saves_what_is_open_and_leaves_cleanly() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mut mount = bucket.mount();
        let file = write_without_closing(&mount.join("open"), 12 * MIB);
        mount.process().terminate();
        PATIENCE.until("the process to leave", || !mount.is_alive());
        drop(file);
        drop(mount);
        let mount = bucket.mount();
        assert!(fs::read(mount.join("open")).expect("a read") == noise(7, 12 * MIB));
        mount.unmount();
    }
}

/// A notification of the kernel that waited for the lock of the directory would keep the connection of the
/// dead mount.
#[test]
fn who_removes_an_open_file_is_let_go_when_the_mount_is_killed() {
    let bucket = Bucket::new(Kind::S3);
    bucket.put_outside("folder/file", &noise(1, 6000));
    let mount = bucket.mount();
    let path = mount.join("folder/file");
    let mut reader = File::open(&path).expect("an open");
    reader.read_exact(&mut [0; 10]).expect("a read");
    let hang = FaultRule::new(Fault::Hang { duration_ms: 8000 });
    let slow = [Operation::PutObject, Operation::ListObjectsV2];
    bucket.fail(Faults::rule(hang.on(&slow)));
    let mut remover = Command::new("rm").arg(&path).spawn().expect("a start");
    thread::sleep(Duration::from_secs(1));
    let ended = remover.try_wait().expect("our own child");
    assert_eq!(ended, None, "it waits for the store");
    mount.kill();
    PATIENCE.until("the remover to be let go", || {
        remover.try_wait().expect("our own child").is_some()
    });
    drop(reader);
    mount.kill_and_unmount();
}

#[test]
fn a_handle_of_an_earlier_mount_leads_to_no_other_file() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        bucket.put_outside("first", b"first");
        bucket.put_outside("second", b"second");
        let mount = bucket.mount();
        let mut first = system::FileHandle::of(&mount.join("first")).expect("a handle");
        let file = first.open(mount.path()).expect("an open by the handle");
        assert_eq!(system::read_at(&file, 10, 0), Ok(b"first".to_vec()));
        drop(file);
        mount.unmount();
        let mount = bucket.mount();
        let mut second = system::FileHandle::of(&mount.join("second")).expect("a handle");
        let opened = first.open(mount.path()).map(drop);
        assert_eq!(opened, Err(system::Errno(libc::ESTALE)));
        second.open(mount.path()).expect("an open by the handle");
        mount.unmount();
    }
}
