//! Makes what was written survive a crash of the machine, every few seconds. See
//! [`crate::staged::journal`].

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::clock;

use crate::{
    core::Core,
    staged::{StagedFile, journal::Journal, lock},
};

/// How much of what was written a crash of the machine may cost.
const PERIOD: Duration = Duration::from_secs(5);

/// Syncs staging files as long as the volume lives.
pub(crate) async fn sync_periodically(core: Weak<Core>) {
    loop {
        clock::sleep(PERIOD).await;
        let Some(core) = core.upgrade() else { return };
        let Some(staging) = &core.staging else { return };
        for file in staging.engaged() {
            let synced = tokio::task::spawn_blocking(move || {
                if let Some(staged) = &file.staged {
                    staged.sync_to_disk();
                }
            });
            // One after the other: the disk has better things to do.
            if let Err(error) = synced.await {
                tracing::warn!(%error, "a staging file could not be synced");
            }
        }
    }
}

/// Begins to sync, where there is a runtime to do it.
pub(crate) fn begin(core: &Arc<Core>) {
    if core.staging.is_some()
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        runtime.spawn(sync_periodically(Arc::downgrade(core)));
    }
}

impl StagedFile {
    fn sync_to_disk(&self) {
        let uncovered = lock(&self.journal).as_ref().and_then(Journal::uncovered);
        let (Some(extent), Some(disk)) = (uncovered, self.disk_if_any()) else {
            return;
        };
        let mut synced = disk.sync();
        if synced.is_ok()
            && let Some(journal) = lock(&self.journal).as_mut()
        {
            synced = journal.cover(extent);
        }
        if let Err(error) = synced {
            tracing::warn!(%error, "a staging file could not be synced");
        }
    }
}
