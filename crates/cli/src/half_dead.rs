//! A mount whose process was killed while the kernel held one of its threads.
//!
//! Such a mount neither answers nor says that it is dead, and its socket still takes connections. Its
//! [guardian](crate::guardian) ends that, unless it was killed too.

use std::{path::Path, time::Duration};

use tracing::debug;

use crate::{
    control::{SocketDirectory, client},
    explain,
    failure::Outcome,
    sharing,
};

/// How long the process may take to end once the kernel has let go of it.
const END_MAX: Duration = Duration::from_secs(10);

/// Makes the mount on `mountpoint` an ordinary dead one if its process has died and it does not answer.
pub(crate) fn release(place: &SocketDirectory, mountpoint: &Path) -> Outcome {
    let sockets = sharing::names(mountpoint)?.into_iter();
    let mut dead = sockets.filter_map(|name| client::dead_listener(&place.socket_of(&name)));
    let Some(process) = dead.next() else {
        return Ok(());
    };
    let cut = penstock_fuse::cut_held_by(process.number()).unwrap_or(0);
    if cut == 0 {
        let silent = penstock_fuse::cut_silent(mountpoint);
        silent.map_err(|error| explain::unmount_error(&error))?;
    }
    let ended = process.ends_within(END_MAX);
    debug!(cut, ended, "the process of the mount has died");
    Ok(())
}
