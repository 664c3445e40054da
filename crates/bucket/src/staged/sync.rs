//! Makes what was written survive a crash of the machine, every few seconds.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::clock;
use penstock_transfer::staging::on_worker;

use crate::{open_file::Body, staged::StagedMode};

/// How much of what was written a crash of the machine may cost.
const PERIOD: Duration = Duration::from_secs(5);

/// Begins to sync staging files as long as the volume lives, where there is a runtime to do it.
pub(crate) fn begin(mode: &Arc<StagedMode>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(sync_periodically(Arc::downgrade(mode)));
    }
}

async fn sync_periodically(mode: Weak<StagedMode>) {
    loop {
        clock::sleep(PERIOD).await;
        let Some(mode) = mode.upgrade() else { return };
        let staging = mode.staging();
        on_worker(|| staging.space().look()).await;
        staging.closed().expire(staging.space().free_seen());
        let names = staging.names().file();
        if let Some(names) = names {
            on_worker(|| tell(names.sync_data())).await;
        }
        for file in mode.engaged.all() {
            let synced = tokio::task::spawn_blocking(move || match &file.body {
                Body::Staged(body) => body.content.sync_to_disk(),
                Body::Streamed(_) => Ok(()),
            });
            // One after the other: the disk has better things to do.
            let synced = synced.await.map_err(std::io::Error::other);
            tell(synced.flatten());
        }
    }
}

fn tell(synced: std::io::Result<()>) {
    if let Err(error) = synced {
        tracing::warn!(%error, "a staging file could not be synced");
    }
}
