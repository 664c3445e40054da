//! How a volume is mounted.

use std::{num::NonZeroUsize, path::PathBuf};

/// Requests of the kernel's background queue (read-ahead, asynchronous direct I/O) that may be in
/// flight. At the kernel's own default of 12 it splits read-ahead into tiny synchronous READs.
pub const MAX_BACKGROUND: u16 = 512;
/// KiB that the kernel reads ahead of a sequential reader, when we may set it.
pub const READ_AHEAD_KIB: u32 = 4096;

/// How a volume is mounted.
#[derive(Debug, Clone)]
pub struct FuseSettings {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// What the mount table shows as the device, such as `s3://bucket/prefix`.
    pub source: String,
    /// Refuse changes in the kernel already.
    pub read_only: bool,
    /// Users other than the one who mounts may use the mount. For those who are not root,
    /// /etc/fuse.conf must have `user_allow_other`.
    pub allow_other: bool,
    /// The kernel checks permission bits and owners; `None` means yes with `allow_other`. It
    /// costs a GETATTR of the directory per created file (a quarter of the rate with four
    /// threads). Without it everybody whom the kernel lets in may do everything.
    pub default_permissions: Option<bool>,
    /// Mount over a directory that has entries.
    pub nonempty: bool,
    /// Refuse to execute files.
    pub noexec: bool,
    /// Programs run as who owns them where their mode says so. Only for root.
    pub suid: bool,
    /// Device files lead to the devices of this machine. Only for root.
    pub dev: bool,
    /// Do not ask for access times to be kept.
    pub noatime: bool,
    /// Threads that receive requests; `None` means two per core within [`crate::THREADS_MIN`] and
    /// [`crate::THREADS_MAX`], and no more than fit into a sixteenth of the memory.
    pub threads: Option<NonZeroUsize>,
    /// See [`MAX_BACKGROUND`]. The kernel lowers it for those who are not root.
    pub max_background: u16,
    /// Requests of the background queue from which the kernel reads less ahead.
    pub congestion_threshold: u16,
    /// See [`READ_AHEAD_KIB`]; 0 leaves the kernel's.
    pub read_ahead_kib: u32,
    /// What a signal does to a process that waits for the volume.
    pub interrupts: InterruptPolicy,
    /// The volume has local files that the kernel may read by itself, where it can.
    pub local_files: bool,
    /// The kernel gathers what is written, and hands it over in large pieces when the file is
    /// closed or synced, or has lain for a while. It then decides itself what size a file has and when it was
    /// written, so a volume must show a file that somebody else changed as another inode. Local
    /// files are not read by the kernel then.
    pub writeback_cache: bool,
    /// A directory for what is written while memory is short, at most 4 GiB of it. Without one writes
    /// are shortened, and what the kernel writes back from its page cache fails, which the program
    /// hears from fsync: a volume whose files can be written that way should have one.
    pub spill_directory: Option<PathBuf>,
    /// Another process keeps the connection, see [`crate::Session::connection`].
    pub survivable: bool,
}

impl FuseSettings {
    /// The defaults for a mount of `source` at `mount_point`.
    pub fn new(mount_point: impl Into<PathBuf>, source: impl Into<String>) -> Self {
        Self {
            mount_point: mount_point.into(),
            source: source.into(),
            read_only: false,
            allow_other: false,
            default_permissions: None,
            nonempty: false,
            noexec: false,
            suid: false,
            dev: false,
            noatime: false,
            threads: None,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND,
            read_ahead_kib: READ_AHEAD_KIB,
            interrupts: InterruptPolicy::WhenFatal,
            local_files: false,
            writeback_cache: false,
            spill_directory: None,
            survivable: false,
        }
    }

    /// Bounds by `bound` what the kernel sends at once. Above three quarters of that it gathers no more,
    /// unless somebody waits for it, so that its reads find room.
    pub(crate) fn bound_background(&mut self, bound: impl FnOnce(u16) -> u16) {
        let bounded = bound(self.max_background);
        if bounded < self.max_background {
            self.max_background = bounded;
            self.congestion_threshold = bounded - bounded / 4;
        }
    }

    /// Whether the kernel checks permissions.
    pub(crate) fn checks_permissions(&self) -> bool {
        self.default_permissions.unwrap_or(self.allow_other)
    }
}

/// What a signal does to a process that waits for the volume.
///
/// The kernel tells us of every signal, also of those that the process handles and then carries
/// on: timers of profilers and of git, the preemption of Go programs. Programs do not expect
/// `EINTR` from `stat` or `rename`, so by default only a signal that ends the process ends the
/// wait, or one that somebody typed (Ctrl-C): whoever types it wants the program to stop, also
/// one that handles it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterruptPolicy {
    /// The wait ends when the process is about to die or somebody wants it to stop.
    #[default]
    WhenFatal,
    /// Every signal ends the wait.
    Always,
}
