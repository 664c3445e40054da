//! Listeners: their connections, as many as there may be.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use penstock_base::{BufferPool, clock};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, watch},
};
use tracing::{debug, warn};

use crate::{
    limits::STRANGERS_MAX,
    protocol::rpc::Transport,
    target::Target,
    transport::{Answering, Greeting, Load, Peer, serve},
};

/// How long a listener rests when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a connection takes up: one of the places, and of a stranger one of those, too.
type Place = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Listens for connections, and for datagrams at the same port, which the system chooses where it is 0.
pub(crate) async fn bind_both(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    let listener = TcpListener::bind(address).await?;
    let datagrams = UdpSocket::bind(listener.local_addr()?).await?;
    Ok((listener, datagrams))
}

/// What the connections of a listener need.
pub(crate) struct Accepting {
    pub(crate) target: Arc<Target>,
    pub(crate) greeting: Greeting,
    /// How many there may be at once.
    pub(crate) connections_max: usize,
    pub(crate) load: Load,
    pub(crate) pool: Arc<BufferPool>,
    /// They end when this becomes true.
    pub(crate) closing: watch::Receiver<bool>,
}

impl Accepting {
    pub(crate) async fn accept_all(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(self.connections_max));
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => match self.stranger(address, &strangers) {
                    Ok(stranger) => self.greet(stream, address, (place, stranger)),
                    Err(_) => self.target.metrics.refused.increment(),
                },
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    clock::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// A place among the strangers, for who has no rule. Fails if they are too many.
    fn stranger(
        &self,
        address: SocketAddr,
        strangers: &Arc<Semaphore>,
    ) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
        match self.target.knows(address.ip()) {
            true => Ok(None),
            false => Arc::clone(strangers).try_acquire_owned().map(Some),
        }
    }

    /// Begins to serve a connection, unless nobody answers who is there.
    fn greet(&self, stream: TcpStream, address: SocketAddr, place: Place) {
        let local = stream.local_addr().ok().map(|local| local.ip());
        let peer = Peer {
            address,
            local,
            transport: Transport::Stream,
        };
        if let Some(answering) = (self.greeting)(peer) {
            self.begin(stream, answering, (address, place));
        }
    }

    fn begin(
        &self,
        stream: TcpStream,
        answering: Arc<dyn Answering>,
        (address, place): (SocketAddr, Place),
    ) {
        let connections = Counted::new(Arc::clone(&self.target));
        let (load, pool) = (self.load.another(), Arc::clone(&self.pool));
        let mut closing = self.closing.clone();
        tokio::spawn(async move {
            tokio::select! {
                error = serve(stream, (load, pool), answering) => debug!(%address, %error, "a connection ended"),
                _ = closing.wait_for(|closing| *closing) => {}
            }
            drop((connections, place));
        });
    }
}

/// A connection as the metrics count it.
struct Counted(Arc<Target>);

impl Counted {
    fn new(target: Arc<Target>) -> Self {
        target.metrics.connections.add(1);
        Self(target)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.subtract(1);
    }
}
