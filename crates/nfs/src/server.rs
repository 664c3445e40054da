//! The server: its listener, its connections and its end.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use penstock_base::{BufferPool, FsError, clock, metrics::Registry};
use penstock_vfs::Volume;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
};
use tracing::{debug, warn};

use crate::{
    NfsSettings,
    limits::{CONNECTIONS_MAX, SWEEP_INTERVAL},
    service::{Client, Service},
    transport::{Load, serve},
};

/// Files that could not be saved, by path, with the reason for each.
pub type Unsaved = Vec<(String, FsError)>;

/// How long the listener rests when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the end of calls under way is looked for.
const LEAVE_POLL: Duration = Duration::from_millis(10);

/// A mount target. Dropping it ends its connections and saves nothing.
pub struct NfsServer {
    address: SocketAddr,
    service: Arc<Service>,
    /// Connections end when this becomes true.
    closing: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
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
    /// Serves `volume` on `address`, with NFS, MOUNT and NLM on the same port. Fails if it cannot listen there.
    pub async fn start(
        volume: Arc<dyn Volume>,
        address: SocketAddr,
        settings: NfsSettings,
        (pool, registry): (Arc<BufferPool>, &Registry),
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let service = Arc::new(Service::new(volume, settings, registry));
        let closing = watch::Sender::new(false);
        let accepting = Accepting {
            service: Arc::clone(&service),
            load: Load::new(pool.budget().total()),
            pool,
            closing: closing.subscribe(),
        };
        let tasks = [
            tokio::spawn(accepting.accept_all(listener)),
            tokio::spawn(sweep_for_ever(Arc::clone(&service))),
        ];
        Ok(Self {
            address,
            service,
            closing,
            tasks,
            left: tokio::sync::Mutex::default(),
            ended: watch::Sender::new(false),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        self.tasks[0].abort();
        self.closing.send_replace(true);
        let until = clock::now() + grace;
        while self.service.changing() > 0 && clock::now() < until {
            clock::sleep(LEAVE_POLL).await;
        }
        self.tasks[1].abort();
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
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What a new connection needs.
struct Accepting {
    service: Arc<Service>,
    load: Load,
    pool: Arc<BufferPool>,
    closing: watch::Receiver<bool>,
}

impl Accepting {
    async fn accept_all(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => self.begin(stream, address, place),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    clock::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn begin(&self, stream: TcpStream, address: SocketAddr, place: OwnedSemaphorePermit) {
        let service = Arc::clone(&self.service);
        let client = Arc::new(Client {
            service: Arc::clone(&service),
            address,
        });
        let (load, pool) = (self.load.another(), Arc::clone(&self.pool));
        let mut closing = self.closing.clone();
        tokio::spawn(async move {
            let connections = Counted::new(service);
            tokio::select! {
                error = serve(stream, (load, pool), client) => debug!(%address, %error, "a connection ended"),
                _ = closing.wait_for(|closing| *closing) => {}
            }
            drop((connections, place));
        });
    }
}

/// A connection as the metrics count it.
struct Counted(Arc<Service>);

impl Counted {
    fn new(service: Arc<Service>) -> Self {
        service.metrics.connections.add(1);
        Self(service)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.subtract(1);
    }
}

async fn sweep_for_ever(service: Arc<Service>) {
    loop {
        clock::sleep(SWEEP_INTERVAL).await;
        service.sweep().await;
    }
}
