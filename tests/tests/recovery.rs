//! What a mount that was killed left in its staging directory, on real mounts in the background: the
//! next one comes up at once, shows it, and saves it behind everything else.

#![allow(clippy::disallowed_methods, clippy::print_stderr)]

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Patience, Process, Scratch,
    data::noise,
    files::{ANY, open, write},
    penstock, run_within,
    stats::metric_at,
    system, unmount_dead,
};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(120);
/// How long a mount may take to come up, whatever there is to recover: seconds, more on a machine that
/// is busy, and far less than what there is to save takes.
const SOON: Duration = Duration::from_secs(60);

/// A bucket that is mounted in the background, in staged mode, as often as a test likes.
struct Bed {
    bucket: Bucket,
    scratch: Scratch,
}

impl Bed {
    fn new() -> Self {
        let bed = Self {
            bucket: Bucket::new(Kind::S3),
            scratch: Scratch::new(),
        };
        bed.scratch.folder("mnt");
        bed
    }

    fn place(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    fn staging(&self) -> PathBuf {
        self.scratch.path().join("staging")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Mounts in the background and returns the process.
    #[track_caller]
    fn mount(&self, more: &[&str]) -> Process {
        let begun = Instant::now();
        let mut mount: Command = self.bucket.command("mount");
        mount
            .arg(self.place())
            .args(["--mode=staged", "--retry-timeout=5s", "--staging-dir"])
            .arg(self.staging())
            .arg("--log-file")
            .arg(self.scratch.path().join("log"))
            .args(more);
        run_within(PATIENCE, &mut mount).expect_success();
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
        let told = penstock_tests::stats::stats(&self.place());
        Process(told["pid"].as_u64().expect("a number") as u32)
    }

    /// Kills a mount and takes it away.
    #[track_caller]
    fn kill(&self, mount: Process) {
        mount.kill();
        unmount_dead(&self.place());
    }

    #[track_caller]
    fn unmount(&self) {
        run_within(PATIENCE, penstock().arg("umount").arg(self.place())).expect_success();
    }

    #[track_caller]
    fn recovered(&self) {
        PATIENCE.until("everything to be saved", || self.left() == 0);
    }

    /// Files that are still to be saved.
    fn left(&self) -> u64 {
        metric_at(&self.place(), "bucket_recovering_files", "")
    }

    fn open(&self, name: &str) -> OwnedFd {
        open(&self.place().join(name), ANY)
    }

    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.bucket.data().get(BUCKET, name)
    }

    fn folder(&self, name: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.staging().join(name)).expect("a staging directory");
        entries.flatten().map(|entry| entry.path()).collect()
    }

    fn uploads(&self) -> Vec<(String, String)> {
        self.bucket.data().uploads(BUCKET)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if penstock_tests::is_mounted(&self.place()) {
            if let Some(process) = pid_of(&self.place()) {
                process.kill();
            }
            system::detach(&self.place());
        }
        if thread::panicking() {
            eprintln!("--- the log ---\n{}---", self.log());
        }
    }
}

fn pid_of(place: &Path) -> Option<Process> {
    let mut stats = penstock();
    stats.args(["stats", "--json"]).arg(place);
    let told = run_within(PATIENCE, &mut stats);
    let told: serde_json::Value = serde_json::from_str(&told.stdout).ok()?;
    Some(Process(told["pid"].as_u64()? as u32))
}

fn slow() -> Faults {
    Faults {
        bandwidth_total: Some(MIB as u64),
        ..Faults::default()
    }
}

#[test]
fn a_mount_with_much_to_recover_comes_up_at_once_and_serves_everything() {
    let bed = Bed::new();
    bed.bucket.put_outside("other", b"of another");
    let mount = bed.mount(&[]);
    let content = noise(1, 100 * MIB);
    let file = bed.open("file");
    for at in (0..content.len()).step_by(MIB) {
        write(&file, at as u64, &content[at..at + MIB]);
    }
    bed.kill(mount);
    drop(file);
    bed.bucket.fail(slow());
    let mount = bed.mount(&[]);
    assert_eq!(
        fs::read(bed.place().join("other")).expect("served"),
        b"of another"
    );
    assert!(fs::read(bed.place().join("file")).expect("served") == content);
    assert_eq!(bed.left(), 1);
    assert_eq!(bed.stored("file"), None);
    // Killed while it saves.
    let mut mounts = vec![mount];
    for _ in 0..3 {
        PATIENCE.until("an upload", || !bed.uploads().is_empty());
        thread::sleep(Duration::from_millis(700));
        bed.kill(mounts.pop().expect("one is mounted"));
        mounts.push(bed.mount(&[]));
    }
    bed.bucket.heal();
    bed.recovered();
    assert!(bed.stored("file") == Some(content));
    PATIENCE.until("no upload to be left", || bed.uploads().is_empty());
    assert!(bed.log().contains("recovered `file`"));
    bed.unmount();
    assert_eq!(bed.folder("kept"), Vec::<PathBuf>::new());
    assert_eq!(bed.folder("files"), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_the_store_refuses_holds_up_no_other() {
    let bed = Bed::new();
    let mount = bed.mount(&[]);
    let names: Vec<String> = (0..20).map(|number| format!("file-{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| bed.open(name)).collect();
    for (file, name) in files.iter().zip(&names) {
        write(file, 0, name.as_bytes());
    }
    let refused = bed.open("refused");
    write(&refused, 0, b"refused");
    bed.kill(mount);
    drop((files, refused));
    let retry_after = None;
    let rule = FaultRule::new(Fault::SlowDown { retry_after }).below("refused");
    bed.bucket.fail(Faults::rule(rule));
    let _mount = bed.mount(&[]);
    PATIENCE.until("the others to be saved", || bed.left() == 1);
    for name in &names {
        assert_eq!(bed.stored(name).as_deref(), Some(name.as_bytes()));
    }
    assert_eq!(
        fs::read(bed.place().join("refused")).expect("served"),
        b"refused"
    );
    bed.bucket.heal();
    bed.recovered();
    assert_eq!(bed.stored("refused").as_deref(), Some(&b"refused"[..]));
    bed.unmount();
}

#[test]
fn several_files_are_recovered_at_once() {
    let bed = Bed::new();
    let mount = bed.mount(&[]);
    let files: Vec<_> = (0..16)
        .map(|number| bed.open(&format!("file-{number}")))
        .collect();
    for file in &files {
        write(file, 0, b"content");
    }
    bed.kill(mount);
    drop(files);
    let hang = Fault::Hang { duration_ms: 4000 };
    bed.bucket.fail(Faults::rule(
        FaultRule::new(hang).on(&[Operation::PutObject]),
    ));
    let _mount = bed.mount(&[]);
    let begun = Instant::now();
    bed.recovered();
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
    bed.unmount();
}

#[test]
fn what_is_unsaved_when_a_recovering_mount_ends_is_saved_or_stays() {
    let bed = Bed::new();
    let mount = bed.mount(&[]);
    let file = bed.open("file");
    write(&file, 0, b"content");
    bed.kill(mount);
    drop(file);
    bed.bucket.fail(Faults::rule(
        FaultRule::new(Fault::InternalError).on(&[Operation::PutObject]),
    ));
    bed.mount(&[]);
    let ended = run_within(PATIENCE, penstock().arg("umount").arg(bed.place()));
    assert!(ended.stderr.contains("could not save `file`"), "{ended:?}");
    bed.bucket.heal();
    bed.mount(&[]);
    bed.recovered();
    assert_eq!(bed.stored("file").as_deref(), Some(&b"content"[..]));
    bed.unmount();
}

#[test]
fn what_another_client_wrote_is_never_overwritten_by_a_recovery_behind_the_mount() {
    let bed = Bed::new();
    bed.bucket.put_outside("file", b"the first version");
    let mount = bed.mount(&[]);
    let (file, new) = (bed.open("file"), bed.open("new"));
    write(&file, 0, b"ours");
    write(&new, 0, b"ours");
    bed.kill(mount);
    drop((file, new));
    for name in ["file", "new"] {
        bed.bucket.put_outside(name, b"theirs");
    }
    bed.mount(&[]);
    bed.recovered();
    for name in ["file", "new"] {
        assert_eq!(bed.stored(name).as_deref(), Some(&b"theirs"[..]));
        assert_eq!(fs::read(bed.place().join(name)).expect("served"), b"theirs");
    }
    assert_eq!(bed.folder("kept").len(), 4);
    bed.unmount();
}
