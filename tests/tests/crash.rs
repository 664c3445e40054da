//! The mount process is killed, or told to stop, at bad moments.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    Bucket, Kind, Mount, Patience, Process, Scratch, data::noise, run_within, system, unmount_dead,
};

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

/// A mount that is killed while the kernel, told to drop a page, waits for it, and with the kernel the thread that
/// told it.
struct Dropping {
    bucket: Bucket,
    scratch: Scratch,
    mount: Mount,
    users: [Child; 2],
}

impl Dropping {
    fn new() -> Self {
        let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
        bucket.put_outside("log", &noise(1, 8 * MIB));
        let mount = bucket.mount_with(&bucket.staged_options(&scratch.folder("staging")));
        let path = mount.join("log");
        let mut options = OpenOptions::new();
        let options = options.append(true).custom_flags(libc::O_DIRECT);
        let mut appended = options.open(&path).expect("an open");
        appended.write_all(b"first").expect("a write");
        let hang = FaultRule::new(Fault::Hang {
            duration_ms: 60_000,
        });
        bucket.fail(Faults::rule(hang.on(&[Operation::GetObject])));
        let users = Self::users(&path.display().to_string());
        Self {
            bucket,
            scratch,
            mount,
            users,
        }
    }

    /// One reads the second half, the other appends past the page cache while the first waits.
    fn users(path: &str) -> [Child; 2] {
        let start = |program, arguments: &[&str]| {
            let mut command = Command::new(program);
            let command = command.args(arguments).stdin(Stdio::piped());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("a start")
        };
        let output = format!("of={path}");
        let mut users = [
            start("tail", &["-c", "+4194305", path]),
            start(
                "dd",
                &[&output, "bs=4096", "oflag=append,direct", "conv=notrunc"],
            ),
        ];
        thread::sleep(Duration::from_millis(500));
        let mut input = users[1].stdin.take().expect("it is a pipe");
        input.write_all(&[b'x'; 4096]).expect("dd reads");
        thread::sleep(Duration::from_millis(500));
        assert_eq!(users[0].try_wait().expect("our own child"), None);
        users
    }

    /// Mounts in its place, with its staging directory, as its user would do.
    #[track_caller]
    fn mount_the_next(&mut self) {
        self.bucket.heal();
        let options = self.bucket.staged_options(&self.scratch.folder("staging"));
        let mut again = self.bucket.command_with("mount", &options);
        run_within(PATIENCE, again.arg(self.mount.path())).expect_success();
        self.until_all_are_let_go();
    }

    fn until_all_are_let_go(&mut self) {
        PATIENCE.until("all to be let go", || {
            let mut ended = self.users.iter_mut().map(Child::try_wait);
            ended.all(|ended| ended.expect("our own child").is_some())
        });
    }
}

/// The guardian goes first, so that nothing is left that could end the connection.
fn kill_with_guardian(mount: Process) {
    for process in mount.children().into_iter().chain([mount]) {
        process.signal("-KILL");
    }
    thread::sleep(Duration::from_secs(1));
}

#[test]
fn who_reads_a_page_that_is_being_dropped_is_let_go_when_the_mount_is_killed() {
    let mut dropping = Dropping::new();
    dropping.mount.process().kill();
    dropping.until_all_are_let_go();
    dropping.mount.kill_and_unmount();
}

#[test]
fn a_mount_that_is_killed_with_its_guardian_is_taken_away() {
    let mut dropping = Dropping::new();
    let process = dropping.mount.process();
    let guardians = process.children();
    assert_eq!(guardians.len(), 1);
    assert_eq!(guardians[0].working_directory(), Path::new("/"));
    // Those who ask every process of this name for something are not heard.
    guardians[0].signal("-USR1");
    guardians[0].signal("-URG");
    kill_with_guardian(process);
    unmount_dead(dropping.mount.path());
    dropping.until_all_are_let_go();
}

#[test]
fn a_mount_that_was_killed_with_its_guardian_makes_way_for_the_next() {
    let mut dropping = Dropping::new();
    kill_with_guardian(dropping.mount.process());
    dropping.mount_the_next();
    let read = fs::read(dropping.mount.join("log")).expect("a read");
    assert_eq!(read.len(), 8 * MIB + 5 + 4096);
    unmount_dead(dropping.mount.path());
}

#[test]
fn a_mount_whose_guardian_was_killed_says_so_once_and_serves_on() {
    const TOLD: &str = "its guardian has ended";
    let bucket = Bucket::new(Kind::Local);
    let mount = bucket.mount();
    // By then the guardian is watched.
    PATIENCE.until("it to be mounted", || {
        mount.log().contains("mounted source=")
    });
    for guardian in mount.process().children() {
        guardian.signal("-KILL");
    }
    PATIENCE.until("it to be told", || mount.log().contains(TOLD));
    fs::write(mount.join("file"), "content").expect("a write");
    assert_eq!(mount.unmount().matches(TOLD).count(), 1);
    // One that ends with its mount is none that was killed.
    let unharmed = bucket.mount();
    assert_eq!(fs::read(unharmed.join("file")).expect("a read"), b"content");
    assert!(!unharmed.unmount().contains(TOLD));
}

/// The mount table does not lead to its connection any more.
#[test]
fn a_mount_that_was_killed_with_its_guardian_and_hidden_makes_way_for_the_next() {
    let mut dropping = Dropping::new();
    if !dropping.mount.process().tells_connections() {
        penstock_skips::skipped("the kernel does not tell the connection of a descriptor");
        dropping.mount.process().kill();
        return dropping.until_all_are_let_go();
    }
    kill_with_guardian(dropping.mount.process());
    let mut hide = Command::new("umount");
    run_within(PATIENCE, hide.arg("-l").arg(dropping.mount.path())).expect_success();
    dropping.mount_the_next();
    unmount_dead(dropping.mount.path());
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
