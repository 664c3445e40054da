//! Makes what was written survive a crash of the machine, every few seconds. See
//! [`crate::staged::journal`].

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::clock;

use crate::{
    core::Core,
    staged::{StagedFile, disk::on_worker, lock},
};

/// How much of what was written a crash of the machine may cost.
const PERIOD: Duration = Duration::from_secs(5);

/// Syncs staging files as long as the volume lives.
pub(crate) async fn sync_periodically(core: Weak<Core>) {
    loop {
        clock::sleep(PERIOD).await;
        let Some(core) = core.upgrade() else { return };
        let Some(staging) = &core.staging else { return };
        on_worker(|| staging.space().look()).await;
        staging.closed().expire(staging.space().free_seen());
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
        if let Err(error) = self.try_sync() {
            tracing::warn!(%error, "a staging file could not be synced");
        }
    }

    /// Holds the lock of the journal only while it looks and notes: writers wait for that.
    fn try_sync(&self) -> io::Result<()> {
        let looked = lock(&self.journal).as_ref().and_then(|journal| {
            let extent = journal.uncovered()?;
            Some((extent, journal.file(), journal.is_covered()))
        });
        let Some((extent, file, is_old)) = looked else {
            return Ok(());
        };
        // Where nothing was written there are no bytes.
        if let Some(disk) = self.disk_if_any() {
            disk.sync()?;
        }
        // The records before the note: it must not be there without them.
        file.sync_data()?;
        if !is_old {
            self.staging().folder().sync()?;
        }
        let noted = match lock(&self.journal).as_mut() {
            Some(journal) => journal.note_covered(extent)?,
            None => None,
        };
        let Some(noted) = noted else { return Ok(()) };
        file.sync_data()?;
        if let Some(journal) = lock(&self.journal).as_mut() {
            journal.confirm(noted);
        }
        Ok(())
    }
}
