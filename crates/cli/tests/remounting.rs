//! `umount` and `mount` one after the other: when an unmount returns nothing of the mount is left,
//! and whoever mounts where the system unmounted waits for the process that is still ending.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::print_stderr)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use support::{Scratch, run, succeed, umount};

/// Files in the bucket: as many inodes has the process to let go of when it ends.
const FILES: usize = 20_000;

/// How often one follows the other.
const ROUNDS: usize = 5;

/// Programs that keep the processors busy.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let spin = || {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            command.spawn().expect("there is a shell")
        };
        Self((0..6).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Bed {
    scratch: Scratch,
    mountpoint: PathBuf,
}

impl Bed {
    fn new(files: usize) -> Self {
        let scratch = Scratch::new();
        let bucket = scratch.folder("bucket");
        for number in 0..files {
            fs::write(bucket.join(format!("file-{number:05}")), "x").expect("room");
        }
        let mountpoint = scratch.folder("mnt");
        Self {
            scratch,
            mountpoint,
        }
    }

    /// Mounts with directories that one mount at a time may have, and makes it know all files.
    #[track_caller]
    fn mount(&self) -> u64 {
        let scratch = &self.scratch;
        let mut command = scratch.penstock();
        command
            .args(["mount", "--mode=staged", "--memory=256MiB"])
            .arg(format!(
                "--staging-dir={}",
                scratch.path("staging").display()
            ))
            .arg(format!("--cache-dir={}", scratch.folder("cache").display()))
            .arg(format!("file://{}", scratch.path("bucket").display()))
            .arg(&self.mountpoint);
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        succeed(Command::new("ls").arg("-l").arg(&self.mountpoint));
        self.process()
    }

    /// The process of the mount, which answers on its socket.
    #[track_caller]
    fn process(&self) -> u64 {
        let mut command = self.scratch.penstock();
        let text = succeed(command.args(["stats", "--json"]).arg(&self.mountpoint));
        let found = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("\"pid\": "));
        let number = found.expect("in the status").trim_end_matches(',').parse();
        number.expect("a number")
    }

    fn penstock_umount(&self) -> Command {
        let mut command = self.scratch.penstock();
        command.arg("umount").arg(&self.mountpoint);
        command
    }
}

/// Whether a process runs; one that only its parent has not looked after yet does not.
fn runs(process: u64) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    })
}

#[test]
fn when_an_unmount_returns_nothing_of_the_mount_is_left() {
    let bed = Bed::new(FILES);
    let _load = Load::start();
    for round in 0..ROUNDS {
        let process = bed.mount();
        succeed(&mut bed.penstock_umount());
        assert!(
            !runs(process),
            "round {round}: process {process} is still ending"
        );
    }
}

#[test]
fn a_mount_waits_for_the_process_that_the_system_unmounted() {
    let bed = Bed::new(FILES);
    let _load = Load::start();
    let mut last = bed.mount();
    for round in 0..ROUNDS {
        umount(&bed.mountpoint);
        let next = bed.mount();
        assert_ne!(last, next, "round {round}: the new mount is reached");
        last = next;
    }
    succeed(&mut bed.penstock_umount());
}

/// However long the old process is on its way: here another one has its lock for a second.
#[test]
fn a_mount_waits_for_a_process_that_has_the_directories_and_no_mount() {
    let bed = Bed::new(1);
    bed.mount();
    succeed(&mut bed.penstock_umount());
    for lock in ["staging/lock", "cache/objects/lock"] {
        let path = bed.scratch.path(lock);
        let mut ending = Command::new("flock")
            .arg(&path)
            .args(["sh", "-c", "echo locked; exec sleep 1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux has it");
        fs::write(&path, format!("{}\n", ending.id())).expect("ours");
        let mut said = [0; 6];
        let out = ending.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut said).expect("it has the lock");
        bed.mount();
        succeed(&mut bed.penstock_umount());
        ending.wait().expect("our own child");
    }
}

#[test]
fn a_mount_does_not_wait_for_one_that_is_used() {
    let bed = Bed::new(1);
    bed.mount();
    let mut command = bed.scratch.penstock();
    command
        .args(["mount", "--mode=staged"])
        .arg(format!(
            "--staging-dir={}",
            bed.scratch.path("staging").display()
        ))
        .arg(format!("file://{}", bed.scratch.path("bucket").display()))
        .arg(bed.scratch.folder("other"));
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("is in use by process"), "{}", ended.err);
    assert!(ended.took.as_secs() < 10, "{:?}", ended.took);
    succeed(&mut bed.penstock_umount());
}

#[test]
fn an_unmount_waits_for_the_last_close() {
    let bed = Bed::new(1);
    for _ in 0..ROUNDS {
        bed.mount();
        let file = bed.mountpoint.join("file-00000");
        let script = format!("exec 3<'{}'; echo open; sleep 0.3", file.display());
        let mut reader = Command::new("bash");
        reader.args(["-c", &script]).stdout(Stdio::piped());
        let mut reader = reader.spawn().expect("there is a shell");
        let mut said = [0; 5];
        let out = reader.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut said).expect("it opens the file");
        succeed(&mut bed.penstock_umount());
        assert!(reader.wait().expect("our own child").success());
    }
}

/// Where a mount of root listens: the name is the 64-bit FNV-1a hash of the mount point.
fn socket_of_root(mountpoint: &Path) -> PathBuf {
    let bytes = mountpoint.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    PathBuf::from(format!("/run/penstock/{hash:016x}.sock"))
}

/// A mount of root, on which one file is not saved yet, and whose program listens where nobody looks.
/// None where mounts do not listen in a known place.
fn unasked(bed: &Bed) -> Option<Child> {
    bed.mount();
    let socket = socket_of_root(&bed.mountpoint);
    if !socket.exists() {
        succeed(&mut bed.penstock_umount());
        penstock_skips::skipped("only mounts of root listen where that is known");
        return None;
    }
    let aside = bed.scratch.path("aside.sock");
    fs::rename(&socket, &aside)
        .or_else(|_| fs::remove_file(&socket))
        .expect("ours");
    let script = format!(
        "exec 3>'{}'; echo unsaved >&3; echo open; exec sleep 60",
        bed.mountpoint.join("unsaved").display()
    );
    let mut writer = Command::new("bash");
    writer.args(["-c", &script]).stdout(Stdio::piped());
    let mut writer = writer.spawn().expect("there is a shell");
    let mut said = [0; 5];
    let out = writer.stdout.as_mut().expect("piped");
    std::io::Read::read_exact(out, &mut said).expect("it opens the file");
    Some(writer)
}

fn end(mut writer: Child) {
    writer.kill().expect("our own child");
    writer.wait().expect("our own child");
}

#[test]
fn a_mount_whose_program_cannot_be_asked_is_left_alone() {
    let bed = Bed::new(1);
    let Some(writer) = unasked(&bed) else {
        return;
    };
    let refused = run(&mut bed.penstock_umount());
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("cannot be asked"), "{}", refused.err);
    assert!(refused.err.contains("XDG_RUNTIME_DIR"), "{}", refused.err);
    assert!(bed.mountpoint.join("file-00000").exists(), "it goes on");
    end(writer);
    support::wait_until("the file is closed", || {
        run(Command::new("umount").arg(&bed.mountpoint)).code == Some(0)
    });
}

#[test]
fn a_mount_that_is_detached_unasked_is_not_said_to_be_saved() {
    let bed = Bed::new(1);
    let Some(writer) = unasked(&bed) else {
        return;
    };
    let told = run(bed.penstock_umount().arg("--lazy"));
    assert_eq!(told.code, Some(1), "{}", told.err);
    assert!(told.err.contains("nobody waits"), "{}", told.err);
    assert!(!support::is_mounted(&bed.mountpoint));
    assert!(!bed.scratch.path("bucket/unsaved").exists());
    end(writer);
    support::wait_until("it is saved all the same", || {
        bed.scratch.path("bucket/unsaved").exists()
    });
}

#[test]
fn another_user_is_told_whose_the_mount_is() {
    let bed = Bed::new(1);
    let Some(writer) = unasked(&bed) else {
        return;
    };
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bed.scratch.path("."), everybody).expect("ours");
    for word in [None, Some("--lazy")] {
        let mut command = Command::new("setpriv");
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        command
            .args(nobody)
            .args([env!("CARGO_BIN_EXE_penstock"), "umount"])
            .args(word)
            .arg(&bed.mountpoint);
        let refused = run(&mut command);
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        let advice = "run this as the user who mounted it, number 0";
        assert!(refused.err.contains(advice), "{}", refused.err);
        assert!(!refused.err.contains("works too"), "{}", refused.err);
        assert!(!refused.err.contains("--lazy"), "{}", refused.err);
        assert!(support::is_mounted(&bed.mountpoint));
    }
    end(writer);
}

#[test]
fn what_another_program_mounted_through_fuse_is_left_to_it() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    // Its daemon is gone at once.
    let script = "exec mount -i -t fuse.other -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" \
                  3<>/dev/fuse";
    let made = run(Command::new("bash").args(["-c", script]).arg(&mountpoint));
    if made.code != Some(0) {
        return penstock_skips::skipped("only root can mount");
    }
    for word in [None, Some("--lazy")] {
        let mut command = scratch.penstock();
        let refused = run(command.arg("umount").args(word).arg(&mountpoint));
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        let told = "a mount of type fuse.other, not of this program";
        assert!(refused.err.contains(told), "{}", refused.err);
        assert!(support::is_mounted(&mountpoint));
    }
}
