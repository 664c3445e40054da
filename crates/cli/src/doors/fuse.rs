//! The FUSE door: the kernel asks for each operation.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;
use penstock_base::is_root;
use penstock_fuse::{ConnectionAbort, FuseSettings, Session, UnmountError, UnmountMode, Unsaved};
use penstock_vfs::Volume;
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::{Door, DoorSpec};
use crate::{
    explain,
    failure::{Failure, Outcome},
    options::{Values, table},
    resources::Resources,
    volumes::OpenedVolume,
};

/// Requests of the kernel under way at once, below which readers notice that there are fewer.
const BACKGROUND_FEW: u16 = 32;

#[async_trait]
impl Door for Session {
    async fn wait(&self) -> Unsaved {
        Self::wait(self).await
    }

    async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        Self::unmount(self, mode).await
    }

    async fn leave(&self, grace: Duration) -> Unsaved {
        Self::leave(self, grace).await
    }

    fn is_used(&self) -> bool {
        !self.has_ended()
    }

    fn abort(&self) -> Option<&ConnectionAbort> {
        Self::abort(self)
    }
}

/// Refuses what files may do to the machine at the word of whom the kernel would not let say it.
fn check_trust(values: &Values) -> Outcome {
    let trusting = [&table::SUID, &table::DEV].into_iter();
    let mut trusting = trusting.filter(|spec| values.flag(spec) && !is_root());
    match trusting.next() {
        None => Ok(()),
        Some(spec) => Err(Failure::usage(
            format!("`{}` is for root alone", spec.name),
            format!("mount as root, or leave {} out", spec.name),
        )),
    }
}

/// Mounts the files of a volume.
pub(super) async fn open(
    files: &Arc<dyn Volume>,
    volume: &OpenedVolume,
    spec: &DoorSpec<'_>,
    resources: &Resources,
) -> Outcome<Session> {
    check_trust(spec.values)?;
    let settings = settings(volume, spec);
    let wanted = settings.max_background;
    let Resources { pool, registry } = resources.clone();
    let session = Session::mount(
        Arc::clone(files),
        settings,
        pool,
        registry,
        Handle::current(),
    );
    let session = session
        .await
        .map_err(|error| explain::mount_error(&error))?;
    tell_background(wanted, session.negotiated().max_background);
    Ok(session)
}

fn settings(volume: &OpenedVolume, spec: &DoorSpec<'_>) -> FuseSettings {
    let values = spec.values;
    let threads = values.count(&table::FUSE_THREADS);
    let background = values.count(&table::MAX_BACKGROUND);
    let background = background.and_then(|count| u16::try_from(count).ok());
    let defaults = FuseSettings::new(spec.mountpoint, spec.source);
    FuseSettings {
        read_only: volume.read_only,
        allow_other: values.flag(&table::ALLOW_OTHER),
        default_permissions: volume.keeps_owners.then_some(true),
        nonempty: values.flag(&table::NONEMPTY),
        noexec: values.flag(&table::NOEXEC),
        suid: values.flag(&table::SUID),
        dev: values.flag(&table::DEV),
        threads: threads.and_then(|count| NonZeroUsize::new(count as usize)),
        max_background: background.unwrap_or(defaults.max_background),
        congestion_threshold: background.unwrap_or(defaults.congestion_threshold),
        read_ahead_kib: super::read_ahead_kib(spec, volume),
        local_files: volume.cache.is_some(),
        writeback_cache: values.flag(&table::WRITEBACK_CACHE),
        spill_directory: volume.staging.clone(),
        ..defaults
    }
}

/// Says that fewer requests are under way than were wished for, and why.
fn tell_background(wanted: u16, granted: u16) {
    const CAUSE: &str = "fewer requests of the kernel are under way at once than max-background says: \
                         the staging disk holds places for so many";
    if granted < BACKGROUND_FEW.min(wanted) {
        warn!(
            wanted,
            granted, "{CAUSE}; reads are slower: make room there, or give another --staging-dir"
        );
    } else if granted < wanted {
        info!(wanted, granted, "{CAUSE}");
    }
}
