//! Bringing a mount up: every mistake that can be found early is found before the kernel knows.

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::{Mutex, clock};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{
    Plan,
    answers::Answers,
    mounted::{Core, Mounted},
};
use crate::{
    control::{record::Record, server},
    doors::{self, Door, DoorKind, DoorSpec},
    failure::{Failure, Outcome},
    filesets,
    keeper::Inherited,
    options::table,
    predecessors::{self, Predecessors},
    prometheus::Exporter,
    resources::Resources,
    stores,
    volumes::{self, OpenedVolume, OpenedVolumes, VolumeSpec},
};

/// Orders to unmount that may wait.
const ORDERS_WAITING_MAX: usize = 4;

/// How long volumes that were opened in vain may take to be shut down, all of them.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(10);

/// The volumes that a start has opened. Who gives the start up, or finds that it failed, shuts them down: in a database
/// their sessions would else be there until their leases are over.
#[derive(Default)]
pub(super) struct Opening(Mutex<OpenedVolumes>);

impl Opening {
    fn add(&self, name: &str, volume: OpenedVolume) {
        self.0.lock().add(name, Arc::new(volume));
    }

    fn volumes(&self) -> OpenedVolumes {
        self.0.lock().clone()
    }

    /// Shuts them down in their order, as far as there is time for that.
    pub(super) async fn shut_down(&self) {
        let shut_down = clock::deadline(SHUT_DOWN_MAX, self.volumes().shut_down()).await;
        if shut_down.is_err() {
            warn!("what was opened for a start that failed could not be shut down in time");
        }
    }
}

/// Mounts what the plan says. What it opens is noted in `opening`.
pub(super) async fn start(plan: &Plan, opening: &Opening) -> Outcome<Mounted> {
    let spec = &plan.volume;
    let resources = Resources::new(spec.memory());
    let answers = Answers::new(plan, &resources);
    let (orders_sender, orders) = mpsc::channel(ORDERS_WAITING_MAX);
    // Before anything else, so that whoever comes next meets the mount from its first step.
    let control = listen(plan, &answers, orders_sender)?;
    if !plan.goes_on() {
        for (_, spec) in volumes_of(plan) {
            probe(spec).await?;
        }
    }
    let exporter = match spec.values.address(&table::METRICS_ADDRESS) {
        Some(address) => Some(Exporter::start(address, Arc::clone(&resources.registry)).await?),
        None => None,
    };
    let Opened {
        volumes,
        door,
        record,
    } = open(plan, opening, (&resources, &answers), control.as_ref()).await?;
    answers.stage.enter(&plan.door);
    Ok(Mounted {
        core: Core {
            door,
            volumes,
            held_at_rest: resources.pool.budget().used(),
            resources,
            log: plan.log.clone(),
            answers,
        },
        orders,
        control,
        record,
        _exporter: exporter,
    })
}

/// The volumes that a plan is about, with their names.
fn volumes_of(plan: &Plan) -> Vec<(&str, &VolumeSpec)> {
    match &plan.door {
        DoorKind::Kernel => vec![("", &plan.volume)],
        DoorKind::Nfs(serving) => {
            let volumes = serving.volumes.iter();
            volumes.map(|named| (&*named.name, &named.spec)).collect()
        }
    }
}

/// Asks for the store of a volume that cannot do without it.
async fn probe(spec: &VolumeSpec) -> Outcome {
    let place = filesets::place_of(&spec.source, &spec.environment)?;
    match place.is_needed {
        true => stores::probe(&place.store, &spec.values, &spec.environment).await,
        false => Ok(()),
    }
}

/// Volumes behind their door.
struct Opened {
    volumes: OpenedVolumes,
    door: Box<dyn Door>,
    record: Option<Record>,
}

/// Opens the volumes once those who were here before have ended, or the patience for them has, and its door.
/// What those who find it dead are told is written down before the kernel knows it, for it may be killed as
/// soon as it is there. A start that fails leaves that where it is, as true as before.
async fn open(
    plan: &Plan,
    opening: &Opening,
    (resources, answers): (&Resources, &Answers),
    control: Option<&server::Server>,
) -> Outcome<Opened> {
    let spec = &plan.volume;
    let before = Predecessors::new(&plan.place, &spec.mountpoint);
    if !plan.goes_on() {
        before.wait().await;
    }
    let note = plan.inherited().map(|inherited| inherited.note.as_str());
    for (name, spec) in volumes_of(plan) {
        let resources = Resources {
            pool: Arc::clone(&resources.pool),
            registry: doors::nfs::part_of(&resources.registry, "volume", name),
        };
        let opened = volumes::open(spec, &resources, &before, note).await?;
        opening.add(name, opened);
    }
    let volumes = opening.volumes();
    answers.volumes.get_or_init(|| volumes.clone());
    let record = record(control, &volumes.staging());
    let door = open_door(plan, &volumes, (resources, answers)).await?;
    tell_guardian(plan, door.as_ref());
    if !plan.goes_on() {
        before.tell();
    }
    Ok(Opened {
        volumes,
        door,
        record,
    })
}

async fn open_door(
    plan: &Plan,
    volumes: &OpenedVolumes,
    (resources, answers): (&Resources, &Answers),
) -> Outcome<Box<dyn Door>> {
    let all = volumes.all();
    if let DoorKind::Nfs(serving) = &plan.door {
        let process = (&plan.volume.environment, resources);
        let door = doors::nfs::open(serving, &all, process).await?;
        answers.live.get_or_init(|| Arc::clone(door.live()));
        return Ok(Box::new(door));
    }
    let volume = all
        .first()
        .ok_or_else(|| Failure::new("there is nothing to mount", "name a source"))?;
    let door = doors::open(volume, door_spec(plan)?, resources).await?;
    leave_to_next(plan, door.as_ref(), volume);
    Ok(door)
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

/// Gives the guardian what it needs to let programs go when this process is killed.
fn tell_guardian(plan: &Plan, door: &dyn Door) {
    let Some(guardian) = &plan.guardian else {
        return;
    };
    let watched = match door.abort() {
        Some(abort) => guardian.watch(abort),
        None => Err(std::io::ErrorKind::PermissionDenied.into()),
    };
    match watched.and_then(|()| guardian.end()) {
        Ok(end) => drop(tokio::spawn(tell_of_lost_guardian(end))),
        Err(error) => {
            warn!(%error, "programs may hang when this process is killed: its guardian cannot cut the connection");
        }
    }
}

/// Says that the guardian is gone, once it is.
async fn tell_of_lost_guardian(end: impl Future<Output = ()>) {
    end.await;
    warn!(
        "programs may hang when this process is killed: its guardian has ended; unmount and mount \
         again to have another one"
    );
}

/// What those who find the mount dead are told.
fn record(control: Option<&server::Server>, staging: &[&Path]) -> Option<Record> {
    let written = control?.record(staging);
    let untold = |error| warn!(%error, "`penstock umount` cannot tell what this mount leaves if it is killed");
    written.map_err(untold).ok()
}

/// The control socket. A mount without one still serves its files. Fails where another process is
/// starting a mount, or serves one.
fn listen(
    plan: &Plan,
    answers: &Arc<Answers>,
    orders: mpsc::Sender<server::UnmountOrder>,
) -> Outcome<Option<server::Server>> {
    let daemon = Arc::<Answers>::clone(answers);
    let started = server::Server::start(&plan.place, &plan.volume.mountpoint, daemon, orders);
    let error = match started {
        Ok(server) => return Ok(Some(server)),
        Err(error) => error,
    };
    match predecessors::refusal(&plan.volume.mountpoint, &error) {
        Some(refusal) if !plan.goes_on() => Err(refusal),
        _ => {
            let place = plan.place.path();
            warn!(%error, place = %place.display(), "no control socket: `penstock stats` and \
                   `penstock umount` cannot reach this mount");
            Ok(None)
        }
    }
}
