//! Gets a connection to the kernel and puts it at a place in the file tree.
//!
//! Root calls `mount(2)`; everybody else asks `fusermount3`, which sends the open `/dev/fuse` over
//! a socket. The place is checked before either is tried, in an order in which a mount that is
//! dead or hangs is recognised from the mount table before anything touches it.

mod abort;
mod bind;
mod check;
mod direct;
mod error;
mod helper;
mod table;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{debug, warn};

use crate::{FuseSettings, adapter::MountId, system};

pub use abort::{ConnectionAbort, cut_held_by, cut_silent};
pub use bind::bind;
pub use check::{Answer, answer};
pub use error::{MountError, UnmountError};

/// Dead mounts on top of each other that are taken away at once.
const DEAD_MOUNTS_MAX: usize = 16;

/// Whether a volume could be mounted at `place`; returns its absolute path. Recognises a mount
/// that is dead or hangs without touching it.
pub fn check_mount_point(place: &Path, nonempty: bool) -> Result<PathBuf, MountError> {
    check::place(place, nonempty).map(|(place, _)| place)
}

/// Takes away the mounts of this program at `place` whose daemons are gone, so that it can be
/// mounted on again; returns how many there were. Who still has files open there keeps errors.
/// Mounts of others are left alone, dead or not.
pub fn remove_dead_mounts(place: &Path) -> Result<usize, UnmountError> {
    let mut removed = 0;
    let is_dead = || check::is_dead_and_ours(place).map_err(|error| untold(place, &error));
    while removed < DEAD_MOUNTS_MAX && is_dead()? {
        unmount(place, UnmountMode::Lazy)?;
        removed += 1;
    }
    Ok(removed)
}

/// What is mounted at `place` is not known.
fn untold(place: &Path, error: &io::Error) -> UnmountError {
    UnmountError::Failed(place.to_path_buf(), error.to_string())
}

/// Takes whatever is mounted at `place`, an absolute path, out of the file tree, as root or with
/// the help of `fusermount3`.
pub fn unmount(place: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
    Means::of_this_process().unmount(place, mode)
}

/// How the mount was made, and so how it goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Direct,
    Helper,
}

impl Means {
    fn of_this_process() -> Self {
        match system::effective_ids() {
            (0, _) => Self::Direct,
            _ => Self::Helper,
        }
    }

    fn unmount(self, place: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
        match self {
            Self::Direct => direct::unmount(place, mode),
            Self::Helper => helper::unmount(place, mode),
        }
    }
}

/// A mount in the file tree.
#[derive(Debug)]
pub(crate) struct Mount {
    place: PathBuf,
    /// Its number in the mount table.
    number: u64,
    /// `major:minor` of the device number that its files have.
    device: String,
    means: Means,
    /// `None` where this user may not cut connections.
    abort: Option<ConnectionAbort>,
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
        let means = Means::of_this_process();
        let connection = match means {
            Means::Direct => direct::mount(&place, root_mode, settings)?,
            Means::Helper => helper::mount(&place, settings)?,
        };
        let entry = table::entry_at(&place);
        let entry = entry.map_err(|error| MountError::Unusable(place.clone(), error))?;
        let entry = entry.ok_or_else(|| MountError::Vanished(place.clone()))?;
        let abort = ConnectionAbort::open(&entry.device)
            .inspect_err(|error| debug!(%error, "the connection can be cut by an unmount only"));
        let mount = Self {
            place,
            number: entry.id,
            device: entry.device,
            means,
            abort: abort.ok(),
            left: AtomicBool::new(false),
        };
        Ok((mount, connection))
    }

    /// A mount that another process made and that is not in the file tree any more.
    pub(crate) fn taken_over() -> Self {
        Self {
            place: PathBuf::new(),
            number: 0,
            device: String::new(),
            means: Means::of_this_process(),
            abort: None,
            left: AtomicBool::new(true),
        }
    }

    /// The mount point, absolute.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// What tells its descriptors from others.
    pub(crate) fn id(&self) -> MountId {
        MountId {
            number: self.number,
            device: self.device.clone(),
        }
    }

    /// Directory of the kernel's settings for what this mount reads ahead.
    pub(crate) fn backing_device(&self) -> PathBuf {
        Path::new("/sys/class/bdi").join(&self.device)
    }

    /// Whether the mount is still in the tree.
    fn is_mounted(&self) -> io::Result<bool> {
        if self.left.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let entry = table::entry_at(&self.place)?;
        Ok(entry.is_some_and(|entry| entry.device == self.device))
    }

    /// The mount is gone: never touch its place again.
    pub(crate) fn forget_place(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// What cuts the connection. `None` where this user may not.
    pub(crate) fn abort(&self) -> Option<&ConnectionAbort> {
        self.abort.as_ref()
    }

    /// Cuts the connection: requests of the mount, and those that wait, fail from now on.
    pub(crate) fn cut(&self) {
        let cut = self.abort.as_ref().is_some_and(|abort| abort.cut().is_ok());
        if !cut && let Err(error) = self.unmount(UnmountMode::Force) {
            warn!(%error, "the connection to the kernel cannot be cut");
        }
    }

    /// Takes the mount out of the tree. Success when it is not there any more.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        let is_mounted = self.is_mounted();
        if !is_mounted.map_err(|error| untold(&self.place, &error))? {
            return Ok(());
        }
        self.means.unmount(&self.place, mode)
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
