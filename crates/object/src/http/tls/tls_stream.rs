//! Bytes through records: a body is deciphered on its way into the caller's memory.
//!
//! What the kernel has received goes into the memory that was asked to be filled, as it comes, and each record is opened
//! towards the front of it, over the headers between: no plaintext is copied. Only what does not fill a record at the end
//! of a read, what was opened behind the bytes that were asked for, and what is asked for in small pieces, goes through a
//! buffer of the connection ([`super::aside`]). The way out is [`super::outgoing`].

use std::{
    fmt, io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    AlertDescription, ExtractedSecrets, client::ClientConnectionData, kernel::KernelConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{
    Broken, TlsConnector,
    alerts::Refused,
    aside::{Aside, Run},
    outgoing::Outgoing,
    record_key::{Kind, Opened, RecordKey, record_length, seals_of},
};

/// Bytes of a read into the caller's memory: they are opened while the processor's cache has them.
pub(in super::super) const RECEIVED_AT_ONCE: usize = 256 << 10;

/// What records have beside so many bytes of plaintext, unless they are short.
pub(in super::super) const SEALS_MAX: usize = seals_of(RECEIVED_AT_ONCE);

/// Pieces of memory that are smaller are filled through the buffer of the connection, which never holds more.
const DIRECT_MIN: usize = 32 << 10;

/// Bytes of the largest message after the handshake: a ticket can hold certificates.
const MESSAGE_MAX: usize = 64 << 10;

/// Reads that tell whether an idle stream is quiet: one is enough for the tickets of usual servers.
const QUIET_READS_MAX: usize = 8;

/// Records in a row that bring no data: tickets, renewed keys, nothing at all. rustls bounds the renewals so.
const RECORDS_WITHOUT_DATA_MAX: usize = 32;

/// Tickets of one connection that are read. Servers send two, and some send more after keys were renewed.
const TICKETS_MAX: usize = 64;

/// Warnings of one connection that are ignored, and wishes for another handshake, as rustls bounds the former.
const WARNINGS_MAX: usize = 4;

const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

/// The level of an alert that changes nothing.
const WARNING: u8 = 1;

/// The whole message, of TLS 1.2 alone.
const HELLO_REQUEST: [u8; 4] = [0; 4];

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Bytes that memory for `length` bytes of a body has behind them best, for the records that they arrive in. A buffer from the
/// heap of that length has none; shorter bodies go through the buffer of the connection.
pub fn room_for_seals(length: usize) -> usize {
    if length < DIRECT_MIN { 0 } else { SEALS_MAX }
}

/// An encrypted stream, from the end of the handshake on.
pub(in super::super) struct TlsStream {
    tcp: TcpStream,
    session: KernelConnection<ClientConnectionData>,
    opening: RecordKey,
    aside: Aside,
    /// Of messages about the session what is not whole.
    messages: Vec<u8>,
    /// Why nothing more is opened.
    end: Option<End>,
    counts: Counts,
    outgoing: Outgoing,
    /// As in [`Refused::shown`].
    shown: Option<Arc<Path>>,
}

/// The end of what is opened: nothing that comes after it is looked at.
enum End {
    /// The server has said that nothing more comes.
    Notified,
    Failed(Failure),
}

/// What the server sent and a stream does not go on after.
#[derive(Clone)]
enum Failure {
    Broken(Broken),
    /// The server ended the connection.
    Refused(Refused),
    /// The session took a ticket or new keys for wrong.
    Session(rustls::Error),
}

/// What came of that which is bounded.
#[derive(Default)]
struct Counts {
    /// Records since the last that brought data.
    without_data: usize,
    tickets: usize,
    warnings: usize,
}

impl Counts {
    fn record(&mut self, opened: Opened) -> Result<(), Broken> {
        self.without_data += 1;
        if opened.kind == Kind::DATA && opened.length > 0 {
            self.without_data = 0;
        }
        if self.without_data > RECORDS_WITHOUT_DATA_MAX {
            return Err(Broken::new("the server sends records without data"));
        }
        Ok(())
    }

    fn warning(&mut self) -> Result<(), Broken> {
        self.warnings += 1;
        if self.warnings > WARNINGS_MAX {
            return Err(Broken::new("the server warns too often"));
        }
        Ok(())
    }

    /// Whether this ticket is one of those that are read.
    fn ticket(&mut self) -> bool {
        self.tickets += 1;
        self.tickets <= TICKETS_MAX
    }
}

impl TlsStream {
    /// Goes on where a handshake ended, with `received` bytes that came after it.
    pub(super) fn new(
        tcp: TcpStream,
        secrets: &ExtractedSecrets,
        session: KernelConnection<ClientConnectionData>,
        received: Vec<u8>,
        connector: &TlsConnector,
    ) -> io::Result<Self> {
        let version = session.protocol_version();
        let key = |(number, secrets): &(u64, _)| RecordKey::new(version, *number, secrets);
        let mut stream = Self {
            tcp,
            opening: key(&secrets.rx)?,
            outgoing: Outgoing::new(key(&secrets.tx)?, connector.memory.clone()),
            session,
            aside: Aside::new(received),
            messages: Vec::new(),
            end: None,
            counts: Counts::default(),
            shown: connector.shown.clone(),
        };
        stream.open_aside();
        stream.check()?;
        Ok(stream)
    }

    /// Whether the stream has not failed.
    fn check(&self) -> io::Result<()> {
        match &self.end {
            Some(End::Failed(failure)) => Err(failure.clone().into()),
            _ => Ok(()),
        }
    }

    /// Whether an idle stream must not be used again: the server ended it or sent what nobody asked for, or its key has
    /// sealed much. Tickets that came meanwhile are taken.
    pub(in super::super) fn is_dead(&mut self) -> bool {
        self.outgoing.is_worn() || !self.is_quiet().unwrap_or(false)
    }

    /// What the records come from.
    #[cfg(test)]
    pub(in super::super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Bytes of memory that it occupies beside what it was asked to fill.
    #[cfg(any(test, feature = "testing"))]
    pub(in super::super) fn held(&self) -> usize {
        self.aside.memory.capacity() + self.messages.capacity() + self.outgoing.capacity()
    }

    fn is_quiet(&mut self) -> io::Result<bool> {
        for _ in 0..QUIET_READS_MAX {
            if self.end.is_some() || !self.aside.plain().is_empty() {
                break;
            }
            let held = self.aside.grow()?;
            let outcome = self.tcp.try_read(&mut self.aside.memory[held..]);
            let count = *outcome.as_ref().unwrap_or(&0);
            self.aside.shrink(held + count);
            match outcome {
                Ok(0) => return Ok(false),
                Ok(_) => self.open_aside(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Fills `buffer` with at most `limit` bytes of plaintext. The room behind them is for what they arrive in.
    pub(in super::super) fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        limit: usize,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        while buffer.filled().len() == before && limit > 0 {
            if self.aside.take(buffer, limit) {
                break;
            }
            if self.end.is_some() {
                return Poll::Ready(self.check());
            }
            if limit >= DIRECT_MIN {
                ready!(self.poll_read_direct(cx, buffer, limit))?;
            } else {
                ready!(self.poll_read_aside(cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read_aside(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.tcp.poll_read_ready(cx))?;
        let held = self.aside.grow()?;
        let mut room = ReadBuf::new(&mut self.aside.memory[held..]);
        let outcome = Pin::new(&mut self.tcp).poll_read(cx, &mut room);
        let count = room.filled().len();
        self.aside.shrink(held + count);
        ready!(outcome)?;
        if count == 0 {
            return Poll::Ready(Err(cut()));
        }
        self.open_aside();
        Poll::Ready(Ok(()))
    }

    fn open_aside(&mut self) {
        let mut memory = std::mem::take(&mut self.aside.memory);
        let run = self.open_all(&mut memory);
        self.aside.hold(memory, &run);
    }

    fn poll_read_direct(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        limit: usize,
    ) -> Poll<io::Result<()>> {
        ready!(self.tcp.poll_read_ready(cx))?;
        let start = buffer.filled().len();
        buffer.put_slice(self.aside.sealed());
        let held = buffer.filled().len();
        let outcome = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        let end = buffer.filled().len();
        let received = &mut buffer.filled_mut()[start..];
        let run = match outcome {
            Poll::Ready(Ok(())) if end == held => Err(cut()),
            Poll::Ready(Ok(())) => Ok(self.open_all(received)),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => {
                buffer.set_filled(start);
                return Poll::Pending;
            }
        };
        let plain = run.as_ref().map_or(0, |run| run.plain.min(limit));
        if let Ok(run) = &run {
            let surplus = &received[plain..run.plain];
            self.aside.holds_only(surplus, &received[run.opened..]);
        }
        buffer.set_filled(start + plain);
        Poll::Ready(run.map(drop))
    }

    /// Opens the whole records that `bytes` begin with, and joins their plaintext at the front. What made it end is kept:
    /// the plaintext before that is handed out first.
    fn open_all(&mut self, bytes: &mut [u8]) -> Run {
        let mut run = Run {
            plain: 0,
            opened: 0,
        };
        while self.end.is_none() {
            match self.open_next(bytes, &mut run) {
                Ok(true) => {}
                Ok(false) => return run,
                Err(failure) => self.end = Some(End::Failed(failure)),
            }
        }
        run.opened = bytes.len();
        run
    }

    /// Opens the record behind those of `run`, if it is whole.
    fn open_next(&mut self, bytes: &mut [u8], run: &mut Run) -> Result<bool, Failure> {
        let Some(length) = record_length(&bytes[run.opened..])? else {
            return Ok(false);
        };
        let end = run.opened + length;
        if bytes.len() < end {
            return Ok(false);
        }
        let memory = &mut bytes[run.plain..end];
        let opened = self.opening.open(memory, run.opened - run.plain)?;
        run.opened = end;
        self.counts.record(opened)?;
        let plain = &memory[..opened.length];
        match opened.kind {
            Kind::DATA if self.messages.is_empty() => run.plain += opened.length,
            Kind::ALERT => self.hear_alert(plain)?,
            Kind::HANDSHAKE => self.hear_messages(plain)?,
            _ => return Err(Broken::new("a record came where it must not").into()),
        }
        Ok(true)
    }

    /// Of warnings TLS 1.3 knows one only, which announces the end (RFC 8446, section 6).
    fn hear_alert(&mut self, alert: &[u8]) -> Result<(), Failure> {
        match *alert {
            [_, CLOSE_NOTIFY] => {
                self.end = Some(End::Notified);
                Ok(())
            }
            [WARNING, what] if what == USER_CANCELED || !self.is_tls13() => {
                Ok(self.counts.warning()?)
            }
            [_, what] => Err(Failure::Refused(Refused {
                alert: AlertDescription::from(what),
                has_cipher: true,
                shown: self.shown.clone(),
            })),
            _ => Err(Broken::new("an alert is not one").into()),
        }
    }

    fn is_tls13(&self) -> bool {
        self.session.protocol_version() == rustls::ProtocolVersion::TLSv1_3
    }

    /// Tickets and renewed keys. TLS 1.2 has neither after the handshake: there it would be another handshake, and the
    /// wish for one may be ignored (RFC 5246, section 7.4.1.1).
    fn hear_messages(&mut self, part: &[u8]) -> Result<(), Failure> {
        if !self.is_tls13() {
            if part == HELLO_REQUEST {
                return Ok(self.counts.warning()?);
            }
            return Err(Broken::new("the server wants to shake hands anew").into());
        }
        let mut messages = std::mem::take(&mut self.messages);
        messages.extend_from_slice(part);
        let mut rest = &messages[..];
        while let Some((&[kind, a, b, c], after)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > MESSAGE_MAX {
                return Err(Broken::new("a message about the session is too long").into());
            }
            let Some((message, after)) = after.split_at_checked(length) else {
                break;
            };
            self.hear_message(kind, message, after.is_empty())?;
            rest = after;
        }
        self.messages = rest.to_vec();
        Ok(())
    }

    fn hear_message(&mut self, kind: u8, message: &[u8], is_last: bool) -> Result<(), Failure> {
        match (kind, message) {
            (NEW_SESSION_TICKET, _) if !self.counts.ticket() => Ok(()),
            (NEW_SESSION_TICKET, ticket) => Ok(self.session.handle_new_session_ticket(ticket)?),
            (KEY_UPDATE, &[asked @ (0 | 1)]) if is_last => self.renew_keys(asked == 1),
            _ => Err(Broken::new("a message came that must not").into()),
        }
    }

    fn renew_keys(&mut self, both: bool) -> Result<(), Failure> {
        let version = self.session.protocol_version();
        let key = |(number, secrets): (u64, _)| RecordKey::new(version, number, &secrets);
        self.opening = key(self.session.update_rx_secret()?)?;
        if both {
            self.outgoing
                .renew(key(self.session.update_tx_secret()?)?)?;
        }
        Ok(())
    }

    /// Ready when everything that was sealed is sent.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        self.outgoing.poll_drain(&mut self.tcp, cx)
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<rustls::Error> for Failure {
    fn from(error: rustls::Error) -> Self {
        Self::Session(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(broken) => broken.into(),
            Failure::Refused(refused) => refused.into(),
            Failure::Session(error) => Self::other(error),
        }
    }
}

/// An end that the server did not announce may be somebody else's doing.
fn cut() -> io::Error {
    let message = "the connection ended although the server did not end TLS";
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let limit = buffer.remaining();
        self.get_mut().poll_open(cx, buffer, limit)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let taken = this.outgoing.seal(slices)?;
        match this.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Gives the memory back, too: most connections are idle.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        this.outgoing.release();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}
