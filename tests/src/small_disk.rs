//! A file system that is soon full.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Patience, Scratch, run_within, system};

const PATIENCE: Patience = Patience::seconds(20);

/// A file system in memory.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
    _scratch: Scratch,
}

impl SmallDisk {
    /// An empty one of so many MiB; `None` where we may not mount.
    pub fn new(mebibytes: u32) -> Option<Self> {
        let scratch = Scratch::new();
        let path = scratch.folder("disk");
        let size = format!("size={mebibytes}m");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "penstock-test"])
            .arg(&path);
        let mounted = run_within(PATIENCE, &mut mount).succeeded();
        if !mounted {
            penstock_skips::skipped("mounting a tmpfs needs root");
        }
        mounted.then_some(Self {
            path,
            _scratch: scratch,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        system::detach(&self.path);
    }
}
