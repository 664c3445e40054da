//! What close(2) says, which `drop` does not.

use std::{
    io,
    os::fd::{AsFd, IntoRawFd},
};

/// Ends what was written to `file` as close(2) does, and says whether that worked: a file service tells here that it
/// has no room, or may not be written. The file stays open, with its lock.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    let other = file.as_fd().try_clone_to_owned()?;
    // SAFETY: the descriptor was taken out of its owner, so it is closed exactly once.
    Ok(unsafe { rustix::io::try_close(other.into_raw_fd()) }?)
}
