//! The server: volumes, the mount targets before them, and their end.
//!
//! ```text
//! Target (an address) -- Exports: path, rules --> Service (a volume): files, locks, repeated calls
//! Target              -- Exports: path, rules --'
//! ```
//!
//! Volumes and targets are there from the start to the end. What each target exports, to whom, and what it delivers can be
//! changed at any time ([`NfsServer::change`]).

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, FsError, clock, random};
use thiserror::Error;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
    task::{JoinError, JoinHandle},
};

use crate::{
    Export, NfsSettings, TargetSettings, TargetType,
    audience::Volumes,
    client::Client,
    exports::{ExportError, Exports},
    handles::Handles,
    limits::{CONNECTIONS_MAX, PORT_MAPPER_CONNECTIONS_MAX, SWEEP_INTERVAL},
    listening::{Accepting, bind_both},
    monitored::Monitored,
    port_mapper::{Places, PortMapper},
    service::{GracePeriod, Service},
    target::Target,
    transport::{Greeting, Load, serve_datagrams},
};

/// Files that could not be saved, by path, with the reason for each.
pub type Unsaved = Vec<(String, FsError)>;

/// How often the end of calls under way is looked for.
const LEAVE_POLL: Duration = Duration::from_millis(10);

/// Why a server was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// It cannot listen at its address.
    #[error("cannot listen on `{0}`: {1}")]
    Listen(SocketAddr, io::Error),
    /// It cannot tell clients its ports at this address.
    #[error("cannot listen on `{0}` as portmap: {1}")]
    Portmap(SocketAddr, io::Error),
    /// It cannot read which clients held locks, or keep which do.
    #[error("the clients that hold locks, in `{0}`: {1}")]
    Lockers(PathBuf, io::Error),
    /// It cannot export what it should.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// A mount target as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetStatus {
    /// What exports call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it tells its ports, if it does.
    pub port_mapper: Option<SocketAddr>,
    /// What it delivers at most.
    pub target_type: TargetType,
    /// Connections that are open.
    pub connections: u64,
    /// What it exports.
    pub exports: Vec<Export>,
}

/// Mount targets with their volumes. Dropping it ends its connections and saves nothing.
pub struct NfsServer {
    targets: Vec<Bound>,
    volumes: Arc<Volumes>,
    /// Connections end when this becomes true.
    closing: watch::Sender<bool>,
    listening: Vec<JoinHandle<()>>,
    /// Close what is idle, one for each volume, and one for the lists of clients.
    sweeping: Vec<JoinHandle<()>>,
    /// Give back locks in exports that are gone, one for each volume.
    freeing: Vec<JoinHandle<()>>,
    /// Tell clients that held locks that the targets were started.
    telling: Vec<JoinHandle<()>>,
    left: tokio::sync::Mutex<Option<Unsaved>>,
    ended: watch::Sender<bool>,
}

/// A mount target where it listens.
struct Bound {
    target: Arc<Target>,
    address: SocketAddr,
    port_mapper: Option<SocketAddr>,
}

impl std::fmt::Debug for NfsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.targets.iter().map(|bound| bound.address).collect();
        f.debug_struct("NfsServer")
            .field("addresses", &addresses)
            .finish_non_exhaustive()
    }
}

impl NfsServer {
    /// Serves volumes at the addresses of mount targets, with NFS, MOUNT, NLM and NSM on the same port. Fails if it
    /// cannot listen at one of them, or where it is told to tell its ports, if a list of clients that hold locks cannot
    /// be read, or if the exports are none that it could have.
    pub async fn start(settings: NfsSettings, pool: Arc<BufferPool>) -> Result<Self, StartError> {
        let mut sockets = Vec::new();
        for target in &settings.targets {
            sockets.push(Sockets::bind(target.address, target.portmap).await?);
        }
        let exports = settings.exports.clone();
        let volumes = Arc::<Volumes>::default();
        let load = Load::new(pool.budget().total());
        let targets = targets(settings, &volumes, &load)?;
        export(&volumes, tables(&targets, &exports, &volumes)?);
        let closing = watch::Sender::new(false);
        let (mut bound, mut listening) = (Vec::new(), Vec::new());
        for (target, sockets) in targets.iter().zip(sockets) {
            bound.push(Bound {
                target: Arc::clone(target),
                address: sockets.address,
                port_mapper: sockets.port_mapper_address(),
            });
            let tasks = Listening {
                target: Arc::clone(target),
                load: load.another(),
                pool: Arc::clone(&pool),
                closing: closing.subscribe(),
            };
            listening.extend(tasks.begin(sockets));
        }
        let told = targets.iter().map(Arc::clone).map(Target::tell_of_start);
        let services = volumes.all();
        let freeing = services.iter().map(Arc::clone).map(Service::free_unserved);
        let mut sweeping = vec![tokio::spawn(sweep_lists(
            Arc::clone(&volumes),
            targets.clone(),
        ))];
        let sweeps = services.iter().map(Arc::clone).map(sweep_for_ever);
        sweeping.extend(sweeps.map(tokio::spawn));
        Ok(Self {
            targets: bound,
            listening,
            sweeping,
            freeing: freeing.map(tokio::spawn).collect(),
            telling: told.map(tokio::spawn).collect(),
            volumes,
            closing,
            left: tokio::sync::Mutex::default(),
            ended: watch::Sender::new(false),
        })
    }

    /// From now on these are the exports, and targets are of these types; the types of others stay. All of it or, if it
    /// fails, nothing. Connections go on: each call is decided by what holds when it comes. What clients hold locked in
    /// exports that are not there for them any more is given back behind that.
    pub fn change(
        &self,
        exports: &[Export],
        types: &[(String, TargetType)],
    ) -> Result<(), ExportError> {
        let targets: Vec<_> = self.each_target().collect();
        export(&self.volumes, tables(&targets, exports, &self.volumes)?);
        for target in &targets {
            let given = types.iter().find(|(name, _)| *name == target.name);
            if let Some((_, target_type)) = given {
                target.become_type(*target_type);
            }
        }
        Ok(())
    }

    fn each_target(&self) -> impl Iterator<Item = Arc<Target>> {
        self.targets.iter().map(|bound| Arc::clone(&bound.target))
    }

    /// The mount targets, in their order.
    pub fn status(&self) -> Vec<TargetStatus> {
        let told = self.targets.iter().map(|bound| {
            let Bound {
                target,
                address,
                port_mapper,
            } = bound;
            let exports = target.exports();
            TargetStatus {
                name: target.name.clone(),
                address: *address,
                port_mapper: *port_mapper,
                target_type: target.target_type(),
                connections: target.metrics.connections.value(),
                exports: exports.iter().map(|known| known.export.clone()).collect(),
            }
        });
        told.collect()
    }

    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        let connections = |bound: &Bound| bound.target.metrics.connections.value();
        self.targets.iter().map(connections).sum()
    }

    /// Waits until somebody has called [`NfsServer::leave`] and that has ended.
    pub async fn ended(&self) -> Unsaved {
        let mut ended = self.ended.subscribe();
        // The sender is in `self`, so waiting cannot fail.
        let _ = ended.wait_for(|ended| *ended).await;
        self.left.lock().await.clone().unwrap_or_default()
    }

    /// Takes no more calls, gives those that change something `grace` to end, saves everything, and shuts the volumes
    /// down. Returns what could not be saved.
    pub async fn leave(&self, grace: Duration) -> Unsaved {
        let mut left = self.left.lock().await;
        if let Some(left) = &*left {
            return left.clone();
        }
        self.listening.iter().for_each(JoinHandle::abort);
        self.closing.send_replace(true);
        let until = clock::now() + grace;
        let services = self.volumes.all();
        let changing = || services.iter().any(|service| service.changing() > 0);
        while changing() && clock::now() < until {
            clock::sleep(LEAVE_POLL).await;
        }
        self.end_tasks();
        // All at once: one whose store is away keeps no other from saving.
        let ending = services.iter().map(Arc::clone).map(|service| {
            let ended = async move { service.shut_down().await };
            tokio::spawn(ended)
        });
        let mut unsaved = Unsaved::new();
        for ended in ending.collect::<Vec<_>>() {
            unsaved.extend(ended.await.unwrap_or_else(|error| panicked(&error)));
        }
        *left = Some(unsaved.clone());
        drop(left);
        self.ended.send_replace(true);
        unsaved
    }

    /// Ends what is done beside calls.
    fn end_tasks(&self) {
        self.sweeping.iter().for_each(JoinHandle::abort);
        self.freeing.iter().for_each(JoinHandle::abort);
        self.telling.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.listening.iter().for_each(JoinHandle::abort);
        self.end_tasks();
        let services = self.volumes.all();
        services.iter().for_each(|service| service.end_waiting());
    }
}

/// The mount targets with the volumes that they share. A client does not say which volumes it held locks of before the
/// start, so there is a grace period for all of them or for none.
fn targets(
    settings: NfsSettings,
    volumes: &Arc<Volumes>,
    load: &Load,
) -> Result<Vec<Arc<Target>>, StartError> {
    let list = |target: &TargetSettings| {
        let path = target.lockers.clone();
        Monitored::load(path.clone()).map_err(|error| StartError::Lockers(path, error))
    };
    let lists: Result<Vec<_>, _> = settings.targets.iter().map(list).collect();
    let lists = lists?;
    let before = lists.iter().flat_map(|list| list.before().iter().copied());
    let before: Arc<HashSet<IpAddr>> = Arc::new(before.collect());
    let handles = Arc::new(Handles::new(&settings.key, random::number()));
    let port_mappers = settings.port_mappers_of_clients;
    let count = settings.volumes.len();
    let services = settings.volumes.into_iter().map(|served| {
        let is_reclaimed = served.volume.locks().is_some() && !before.is_empty();
        let grace_period = GracePeriod::begin(settings.grace_period, is_reclaimed);
        let told = (&handles, port_mappers);
        let audience = &volumes.audience;
        Arc::new(Service::new(
            (served, load.share(count)),
            told,
            audience,
            (&before, grace_period),
        ))
    });
    volumes.become_all(services.collect::<Vec<_>>());
    let targets = settings.targets.iter().zip(lists);
    let targets = targets
        .map(|(settings, list)| Arc::new(Target::new(settings, (list, port_mappers), volumes)));
    Ok(targets.collect())
}

/// What each target is to export. Fails if an export is of a volume or a target that is not there.
fn tables<'a>(
    targets: &'a [Arc<Target>],
    exports: &[Export],
    volumes: &Volumes,
) -> Result<Vec<(&'a Arc<Target>, Exports)>, ExportError> {
    for export in exports {
        let is_there = |name: &&String| targets.iter().any(|target| target.name == **name);
        if let Some(target) = export.targets.iter().find(|name| !is_there(name)) {
            return Err(ExportError::Target {
                path: export.path.clone(),
                target: target.clone(),
            });
        }
    }
    let services = volumes.all();
    let table = |target: &'a Arc<Target>| {
        let exports = Exports::of_target(&target.name, exports, &services)?;
        Ok((target, exports))
    };
    targets.iter().map(table).collect()
}

/// From now on targets have these tables, and the volumes their audience.
fn export(volumes: &Volumes, tables: Vec<(&Arc<Target>, Exports)>) {
    let all = tables.iter().map(|(_, exports)| exports);
    volumes.audience.become_of(all);
    for (target, exports) in tables {
        target.export(exports);
    }
}

/// What a mount target listens with.
struct Sockets {
    address: SocketAddr,
    listener: TcpListener,
    /// With what tells the ports alone: no client finds a mount target's datagrams without.
    datagrams: Option<UdpSocket>,
    port_mapper: Option<(TcpListener, UdpSocket)>,
}

impl Sockets {
    async fn bind(address: SocketAddr, portmap: Option<SocketAddr>) -> Result<Self, StartError> {
        let unusable = |error| StartError::Listen(address, error);
        let Some(portmap) = portmap else {
            let listener = TcpListener::bind(address).await.map_err(unusable)?;
            return Ok(Self {
                address: listener.local_addr().map_err(unusable)?,
                listener,
                datagrams: None,
                port_mapper: None,
            });
        };
        let (listener, datagrams) = bind_both(address).await.map_err(unusable)?;
        let port_mapper = bind_both(portmap).await;
        let port_mapper = port_mapper.map_err(|error| StartError::Portmap(portmap, error))?;
        Ok(Self {
            address: listener.local_addr().map_err(unusable)?,
            listener,
            datagrams: Some(datagrams),
            port_mapper: Some(port_mapper),
        })
    }

    fn port_mapper_address(&self) -> Option<SocketAddr> {
        let (listener, _) = self.port_mapper.as_ref()?;
        listener.local_addr().ok()
    }
}

/// What the tasks that listen need.
struct Listening {
    target: Arc<Target>,
    load: Load,
    pool: Arc<BufferPool>,
    closing: watch::Receiver<bool>,
}

impl Listening {
    fn begin(self, sockets: Sockets) -> Vec<JoinHandle<()>> {
        let places = sockets.port_mapper_address().map(|own| Places {
            own,
            target: sockets.address,
        });
        let target = self.of_target();
        let mut tasks = vec![self.accept(sockets.listener, &target, CONNECTIONS_MAX)];
        let datagrams = sockets.datagrams;
        tasks.extend(datagrams.map(|socket| tokio::spawn(serve_datagrams(socket, target))));
        if let Some((places, (listener, datagrams))) = places.zip(sockets.port_mapper) {
            let mapper = self.of_port_mapper(places);
            tasks.push(self.accept(listener, &mapper, PORT_MAPPER_CONNECTIONS_MAX));
            tasks.push(tokio::spawn(serve_datagrams(datagrams, mapper)));
        }
        tasks
    }

    fn accept(
        &self,
        listener: TcpListener,
        greeting: &Greeting,
        connections_max: usize,
    ) -> JoinHandle<()> {
        let accepting = Accepting {
            target: Arc::clone(&self.target),
            greeting: Arc::clone(greeting),
            connections_max,
            load: self.load.another(),
            pool: Arc::clone(&self.pool),
            closing: self.closing.clone(),
        };
        tokio::spawn(accepting.accept_all(listener))
    }

    fn of_target(&self) -> Greeting {
        let target = Arc::clone(&self.target);
        Arc::new(move |peer| Client::greeted(&target, peer))
    }

    fn of_port_mapper(&self, places: Places) -> Greeting {
        let target = Arc::clone(&self.target);
        Arc::new(move |client| {
            let target = Arc::clone(&target);
            let is_known = target.knows(client.address.ip());
            is_known.then(|| {
                Arc::new(PortMapper {
                    target,
                    places,
                    client,
                }) as _
            })
        })
    }
}

/// What is told of a volume that fell over while it was shut down.
fn panicked(error: &JoinError) -> Unsaved {
    vec![("a volume".to_owned(), FsError::Io(error.to_string()))]
}

/// A task of its own for each volume: one whose store is away keeps files of no other open.
async fn sweep_for_ever(service: Arc<Service>) {
    loop {
        clock::sleep(SWEEP_INTERVAL).await;
        service.sweep().await;
    }
}

async fn sweep_lists(volumes: Arc<Volumes>, targets: Vec<Arc<Target>>) {
    loop {
        clock::sleep(SWEEP_INTERVAL).await;
        let services = volumes.all();
        let holding = services.iter().flat_map(|service| service.lockers());
        let holding = holding.collect();
        for target in &targets {
            target.monitored.sweep(&holding).await;
        }
    }
}
