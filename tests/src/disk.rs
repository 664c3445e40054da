//! A disk of a test's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{Patience, Scratch, run_within};

const PATIENCE: Patience = Patience::seconds(60);
const SIZE: u64 = 64 << 20;

/// How long a disk stands still at most.
const FROZEN_MAX: Duration = Duration::from_secs(60);

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

    /// Lets every change of it wait until what is returned is dropped, or a minute has passed: the
    /// test itself may hang in a mount that waits for the disk.
    pub fn freeze(&self) -> Frozen {
        run_within(PATIENCE, Command::new("fsfreeze").arg("-f").arg(&self.path)).expect_success();
        let (thaw, thawed) = mpsc::channel();
        let path = self.path.clone();
        let guard = thread::spawn(move || {
            let _ = thawed.recv_timeout(FROZEN_MAX);
            drop(Command::new("fsfreeze").arg("-u").arg(path).status());
        });
        Frozen {
            thaw: Some(thaw),
            guard: Some(guard),
        }
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
pub struct Frozen {
    thaw: Option<mpsc::Sender<()>>,
    guard: Option<JoinHandle<()>>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.thaw.take());
        if let Some(guard) = self.guard.take() {
            drop(guard.join());
        }
    }
}
