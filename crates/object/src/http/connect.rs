//! Making connections: directly, through a proxy, with TLS.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use penstock_base::{Payload, clock};
use tokio::net::{TcpSocket, TcpStream};

use super::{
    HttpError, HttpSettings, Origin,
    connection::Connection,
    resolve::Resolver,
    stream::Stream,
    tls::{self, Certificates, TlsReport},
};
use crate::ErrorKind;

/// Addresses that are tried before a host counts as unreachable.
const ADDRESSES_MAX: usize = 3;

/// Opens connections.
pub(super) struct Connector {
    resolver: Resolver,
    certificates: Arc<Certificates>,
    settings: Arc<HttpSettings>,
}

impl Connector {
    pub(super) fn new(settings: Arc<HttpSettings>) -> Self {
        Self {
            resolver: Resolver::default(),
            certificates: Arc::new(Certificates::new(Arc::clone(&settings))),
            settings,
        }
    }

    /// A connection that a request for `origin` can be sent on.
    pub(super) async fn connect(&self, origin: &Arc<Origin>) -> Result<Connection, HttpError> {
        let stream = if origin.secure {
            // Waiting for files has a time of its own, which the server does not pay for.
            let certificates = self.certificates.current().await?;
            let (stream, left) = self.line_in_time(origin).await?;
            let name = tls::server_name(origin)?;
            let encrypted = self.within(left, origin, certificates.connect(name, stream));
            Stream::Secure(Box::new(encrypted.await?))
        } else {
            Stream::Plain(self.line_in_time(origin).await?.0)
        };
        Ok(Connection::new(Arc::clone(origin), stream))
    }

    /// Shakes hands with `origin` to tell what comes of it.
    pub(super) async fn report_tls(&self, origin: &Origin) -> Result<TlsReport, HttpError> {
        let certificates = self.certificates.current().await?;
        let (stream, left) = self.line_in_time(origin).await?;
        let name = tls::server_name(origin)?;
        self.within(left, origin, certificates.report(name, stream))
            .await
    }

    /// Reads certificates now, so that a mistake in the settings shows when a store is opened.
    pub(super) fn prepare_tls(&self) -> Result<(), HttpError> {
        self.certificates.prepare()
    }

    /// A stream, and how long the rest may take.
    async fn line_in_time(&self, origin: &Origin) -> Result<(TcpStream, Duration), HttpError> {
        let limit = self.settings.connect_timeout;
        let started = clock::now();
        match clock::deadline(limit, self.line(origin)).await {
            Ok(outcome) => Ok((outcome?, limit.saturating_sub(started.elapsed()))),
            Err(_) => Err(unreachable(origin, &format!("no answer within {limit:?}"))),
        }
    }

    async fn within<T>(
        &self,
        left: Duration,
        origin: &Origin,
        handshake: impl Future<Output = io::Result<T>>,
    ) -> Result<T, HttpError> {
        let limit = self.settings.connect_timeout;
        let late = |_| unreachable(origin, &format!("no TLS within {limit:?}"));
        let done = clock::deadline(left, handshake).await.map_err(late)?;
        done.map_err(|error| tls_failure(origin, &error))
    }

    /// A stream to the origin, or through the proxy to it.
    async fn line(&self, origin: &Origin) -> Result<TcpStream, HttpError> {
        match &self.settings.proxy {
            Some(proxy) => self.reach_through(proxy, origin).await,
            None => self.reach(origin).await,
        }
    }

    async fn reach(&self, origin: &Origin) -> Result<TcpStream, HttpError> {
        let addresses = self
            .resolver
            .addresses(origin)
            .await
            .map_err(|error| unreachable(origin, &error))?;
        let attempts = addresses.len().min(ADDRESSES_MAX);
        let share = self.settings.connect_timeout / attempts as u32;
        let mut failure = unreachable(origin, &"no address");
        for address in addresses.into_iter().take(attempts) {
            match clock::deadline(share, open(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = unreachable(origin, &error),
                Err(passed) => failure = unreachable(origin, &passed),
            }
        }
        Err(failure)
    }

    async fn reach_through(&self, proxy: &Origin, origin: &Origin) -> Result<TcpStream, HttpError> {
        let stream = self.reach(proxy).await?;
        if origin.secure {
            tunnel(stream, proxy, origin, self.settings.connect_timeout).await
        } else {
            Ok(stream)
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_keepalive(true)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// Asks a proxy for a direct line to `origin`.
async fn tunnel(
    stream: TcpStream,
    proxy: &Origin,
    origin: &Origin,
    limit: Duration,
) -> Result<TcpStream, HttpError> {
    let target = origin.host_and_port();
    let head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n");
    let mut connection = Connection::new(Arc::new(proxy.clone()), Stream::Plain(stream));
    connection
        .send(head.as_bytes(), &Payload::new(), limit)
        .await?;
    let answer = connection.read_head(limit).await?;
    match connection.stream {
        Stream::Plain(stream) if answer.status == 200 => Ok(stream),
        _ => Err(unreachable(
            origin,
            &format!("the proxy {proxy} answered {}", answer.status),
        )),
    }
}

fn unreachable(origin: &Origin, error: &dyn std::fmt::Display) -> HttpError {
    let message = format!("cannot connect to {origin}: {error}; check the endpoint");
    HttpError::new(ErrorKind::Unavailable, message)
}

/// A certificate that is not trusted stays so; a handshake that was cut may work next time.
fn tls_failure(origin: &Origin, error: &io::Error) -> HttpError {
    match tls::told(error) {
        Some((kind, told)) => HttpError::new(kind, format!("no TLS with {origin}: {told}")),
        None => unreachable(origin, error),
    }
}
