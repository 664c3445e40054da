//! Shaking hands, which is rustls' own: names, certificates, versions, tickets.

use std::io;

use rustls::{
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Broken, TlsConnector, alerts::Refused, tls_stream::TlsStream};

/// Bytes of a server's side of a handshake, most of which are certificates.
const RECEIVED_MAX: usize = 256 << 10;

/// Bytes of one read.
const STEP: usize = 4 << 10;

/// What [`Handshake::step`] left to do.
enum Next {
    Go,
    Send,
    Receive,
    Done,
}

/// A handshake under way.
pub(super) struct Handshake {
    pub(super) connection: UnbufferedClientConnection,
    received: Vec<u8>,
    outgoing: Vec<u8>,
}

/// Encrypts `tcp`. Errors of the handshake itself hold a [`rustls::Error`] or a [`Refused`].
pub(super) async fn shake_hands(
    connector: &TlsConnector,
    name: ServerName<'static>,
    mut tcp: TcpStream,
) -> io::Result<TlsStream> {
    let handshake = Handshake::done(connector, name, &mut tcp).await?;
    let taken_over = handshake.connection.dangerous_into_kernel_connection();
    let (secrets, session) = taken_over.map_err(failure)?;
    TlsStream::new(tcp, &secrets, session, handshake.received, connector)
}

impl Handshake {
    pub(super) async fn done(
        connector: &TlsConnector,
        name: ServerName<'static>,
        tcp: &mut TcpStream,
    ) -> io::Result<Self> {
        let connection =
            UnbufferedClientConnection::new(connector.config(), name).map_err(failure)?;
        let mut handshake = Self {
            connection,
            received: Vec::new(),
            outgoing: Vec::new(),
        };
        loop {
            match handshake.step() {
                Ok(Next::Go) => {}
                Ok(Next::Send) => handshake.send(tcp).await?,
                Ok(Next::Receive) => handshake.receive(tcp).await?,
                Ok(Next::Done) => return Ok(handshake),
                Err(error) => {
                    handshake.complain(tcp).await;
                    return Err(handshake.explained(error, connector));
                }
            }
        }
    }

    /// With what an alert of the server may be about.
    fn explained(&self, error: io::Error, connector: &TlsConnector) -> io::Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let Some(&rustls::Error::AlertReceived(alert)) = inner else {
            return error;
        };
        let refused = Refused {
            alert,
            has_cipher: self.connection.negotiated_cipher_suite().is_some(),
            shown: connector.shown.clone(),
        };
        refused.into()
    }

    fn step(&mut self) -> io::Result<Next> {
        let UnbufferedStatus { discard, state } =
            self.connection.process_tls_records(&mut self.received);
        let next = match state.map_err(failure)? {
            ConnectionState::EncodeTlsData(data) => {
                encode(data, &mut self.outgoing)?;
                Next::Go
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Next::Send
            }
            ConnectionState::BlockedHandshake => Next::Receive,
            ConnectionState::WriteTraffic(_) => Next::Done,
            ConnectionState::PeerClosed | ConnectionState::Closed => return Err(cut()),
            _ => return Err(Broken::new("the server speaks before it is asked").into()),
        };
        self.received.drain(..discard);
        Ok(next)
    }

    async fn send(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        let sent = tcp.write_all(&self.outgoing).await;
        sent.map_err(|error| broken(&error))?;
        self.outgoing.clear();
        Ok(())
    }

    async fn receive(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        if self.received.len() > RECEIVED_MAX {
            return Err(Broken::new("the server's handshake is too long").into());
        }
        self.received.reserve(STEP);
        match tcp.read_buf(&mut self.received).await {
            Ok(0) => Err(cut()),
            Ok(_) => Ok(()),
            Err(error) => Err(broken(&error)),
        }
    }

    /// Tells the server why. Whether it hears that changes nothing here.
    ///
    /// rustls is asked for what it has to say and for nothing else: after an error it must not see bytes again.
    async fn complain(&mut self, tcp: &mut TcpStream) {
        while self.connection.wants_write() {
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(data)) = status.state else {
                break;
            };
            if encode(data, &mut self.outgoing).is_err() {
                break;
            }
        }
        let _ = self.send(tcp).await;
    }
}

pub(super) fn encode<Data>(
    mut data: EncodeTlsData<'_, Data>,
    outgoing: &mut Vec<u8>,
) -> io::Result<()> {
    let start = outgoing.len();
    if let Err(EncodeError::InsufficientSize(error)) = data.encode(&mut []) {
        outgoing.resize(start + error.required_size, 0);
    }
    let encoded = data.encode(&mut outgoing[start..]);
    encoded.map(drop).map_err(io::Error::other)
}

/// The server ended the connection, or said that it would: it may have no TLS there, or nothing behind it.
fn cut() -> io::Error {
    let message = "the server ended the connection in the middle of the handshake";
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

fn broken(error: &io::Error) -> io::Error {
    let message = format!("the connection broke in the middle of the handshake: {error}");
    io::Error::new(error.kind(), message)
}

fn failure(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
