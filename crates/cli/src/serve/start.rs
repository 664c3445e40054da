//! Bringing a mount up: every mistake that can be found early is found before the kernel knows.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use penstock_base::{BufferPool, clock, metrics::Registry};
use penstock_fuse::{FuseSettings, Session};
use penstock_object::{
    ErrorKind, GetOptions, Key, ListOptions, Store, credentials::CredentialOrigin,
};
use penstock_transfer::DiskCache;
use tokio::{runtime::Handle, sync::mpsc};
use tracing::{info, warn};

use super::{
    Door, Plan, VolumeKind,
    mounted::{Core, Held, Mounted},
    predecessor::{self, Predecessors},
    stage::Stage,
};
use crate::{
    assemble,
    control::{Memory, Metric, Status, record::Record, server},
    disk_cache, explain,
    failure::{Failure, Outcome},
    options::table,
    prometheus::Exporter,
    staging, stream, system,
};

/// How long looking at the bucket may take, so that a wrong address is reported within ten
/// seconds.
const PROBE_DEADLINE: Duration = Duration::from_secs(8);

/// An object that a read endpoint is asked for to see whether it answers.
const UNLIKELY_NAME: &str = ".penstock-looks-whether-this-endpoint-answers";

/// Requests of the kernel under way at once, below which readers notice that there are fewer.
const BACKGROUND_FEW: u16 = 32;

/// Orders to unmount that may wait.
const ORDERS_WAITING_MAX: usize = 4;

/// A volume behind its door.
pub(crate) struct Opened {
    pub door: Door,
    pub held: Option<Held>,
}

/// Mounts what the plan says.
pub(super) async fn start(plan: &Plan) -> Outcome<Mounted> {
    let registry = Registry::new();
    let pool = match plan.volume {
        VolumeKind::Bucket => assemble::pool(&plan.values),
        VolumeKind::Stream => stream::pool(&plan.values),
    };
    observe_memory(&registry, &pool);
    let stage = Arc::new(Stage::new(plan.mountpoint.clone()));
    let status = status(plan, Arc::clone(&pool), Arc::clone(&registry), &stage);
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
        probe(plan).await?;
    }
    let exporter = match plan.values.address(&table::METRICS_ADDRESS) {
        Some(address) => Some(Exporter::start(address, Arc::clone(&registry)).await?),
        None => None,
    };
    let memory = (&pool, &registry);
    let (opened, record) = open(plan, memory, &cache, control.as_ref()).await?;
    stage.enter();
    Ok(Mounted {
        core: Core {
            door: opened.door,
            held_at_rest: pool.budget().used(),
            pool,
            registry,
            cache: cache.get().cloned(),
            discards_cache: plan.values.flag(&table::CACHE_DISCARD),
            log: plan.log.clone(),
            status,
        },
        orders,
        _held: opened.held,
        control,
        record,
        _exporter: exporter,
    })
}

/// Opens the volume once those who were here before have ended, or the patience for them has. What those who
/// find it dead are told is written down before the kernel knows it, for it may be killed as soon as it is
/// there. A start that fails leaves that where it is, as true as before.
async fn open(
    plan: &Plan,
    memory: (&Arc<BufferPool>, &Arc<Registry>),
    cache: &OnceLock<Arc<DiskCache>>,
    control: Option<&server::Server>,
) -> Outcome<(Opened, Option<Record>)> {
    let before = Predecessors::new(plan);
    if !plan.goes_on() {
        before.wait().await;
    }
    let opened = match plan.volume {
        VolumeKind::Bucket => open_bucket(plan, memory, cache, (&before, control)).await?,
        VolumeKind::Stream => {
            let record = record(control, None);
            (stream::open(plan, memory.0, memory.1).await?, record)
        }
    };
    if !plan.goes_on() {
        before.tell();
    }
    Ok(opened)
}

async fn open_bucket(
    plan: &Plan,
    (pool, registry): (&Arc<BufferPool>, &Arc<Registry>),
    told: &OnceLock<Arc<DiskCache>>,
    (before, control): (&Predecessors<'_>, Option<&server::Server>),
) -> Outcome<(Opened, Option<Record>)> {
    let store = assemble::store(&plan.source, &plan.values, &plan.environment, registry)?;
    let cache = disk_cache::open(plan, pool, registry, before).await?;
    if let Some(cache) = &cache {
        told.get_or_init(|| Arc::clone(cache));
    }
    let store = disk_cache::around(cache.as_ref(), store, &plan.source, &plan.values)?;
    let staging = staging::open(plan, pool, before).await?;
    let staging_directory = staging
        .as_ref()
        .map(|staging| staging.settings().directory.clone());
    let volume = assemble::volume(&store, (pool, staging), &plan.values, registry)?;
    let record = record(control, staging_directory.as_deref());
    let settings = FuseSettings {
        spill_directory: staging_directory,
        ..assemble::fuse_settings(&plan.source, &plan.mountpoint, &plan.values)
    };
    let wanted = settings.max_background;
    let session = Session::mount(
        volume,
        settings,
        Arc::clone(pool),
        Arc::clone(registry),
        Handle::current(),
    );
    let session = session
        .await
        .map_err(|error| explain::mount_error(&error))?;
    tell_background(wanted, session.negotiated().max_background);
    if let (Some(guardian), Some(abort)) = (&plan.guardian, session.abort())
        && let Err(error) = guardian.watch(abort)
    {
        warn!(%error, "programs may hang when this process is killed: its guardian is gone");
    }
    let opened = Opened {
        door: Door::Fuse(Box::new(session)),
        held: None,
    };
    Ok((opened, record))
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

/// Asks the store for one name, which shows at once whether endpoint, credentials, clock, bucket
/// and permissions are right.
async fn probe(plan: &Plan) -> Outcome {
    let look = async {
        let untold = CredentialOrigin::default();
        let (values, environment) = (&plan.values, &plan.environment);
        let store = assemble::impatient_store(&plan.source, values, environment, &untold)?;
        look_inside(&plan.source, &store).await?;
        match assemble::impatient_read_store(&plan.source, values, environment)? {
            Some(reads) => look_at_reads(&plan.source, &reads).await,
            None => Ok(()),
        }
    };
    clock::deadline(PROBE_DEADLINE, look)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::new(
                format!(
                    "{}: the store does not answer within {PROBE_DEADLINE:?}",
                    plan.source
                ),
                "check --endpoint, the network and any firewall",
            ))
        })
}

/// Reads an object that is hardly there: nothing else is ever asked of a read endpoint.
async fn look_at_reads(source: &str, store: &Arc<dyn Store>) -> Outcome {
    let key = Key::new(UNLIKELY_NAME).expect("it is a valid key");
    let options = GetOptions {
        range: Some(0..1),
        ..GetOptions::default()
    };
    let Err(error) = store.get(&key, options, &mut Vec::new()).await else {
        return Ok(());
    };
    // Who may not list is not told that there is no such object.
    if matches!(
        error.kind,
        ErrorKind::NotFound | ErrorKind::PermissionDenied
    ) {
        return Ok(());
    }
    let failure = explain::store_error(source, &error);
    Err(Failure::new(
        format!("{} (at the read-endpoint)", failure.cause()),
        format!("it must lead to the same bucket; {}", failure.remedy()),
    ))
}

/// Lists at most one name.
async fn look_inside(source: &str, store: &Arc<dyn Store>) -> Outcome {
    let options = ListOptions {
        max_keys: Some(1),
        ..ListOptions::default()
    };
    match store.list(options).await {
        Ok(_) => Ok(()),
        Err(error) => Err(explain::store_error(source, &error)),
    }
}

fn observe_memory(registry: &Registry, pool: &Arc<BufferPool>) {
    let budget = Arc::clone(pool.budget());
    let total = budget.total();
    registry.observe(
        "memory_total_bytes",
        "Memory that may be reserved.",
        move || total,
    );
    let (used, peak) = (Arc::clone(&budget), budget);
    registry.observe("memory_used_bytes", "Memory reserved now.", move || {
        used.used()
    });
    registry.observe(
        "memory_peak_bytes",
        "Most memory reserved at once.",
        move || peak.peak(),
    );
    let resident = "Memory that the process occupies.";
    registry.observe("process_resident_bytes", resident, system::resident_bytes);
}

/// How the mount is, whenever somebody asks.
fn status(
    plan: &Plan,
    pool: Arc<BufferPool>,
    registry: Arc<Registry>,
    stage: &Arc<Stage>,
) -> Arc<dyn Fn() -> Status + Send + Sync> {
    let stage = Arc::clone(stage);
    let (source, mountpoint) = (plan.source.clone(), plan.mountpoint.clone());
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
    let error = match server::Server::start(&plan.place, &plan.mountpoint, duties) {
        Ok(server) => return Ok(Some(server)),
        Err(error) => error,
    };
    match predecessor::refusal(&plan.mountpoint, &error) {
        Some(refusal) if !plan.goes_on() => Err(refusal),
        _ => {
            let place = plan.place.directory();
            warn!(%error, place = %place.display(), "no control socket: `penstock stats` and \
                   `penstock umount` cannot reach this mount");
            Ok(None)
        }
    }
}
