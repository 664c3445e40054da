//! A mount's process, seen from outside.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{Mount, Patience, Process, stats::stats};

const INTERVAL: Duration = Duration::from_millis(200);
const QUIET_PATIENCE: Patience = Patience::seconds(60);

/// What counts the work under way, by its name among the counters.
const UNDER_WAY: [&str; 4] = [
    "fuse_requests_waiting",
    "bucket_open_handles",
    "bucket_unsaved_files",
    "bucket_unsaved_bytes",
];

/// The most that was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peaks {
    /// Bytes of memory.
    pub resident: u64,
    /// File descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
}

/// See [the module](self).
#[derive(Debug)]
pub struct Watch {
    process: Process,
}

impl Watch {
    /// Watches the process that serves `mount`.
    pub fn new(mount: &Mount) -> Self {
        Self {
            process: mount.process(),
        }
    }

    /// What there is now.
    pub fn now(&self) -> Peaks {
        let count = |folder| {
            let path = format!("/proc/{}/{folder}", self.process.0);
            fs::read_dir(path).map_or(0, Iterator::count)
        };
        Peaks {
            resident: self.process.resident(),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }

    /// The most that is seen until `done`.
    pub fn until(&self, done: &AtomicBool) -> Peaks {
        let mut peaks = Peaks::default();
        while !done.load(Ordering::Relaxed) {
            let now = self.now();
            peaks.resident = peaks.resident.max(now.resident);
            peaks.descriptors = peaks.descriptors.max(now.descriptors);
            peaks.threads = peaks.threads.max(now.threads);
            thread::sleep(INTERVAL);
        }
        peaks
    }

    /// Waits until nothing is under way in the mount, and fails the test when that does not
    /// come. Returns what there is then.
    #[track_caller]
    pub fn when_quiet(&self, mount: &Mount) -> Peaks {
        QUIET_PATIENCE.until("everything under way to end", || is_quiet(mount));
        self.now()
    }
}

fn is_quiet(mount: &Mount) -> bool {
    let stats = stats(mount.path());
    let metrics = stats["metrics"].as_array().expect("a list of counters");
    UNDER_WAY.iter().all(|name| {
        let found = metrics.iter().find(|metric| metric["name"] == *name);
        found.expect("it is counted")["value"] == 0
    })
}
