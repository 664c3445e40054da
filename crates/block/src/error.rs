//! Why a volume could not be attached or mounted.

use std::{io, path::PathBuf};

use penstock_fuse::{MountError, UnmountError};
use thiserror::Error;

use crate::{FileSystem, TransportKind};

/// Why a volume could not be attached or mounted.
#[derive(Debug, Error)]
pub enum BlockError {
    /// Only root may make block devices.
    #[error(
        "block devices need root: run it as root, or mount with --transport=fuse, which needs none"
    )]
    NotRoot,
    /// The kernel lacks what the transport needs.
    #[error("the transport {0} is not available on this kernel: {1}")]
    NoTransport(TransportKind, String),
    /// The place to mount on, or the private mount beneath the devices.
    #[error(transparent)]
    Place(#[from] MountError),
    /// Another volume is mounted there.
    #[error(
        "{0} holds a mounted stream volume already: unmount it first with `penstock umount {0}`"
    )]
    Busy(PathBuf),
    /// It could not be unmounted.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// A loop device does not bypass the page cache.
    #[error(
        "the loop device {0} does not do direct I/O on this kernel, and without it reads queue up \
         behind one another: use another kernel, or --transport=fuse"
    )]
    Buffered(PathBuf),
    /// There is always somebody faster.
    #[error(
        "no free loop device could be had in {0} attempts: try again, or detach some (`losetup -l`)"
    )]
    NoLoopDevice(usize),
    /// The kernel does not know the file system.
    #[error(
        "this kernel cannot mount {0}: load the module with `modprobe {0}`, or choose the other one with --fs"
    )]
    NoFileSystem(FileSystem),
    /// The kernel refused to mount.
    #[error(
        "the kernel refused to mount {file_system} on {place}: {source}; `dmesg | tail` says why"
    )]
    Refused {
        /// What was to be mounted.
        file_system: FileSystem,
        /// Where.
        place: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A call to the system failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried, as a person would name it.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl BlockError {
    /// A call to the system that failed while `what` was tried.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
