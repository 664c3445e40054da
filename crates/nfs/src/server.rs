//! The server: what listens for it, and its end.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use penstock_base::{BufferPool, FsError, clock, metrics::Registry};
use penstock_vfs::Volume;
use thiserror::Error;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    NfsSettings,
    limits::{CONNECTIONS_MAX, PORT_MAPPER_CONNECTIONS_MAX, SWEEP_INTERVAL},
    listening::{Accepting, bind_both},
    monitored::Monitored,
    port_mapper::{Places, PortMapper},
    service::{Client, Service},
    transport::{Greeting, Load, serve_datagrams},
};

/// Files that could not be saved, by path, with the reason for each.
pub type Unsaved = Vec<(String, FsError)>;

/// How often the end of calls under way is looked for.
const LEAVE_POLL: Duration = Duration::from_millis(10);

/// Why a mount target was not started.
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
}

/// A mount target. Dropping it ends its connections and saves nothing.
pub struct NfsServer {
    address: SocketAddr,
    port_mapper: Option<SocketAddr>,
    service: Arc<Service>,
    /// Connections end when this becomes true.
    closing: watch::Sender<bool>,
    listening: Vec<JoinHandle<()>>,
    sweeping: JoinHandle<()>,
    /// Tells clients that held locks that it was started.
    telling: JoinHandle<()>,
    left: tokio::sync::Mutex<Option<Unsaved>>,
    ended: watch::Sender<bool>,
}

impl std::fmt::Debug for NfsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NfsServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl NfsServer {
    /// Serves `volume` on `address`, with NFS, MOUNT, NLM and NSM on the same port. Fails if it cannot listen there, or
    /// where it is told to tell its ports, or if the list of clients that hold locks cannot be read.
    pub async fn start(
        volume: Arc<dyn Volume>,
        address: SocketAddr,
        settings: NfsSettings,
        (pool, registry): (Arc<BufferPool>, &Registry),
    ) -> Result<Self, StartError> {
        let sockets = Sockets::bind(address, settings.portmap).await?;
        let (address, port_mapper) = (sockets.address, sockets.port_mapper_address());
        let closing = watch::Sender::new(false);
        let lockers = settings.lockers.clone();
        let monitored = Monitored::load(lockers.clone());
        let monitored = monitored.map_err(|error| StartError::Lockers(lockers, error))?;
        let service = Service::new(volume, settings, (registry, monitored));
        let service = Arc::new(service);
        let listening = Listening {
            service: Arc::clone(&service),
            load: Load::new(pool.budget().total()),
            pool,
            closing: closing.subscribe(),
        };
        Ok(Self {
            address,
            port_mapper,
            listening: listening.begin(sockets),
            sweeping: tokio::spawn(sweep_for_ever(Arc::clone(&service))),
            telling: tokio::spawn(Arc::clone(&service).tell_of_start()),
            service,
            closing,
            left: tokio::sync::Mutex::default(),
            ended: watch::Sender::new(false),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it tells its ports, if it does.
    pub fn port_mapper(&self) -> Option<SocketAddr> {
        self.port_mapper
    }

    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        self.service.metrics.connections.value()
    }

    /// Waits until somebody has called [`NfsServer::leave`] and that has ended.
    pub async fn ended(&self) -> Unsaved {
        let mut ended = self.ended.subscribe();
        // The sender is in `self`, so waiting cannot fail.
        let _ = ended.wait_for(|ended| *ended).await;
        self.left.lock().await.clone().unwrap_or_default()
    }

    /// Takes no more calls, gives those that change something `grace` to end, saves everything, and shuts the volume
    /// down. Returns what could not be saved.
    pub async fn leave(&self, grace: Duration) -> Unsaved {
        let mut left = self.left.lock().await;
        if let Some(left) = &*left {
            return left.clone();
        }
        self.listening.iter().for_each(JoinHandle::abort);
        self.closing.send_replace(true);
        let until = clock::now() + grace;
        while self.service.changing() > 0 && clock::now() < until {
            clock::sleep(LEAVE_POLL).await;
        }
        self.sweeping.abort();
        self.telling.abort();
        let unsaved = self.service.shut_down().await;
        *left = Some(unsaved.clone());
        drop(left);
        self.ended.send_replace(true);
        unsaved
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.listening.iter().for_each(JoinHandle::abort);
        self.sweeping.abort();
        self.telling.abort();
        self.service.end_waiting();
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
    service: Arc<Service>,
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
            service: Arc::clone(&self.service),
            greeting: Arc::clone(greeting),
            connections_max,
            load: self.load.another(),
            pool: Arc::clone(&self.pool),
            closing: self.closing.clone(),
        };
        tokio::spawn(accepting.accept_all(listener))
    }

    fn of_target(&self) -> Greeting {
        let service = Arc::clone(&self.service);
        Arc::new(move |peer| Client::greeted(&service, peer))
    }

    fn of_port_mapper(&self, places: Places) -> Greeting {
        let service = Arc::clone(&self.service);
        Arc::new(move |client| {
            let service = Arc::clone(&service);
            let is_known = service.knows(client.address.ip());
            is_known.then(|| {
                Arc::new(PortMapper {
                    service,
                    places,
                    client,
                }) as _
            })
        })
    }
}

async fn sweep_for_ever(service: Arc<Service>) {
    loop {
        clock::sleep(SWEEP_INTERVAL).await;
        service.sweep().await;
    }
}
