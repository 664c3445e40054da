//! One mount after the other at one place: a process that is still starting, or that was unmounted and
//! still saves, is found by `penstock stats` and `penstock umount` whoever comes after it.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation, Server};
use support::{
    BUCKET, Background, Ended, Scratch, is_mounted, run, strict_server, succeed, with_access,
};

/// How long a mount waits for the one before it, as `docs/operations.md` says.
const WAITS: Duration = Duration::from_secs(15);

/// Bytes that a slow store takes longer for than a mount waits.
const SLOWLY_SAVED: usize = 6_000_000;

/// The store that takes that long.
const BYTES_PER_SECOND: u64 = 250_000;

struct Bed {
    scratch: Scratch,
    server: Server,
    mountpoint: PathBuf,
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

    /// A command that mounts here.
    fn mounting(&self, words: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        with_access(&mut command, &self.server)
            .args(words)
            .arg(format!("s3://{BUCKET}"))
            .arg(&self.mountpoint);
        command
    }

    /// A command of this program about the mount point.
    fn asking(&self, words: &[&str]) -> Ended {
        run(self.scratch.penstock().args(words).arg(&self.mountpoint))
    }

    /// What the list of all mounts says of this mount point: process and state of each.
    fn listed(&self) -> Vec<(u64, String)> {
        let text = succeed(self.scratch.penstock().args(["stats", "--json"]));
        let all: serde_json::Value = serde_json::from_str(&text).expect("valid");
        let all = all.as_array().expect("a list").iter();
        let here = all.filter(|one| one["mountpoint"] == self.mountpoint.to_str().expect("plain"));
        here.map(|one| {
            let pid = one["pid"].as_u64().expect("a number");
            (pid, one["phase"].as_str().unwrap_or_default().to_owned())
        })
        .collect()
    }

    /// The process that answers for the mount point.
    #[track_caller]
    fn process(&self) -> u64 {
        support::wait_until("it answers", || !self.listed().is_empty());
        self.listed()[0].0
    }

    /// Checks that this process answers for the mount point, in this phase, and no other.
    #[track_caller]
    fn is_alone(&self, process: u64, phase: &str) {
        assert_eq!(self.listed(), [(process, phase.to_owned())]);
    }

    /// Writes a file that takes long to save, and unmounts as the system does.
    fn leave_unsaved(&self) -> Background {
        let content = self.scratch.path("content");
        fs::write(&content, vec![7; SLOWLY_SAVED]).expect("room");
        self.server.faults().set(Faults {
            bandwidth: Some(BYTES_PER_SECOND),
            ..Faults::default()
        });
        let writer = Command::new("cp")
            .arg(&content)
            .arg(self.mountpoint.join("slow"))
            .stderr(Stdio::null())
            .spawn();
        let writer = Background(writer.expect("there is a cp"));
        support::wait_until("the file is written", || {
            fs::metadata(self.mountpoint.join("slow"))
                .is_ok_and(|found| found.len() == SLOWLY_SAVED as u64)
        });
        succeed(Command::new("umount").arg("-l").arg(&self.mountpoint));
        writer
    }

    fn is_saved(&self) -> bool {
        let stored = self.server.data().get(BUCKET, "slow");
        stored.is_some()
    }
}

#[test]
fn a_mount_that_is_still_starting_keeps_its_socket() {
    let bed = Bed::new();
    // The first look at the bucket, with which every mount begins, is answered at once.
    let late = Fault::Hang {
        duration_ms: 17_000,
    };
    let rule = FaultRule::new(late).on(&[Operation::ListObjectsV2]);
    bed.server.faults().add(rule.skip(1).next(1));
    let words = ["stream", "--transport=fuse", "--index-dir", "index"];
    let index = bed.scratch.folder("index");
    let words = [&words[..3], &[index.to_str().expect("plain")]].concat();
    let first = bed.mounting(&words).stderr(Stdio::piped()).spawn();
    let mut first = Background(first.expect("it was just built"));
    let process = bed.process();

    let second = run(&mut bed.mounting(&words));
    assert_eq!(second.code, Some(1), "{second:?}");
    let expected = format!("another process, {process}, is starting a mount");
    assert!(second.err.contains(&expected), "{}", second.err);
    assert_eq!(second.err.lines().count(), 1, "{}", second.err);
    assert!(second.took < Duration::from_secs(6), "{:?}", second.took);
    bed.is_alone(process, "starting");

    assert!(first.0.wait().expect("our own child").success());
    bed.is_alone(process, "mounted");
    let ended = bed.asking(&["umount"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!is_mounted(&bed.mountpoint));
}

#[test]
fn a_mount_that_still_saves_is_found_behind_the_next_one() {
    let bed = Bed::new();
    succeed(&mut bed.mounting(&["mount"]));
    let first = bed.process();
    let _writer = bed.leave_unsaved();

    let next = run(&mut bed.mounting(&["mount"]));
    assert_eq!(next.code, Some(0), "{}", next.err);
    assert!(next.took >= WAITS, "{:?}", next.took);
    assert!(!bed.is_saved(), "the store is slow enough");
    let told = format!("still saves what was written there, process {first}");
    assert!(next.err.contains(&told), "{}", next.err);
    let listed = bed.listed();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.contains(&(first, "saving".to_owned())), "{listed:?}");
    let shown = bed.asking(&["stats"]).out;
    assert!(shown.contains(&format!(" {first},")), "{shown}");

    let ended = bed.asking(&["umount"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(bed.is_saved(), "`umount` waits for both");
    assert!(bed.listed().is_empty());
}

#[test]
fn a_staged_mount_names_the_one_that_still_saves() {
    let bed = Bed::new();
    let staging = bed.scratch.path("staging");
    let directory = format!("--staging-dir={}", staging.display());
    let words = ["mount", "--mode=staged", &directory];
    succeed(&mut bed.mounting(&words));
    let first = bed.process();
    let _writer = bed.leave_unsaved();

    let refused = run(&mut bed.mounting(&words));
    assert!(!bed.is_saved(), "the store is slow enough");
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    let told = format!("still saves what was written there, process {first};");
    assert!(refused.err.contains(&told), "{}", refused.err);
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    assert!(refused.took >= WAITS, "{:?}", refused.took);
    assert!(refused.took < WAITS + WAITS / 2, "{:?}", refused.took);
    bed.is_alone(first, "saving");

    let ended = bed.asking(&["umount"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(bed.is_saved(), "`umount` waits for it");
    succeed(&mut bed.mounting(&words));
    assert_eq!(bed.asking(&["umount"]).code, Some(0));
}
