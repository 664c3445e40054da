//! The machine dies under a staged mount: what the disk of the staging directory has then, and what
//! the next start of the system makes of it.
//!
//! The staging directory lies on a loop device. Its backing file has what a disk would have: what
//! was forced to it, and not what the kernel still holds for it. A copy of that, mounted elsewhere,
//! is what the machine finds when it starts again. The mount that finds it sees the name of another
//! start of the system.

#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use penstock_tests::{
    BUCKET, Bucket, Disk, Kind, Mount, Patience,
    data::noise,
    files::{ANY, open, write},
};

const PATIENCE: Patience = Patience::seconds(60);

/// What gives a process another start of the system, and runs it.
const ANOTHER_START: &str =
    "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && shift && exec \"$@\"";

fn staging(disk: &Disk) -> PathBuf {
    disk.path().join("staging")
}

/// Bytes in the journals of staged files.
fn journals(disk: &Disk) -> u64 {
    let files = fs::read_dir(staging(disk).join("files")).expect("a staging directory");
    let is_journal = |path: &Path| path.extension().is_some_and(|ending| ending == "journal");
    let journals = files.flatten().filter(|file| is_journal(&file.path()));
    journals
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

/// A bucket, and the disk on which it is staged.
struct Bed {
    bucket: Bucket,
    disk: Disk,
}

impl Bed {
    fn new() -> Option<Self> {
        let disk = Disk::new()?;
        let bucket = Bucket::new(Kind::S3);
        Some(Self { bucket, disk })
    }

    fn mount(&self) -> Mount {
        let options = self.bucket.staged_options(&staging(&self.disk));
        self.bucket.mount_with(&options)
    }

    /// A mount whose fsync asks the disk and not the store, which hears nothing in the time of a test.
    fn mount_fsyncing_here(&self) -> Mount {
        let options = self.bucket.staged_options(&staging(&self.disk));
        let options = options
            .option("save", "behind")
            .option("fsync", "journal")
            .option("save-after", "1h")
            .option("unsaved-age", "1h");
        self.bucket.mount_with(&options)
    }

    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.bucket.data().get(BUCKET, name)
    }

    /// Cuts the power and starts again: `name` is `expected` in the store then.
    #[track_caller]
    fn restart(&self, mount: Mount, (name, expected): (&str, &[u8])) {
        self.restart_with(mount, &[(name.to_owned(), expected.to_vec())]);
    }

    /// The same with several files, which are recovered in any order, behind the mount.
    #[track_caller]
    fn restart_with(&self, mount: Mount, files: &[(String, Vec<u8>)]) {
        mount.process().kill();
        let disk = self.disk.without_power();
        drop(mount);
        let next = Restarted::new(self, &disk);
        for (name, expected) in files {
            let recovered =
                PATIENCE.find(|| (self.stored(name).as_ref() == Some(expected)).then_some(()));
            assert!(
                recovered.is_some(),
                "another content of {name}: {:?}\n{}",
                self.stored(name).map(|content| content.len()),
                next.log()
            );
        }
    }
}

/// The mount after the machine has started again.
struct Restarted {
    child: Child,
    log: PathBuf,
}

impl Restarted {
    fn new(bed: &Bed, disk: &Disk) -> Self {
        let boot = disk.scratch().path().join("boot");
        fs::write(&boot, "00000000-0000-4000-8000-000000000000\n").expect("scratch is writable");
        let log = disk.scratch().path().join("log");
        let output = fs::File::create(&log).expect("scratch is writable");
        let mut mount = bed.bucket.command("mount");
        mount
            .arg(disk.scratch().folder("mnt"))
            .args(["-f", "--mode=staged", "--staging-dir"])
            .arg(staging(disk));
        let variables = mount.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        let child = Command::new("unshare")
            .args(["-m", "sh", "-c", ANOTHER_START, "sh"])
            .arg(boot)
            .arg(mount.get_program())
            .args(mount.get_args())
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output)
            .spawn()
            .expect("there are namespaces");
        Self { child, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until the mount has noted that everything is on the disk, in a journal that has more than
/// `told` bytes then; or as long as that may take. Less than the half minute after which the kernel
/// writes everything.
fn await_sync(disk: &Disk, told: u64) {
    Patience::seconds(20).find(|| (journals(disk) > told).then_some(()));
    // The note itself is forced to the disk at once.
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn what_is_some_seconds_old_survives_a_crash_of_the_machine() {
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount();
    let file = open(&mount.join("file"), ANY);
    let content = noise(1, 4096);
    write(&file, 0, &content);
    await_sync(&bed.disk, journals(&bed.disk));
    bed.restart(mount, ("file", &content));
}

#[test]
fn bytes_written_over_unsaved_ones_survive_a_crash_of_the_machine() {
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount();
    let file = open(&mount.join("file"), ANY);
    let (old, new) = (noise(1, 4096), noise(2, 4096));
    write(&file, 0, &old);
    await_sync(&bed.disk, journals(&bed.disk));
    let before = journals(&bed.disk);
    write(&file, 0, &new);
    // A journal that calls them unsaved already is told of nothing but the note.
    await_sync(&bed.disk, before);
    bed.restart(mount, ("file", &new));
}

#[test]
fn a_file_that_was_emptied_is_empty_after_a_crash_of_the_machine() {
    let Some(bed) = Bed::new() else { return };
    bed.bucket.put_outside("file", b"old content");
    let mount = bed.mount();
    let file = open(&mount.join("file"), libc::O_RDWR | libc::O_TRUNC);
    await_sync(&bed.disk, journals(&bed.disk));
    bed.restart(mount, ("file", b""));
    drop(file);
}

#[test]
fn what_was_fsynced_to_the_journal_survives_a_crash_of_the_machine() {
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount_fsyncing_here();
    let (old, new) = (noise(1, 4096), noise(2, 70_000));
    // In the way of programs that replace a file: over an unsaved one, which was fsynced, too.
    for content in [&old, &new] {
        let file = open(&mount.join("file.tmp"), ANY);
        write(&file, 0, content);
        fs::File::from(file).sync_all().expect("fsync");
        fs::rename(mount.join("file.tmp"), mount.join("file")).expect("a rename");
        fs::File::open(mount.join("file"))
            .and_then(|file| file.sync_all())
            .expect("fsync");
    }
    assert_eq!(bed.stored("file"), None, "nobody saved it");
    bed.restart(mount, ("file", &new));
}

#[test]
fn what_a_directory_has_that_was_fsynced_to_the_journal_survives_a_crash_of_the_machine() {
    let Some(bed) = Bed::new() else { return };
    bed.bucket.put_outside("directory/2", b"removed before");
    let mount = bed.mount_fsyncing_here();
    fs::remove_file(mount.join("directory/2")).expect("a removal");
    let files = [0, 1, 2, 3].map(|number| (format!("directory/{number}"), noise(number, 5000)));
    for (name, content) in &files {
        fs::write(mount.join(name), content).expect("a write");
    }
    let directory = fs::File::open(mount.join("directory")).expect("there");
    directory.sync_all().expect("fsync");
    bed.restart_with(mount, &files);
}
