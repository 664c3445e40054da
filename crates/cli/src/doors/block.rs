//! The block door: the kernel has a file system of its own and asks for blocks of disks.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use penstock_block::{
    BlockError, BlockSettings, BlockVolume, Contents, Keepsake, Record, StateDirectory,
    TransportKind,
};
use penstock_fuse::{UnmountError, UnmountMode, Unsaved};
use tracing::info;

use super::{Door, DoorSpec};
use crate::{
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    mount_table::{self, Unreadable},
    options::{Values, table},
    places,
    resources::Resources,
};

/// There is nothing to save: disks are never written.
#[async_trait]
impl Door for BlockVolume {
    async fn wait(&self) -> Unsaved {
        Self::wait(self).await;
        Unsaved::new()
    }

    async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        Self::unmount(self, mode).await
    }

    async fn leave(&self, grace: Duration) -> Unsaved {
        Self::leave(self, grace).await;
        Unsaved::new()
    }

    fn is_used(&self) -> bool {
        false
    }

    fn keepsake(&self) -> Option<Keepsake> {
        Self::keepsake(self)
    }
}

/// How the kernel gets at the data; none where it gets files through FUSE.
pub(crate) fn transport(values: &Values) -> Option<TransportKind> {
    match values.choice(&table::TRANSPORT) {
        "fuse" => None,
        "nbd" => Some(TransportKind::Nbd),
        "ublk" => Some(TransportKind::Ublk),
        "loop" => Some(TransportKind::Loop),
        _ => (penstock_base::is_root()).then_some(TransportKind::Loop),
    }
}

/// Where volumes with block devices are written down.
pub(crate) fn state_directory(environment: &Environment) -> StateDirectory {
    StateDirectory::new(places::sockets(environment).path().join("volumes"))
}

/// The volume with block devices that is mounted on `mountpoint` and whose program lives. One that is
/// out of sight and still read is none.
pub(crate) fn volume_at(
    mountpoint: &Path,
    environment: &Environment,
) -> Result<Option<Record>, Unreadable> {
    let Some(entry) = mount_table::find(mountpoint)? else {
        return Ok(None);
    };
    let mut volumes = penstock_block::volumes(&state_directory(environment)).into_iter();
    Ok(volumes.find(|volume| {
        volume.mounted && volume.mount_point == mountpoint && volume.file_system == entry.kind
    }))
}

/// Makes devices of the disks and mounts what is on them, or goes on with what another process mounted.
pub(super) async fn open(
    disks: Contents,
    read_ahead_kib: u32,
    spec: DoorSpec<'_>,
    resources: &Resources,
) -> Outcome<BlockVolume> {
    let Resources { pool, registry } = resources.clone();
    let state = state_directory(spec.environment);
    if let Some(keepsake) = spec.inherited {
        let resumed = BlockVolume::resume(disks.disks, keepsake, &state, (pool, registry)).await;
        let volume = resumed.map_err(|error| block_error(&error))?;
        info!("going on with a volume whose process was killed");
        return Ok(volume);
    }
    let settings = BlockSettings {
        mount_point: spec.mountpoint.to_owned(),
        source: spec.source.to_owned(),
        transport: transport(spec.values).unwrap_or(TransportKind::Loop),
        state,
        read_ahead_kib,
        noexec: spec.values.flag(&table::NOEXEC),
        nonempty: spec.values.flag(&table::NONEMPTY),
        kept: spec.kept,
    };
    let mounted = BlockVolume::mount(disks, settings, pool, registry).await;
    mounted.map_err(|error| block_error(&error))
}

fn block_error(error: &BlockError) -> Failure {
    match error {
        BlockError::Place(error) => explain::mount_error(error),
        BlockError::Unmount(error) => explain::unmount_error(error),
        other => Failure::new(other.to_string(), ""),
    }
}
