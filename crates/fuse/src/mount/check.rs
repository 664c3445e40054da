//! Whether a place can be mounted on.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use penstock_base::mount_table::MountEntry;

use super::{MountError, table};
use crate::system;

/// How long a daemon may take to answer before it counts as alive and busy.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// Checks the place; returns its absolute path and mode.
pub(super) fn place(place: &Path, nonempty: bool) -> Result<(PathBuf, u32), MountError> {
    let place = absolute(place)?;
    if let Some(entry) = entry_at(&place)?.filter(MountEntry::is_fuse) {
        return Err(occupied(place, entry.source));
    }
    let metadata = fs::metadata(&place).map_err(|error| refused(&place, error))?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory(place));
    }
    let mut entries = fs::read_dir(&place).map_err(|error| refused(&place, error))?;
    if !nonempty && entries.next().is_some() {
        return Err(MountError::NotEmpty(place));
    }
    Ok((place, metadata.mode()))
}

/// Resolves everything but the last component, so that a mount that hangs there is not touched;
/// a symbolic link in the last place is then followed.
fn absolute(place: &Path) -> Result<PathBuf, MountError> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
        return fs::canonicalize(place).map_err(|error| refused(place, error));
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let parent = fs::canonicalize(parent).map_err(|error| refused(place, error))?;
    let resolved = parent.join(name);
    if entry_at(&resolved)?.is_some_and(|entry| entry.is_fuse()) {
        return Ok(resolved);
    }
    fs::canonicalize(&resolved).map_err(|error| refused(place, error))
}

fn entry_at(place: &Path) -> Result<Option<MountEntry>, MountError> {
    table::entry_at(place).map_err(|error| MountError::Unusable(place.to_path_buf(), error))
}

/// Whether the uppermost mount at `place` is one of this program whose daemon is gone.
pub(super) fn is_dead_and_ours(place: &Path) -> io::Result<bool> {
    Ok(table::entry_at(place)?.is_some_and(|entry| entry.is_ours()) && is_dead(place))
}

/// Whether the daemon of the mount at `place` is gone, and the kernel says so.
fn is_dead(place: &Path) -> bool {
    answer(place) == Answer::Dead
}

/// What a mount says when it is asked for what the kernel never answers from its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Its daemon answers, be it with an error.
    Alive,
    /// The kernel says that its daemon is gone.
    Dead,
    /// There is no answer in time.
    Silent,
}

/// Asks the mount at `place` on a thread of its own, because a daemon that hangs does not answer. Takes seconds then.
pub fn answer(place: &Path) -> Answer {
    let (answer, answered) = mpsc::sync_channel(1);
    let place = place.to_path_buf();
    let asking = thread::spawn(move || {
        let errno = system::file_system_statistics(&place)
            .err()
            .and_then(|error| error.raw_os_error());
        // Nobody waits any more for an answer that comes late.
        let _ = answer.send(errno);
    });
    let Ok(errno) = answered.recv_timeout(ANSWER_TIME_MAX) else {
        return Answer::Silent;
    };
    // Whoever mounts in the background splits its process next, without threads.
    let _ = asking.join();
    match errno {
        Some(libc::ENOTCONN) => Answer::Dead,
        _ => Answer::Alive,
    }
}

/// A FUSE mount is there: is its daemon alive? A dead one answers at once.
fn occupied(place: PathBuf, source_name: String) -> MountError {
    match is_dead(&place) {
        true => MountError::Dead(place),
        false => MountError::Busy { place, source_name },
    }
}

fn refused(place: &Path, error: io::Error) -> MountError {
    let place = place.to_path_buf();
    match error.raw_os_error() {
        Some(libc::ENOENT) => MountError::Missing(place),
        Some(libc::ENOTDIR) => MountError::NotADirectory(place),
        Some(libc::ENOTCONN) => MountError::Dead(place),
        _ => MountError::Unusable(place, error),
    }
}
