//! The mount that was here before, while it ends.
//!
//! `umount` of the system returns as soon as the mount is gone from the file tree. Its process then
//! saves what is left, lets go of the directories that it had locked, and ends. Whoever mounts again
//! meanwhile waits for that, but not for a mount that goes on being used: that one answers on its
//! socket, and is in the table of mounts.

use std::{os::unix::net::UnixStream, time::Duration};

use penstock_base::{clock, run_blocking};

use super::Plan;
use crate::{
    control::{Place, client},
    mount_table,
};

/// How long a mount waits for one that ends. What that one has to save may take longer than anybody
/// wants to wait at a prompt.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often it looks.
const POLL: Duration = Duration::from_millis(100);

/// Waits until nobody answers for the mount point any more, where nothing is mounted.
pub(super) async fn wait_until_silent(plan: &Plan) {
    let socket = plan.place.socket_of(&plan.mountpoint);
    let begun = clock::now();
    while begun.elapsed() < PATIENCE
        && mount_table::find(&plan.mountpoint).is_none()
        && UnixStream::connect(&socket).is_ok()
    {
        clock::sleep(POLL).await;
    }
}

/// Takes what one process at a time may have. `user` tells from a failure which process has it.
pub(crate) async fn once_free<T, E>(
    place: &Place,
    mut take: impl FnMut() -> Result<T, E>,
    user: impl Fn(&E) -> Option<u32>,
) -> Result<T, E> {
    let begun = clock::now();
    loop {
        let error = match take() {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        let Some(process) = user(&error) else {
            return Err(error);
        };
        if begun.elapsed() > PATIENCE || run_blocking(|| serves(process, place)) {
            return Err(error);
        }
        clock::sleep(POLL).await;
    }
}

/// Whether a process is that of a mount which is there.
fn serves(process: u32, place: &Place) -> bool {
    let mounts = client::all(place);
    mounts
        .iter()
        .any(|mount| mount.pid == process && mount_table::find(&mount.mountpoint).is_some())
}
