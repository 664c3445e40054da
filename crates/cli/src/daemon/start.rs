//! Bringing a mount up: every mistake that can be found early is found before the kernel knows.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use penstock_base::clock;
use penstock_transfer::DiskCache;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{
    Plan,
    mounted::{Core, Mounted},
    stage::Stage,
};
use crate::{
    control::{Memory, Metric, Status, record::Record, server},
    doors::{self, Door, DoorSpec},
    failure::{Failure, Outcome},
    keeper::Inherited,
    options::table,
    predecessors::{self, Predecessors},
    prometheus::Exporter,
    resources::Resources,
    stores, system,
    volumes::{self, OpenedVolume, VolumeSpec},
};

/// Orders to unmount that may wait.
const ORDERS_WAITING_MAX: usize = 4;

/// Mounts what the plan says.
pub(super) async fn start(plan: &Plan) -> Outcome<Mounted> {
    let spec = &plan.volume;
    let resources = Resources::new(spec.memory());
    let stage = Arc::new(Stage::new(spec.mountpoint.clone()));
    let status = status(plan, &resources, &stage);
    let (orders_sender, orders) = mpsc::channel(ORDERS_WAITING_MAX);
    let asked = Arc::clone(&status);
    let cache = Arc::new(OnceLock::new());
    // Before anything else, so that whoever comes next meets the mount from its first step.
    let control = listen(
        plan,
        server::Duties {
            status: Box::new(move || asked()),
            orders: orders_sender,
            cache: Arc::clone(&cache),
        },
    )?;
    if !plan.goes_on() {
        stores::probe(&spec.source, &spec.values, &spec.environment).await?;
    }
    let exporter = match spec.values.address(&table::METRICS_ADDRESS) {
        Some(address) => Some(Exporter::start(address, Arc::clone(&resources.registry)).await?),
        None => None,
    };
    let Opened {
        volume,
        door,
        record,
    } = open(plan, &resources, &cache, control.as_ref()).await?;
    stage.enter();
    Ok(Mounted {
        core: Core {
            door,
            volume,
            held_at_rest: resources.pool.budget().used(),
            resources,
            log: plan.log.clone(),
            status,
        },
        orders,
        control,
        record,
        _exporter: exporter,
    })
}

/// A volume behind its door.
struct Opened {
    volume: OpenedVolume,
    door: Box<dyn Door>,
    record: Option<Record>,
}

/// Opens the volume once those who were here before have ended, or the patience for them has, and its door.
/// What those who find it dead are told is written down before the kernel knows it, for it may be killed as
/// soon as it is there. A start that fails leaves that where it is, as true as before.
async fn open(
    plan: &Plan,
    resources: &Resources,
    cache: &OnceLock<Arc<DiskCache>>,
    control: Option<&server::Server>,
) -> Outcome<Opened> {
    let spec = &plan.volume;
    let before = Predecessors::new(&plan.place, &spec.mountpoint);
    if !plan.goes_on() {
        before.wait().await;
    }
    let note = plan.inherited().map(|inherited| inherited.note.as_str());
    let volume = volumes::open(spec, resources, &before, note).await?;
    if let Some(opened) = &volume.cache {
        cache.get_or_init(|| Arc::clone(opened));
    }
    let record = record(control, volume.staging.as_deref());
    let door = doors::open(&volume, door_spec(plan)?, resources).await?;
    leave_to_next(plan, door.as_ref(), &volume);
    if !plan.goes_on() {
        before.tell();
    }
    Ok(Opened {
        volume,
        door,
        record,
    })
}

fn door_spec(plan: &Plan) -> Outcome<DoorSpec<'_>> {
    let inherited = plan.inherited().map(Inherited::keepsake).transpose();
    let inherited = inherited.map_err(|error| {
        Failure::new(
            format!("cannot go on with the volume: {error}"),
            "mount again",
        )
    })?;
    Ok(DoorSpec {
        source: &plan.volume.source,
        mountpoint: &plan.volume.mountpoint,
        values: &plan.volume.values,
        environment: &plan.volume.environment,
        kept: plan.line.is_some(),
        inherited,
    })
}

/// Leaves to the keeper what another process needs to go on.
fn leave_to_next(plan: &Plan, door: &dyn Door, volume: &OpenedVolume) {
    let (Some(line), Some(note)) = (&plan.line, &volume.note) else {
        return;
    };
    let Some(keepsake) = door.keepsake() else {
        info!("on this kernel reads fail when this process is killed");
        return;
    };
    if let Err(error) = line.leave(&keepsake, note) {
        warn!(%error, "reads will fail when this process is killed");
    }
}

/// How the mount is, whenever somebody asks.
fn status(
    plan: &Plan,
    resources: &Resources,
    stage: &Arc<Stage>,
) -> Arc<dyn Fn() -> Status + Send + Sync> {
    let stage = Arc::clone(stage);
    let Resources { pool, registry } = resources.clone();
    let VolumeSpec {
        source, mountpoint, ..
    } = plan.volume.clone();
    let begun = clock::now();
    let since_epoch = clock::wall_time().duration_since(std::time::UNIX_EPOCH);
    let started = since_epoch.map_or(0, |since| since.as_secs());
    Arc::new(move || Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        source: source.clone(),
        mountpoint: mountpoint.clone(),
        phase: stage.phase(),
        started,
        uptime: begun.elapsed().as_secs(),
        memory: Memory {
            used: pool.budget().used(),
            peak: pool.budget().peak(),
            total: pool.budget().total(),
            resident: system::resident_bytes(),
        },
        metrics: registry.samples().into_iter().map(Metric::from).collect(),
    })
}

/// What those who find the mount dead are told.
fn record(control: Option<&server::Server>, staging: Option<&Path>) -> Option<Record> {
    let written = control?.record(staging);
    let untold = |error| warn!(%error, "`penstock umount` cannot tell what this mount leaves if it is killed");
    written.map_err(untold).ok()
}

/// The control socket. A mount without one still serves its files. Fails where another process is
/// starting a mount, or serves one.
fn listen(plan: &Plan, duties: server::Duties) -> Outcome<Option<server::Server>> {
    let error = match server::Server::start(&plan.place, &plan.volume.mountpoint, duties) {
        Ok(server) => return Ok(Some(server)),
        Err(error) => error,
    };
    match predecessors::refusal(&plan.volume.mountpoint, &error) {
        Some(refusal) if !plan.goes_on() => Err(refusal),
        _ => {
            let place = plan.place.directory();
            warn!(%error, place = %place.display(), "no control socket: `penstock stats` and \
                   `penstock umount` cannot reach this mount");
            Ok(None)
        }
    }
}
