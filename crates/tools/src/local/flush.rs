//! What close(2) says, which `drop` does not.

use std::{
    io,
    os::fd::{AsFd, IntoRawFd, OwnedFd},
};

/// Ends what was written to `file` as close(2) does, and says whether that worked: a file service tells here that it
/// has no room, or may not be written. The file stays open, with its lock.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    close(file.as_fd().try_clone_to_owned()?)
}

/// Closes a file, and says whether that worked: where files are stored by their last close, as on a bucket that is mounted,
/// only that tells.
pub(crate) fn close(file: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was taken out of its owner, so it is closed exactly once.
    Ok(unsafe { rustix::io::try_close(file.into_raw_fd()) }?)
}
