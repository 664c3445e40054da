//! `penstock umount` succeeds by the last word of the mount and by nothing else: a mount that ends without
//! one, or was dead before, may have left files unsaved.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs,
    io::Read,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Operation, Server};
use support::{
    BUCKET, Background, Ended, Scratch, is_mounted, run, strict_server, succeed, with_access,
};

/// The exit code of an unmount that left files unsaved.
const UNSAVED: Option<i32> = Some(3);

/// Long enough for a command to give its order.
const MOMENT: Duration = Duration::from_millis(700);

const NO_WORD: &str = "ended without saying whether everything is saved";

struct Bed {
    scratch: Scratch,
    server: Server,
    mountpoint: PathBuf,
}

impl Background {
    fn end(mut self) -> Ended {
        let mut text = String::new();
        let stderr = self.0.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut text).expect("text");
        Ended {
            code: self.0.wait().expect("our own child").code(),
            out: String::new(),
            err: text,
            took: Duration::ZERO,
        }
    }

    fn waits(&mut self) -> bool {
        self.0.try_wait().expect("our own child").is_none()
    }
}

impl Bed {
    fn new() -> Self {
        let (scratch, server) = (Scratch::new(), strict_server());
        let mountpoint = scratch.folder("mnt");
        Self {
            scratch,
            server,
            mountpoint,
        }
    }

    /// A mount in the background, and its process.
    fn mount(&self, words: &[&str]) -> libc::pid_t {
        let mut command = self.scratch.penstock();
        with_access(&mut command, &self.server)
            .arg("mount")
            .arg(format!("s3://{BUCKET}"))
            .arg(&self.mountpoint)
            .args(words);
        succeed(&mut command);
        let text = succeed(self.scratch.penstock().args(["stats", "--json"]));
        let all: Vec<serde_json::Value> = serde_json::from_str(&text).expect("valid");
        let place = self.mountpoint.to_str().expect("plain");
        let ours = all.iter().find(|one| one["mountpoint"] == place);
        let process = ours.expect("it answers")["pid"].as_i64();
        process.expect("a number").try_into().expect("small")
    }

    /// A mount that stages in [`Bed::staging`] and gives up saving soon.
    fn mount_staged(&self) -> libc::pid_t {
        let directory = format!("--staging-dir={}", self.staging());
        self.mount(&["--mode=staged", "--retry-timeout=5s", &directory])
    }

    fn staging(&self) -> String {
        self.scratch.path("staging").display().to_string()
    }

    /// Writes a file that is not saved when its program has ended.
    fn leave_unsaved(&self, fault: Fault) {
        let rule = FaultRule::new(fault).on(&[Operation::PutObject]);
        self.server.faults().add(rule);
        drop(self.writer());
    }

    /// A program that has an unsaved file open.
    fn writer(&self) -> Background {
        let file = self.mountpoint.join("file");
        let script = format!(
            "exec 3>'{}'; echo text >&3; echo open; exec sleep 60",
            file.display()
        );
        let mut writer = Command::new("bash");
        writer.args(["-c", &script]).stdout(Stdio::piped());
        let mut writer = Background(writer.spawn().expect("there is a shell"));
        let out = writer.0.stdout.as_mut().expect("piped");
        out.read_exact(&mut [0; 5]).expect("it opens the file");
        writer
    }

    /// Kills the mount and waits until nobody answers for it.
    fn kill(&self, process: libc::pid_t) {
        signal(process, libc::SIGKILL);
        support::wait_until("it is dead", || {
            run(self.scratch.penstock().arg("stats").arg(&self.mountpoint)).code == Some(1)
        });
    }

    /// Removes what the mount by a process wrote down of itself.
    fn remove_record(&self, process: libc::pid_t) {
        let user = fs::metadata("/proc/self").expect("there is a proc").uid();
        let places = ["/run/penstock".to_owned(), format!("/tmp/penstock-{user}")];
        let id = penstock_control::mount_id(&self.mountpoint);
        let removed = places
            .iter()
            .filter(|place| fs::remove_file(format!("{place}/{id}.{process}.staging")).is_ok());
        assert_eq!(removed.count(), 1, "it has one");
    }

    fn umount(&self, words: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        command.arg("umount").args(words).arg(&self.mountpoint);
        command
    }

    /// The command, which gave its order and waits.
    fn waiting_umount(&self) -> Background {
        let command = self.umount(&[]).stderr(Stdio::piped()).spawn();
        let mut waiting = Background(command.expect("it was just built"));
        std::thread::sleep(MOMENT);
        assert!(waiting.waits());
        waiting
    }

    fn is_stored(&self) -> bool {
        let stored = self.server.data().get(BUCKET, "file");
        stored.is_some()
    }

    fn has_journal(&self) -> bool {
        let entries = fs::read_dir(self.scratch.path("staging/files"));
        let mut paths = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        paths.any(|path| path.to_string_lossy().ends_with(".journal"))
    }

    /// Checks that the next mount saves what the one before left.
    #[track_caller]
    fn next_mount_saves(&self) {
        self.server.faults().clear();
        assert!(!self.is_stored());
        self.mount_staged();
        support::wait_until("it is saved", || self.is_stored());
        assert_eq!(run(&mut self.umount(&[])).code, Some(0));
    }
}

#[allow(unsafe_code)]
fn signal(process: libc::pid_t, signal: libc::c_int) {
    // SAFETY: the call has no memory of ours.
    let sent = unsafe { libc::kill(process, signal) };
    assert_eq!(sent, 0, "the process is there");
}

fn refusal() -> Fault {
    Fault::Status {
        status: 500,
        code: "InternalError".to_owned(),
    }
}

fn hang() -> Fault {
    Fault::Hang {
        duration_ms: 60_000,
    }
}

#[track_caller]
fn names_the_unsaved_file(ended: &Ended) {
    assert_eq!(ended.code, UNSAVED, "{ended:?}");
    assert!(ended.err.contains("could not save `file`"), "{ended:?}");
}

#[track_caller]
fn names_the_place(ended: &Ended, bed: &Bed) {
    assert_eq!(ended.code, UNSAVED, "{ended:?}");
    assert!(ended.err.contains(&bed.staging()), "{ended:?}");
    assert!(ended.err.contains("the next mount"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
}

#[test]
fn every_command_that_waits_hears_what_could_not_be_saved() {
    let bed = Bed::new();
    bed.mount_staged();
    bed.leave_unsaved(refusal());
    let waiting = [(); 3].map(|()| bed.waiting_umount());
    for one in waiting {
        names_the_unsaved_file(&one.end());
    }
}

#[test]
fn commands_that_come_after_umount_of_the_system_hear_what_could_not_be_saved() {
    let bed = Bed::new();
    bed.mount_staged();
    bed.leave_unsaved(refusal());
    support::umount(&bed.mountpoint);
    let waiting = [(); 2].map(|()| bed.waiting_umount());
    for one in waiting {
        names_the_unsaved_file(&one.end());
    }
}

#[test]
fn a_command_that_comes_after_a_signal_hears_what_could_not_be_saved() {
    let bed = Bed::new();
    let process = bed.mount_staged();
    bed.leave_unsaved(refusal());
    signal(process, libc::SIGTERM);
    std::thread::sleep(MOMENT);
    names_the_unsaved_file(&run(&mut bed.umount(&[])));
}

#[test]
fn a_command_that_comes_after_one_lost_patience_hears_what_could_not_be_saved() {
    let bed = Bed::new();
    bed.mount_staged();
    bed.leave_unsaved(refusal());
    let impatient = run(&mut bed.umount(&["--timeout=1s"]));
    assert_eq!(impatient.code, Some(1), "{impatient:?}");
    names_the_unsaved_file(&run(&mut bed.umount(&[])));
}

#[test]
fn a_mount_that_is_killed_while_it_saves_is_not_said_to_have_saved() {
    let bed = Bed::new();
    let process = bed.mount_staged();
    bed.leave_unsaved(hang());
    support::umount(&bed.mountpoint);
    let waiting = bed.waiting_umount();
    signal(process, libc::SIGKILL);
    let ended = waiting.end();
    assert!(ended.err.contains(NO_WORD), "{ended:?}");
    names_the_place(&ended, &bed);
    names_the_place(&run(&mut bed.umount(&[])), &bed);
    bed.next_mount_saves();
}

#[test]
fn a_mount_that_leaves_at_once_is_not_said_to_have_saved() {
    let bed = Bed::new();
    let process = bed.mount_staged();
    bed.leave_unsaved(hang());
    let waiting = bed.waiting_umount();
    for _ in 0..2 {
        signal(process, libc::SIGTERM);
        std::thread::sleep(MOMENT);
    }
    let ended = waiting.end();
    assert!(ended.err.contains(NO_WORD), "{ended:?}");
    names_the_place(&ended, &bed);
    bed.next_mount_saves();
}

#[test]
fn a_streaming_mount_that_is_killed_while_it_saves_is_not_said_to_have_saved() {
    let bed = Bed::new();
    let process = bed.mount(&[]);
    let _writer = bed.writer();
    succeed(Command::new("umount").arg("-l").arg(&bed.mountpoint));
    let waiting = bed.waiting_umount();
    signal(process, libc::SIGKILL);
    let ended = waiting.end();
    assert_eq!(ended.code, UNSAVED, "{ended:?}");
    assert!(ended.err.contains(NO_WORD), "{ended:?}");
    assert!(!ended.err.contains("the next mount"), "{ended:?}");
}

#[test]
fn a_dead_staged_mount_goes_and_is_not_said_to_have_saved() {
    let bed = Bed::new();
    let process = bed.mount_staged();
    let writer = bed.writer();
    bed.kill(process);
    drop(writer);
    let ended = run(&mut bed.umount(&[]));
    assert!(!is_mounted(&bed.mountpoint));
    assert!(ended.err.contains("is gone"), "{ended:?}");
    names_the_place(&ended, &bed);
    bed.next_mount_saves();
}

#[test]
fn a_dead_mount_that_had_nothing_unsaved_goes_in_silence() {
    let bed = Bed::new();
    for is_staged in [false, true] {
        let process = match is_staged {
            true => bed.mount_staged(),
            false => bed.mount(&[]),
        };
        fs::write(bed.mountpoint.join("file"), "text").expect("writable");
        support::wait_until("it is saved", || bed.is_stored() && !bed.has_journal());
        bed.kill(process);
        let ended = run(&mut bed.umount(&[]));
        assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{is_staged}");
        assert!(!is_mounted(&bed.mountpoint));
    }
}

#[test]
fn a_dead_mount_of_which_nothing_is_known_may_have_staged() {
    let bed = Bed::new();
    let process = bed.mount_staged();
    bed.kill(process);
    bed.remove_record(process);
    let ended = run(&mut bed.umount(&[]));
    assert_eq!(ended.code, UNSAVED, "{ended:?}");
    assert!(ended.err.contains("is not known"), "{ended:?}");
    assert!(ended.err.contains("--mode=staged"), "{ended:?}");
    assert!(!is_mounted(&bed.mountpoint));
}

#[test]
fn a_lazy_unmount_does_not_wait_for_programs_that_have_nothing_unsaved() {
    let bed = Bed::new();
    let process = bed.mount(&[]);
    let mut user = Command::new("sleep");
    let user = user.arg("60").current_dir(&bed.mountpoint).spawn();
    let user = Background(user.expect("there is a sleep"));
    let lazy = run(&mut bed.umount(&["--lazy", "--timeout=20s"]));
    assert_eq!(lazy.code, Some(0), "{lazy:?}");
    let told = format!("programs still use it: process {process} saves what they write");
    assert!(lazy.err.contains(&told), "{lazy:?}");
    assert!(!is_mounted(&bed.mountpoint));
    let listed = succeed(bed.scratch.penstock().arg("stats").arg(&bed.mountpoint));
    assert!(listed.contains("ending"), "{listed}");

    let told = bed.scratch.path("told");
    let told_to = fs::File::create(&told).expect("a file");
    let waiting = bed.umount(&[]).stderr(told_to).spawn();
    let mut waiting = Background(waiting.expect("it was just built"));
    support::wait_until("it says what it waits for", || {
        let told = fs::read_to_string(&told).expect("readable");
        told.contains("programs still use")
    });
    drop(user);
    let ended = waiting.0.wait().expect("our own child");
    assert_eq!(ended.code(), Some(0));
}
