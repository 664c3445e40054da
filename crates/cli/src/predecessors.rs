//! The mounts that were here before, while they end.
//!
//! `umount` of the system returns as soon as the mount is gone from the file tree. Its process then
//! saves what is left, lets go of the directories that it had locked, and ends. Whoever mounts again
//! meanwhile waits for that, but not for a mount that goes on being used, and not for long: what is
//! left may take longer than anybody wants to wait at a prompt. A mount that needs nothing of the one
//! before then goes on; one that needs its directories fails, and says who has them.

use std::{path::Path, time::Duration};

use penstock_base::{
    clock::{self, Instant},
    run_blocking,
};
use tracing::warn;

use crate::{
    control::{ClaimError, Phase, SocketDirectory, client},
    failure::Failure,
    mount_table, output,
};

/// How long a mount waits for those before it.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often it looks.
const POLL: Duration = Duration::from_millis(100);

/// Those who were here before, and until when they are waited for.
pub(crate) struct Predecessors<'a> {
    place: &'a SocketDirectory,
    mountpoint: &'a Path,
    until: Instant,
}

impl<'a> Predecessors<'a> {
    /// Begins to wait.
    pub(crate) fn new(place: &'a SocketDirectory, mountpoint: &'a Path) -> Self {
        Self {
            place,
            mountpoint,
            until: clock::now() + PATIENCE,
        }
    }

    /// Waits until none of them answers any more, as long as there is time.
    pub(crate) async fn wait(&self) {
        while clock::now() < self.until && !self.answering().is_empty() {
            clock::sleep(POLL).await;
        }
    }

    /// Tells the user of those who go on behind the new mount.
    pub(crate) fn tell(&self) {
        for process in self.answering() {
            let told = still_saves(self.mountpoint, process);
            warn!("{told}");
            output::complain(&format!(
                "warning: {told}; `penstock stats` shows it, and `penstock umount` waits for it, too"
            ));
        }
    }

    fn answering(&self) -> Vec<u32> {
        let earlier = self.place.earlier(self.mountpoint).into_iter();
        earlier
            .filter(|earlier| client::is_heard(&earlier.path))
            .map(|earlier| earlier.process)
            .collect()
    }

    /// Takes what one process at a time may have. `user` tells from a failure which process has it.
    /// Fails with what `failure` makes of it, or with the name of the mount that still saves.
    pub(crate) async fn once_free<T, E>(
        &self,
        mut take: impl FnMut() -> Result<T, E>,
        user: impl Fn(&E) -> Option<u32>,
        failure: impl Fn(&E) -> Failure,
    ) -> Result<T, Failure> {
        loop {
            let error = match take() {
                Ok(taken) => return Ok(taken),
                Err(error) => error,
            };
            let Some(process) = user(&error) else {
                return Err(failure(&error));
            };
            let is_late = clock::now() >= self.until;
            let mount = run_blocking(|| client::of_process(self.place, process));
            match mount.map(|mount| (mount.status.phase, mount.status.mountpoint)) {
                Some((Phase::Mounted, _)) => return Err(failure(&error)),
                Some((Phase::Saving, place)) if is_late => return Err(occupied(&place, process)),
                _ if is_late => return Err(failure(&error)),
                _ => clock::sleep(POLL).await,
            }
        }
    }
}

fn still_saves(mountpoint: &Path, process: u32) -> String {
    format!(
        "the mount before on `{}` still saves what was written there, process {process}",
        mountpoint.display()
    )
}

/// Why a mount cannot have what the one before still needs.
pub(crate) fn occupied(mountpoint: &Path, process: u32) -> Failure {
    Failure::new(
        still_saves(mountpoint, process),
        format!(
            "`penstock umount {}` waits for it; then mount again",
            mountpoint.display()
        ),
    )
}

/// Why a mount does not begin beside one that starts, or serves, at the same place; none where that one
/// is in another file tree than this process sees.
pub(crate) fn refusal(mountpoint: &Path, error: &ClaimError) -> Option<Failure> {
    let ClaimError::Held { process, phase } = *error else {
        return None;
    };
    let place = mountpoint.display();
    if phase == Phase::Starting {
        return Some(Failure::new(
            format!("another process, {process}, is starting a mount on `{place}`"),
            "`penstock stats` shows when it is there",
        ));
    }
    let entry = match mount_table::find(mountpoint) {
        Ok(entry) => entry?,
        Err(error) => return Some(error.into()),
    };
    Some(Failure::new(
        format!(
            "mount point `{place}` is busy: `{}` is mounted there",
            entry.source
        ),
        format!("unmount it with `penstock umount {place}` or choose another directory"),
    ))
}
