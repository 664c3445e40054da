//! Bringing a mount up: every mistake that can be found early is found before the kernel knows.

use std::{sync::Arc, time::Duration};

use penstock_base::{BufferPool, clock, metrics::Registry};
use penstock_fuse::{FuseSettings, Session};
use penstock_object::{
    ErrorKind, GetOptions, Key, ListOptions, Store, credentials::CredentialOrigin,
};
use penstock_transfer::DiskCache;
use tokio::{runtime::Handle, sync::mpsc};
use tracing::warn;

use super::{
    Door, Plan, VolumeKind,
    mounted::{Core, Held, Mounted},
    predecessor,
};
use crate::{
    assemble,
    control::{Memory, Metric, Status, server},
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

/// Orders to unmount that may wait.
const ORDERS_WAITING_MAX: usize = 4;

/// A volume behind its door.
pub(crate) struct Opened {
    pub door: Door,
    pub cache: Option<Arc<DiskCache>>,
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
    if !plan.goes_on() {
        probe(plan).await?;
        predecessor::wait_until_silent(plan).await;
    }
    let exporter = match plan.values.address(&table::METRICS_ADDRESS) {
        Some(address) => Some(Exporter::start(address, Arc::clone(&registry)).await?),
        None => None,
    };
    let opened = match plan.volume {
        VolumeKind::Bucket => open_bucket(plan, &pool, &registry).await?,
        VolumeKind::Stream => stream::open(plan, &pool, &registry).await?,
    };
    let (orders_sender, orders) = mpsc::channel(ORDERS_WAITING_MAX);
    let status = status(plan, Arc::clone(&pool), Arc::clone(&registry));
    let asked = Arc::clone(&status);
    let duties = server::Duties {
        status: Box::new(move || asked()),
        orders: orders_sender,
        cache: opened.cache.clone(),
    };
    Ok(Mounted {
        core: Core {
            door: opened.door,
            held_at_rest: pool.budget().used(),
            pool,
            registry,
            cache: opened.cache,
            discards_cache: plan.values.flag(&table::CACHE_DISCARD),
            log: plan.log.clone(),
            status,
        },
        orders,
        _held: opened.held,
        control: listen(plan, duties),
        _exporter: exporter,
    })
}

async fn open_bucket(
    plan: &Plan,
    pool: &Arc<BufferPool>,
    registry: &Arc<Registry>,
) -> Outcome<Opened> {
    let store = assemble::store(&plan.source, &plan.values, &plan.environment, registry)?;
    let cache = disk_cache::open(plan, pool, registry).await?;
    let store = disk_cache::around(cache.as_ref(), store, &plan.source, &plan.values)?;
    let staging = staging::open(plan, pool).await?;
    let spill_directory = staging
        .as_ref()
        .map(|staging| staging.settings().directory.clone());
    let volume = assemble::volume(&store, (pool, staging), &plan.values, registry)?;
    let settings = FuseSettings {
        spill_directory,
        ..assemble::fuse_settings(&plan.source, &plan.mountpoint, &plan.values)
    };
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
    Ok(Opened {
        door: Door::Fuse(Box::new(session)),
        cache,
        held: None,
    })
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
) -> Arc<dyn Fn() -> Status + Send + Sync> {
    let (source, mountpoint) = (plan.source.clone(), plan.mountpoint.clone());
    let begun = clock::now();
    let since_epoch = clock::wall_time().duration_since(std::time::UNIX_EPOCH);
    let started = since_epoch.map_or(0, |since| since.as_secs());
    Arc::new(move || Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        source: source.clone(),
        mountpoint: mountpoint.clone(),
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

/// The control socket. A mount without one still serves its files.
fn listen(plan: &Plan, duties: server::Duties) -> Option<server::Server> {
    let socket = plan.place.socket_of(&plan.mountpoint);
    let listening = plan
        .place
        .prepare()
        .and_then(|()| server::Server::start(&socket, duties));
    match listening {
        Ok(server) => Some(server),
        Err(error) => {
            warn!(%error, socket = %socket.display(), "no control socket: `penstock stats` and \
                   `penstock umount` cannot reach this mount");
            None
        }
    }
}
