//! Calls of programs of clients: that a lock was given, and that the server was started.
//!
//! A client is called at the address that it called from, and at no other, over TCP, from the address that it called. At
//! which port its program listens its port mapper says, as everywhere. So nobody can make a server connect to anybody but
//! himself.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use penstock_base::{Mutex, clock, clock::Instant, random};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
};

use crate::{
    limits::{CALLBACK_DEADLINE, CALLBACK_REPLY_MAX, CALLBACKS_MAX, CALLBACKS_OF_CLIENT_MAX},
    protocol::{
        outgoing::{self, Procedure},
        portmap::{self, Mapping, PORTMAP, RPCBIND},
        rpc::Transport,
        xdr::{Decoder, Encoder, Malformed},
    },
    transport::Peer,
};

/// Why a client's program did not answer.
#[derive(Debug, Error)]
pub(crate) enum CallbackError {
    #[error("the client does not say where its program is")]
    Nowhere,
    #[error("the client cannot be reached in time")]
    Late,
    #[error("the client does not answer, and may have carried the call out")]
    Unanswered,
    #[error("the client does not carry the call out: {0}")]
    Refused(#[from] Malformed),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CallbackError {
    /// The same of a client that a connection was made to.
    fn of_one_that_was_reached(self) -> Self {
        match self {
            Self::Late | Self::Io(_) => Self::Unanswered,
            other => other,
        }
    }
}

/// A client as it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host {
    /// Its address.
    pub(crate) address: IpAddr,
    /// The address that it knows this server by.
    pub(crate) server: Option<IpAddr>,
}

impl Host {
    /// Whoever made a connection.
    pub(crate) fn of(peer: &Peer) -> Self {
        Self {
            address: peer.address.ip().to_canonical(),
            server: peer.local.map(|local| local.to_canonical()),
        }
    }
}

/// Calls clients, so many at once, and each of them a few at once: who does not answer holds nobody else up.
#[derive(Debug)]
pub(crate) struct Callbacks {
    /// Where port mappers of clients listen.
    port_mappers: u16,
    places: Semaphore,
    /// Those of the clients that are called.
    of_clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl Callbacks {
    pub(crate) fn new(port_mappers: u16) -> Self {
        Self {
            port_mappers,
            places: Semaphore::new(CALLBACKS_MAX),
            of_clients: Mutex::default(),
        }
    }

    fn of_client(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.of_clients.lock();
        clients.retain(|_, places| places.strong_count() > 0);
        let known = clients.get(&address).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let places = Arc::new(Semaphore::new(CALLBACKS_OF_CLIENT_MAX));
            clients.insert(address, Arc::downgrade(&places));
            places
        })
    }

    /// Calls a procedure of a client's program with what `write` writes, and returns its results.
    pub(crate) async fn call(
        &self,
        host: Host,
        procedure: Procedure,
        write: impl FnOnce(&mut Encoder),
    ) -> Result<Decoder, CallbackError> {
        let of_client = self.of_client(host.address);
        let _place_of_client = of_client.acquire().await;
        let _place = self.places.acquire().await;
        let until = clock::now() + CALLBACK_DEADLINE;
        let reached = async {
            let port = self.find(host, procedure).await?;
            Ok(connect(host, port).await?)
        };
        let stream = before(until, reached).await?;
        let answered = before(until, exchange(stream, procedure, write)).await;
        answered.map_err(CallbackError::of_one_that_was_reached)
    }

    /// The port of a client's program.
    async fn find(
        &self,
        host: Host,
        (program, version, _): Procedure,
    ) -> Result<u16, CallbackError> {
        let of_mapper = match host.address {
            IpAddr::V4(_) => PORTMAP,
            IpAddr::V6(_) => RPCBIND[1],
        };
        let wanted = Mapping {
            program,
            version,
            transport: Transport::Stream,
            address: SocketAddr::new(host.address, 0),
        };
        let procedure = (portmap::PROGRAM, of_mapper, portmap::FIND);
        let write = |out: &mut Encoder| portmap::write_wanted(out, of_mapper, &wanted);
        let stream = connect(host, self.port_mappers).await?;
        let mut results = exchange(stream, procedure, write).await?;
        portmap::read_place(of_mapper, &mut results)?.ok_or(CallbackError::Nowhere)
    }
}

/// What comes of something until a time.
async fn before<T>(
    until: Instant,
    work: impl Future<Output = Result<T, CallbackError>>,
) -> Result<T, CallbackError> {
    let left = until.saturating_duration_since(clock::now());
    let done = clock::deadline(left, work).await;
    done.map_err(|_| CallbackError::Late)?
}

/// One call on a connection of its own.
async fn exchange(
    mut stream: TcpStream,
    procedure: Procedure,
    write: impl FnOnce(&mut Encoder),
) -> Result<Decoder, CallbackError> {
    let xid = random::number() as u32;
    let mut call = outgoing::begin(xid, procedure);
    write(&mut call);
    stream.write_all(&outgoing::finished(call)).await?;
    Ok(outgoing::results(xid, receive(&mut stream).await?)?)
}

async fn connect(host: Host, port: u16) -> io::Result<TcpStream> {
    let socket = match host.address {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(server) = host.server {
        socket.bind(SocketAddr::new(server, 0))?;
    }
    socket.connect(SocketAddr::new(host.address, port)).await
}

async fn receive(stream: &mut TcpStream) -> Result<Bytes, CallbackError> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).await?;
    let length = outgoing::length_of(mark, CALLBACK_REPLY_MAX).ok_or(Malformed)?;
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply).await?;
    Ok(reply.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_base::clock;
    use tokio::net::TcpListener;

    use super::*;

    fn host(last: u8) -> Host {
        Host {
            address: [127, 0, 0, last].into(),
            server: None,
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_answer_holds_no_other_up() {
        let silent = TcpListener::bind(("127.0.0.7", 0))
            .await
            .expect("it is free");
        let port = silent.local_addr().expect("it listens").port();
        let callbacks = Arc::new(Callbacks::new(port));
        let call = |last| {
            let callbacks = Arc::clone(&callbacks);
            async move { callbacks.call(host(last), (100_021, 4, 5), |_| {}).await }
        };
        for _ in 0..2 * CALLBACKS_MAX {
            tokio::spawn(call(7));
        }
        tokio::task::yield_now().await;
        let other = clock::deadline(Duration::from_secs(2), call(8)).await;
        assert!(
            matches!(other, Ok(Err(CallbackError::Io(_)))),
            "nobody listens there"
        );
    }
}
