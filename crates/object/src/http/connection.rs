//! One connection: sending a request and reading the head of its response.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use penstock_base::{
    Payload,
    clock::{self, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    HttpError, Origin, ResponseHeaders, buffer::HeadBuffer, stall::StallWatch, stream::Stream,
};

/// Header fields in the largest head that is accepted.
const FIELDS_MAX: usize = 128;

/// Slices in one vectored write.
const SLICES_MAX: usize = 64;

/// A connection that carries one exchange at a time.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) origin: Arc<Origin>,
    pub(super) stream: Stream,
    pub(super) buffer: HeadBuffer,
    pub(super) opened: Instant,
    /// When it was last put aside.
    pub(super) idle_since: Instant,
    /// The request was not sent to its end, so nothing else can be sent.
    pub(super) spoiled: bool,
}

/// The first lines of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) headers: ResponseHeaders,
    /// Whether the protocol is HTTP/1.0, which closes unless told otherwise.
    pub(super) old_version: bool,
}

impl Connection {
    pub(super) fn new(origin: Arc<Origin>, stream: Stream) -> Self {
        Self {
            origin,
            stream,
            buffer: HeadBuffer::new(),
            opened: clock::now(),
            idle_since: clock::now(),
            spoiled: false,
        }
    }

    /// Sends `head` and `body`. Stops early, with success, when the server answers before it
    /// has everything: what it says is worth more than the rest of the request.
    pub(super) async fn send(
        &mut self,
        head: &[u8],
        body: &Payload,
        stall_timeout: Duration,
    ) -> Result<(), HttpError> {
        let mut watch = StallWatch::new(stall_timeout);
        let mut unsent = Unsent::new(head, body);
        poll_fn(|cx| self.poll_send(cx, &mut unsent, &mut watch)).await?;
        self.spoiled = !unsent.is_sent();
        Ok(())
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        unsent: &mut Unsent<'_>,
        watch: &mut StallWatch,
    ) -> Poll<Result<(), HttpError>> {
        while !unsent.is_sent() {
            match unsent.poll_write_or_flush(&mut self.stream, cx) {
                Poll::Ready(Ok(())) => watch.progressed(),
                // The server may have explained itself before it closed.
                Poll::Ready(Err(error)) => {
                    let answer = self.poll_blocked(cx, watch);
                    return answer.map_err(|told| told.or_broken(&error));
                }
                Poll::Pending => return self.poll_blocked(cx, watch),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_blocked(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut StallWatch,
    ) -> Poll<Result<(), HttpError>> {
        if let Poll::Ready(answer) = self.poll_early_answer(cx) {
            return Poll::Ready(answer);
        }
        ready!(watch.poll_stalled(cx));
        let message = "the server took no more of the request, nor answered, for the stall limit";
        Poll::Ready(Err(HttpError::new(crate::ErrorKind::Timeout, message)))
    }

    /// Ready when the server sent something while the request is still under way.
    fn poll_early_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        let count = ready!(self.poll_read_more(cx))?;
        Poll::Ready(if count == 0 {
            Err(HttpError::closed())
        } else {
            Ok(())
        })
    }

    /// Reads the head of the response that a request with long enough patience waits for.
    pub(super) async fn read_head(&mut self, limit: Duration) -> Result<ResponseHead, HttpError> {
        match clock::deadline(limit, self.read_final_head()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HttpError::timeout("the server did not answer", limit)),
        }
    }

    async fn read_final_head(&mut self) -> Result<ResponseHead, HttpError> {
        loop {
            if let Some((head, length)) = parse_head(self.buffer.bytes())? {
                self.buffer.consume(length);
                // 1xx announce that the real answer is still to come.
                if head.status >= 200 {
                    return Ok(head);
                }
            } else if self.read_more().await? == 0 {
                return Err(if self.buffer.bytes().is_empty() {
                    HttpError::closed()
                } else {
                    HttpError::cut("it ended within the head")
                });
            }
        }
    }

    /// Reads whatever is there into the small buffer; 0 when the server closed the stream.
    pub(super) async fn read_more(&mut self) -> Result<usize, HttpError> {
        poll_fn(|cx| self.poll_read_more(cx)).await
    }

    pub(super) fn poll_read_more(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, HttpError>> {
        let mut room = ReadBuf::new(self.buffer.room()?);
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room));
        let count = room.filled().len();
        self.buffer.arrived(count);
        Poll::Ready(match outcome {
            Ok(()) => Ok(count),
            Err(error) if self.buffer.bytes().is_empty() => Err(HttpError::broken(&error)),
            Err(error) => Err(HttpError::cut(error)),
        })
    }
}

pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, HttpError> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, &mut fields)
        .map_err(|error| HttpError::protocol(format!("the answer is not HTTP: {error}")))?;
    Ok(match parsed {
        httparse::Status::Partial => None,
        httparse::Status::Complete(length) => {
            let head = ResponseHead {
                status: response.code.unwrap_or_default(),
                headers: ResponseHeaders::new(&bytes[..length], response.headers),
                old_version: response.version == Some(0),
            };
            Some((head, length))
        }
    })
}

/// What of a request was not written yet.
struct Unsent<'a> {
    head: &'a [u8],
    body: &'a [bytes::Bytes],
    /// Bytes of the first body slice that were written.
    offset: usize,
    /// Nothing of what was written waits in the stream: encryption holds some back.
    flushed: bool,
}

impl<'a> Unsent<'a> {
    fn new(head: &'a [u8], body: &'a Payload) -> Self {
        Self {
            head,
            body: body.slices(),
            offset: 0,
            flushed: false,
        }
    }

    fn is_sent(&self) -> bool {
        self.is_empty() && self.flushed
    }

    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn poll_write_or_flush(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_empty() {
            return self.poll_write(stream, cx);
        }
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let used = self.gather(&mut slices);
        let written = ready!(Pin::new(stream).poll_write_vectored(cx, &slices[..used]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(()))
    }

    fn gather<'b>(&self, slices: &mut [IoSlice<'b>]) -> usize
    where
        'a: 'b,
    {
        let (head, body): (&'a [u8], &'a [bytes::Bytes]) = (self.head, self.body);
        let first = body.first().map(|slice| &slice[self.offset..]);
        let rest = body.iter().skip(1).map(|slice| &slice[..]);
        let parts = std::iter::once(head).chain(first).chain(rest);
        let mut used = 0;
        for (slot, part) in slices.iter_mut().zip(parts.filter(|part| !part.is_empty())) {
            *slot = IoSlice::new(part);
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut written: usize) {
        let of_head = written.min(self.head.len());
        self.head = &self.head[of_head..];
        written -= of_head;
        while let Some(slice) = self.body.first() {
            let left = slice.len() - self.offset;
            if written < left {
                self.offset += written;
                return;
            }
            written -= left;
            self.body = &self.body[1..];
            self.offset = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::http::HttpSettings;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio_rustls::TlsAcceptor;

    use super::{super::tls, *};

    /// Bytes that each socket holds back at least; the system may double them.
    const SOCKET_BUFFER: u32 = 16 << 10;

    /// An encrypted connection to a server that reads nothing after the handshake, and that server.
    async fn to_a_deaf_server() -> (Connection, tokio_rustls::server::TlsStream<TcpStream>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
            .expect("a certificate");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), made.cert.pem()).expect("written");
        let client = tls::connector(&HttpSettings::trusting(file.path())).expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_send_buffer_size(SOCKET_BUFFER).expect("a size");
        let reached = socket.connect(listener.local_addr().expect("bound"));
        let (near, far) = tokio::join!(reached, listener.accept());
        let name = "localhost".try_into().expect("a name");
        let (near, far) = tokio::join!(
            client.connect(name, near.expect("connected")),
            TlsAcceptor::from(Arc::new(server)).accept(far.expect("accepted").0),
        );
        let origin = Arc::new(Origin::parse("https://localhost").expect("valid"));
        let stream = Stream::Secure(Box::new(near.expect("a handshake")));
        (Connection::new(origin, stream), far.expect("a handshake"))
    }

    /// Encryption takes a request in although the socket does not: that is no progress.
    #[tokio::test]
    async fn a_request_that_stays_in_the_encryption_is_given_up() {
        let (mut connection, _server) = to_a_deaf_server().await;
        let piece = vec![7; 8 << 10];
        let limit = Duration::from_millis(100);
        let blocked = async {
            loop {
                let sent = connection.send(&piece, &Payload::new(), limit).await;
                if let Err(error) = sent {
                    return error;
                }
            }
        };
        let error = clock::deadline(Duration::from_secs(20), blocked).await;
        let error = error.expect("it is noticed long before");
        assert_eq!(error.kind, crate::ErrorKind::Timeout, "{error}");
    }
}
