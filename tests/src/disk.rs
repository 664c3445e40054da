//! A disk of a test's own.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{Patience, Scratch, run_within};

const PATIENCE: Patience = Patience::seconds(60);
const SIZE: u64 = 64 << 20;

/// How long a disk stands still at most.
const FROZEN_MAX: Duration = Duration::from_secs(60);
/// Waits until its input ends, or so many seconds, and lets the disk go on.
const THAW: &str = "timeout \"$0\" cat > /dev/null; fsfreeze -u \"$1\"";

/// A file system on a loop device.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    path: PathBuf,
    scratch: Scratch,
}

impl Disk {
    /// An empty one; `None` where we may not mount.
    pub fn new() -> Option<Self> {
        let scratch = Scratch::new();
        let image = scratch.path().join("image");
        let file = fs::File::create(&image).expect("scratch is writable");
        file.set_len(SIZE).expect("a sparse file");
        run_within(PATIENCE, Command::new("mkfs.ext4").arg("-q").arg(&image)).expect_success();
        Self::mount(scratch, image)
    }

    fn mount(scratch: Scratch, image: PathBuf) -> Option<Self> {
        let path = scratch.folder("disk");
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(&path);
        let mounted = run_within(PATIENCE, &mut mount).succeeded();
        if !mounted {
            penstock_skips::skipped("mounting a loop device needs root");
        }
        mounted.then_some(Self {
            image,
            path,
            scratch,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder beside it.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Lets every change of it wait until what is returned is dropped, or a minute has passed, or the
    /// test was killed: the test itself may hang in a mount that waits for the disk, so that another
    /// process, begun before anything hangs, sees to that.
    pub fn freeze(&self) -> Frozen {
        let mut guard = Command::new("sh");
        guard
            .args(["-c", THAW, &FROZEN_MAX.as_secs().to_string()])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let guard = Frozen(guard.spawn().expect("there is a shell"));
        run_within(PATIENCE, Command::new("fsfreeze").arg("-f").arg(&self.path)).expect_success();
        guard
    }

    /// What is left of it when the power goes now.
    pub fn without_power(&self) -> Self {
        let scratch = Scratch::new();
        let image = scratch.path().join("image");
        fs::copy(&self.image, &image).expect("there is room");
        Self::mount(scratch, image).expect("the first could be mounted")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run_within(PATIENCE, Command::new("umount").arg("-l").arg(&self.path));
    }
}

/// A disk that stands still.
#[derive(Debug)]
pub struct Frozen(Child);

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}
