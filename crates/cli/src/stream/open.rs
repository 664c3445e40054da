//! Mounting an index.

use std::{path::Path, sync::Arc};

use penstock_base::{BufferPool, metrics::Registry, run_blocking};
use penstock_block::{BlockError, BlockSettings, BlockVolume, Contents, FileSystem, TransportKind};
use penstock_stream::{DataPath, DataSettings, ObjectMap, StreamDisk};
use penstock_transfer::Transfer;
use penstock_vfs::Disk;
use tracing::{info, warn};

use super::{Index, IndexRequest, settings};
use crate::{
    assemble, explain,
    failure::{Failure, Outcome},
    keeper::Inherited,
    mount_point,
    options::table,
    serve::{Door, Opened, Plan},
};

/// What a mount has in memory: buffers, and those who count.
type Memory<'a> = (&'a Arc<BufferPool>, &'a Arc<Registry>);

/// Finds or builds the index of the path, and mounts it; or goes on with a mount whose process
/// was killed.
pub(crate) async fn open(
    plan: &Plan,
    pool: &Arc<BufferPool>,
    registry: &Arc<Registry>,
) -> Outcome<Opened> {
    let folder = settings::index_directory(&plan.values, &plan.environment);
    mount_point::check_outside(&plan.mountpoint, &folder, "index directory")?;
    let store = assemble::store(&plan.source, &plan.values, &plan.environment, registry)?;
    let request = IndexRequest {
        source: &plan.source,
        values: &plan.values,
        environment: &plan.environment,
        store: &store,
    };
    let inherited = plan.line.as_ref().and_then(|line| line.inherited.as_ref());
    let index = match inherited {
        Some(inherited) => Index::again(&request, &inherited.note)?,
        None => Index::get(&request).await?,
    };
    let transfer = assemble::transfer(&store, pool, &plan.values, registry);
    let data = data_path(plan, &index.objects, transfer, registry)?;
    let door = match settings::transport(&plan.values) {
        None => {
            return Err(Failure::new(
                "FUSE is not there yet",
                "use --transport=loop",
            ));
        }
        Some(kind) => {
            let disks = disks(&data, index.disks);
            let memory = (pool, registry);
            let volume = match inherited {
                Some(inherited) => resume(plan, inherited, disks, memory).await?,
                None => mount(plan, (&index, kind), disks, memory).await?,
            };
            leave_to_next(plan, &volume, &index);
            Door::Block(Box::new(volume))
        }
    };
    Ok(Opened {
        door,
        cache: None,
        held: Some(Box::new(index)),
    })
}

fn data_path(
    plan: &Plan,
    objects: &Path,
    transfer: Arc<Transfer>,
    registry: &Arc<Registry>,
) -> Outcome<Arc<DataPath>> {
    let map = run_blocking(|| ObjectMap::open(objects));
    let map = map.map_err(|error| Failure::new(error.to_string(), ""))?;
    let settings = DataSettings {
        direct: plan.values.flag(&table::DIRECT),
        ..DataSettings::within(settings::memory(&plan.values))
    };
    Ok(DataPath::new(Arc::new(map), transfer, settings, registry))
}

fn disks(data: &Arc<DataPath>, count: u16) -> Vec<Arc<dyn Disk>> {
    let disk = |number| Arc::new(StreamDisk::new(Arc::clone(data), number)) as Arc<dyn Disk>;
    (0..count).map(disk).collect()
}

async fn mount(
    plan: &Plan,
    (index, transport): (&Index, TransportKind),
    disks: Vec<Arc<dyn Disk>>,
    (pool, registry): Memory<'_>,
) -> Outcome<BlockVolume> {
    let contents = Contents {
        file_system: FileSystem::Erofs,
        image: Some(index.image.clone()),
        disks,
    };
    let settings = BlockSettings {
        mount_point: plan.mountpoint.clone(),
        source: plan.source.clone(),
        transport,
        state: super::state_directory(&plan.environment),
        read_ahead_kib: settings::read_ahead_kib(&plan.values),
        noexec: plan.values.flag(&table::NOEXEC),
        nonempty: plan.values.flag(&table::NONEMPTY),
    };
    let mounted = BlockVolume::mount(contents, settings, Arc::clone(pool), Arc::clone(registry));
    mounted.await.map_err(|error| block_error(&error))
}

async fn resume(
    plan: &Plan,
    inherited: &Inherited,
    disks: Vec<Arc<dyn Disk>>,
    (pool, registry): Memory<'_>,
) -> Outcome<BlockVolume> {
    let keepsake = inherited.keepsake().map_err(|error| {
        Failure::new(
            format!("cannot go on with the volume: {error}"),
            "mount again",
        )
    })?;
    let state = super::state_directory(&plan.environment);
    let memory = (Arc::clone(pool), Arc::clone(registry));
    let volume = BlockVolume::resume(disks, keepsake, &state, memory).await;
    let volume = volume.map_err(|error| block_error(&error))?;
    info!("going on with a volume whose process was killed");
    Ok(volume)
}

/// Leaves to the keeper what another process needs to go on.
fn leave_to_next(plan: &Plan, volume: &BlockVolume, index: &Index) {
    let Some(line) = &plan.line else {
        return;
    };
    let Some(keepsake) = volume.keepsake() else {
        info!("on this kernel reads fail when this process is killed");
        return;
    };
    if let Err(error) = line.leave(&keepsake, &index.image.to_string_lossy()) {
        warn!(%error, "reads will fail when this process is killed");
    }
}

fn block_error(error: &BlockError) -> Failure {
    match error {
        BlockError::Place(error) => explain::mount_error(error),
        BlockError::Unmount(error) => explain::unmount_error(error),
        other => Failure::new(other.to_string(), ""),
    }
}
