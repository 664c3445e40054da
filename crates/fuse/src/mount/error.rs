//! Why a volume could not be mounted or unmounted.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// Why a volume could not be mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is nothing at the mount point.
    #[error("the mount point {0} does not exist: create the directory first")]
    Missing(PathBuf),
    /// The mount point is a file or a symbolic link to nowhere.
    #[error("the mount point {0} is not a directory")]
    NotADirectory(PathBuf),
    /// The mount point has entries that the mount would hide.
    #[error(
        "the mount point {0} is not empty: choose an empty directory, or allow it with `nonempty`"
    )]
    NotEmpty(PathBuf),
    /// Another FUSE file system is mounted there.
    #[error("{place} is a mount of {source_name} already: unmount it first")]
    Busy {
        /// The mount point.
        place: PathBuf,
        /// The device of that mount.
        source_name: String,
    },
    /// The daemon of an earlier mount died and left the mount behind.
    #[error(
        "{0} is a dead mount, its daemon is gone: remove it with `umount -l {0}` or `fusermount3 -uz {0}`"
    )]
    Dead(PathBuf),
    /// The mount point could not be looked at.
    #[error("the mount point {0} cannot be used: {1}")]
    Unusable(PathBuf, #[source] io::Error),
    /// The directory for what the kernel writes back cannot hold a file.
    #[error("no file can be made in {0}, where writes wait while memory is short: {1}")]
    Spill(PathBuf, #[source] io::Error),
    /// The kernel has no FUSE, or the container has no `/dev/fuse`.
    #[error(
        "/dev/fuse is missing: load the module with `modprobe fuse`, or give the container the device /dev/fuse"
    )]
    NoDevice,
    /// `/dev/fuse` is there but may not be opened.
    #[error(
        "no permission to open /dev/fuse: allow it with `chmod 666 /dev/fuse`, or mount as root ({0})"
    )]
    DeviceDenied(String),
    /// The system does not let this process mount.
    #[error(
        "no permission to mount: in a container it needs CAP_SYS_ADMIN (`--cap-add SYS_ADMIN --device /dev/fuse`)"
    )]
    Denied,
    /// `fusermount3` is not installed.
    #[error("fusermount3 is missing, which users other than root need: install the package fuse3")]
    NoHelper,
    /// `fusermount3` refused.
    #[error("fusermount3 refused: {0}")]
    Helper(String),
    /// `fusermount3` did not end.
    #[error(
        "fusermount3 did not end within {0:?} and was killed: see whether `ls` of the mount point and of its parent directories hangs"
    )]
    HelperHangs(Duration),
    /// The kernel refused for another reason.
    #[error("the kernel refused the mount: {0}")]
    System(#[source] io::Error),
    /// Somebody unmounted it before it was ready.
    #[error("the mount at {0} vanished before it was ready")]
    Vanished(PathBuf),
    /// The first exchange with the kernel failed.
    #[error("the kernel and the mount do not understand each other: {0}")]
    Negotiation(String),
    /// The budget has no room for receive buffers.
    #[error(
        "the memory budget has no room for {0} bytes of receive buffers: raise it, or lower the number of threads"
    )]
    Memory(u64),
    /// A thread could not be started.
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
}

/// Why a volume could not be unmounted.
#[derive(Debug, Error)]
pub enum UnmountError {
    /// Files are open or a process works there.
    #[error("{0} is in use: close its files (`fuser -vm {0}` shows who), or unmount lazily")]
    Busy(PathBuf),
    /// This user may not unmount it.
    #[error("no permission to unmount {0}")]
    Denied(PathBuf),
    /// `fusermount3` did not end.
    #[error(
        "fusermount3 did not unmount {0} within {1:?} and was killed: try again, lazily, or `umount -l {0}` as root"
    )]
    HelperHangs(PathBuf, Duration),
    /// Anything else.
    #[error("cannot unmount {0}: {1}")]
    Failed(PathBuf, String),
}
