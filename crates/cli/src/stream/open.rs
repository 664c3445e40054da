//! Mounting an index.

use std::{io, path::Path, sync::Arc};

use penstock_base::{BufferPool, metrics::Registry, run_blocking};
use penstock_block::{BlockError, BlockSettings, BlockVolume, Contents, TransportKind};
use penstock_fuse::{FuseSettings, Session};
use penstock_stream::{
    Confined, ControlGroups, DataPath, DataSettings, DirectoryIndex, ObjectMap, StreamVolume,
    keep_to_processors,
};
use penstock_transfer::Transfer;
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::{Index, IndexRequest, settings};
use crate::{
    assemble,
    control::mount_id,
    explain,
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
    let folder = settings::index_directory(&plan.values, &plan.environment)?;
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
    let transfer = Transfer::with_settings(
        Arc::clone(&store),
        Arc::clone(pool),
        settings::transfer(&plan.values),
        registry,
    );
    let data = data_path(plan, &index.objects, transfer, registry)?;
    let memory = (pool, registry);
    let door = match settings::transport(&plan.values) {
        None => Door::Fuse(Box::new(mount_tree(plan, &index, data, memory).await?)),
        Some(kind) => {
            let contents = index.layout.contents(&index.image, &data);
            let contents = contents.map_err(|error| unreadable(&index.image, &error))?;
            let volume = match inherited {
                Some(inherited) => resume(plan, inherited, contents, memory).await?,
                None => mount(plan, kind, contents, memory).await?,
            };
            leave_to_next(plan, &volume, &index);
            Door::Block(Box::new(volume))
        }
    };
    let confined = confine(plan);
    Ok(Opened {
        door,
        held: Some(Box::new((index, confined))),
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

/// Has the kernel hold the volume to its tier. The index is there by now, and was not to be held
/// to it. Without control groups memory is bounded by the budget alone.
fn confine(plan: &Plan) -> Option<Confined> {
    let limits = settings::enforced(&plan.values)?;
    let groups = ControlGroups::of_this_process();
    let name = mount_id(&plan.mountpoint);
    match groups.and_then(|groups| groups.confine(&name, &limits)) {
        Ok(confined) => Some(confined),
        Err(reason) => {
            info!("{reason}");
            match keep_to_processors(limits.processors) {
                Ok(true) => info!(limits.processors, "the threads are kept to processors"),
                Ok(false) => {}
                Err(error) => warn!(%error, "processors are not limited"),
            }
            None
        }
    }
}

/// Shows the index through FUSE.
async fn mount_tree(
    plan: &Plan,
    index: &Index,
    data: Arc<DataPath>,
    (pool, registry): Memory<'_>,
) -> Outcome<Session> {
    let tree = run_blocking(|| DirectoryIndex::open(&index.image));
    let tree = tree.map_err(|error| Failure::new(error.to_string(), ""))?;
    let volume = StreamVolume::new(tree, data, settings::permissions(&plan.values));
    let settings = FuseSettings {
        read_only: true,
        read_ahead_kib: settings::read_ahead_kib(&plan.values),
        ..assemble::fuse_settings(&plan.source, &plan.mountpoint, &plan.values)
    };
    let session = Session::mount(
        Arc::new(volume),
        settings,
        Arc::clone(pool),
        Arc::clone(registry),
        Handle::current(),
    );
    session.await.map_err(|error| explain::mount_error(&error))
}

fn unreadable(image: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot read `{}`: {error}", image.display()),
        "build it again with --refresh",
    )
}

async fn mount(
    plan: &Plan,
    transport: TransportKind,
    contents: Contents,
    (pool, registry): Memory<'_>,
) -> Outcome<BlockVolume> {
    let settings = BlockSettings {
        mount_point: plan.mountpoint.clone(),
        source: plan.source.clone(),
        transport,
        state: super::state_directory(&plan.environment),
        read_ahead_kib: settings::read_ahead_kib(&plan.values),
        noexec: plan.values.flag(&table::NOEXEC),
        nonempty: plan.values.flag(&table::NONEMPTY),
        kept: plan.line.is_some(),
    };
    let mounted = BlockVolume::mount(contents, settings, Arc::clone(pool), Arc::clone(registry));
    mounted.await.map_err(|error| block_error(&error))
}

async fn resume(
    plan: &Plan,
    inherited: &Inherited,
    contents: Contents,
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
    let volume = BlockVolume::resume(contents.disks, keepsake, &state, memory).await;
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
