//! What a server may send once hands are shaken: records of each kind, whole, changed, cut, in pieces of any size.
//!
//! Bytes are read as a script ([`Act`]). It is played by a server whose keys come out of a real handshake, over a real socket,
//! and the client reads with buffers of sizes that the script names. What the client may have read, and how that may
//! end, follows from the plaintexts alone ([`Expected`]).

use std::{io, path::Path, sync::Arc, time::Duration};

use penstock_base::{MemoryBudget, clock};
use rustls::{
    ProtocolVersion, ServerConfig,
    kernel::KernelConnection,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, UnbufferedStatus},
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::{TcpListener, TcpStream},
};

use super::{
    SEALS_MAX, TlsConnector, TlsStream, connector,
    handshake::encode,
    record_key::{Kind, PLAIN_MAX, RecordKey},
};
use crate::http::HttpSettings;

/// How long one script may take: all that is sent is there before it is read.
const LIMIT: Duration = Duration::from_secs(20);

/// Bytes that a script sends at most, so that they fit into sockets that nobody reads yet.
const SENT_MAX: usize = 128 << 10;

/// Bytes that a connection holds beside those that it was asked to fill: a record that is not whole and a message, or answers
/// to renewed keys.
const HELD_MAX: usize = 384 << 10;

/// Records in a row without data that are surely taken.
const HARMLESS_MAX: usize = 16;

/// A session ticket of TLS 1.3: its head, a life of a minute, an age to add, a nonce, a ticket, no extensions.
const TICKET: [u8; 19] = [4, 0, 0, 15, 0, 0, 0, 60, 0, 0, 0, 1, 1, 7, 0, 1, 9, 0, 0];

/// A server's certificate and a client that trusts it, for many scripts.
pub struct Peers {
    connector: TlsConnector,
    /// Of TLS 1.2 and 1.3.
    servers: [Arc<ServerConfig>; 2],
}

/// A step of a server.
#[derive(Debug)]
enum Act<'a> {
    Data(usize),
    /// A message about the session, or a part of one.
    Handshake(&'a [u8]),
    Ticket,
    RenewedKey {
        asks: bool,
    },
    Alert([u8; 2]),
    /// Plaintext behind which zeros hide its length.
    Padded {
        data: u8,
        zeros: usize,
    },
    OfKind {
        kind: u8,
        bytes: &'a [u8],
    },
    NotSealed(&'a [u8]),
    /// Changes one bit of what is not sent yet.
    Change {
        place: usize,
        bit: u8,
    },
    /// Sends so many of the bytes that wait, and lets the client read.
    Send(usize),
}

/// What follows from the script.
#[derive(Debug, Default)]
struct Expected {
    /// Data before the first end.
    data: Vec<u8>,
    /// Something ended the stream.
    ended: bool,
    notified: bool,
    /// Nothing was sent that a client may not like.
    harmless: bool,
    without_data: usize,
}

impl Peers {
    /// `ca_file` vouches for the certificate, which is for `localhost`.
    pub fn new(
        certificate: &CertificateDer<'static>,
        key: &PrivateKeyDer<'static>,
        ca_file: &Path,
    ) -> Self {
        let server = |version| {
            let mut config = ServerConfig::builder_with_provider(Arc::new(
                rustls::crypto::ring::default_provider(),
            ))
            .with_protocol_versions(&[version])
            .expect("versions of rustls")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .expect("a certificate with its key");
            config.enable_secret_extraction = true;
            config.send_tls13_tickets = 0;
            Arc::new(config)
        };
        let settings = HttpSettings {
            ca_file: Some(ca_file.to_owned()),
            memory: Some(MemoryBudget::new(1 << 20)),
            ..HttpSettings::default()
        };
        Self {
            connector: connector(&settings).expect("a certificate"),
            servers: [server(&TLS12), server(&TLS13)],
        }
    }

    /// Plays the script, and panics where the client reads what it must not, or never ends.
    pub async fn play(&self, script: &[u8]) {
        let Some((&first, rest)) = script.split_first() else {
            return;
        };
        let playing = clock::deadline(LIMIT, self.play_with(first, rest));
        playing.await.expect("a client that hears an end ends");
    }

    async fn play_with(&self, first: u8, script: &[u8]) {
        let (client, server) = self.shake_hands(usize::from(first & 1)).await;
        let mut client = Reader::new(client, first);
        let mut server = server;
        let mut acts = Script(script);
        while let Some(act) = acts.next_act()
            && server.queued + server.waiting.len() < SENT_MAX
        {
            if let Act::Send(count) = act {
                server.send(count).await;
                client.read_what_is_there().await;
            } else {
                server.act(&act);
            }
        }
        server.finish().await;
        client.read_to_end().await;
        client.check(&server.expected);
    }

    async fn shake_hands(&self, version: usize) -> (TlsStream, Server) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (near, far) = (near.expect("connected"), far.expect("accepted").0);
        for end in [&near, &far] {
            // Thousands of connections a second would wait for late segments each.
            end.set_zero_linger().expect("a socket");
        }
        let name = "localhost".try_into().expect("a name");
        let config = Arc::clone(&self.servers[version]);
        let (client, server) = tokio::join!(
            self.connector.connect(name, near),
            Server::shake_hands(config, far)
        );
        (client.expect("a handshake"), server.expect("a handshake"))
    }
}

/// A server after its handshake.
struct Server {
    tcp: TcpStream,
    key: RecordKey,
    session: KernelConnection<ServerConnectionData>,
    /// Bytes of records that are not sent.
    waiting: Vec<u8>,
    /// Bytes that were sent.
    queued: usize,
    expected: Expected,
}

impl Server {
    async fn shake_hands(config: Arc<ServerConfig>, mut tcp: TcpStream) -> io::Result<Self> {
        let mut connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let (mut received, mut outgoing) = (Vec::new(), Vec::new());
        loop {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut received);
            let (mut is_blocked, mut is_done) = (false, false);
            match state.map_err(io::Error::other)? {
                ConnectionState::EncodeTlsData(data) => encode(data, &mut outgoing)?,
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    tcp.write_all(&outgoing).await?;
                    outgoing.clear();
                }
                ConnectionState::BlockedHandshake => is_blocked = true,
                ConnectionState::WriteTraffic(_) => is_done = true,
                state => unreachable!("a client says {state:?}"),
            }
            received.drain(..discard);
            if is_blocked && tcp.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if is_done {
                break;
            }
        }
        let (secrets, session) = connection
            .dangerous_into_kernel_connection()
            .map_err(io::Error::other)?;
        let (number, secrets) = &secrets.tx;
        let key = RecordKey::new(session.protocol_version(), *number, secrets)?;
        Ok(Self {
            tcp,
            key,
            session,
            waiting: Vec::new(),
            queued: 0,
            expected: Expected {
                harmless: true,
                ..Expected::default()
            },
        })
    }

    fn is_tls13(&self) -> bool {
        self.session.protocol_version() == ProtocolVersion::TLSv1_3
    }

    fn act(&mut self, act: &Act<'_>) {
        match act {
            Act::Data(length) => {
                let start = self.expected.data.len();
                let data: Vec<_> = (start..start + length)
                    .map(|at| (at / 7 * 31 + at) as u8)
                    .collect();
                self.seal(Kind::DATA.0, &data);
                self.expected.takes(&data);
            }
            Act::Padded { data, zeros } if self.is_tls13() => {
                let mut inner = vec![*data, Kind::DATA.0];
                inner.resize(1 + zeros, 0);
                // The kind that `seal` adds is the last of the zeros.
                self.seal(
                    if *zeros > 0 { 0 } else { Kind::DATA.0 },
                    &inner[..1 + zeros],
                );
                self.expected.takes(&[*data]);
            }
            Act::Ticket if self.is_tls13() => {
                self.seal(Kind::HANDSHAKE.0, &TICKET);
                self.expected.brings_nothing();
            }
            Act::RenewedKey { asks } if self.is_tls13() => {
                self.seal(Kind::HANDSHAKE.0, &[24, 0, 0, 1, u8::from(*asks)]);
                let (number, secrets) = self.session.update_tx_secret().expect("TLS 1.3");
                let version = self.session.protocol_version();
                self.key = RecordKey::new(version, number, &secrets).expect("a key");
                self.expected.brings_nothing();
            }
            Act::Padded { .. } | Act::Ticket | Act::RenewedKey { .. } | Act::Send(_) => {}
            Act::Alert(alert) => {
                self.seal(Kind::ALERT.0, alert);
                self.expected.hears(*alert);
            }
            Act::Handshake(part) => {
                self.seal(Kind::HANDSHAKE.0, part);
                self.expected.harmless = false;
            }
            Act::OfKind { kind, bytes } => {
                self.seal(*kind, bytes);
                match Kind(*kind) {
                    Kind::DATA => self.expected.takes(bytes),
                    _ => self.expected.harmless = false,
                }
                if Kind(*kind) == Kind::ALERT && bytes.get(1) == Some(&0) {
                    self.expected.hears([1, 0]);
                }
            }
            Act::NotSealed(bytes) if !bytes.is_empty() => {
                self.waiting.extend_from_slice(bytes);
                self.expected.breaks();
            }
            Act::NotSealed(_) => {}
            Act::Change { place, bit } => self.change(*place, *bit),
        }
    }

    fn seal(&mut self, kind: u8, plain: &[u8]) {
        if plain.len() > PLAIN_MAX {
            self.expected.breaks();
        }
        let fill = |out: &mut Vec<u8>| out.extend_from_slice(plain);
        let sealed = self.key.seal(Kind(kind), &mut self.waiting, fill);
        sealed.expect("a fresh key");
    }

    /// Which record that was is not known here, and a change can be taken back: what is read is still the front of the data.
    fn change(&mut self, place: usize, bit: u8) {
        if !self.waiting.is_empty() {
            let at = place % self.waiting.len();
            self.waiting[at] ^= 1 << (bit % 8);
            self.expected.harmless = false;
        }
    }

    async fn send(&mut self, count: usize) {
        let count = count.min(self.waiting.len());
        self.queued += count;
        let sent = self.tcp.write_all(&self.waiting[..count]).await;
        // Who has read enough may be gone.
        drop(sent);
        self.waiting.drain(..count);
    }

    async fn finish(&mut self) {
        self.send(usize::MAX).await;
        let _ = self.tcp.shutdown().await;
    }
}

impl Expected {
    fn takes(&mut self, data: &[u8]) {
        if !self.ended {
            self.data.extend_from_slice(data);
        }
        if data.is_empty() {
            self.brings_nothing();
        } else {
            self.without_data = 0;
        }
    }

    fn brings_nothing(&mut self) {
        self.without_data += 1;
        self.harmless &= self.ended || self.without_data <= HARMLESS_MAX;
    }

    fn hears(&mut self, alert: [u8; 2]) {
        if !self.ended && alert[1] == 0 {
            (self.ended, self.notified) = (true, true);
        }
        self.harmless &= self.ended;
    }

    /// Nothing that comes after it may be read; what the client makes of it is an error.
    fn breaks(&mut self) {
        self.ended = true;
    }
}

/// The client, and what it has read.
struct Reader {
    stream: TlsStream,
    memory: Vec<u8>,
    /// Bytes that are read at once; the memory behind is for what they arrive in.
    window: usize,
    read: Vec<u8>,
    outcome: Option<io::Result<()>>,
}

impl Reader {
    fn new(stream: TlsStream, first: u8) -> Self {
        let window = match (first >> 1) % 8 {
            0 => 1,
            1 => 100,
            2 => (32 << 10) - 1,
            3 => 32 << 10,
            4 => 40_000,
            5 => 256 << 10,
            other => usize::from(other) * 1000,
        };
        let behind = if first >= 128 { SEALS_MAX } else { 0 };
        Self {
            stream,
            memory: vec![0; window + behind],
            window,
            read: Vec::new(),
            outcome: None,
        }
    }

    async fn read_once(&mut self) {
        let mut buffer = ReadBuf::new(&mut self.memory);
        let opening =
            std::future::poll_fn(|cx| self.stream.poll_open(cx, &mut buffer, self.window));
        match opening.await {
            Ok(()) if buffer.filled().is_empty() => self.outcome = Some(Ok(())),
            Ok(()) => self.read.extend_from_slice(buffer.filled()),
            Err(error) => self.outcome = Some(Err(error)),
        }
        let held = self.stream.held();
        assert!(held <= HELD_MAX, "{held} bytes are held");
    }

    /// Until it has to wait, as a body does whose rest is under way.
    async fn read_what_is_there(&mut self) {
        while self.outcome.is_none() {
            let mut reading = std::pin::pin!(self.read_once());
            // The runtime hears of what has come when it is asked, so once is too early.
            let mut turns = 0;
            let is_waiting = std::future::poll_fn(|cx| {
                let polled = reading.as_mut().poll(cx);
                turns += 1;
                match polled {
                    std::task::Poll::Ready(()) => std::task::Poll::Ready(false),
                    std::task::Poll::Pending if turns > 2 => std::task::Poll::Ready(true),
                    std::task::Poll::Pending => {
                        cx.waker().wake_by_ref();
                        std::task::Poll::Pending
                    }
                }
            })
            .await;
            if is_waiting {
                break;
            }
        }
    }

    async fn read_to_end(&mut self) {
        while self.outcome.is_none() {
            self.read_once().await;
        }
    }

    fn check(&self, expected: &Expected) {
        let (read, data) = (&self.read, &expected.data);
        assert!(
            data.starts_with(read),
            "read what was not sent before the end"
        );
        match self.outcome.as_ref().expect("it ended") {
            Ok(()) => assert!(
                expected.notified && read == data,
                "an end that nobody announced"
            ),
            Err(error) => assert!(
                !(expected.harmless && expected.notified),
                "all was well: {error}"
            ),
        }
        assert!(
            !expected.harmless || read == data,
            "all was well and is not all read"
        );
    }
}

/// What is left of a script.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn number(&mut self) -> usize {
        let bytes = [
            self.byte().unwrap_or_default(),
            self.byte().unwrap_or_default(),
        ];
        usize::from(u16::from_le_bytes(bytes))
    }

    /// At most 255 bytes, or what is left.
    fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte().unwrap_or_default()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    fn next_act(&mut self) -> Option<Act<'a>> {
        Some(match self.byte()? % 12 {
            0 => Act::Data(self.number() % (PLAIN_MAX + 2)),
            1 => Act::Data(usize::from(self.byte()?)),
            2 => Act::Handshake(self.bytes()),
            3 => Act::Ticket,
            4 => Act::RenewedKey {
                asks: self.byte()? % 2 == 1,
            },
            5 => Act::Alert([self.byte()?, self.byte()?]),
            6 => Act::Padded {
                data: self.byte()?,
                zeros: self.number() % PLAIN_MAX,
            },
            7 => Act::OfKind {
                // Behind a kind of 0 the plaintext would say which it is.
                kind: self.byte()?.max(1),
                bytes: self.bytes(),
            },
            8 => Act::NotSealed(self.bytes()),
            9 => Act::Change {
                place: self.number(),
                bit: self.byte()?,
            },
            10 => Act::Send(self.number()),
            _ => Act::Alert([1, 0]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peers() -> (Peers, tempfile::NamedTempFile) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), made.cert.pem()).expect("written");
        (Peers::new(made.cert.der(), &key, file.path()), file)
    }

    fn play(scripts: &[Vec<u8>]) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let (peers, _file) = peers();
        runtime.expect("a runtime").block_on(async {
            for script in scripts {
                peers.play(script).await;
            }
        });
    }

    /// Steps of a script, those that are well more often than others.
    fn act() -> impl Strategy<Value = Vec<u8>> {
        let number = || any::<u16>().prop_map(u16::to_le_bytes);
        let bytes = || prop::collection::vec(any::<u8>(), 0..30);
        let with_length =
            |(step, bytes): (u8, Vec<u8>)| [&[step, bytes.len() as u8][..], &bytes].concat();
        prop_oneof![
            8 => number().prop_map(|[a, b]| vec![0, a, b]),
            4 => any::<u8>().prop_map(|length| vec![1, length]),
            2 => Just(vec![3]),
            3 => any::<u8>().prop_map(|asks| vec![4, asks]),
            3 => (any::<u8>(), number()).prop_map(|(data, [a, b])| vec![6, data, a, b]),
            10 => number().prop_map(|[a, b]| vec![10, a, b]),
            1 => Just(vec![11]),
            1 => (Just(2), bytes()).prop_map(with_length),
            1 => (any::<u8>(), any::<u8>()).prop_map(|(level, what)| vec![5, level, what]),
            1 => (20..26_u8, bytes()).prop_map(|(kind, bytes)| [&[7, kind, bytes.len() as u8][..], &bytes].concat()),
            1 => (Just(8), bytes()).prop_map(with_length),
            1 => (number(), any::<u8>()).prop_map(|([a, b], bit)| vec![9, a, b, bit]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_stream_reads_what_was_sealed_and_nothing_else(
            scripts in prop::collection::vec((any::<u8>(), prop::collection::vec(act(), 0..40)), 1..8),
        ) {
            let scripts: Vec<_> = scripts
                .into_iter()
                .map(|(first, acts)| [vec![first], acts.concat()].concat())
                .collect();
            play(&scripts);
        }
    }
}
