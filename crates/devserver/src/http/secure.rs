//! HTTPS from the server's side: bytes of a connection, enciphered by rustls.
//!
//! It costs as little as rustls allows: many records are received and sent by one system call each, and what is sent
//! is enciphered from where it lies. Nothing here is shared with the client, which opens and seals records by itself.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use rustls::{
    HandshakeKind, ServerConfig,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
    },
};

use super::wire::retry;

/// Bytes that are received at once, and plaintext that is sent at once.
const STEP: usize = 128 << 10;
/// What the records of that need beside it.
const OVERHEAD: usize = 1 << 10;

/// What a connection that is to be enciphered begins with: the kind of a handshake's record.
pub(crate) const FIRST_BYTE: u8 = 22;

/// See the module's head.
pub(crate) struct Secure {
    stream: Arc<TcpStream>,
    session: UnbufferedServerConnection,
    incoming: Box<[u8]>,
    /// What of `incoming` was received and not looked at.
    start: usize,
    end: usize,
    /// Plaintext that nobody took.
    plain: Vec<u8>,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that wait to be sent.
    waiting: usize,
    has_ended: bool,
}

/// What [`Secure::step`] found to do.
enum Next {
    Go,
    Send,
    Receive,
    /// So many bytes of plaintext came.
    Plain(usize),
    Established,
    Ended,
}

impl Secure {
    /// Shakes hands.
    pub(crate) fn accept(stream: &Arc<TcpStream>, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(Arc::clone(config));
        let mut secure = Self {
            stream: Arc::clone(stream),
            session: session.map_err(io::Error::other)?,
            incoming: vec![0; STEP].into(),
            start: 0,
            end: 0,
            plain: Vec::new(),
            outgoing: vec![0; STEP + OVERHEAD],
            waiting: 0,
            has_ended: false,
        };
        loop {
            match secure.step(&mut [])? {
                Next::Established | Next::Plain(_) => return Ok(secure),
                Next::Receive if secure.receive()? > 0 => {}
                Next::Send => secure.flush()?,
                Next::Go => {}
                Next::Receive | Next::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Whether the client came back, and the handshake was the short one.
    pub(crate) fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Receives plaintext; 0 at the end.
    pub(crate) fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        if !self.plain.is_empty() {
            let count = self.plain.len().min(destination.len());
            destination[..count].copy_from_slice(&self.plain[..count]);
            self.plain.drain(..count);
            return Ok(count);
        }
        loop {
            match self.step(destination)? {
                Next::Plain(count) if count > 0 => return Ok(count),
                Next::Plain(_) | Next::Go => {}
                Next::Send => self.flush()?,
                Next::Ended => return Ok(0),
                Next::Receive | Next::Established => {
                    if self.receive()? == 0 {
                        return Ok(0);
                    }
                }
            }
        }
    }

    /// Enciphers everything; what is less than a step waits for more, or for [`Secure::flush`].
    pub(crate) fn send_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.waiting >= STEP {
                self.flush()?;
            }
            let (piece, after) = rest.split_at(rest.len().min(STEP - self.waiting));
            self.seal(|traffic, room| traffic.encrypt(piece, room))?;
            rest = after;
        }
        Ok(())
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        (&*self.stream).write_all(&self.outgoing[..waiting])
    }

    /// Says that nothing more comes.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.seal(close_notify)?;
        self.flush()
    }

    /// Looks at what was received. Plaintext goes to `destination`, and what finds no room there is kept.
    fn step(&mut self, destination: &mut [u8]) -> io::Result<Next> {
        let received = &mut self.incoming[self.start..self.end];
        let UnbufferedStatus { discard, state } = self.session.process_tls_records(received);
        self.start += discard;
        Ok(match state.map_err(broken)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                let mut count = 0;
                while let Some(record) = traffic.next_record() {
                    let payload = record.map_err(broken)?.payload;
                    let fitting = payload.len().min(destination.len() - count);
                    destination[count..count + fitting].copy_from_slice(&payload[..fitting]);
                    self.plain.extend_from_slice(&payload[fitting..]);
                    count += fitting;
                }
                Next::Plain(count)
            }
            ConnectionState::EncodeTlsData(data) => {
                self.waiting += encode(data, &mut self.outgoing, self.waiting)?;
                Next::Go
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Next::Send
            }
            ConnectionState::BlockedHandshake => Next::Receive,
            ConnectionState::WriteTraffic(_) => Next::Established,
            _ => Next::Ended,
        })
    }

    /// Receives behind what was not looked at, which is less than a record; 0 at the end of the stream.
    fn receive(&mut self) -> io::Result<usize> {
        self.incoming.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = &mut self.incoming[self.end..];
        if room.is_empty() {
            return Err(broken("a record is too long"));
        }
        let count = retry(|| (&*self.stream).read(room))?;
        self.end += count;
        Ok(count)
    }

    /// Has `seal` put a record or more behind what waits.
    fn seal(
        &mut self,
        mut seal: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        loop {
            match self
                .session
                .process_tls_records(&mut [])
                .state
                .map_err(broken)?
            {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let sealed = seal(&mut traffic, &mut self.outgoing[self.waiting..]);
                    self.waiting += sealed.map_err(broken)?;
                    return Ok(());
                }
                ConnectionState::EncodeTlsData(data) => {
                    self.waiting += encode(data, &mut self.outgoing, self.waiting)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
}

fn close_notify(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    room: &mut [u8],
) -> Result<usize, EncryptError> {
    traffic.queue_close_notify(room)
}

/// Puts what a handshake says behind the first `start` bytes of `out`; returns how long it is.
fn encode<Data>(
    mut data: EncodeTlsData<'_, Data>,
    out: &mut Vec<u8>,
    start: usize,
) -> io::Result<usize> {
    let mut encoded = data.encode(&mut out[start..]);
    if let Err(EncodeError::InsufficientSize(error)) = encoded {
        out.resize(start + error.required_size, 0);
        encoded = data.encode(&mut out[start..]);
    }
    encoded.map_err(broken)
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").finish_non_exhaustive()
    }
}
