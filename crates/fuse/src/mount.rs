//! Gets a connection to the kernel and puts it at a place in the file tree.
//!
//! Root calls `mount(2)`; everybody else asks `fusermount3`, which sends the open `/dev/fuse` over
//! a socket. The place is checked before either is tried, in an order in which a mount that is
//! dead or hangs is recognised from the mount table before anything touches it.

mod check;
mod direct;
mod error;
mod helper;
mod table;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::warn;

use crate::{FuseSettings, system};

pub use error::{MountError, UnmountError};

/// Whether a volume could be mounted at `place`; returns its absolute path. Recognises a mount
/// that is dead or hangs without touching it.
pub fn check_mount_point(place: &Path, nonempty: bool) -> Result<PathBuf, MountError> {
    check::place(place, nonempty).map(|(place, _)| place)
}

/// How the mount was made, and so how it goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Direct,
    Helper,
}

/// A mount in the file tree.
#[derive(Debug)]
pub(crate) struct Mount {
    place: PathBuf,
    /// `major:minor` of the device number that its files have.
    device: String,
    means: Means,
    /// The place is nothing of ours any more; somebody else may have mounted there.
    left: AtomicBool,
}

/// What [`Mount::unmount`] does when files are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Fails with [`UnmountError::Busy`].
    Plain,
    /// Takes the mount out of the tree at once; it lives on until the last file is closed.
    Lazy,
    /// Cuts the connection: whoever uses the mount gets errors. For root only.
    Force,
}

impl Mount {
    /// Mounts, and returns the connection on which the kernel is about to send INIT.
    pub(crate) fn new(settings: &FuseSettings) -> Result<(Self, OwnedFd), MountError> {
        let (place, root_mode) = check::place(&settings.mount_point, settings.nonempty)?;
        let (means, connection) = match system::effective_ids() {
            (0, _) => (Means::Direct, direct::mount(&place, root_mode, settings)?),
            _ => (Means::Helper, helper::mount(&place, settings)?),
        };
        let device = table::entry_at(&place)
            .ok_or_else(|| MountError::Vanished(place.clone()))?
            .device;
        let mount = Self {
            place,
            device,
            means,
            left: AtomicBool::new(false),
        };
        Ok((mount, connection))
    }

    /// The mount point, absolute.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Directory of the kernel's settings for what this mount reads ahead.
    pub(crate) fn backing_device(&self) -> PathBuf {
        Path::new("/sys/class/bdi").join(&self.device)
    }

    /// Whether the mount is still in the tree.
    pub(crate) fn is_mounted(&self) -> bool {
        !self.left.load(Ordering::Relaxed)
            && table::entry_at(&self.place).is_some_and(|entry| entry.device == self.device)
    }

    /// The mount is gone: never touch its place again.
    pub(crate) fn forget_place(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Takes the mount out of the tree. Success when it is not there any more.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        if !self.is_mounted() {
            return Ok(());
        }
        match self.means {
            Means::Direct => direct::unmount(&self.place, mode),
            Means::Helper => helper::unmount(&self.place, mode),
        }
    }
}

/// A mount whose daemon is gone is a trap for everybody who walks by.
impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(UnmountMode::Lazy) {
            warn!(%error, "a dead mount stays behind");
        }
    }
}
