//! Servers whose records no library of TLS would send.

use std::{future::poll_fn, io, mem::MaybeUninit};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::{
    ConnectionTrafficSecrets, ProtocolVersion, ServerConfig, SupportedProtocolVersion,
    version::{TLS12, TLS13},
};
use tokio_rustls::server;

use super::*;
use crate::http::{
    stream::Stream,
    tls::{self, SEALS_MAX, TlsStream},
};

pub(super) const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

pub(super) const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const USER_CANCELED: [u8; 2] = [1, 90];
const NO_RENEGOTIATION: [u8; 2] = [1, 100];

/// A message of TLS 1.2 without a body.
const HELLO_REQUEST: [u8; 4] = [0; 4];

/// A session ticket of TLS 1.3: its head, a life of a minute, an age to add, a nonce, a ticket, no extensions.
const TICKET: [u8; 19] = [4, 0, 0, 15, 0, 0, 0, 60, 0, 0, 0, 1, 1, 7, 0, 1, 9, 0, 0];

/// A ticket of TLS 1.3 that is none.
const NO_TICKET: [u8; 4] = [4, 0, 0, 0];

/// Seals what a server says, whatever that is.
pub(super) struct Sealer {
    key: LessSafeKey,
    initial: [u8; 12],
    number: u64,
    version: ProtocolVersion,
}

impl Sealer {
    pub(super) fn new(session: rustls::ServerConnection) -> Self {
        let version = session.protocol_version().expect("agreed on");
        let secrets = session.dangerous_extract_secrets().expect("allowed");
        let (number, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets.tx else {
            panic!("another cipher");
        };
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).expect("a key");
        Self {
            key: LessSafeKey::new(key),
            initial: iv.as_ref().try_into().expect("12 bytes"),
            number,
            version,
        }
    }

    pub(super) fn seal(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let mut nonce = self.initial;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        let mut sealed = plain.to_vec();
        let is_hidden = self.version == ProtocolVersion::TLSv1_3;
        if is_hidden {
            sealed.push(kind);
        }
        let shown_kind = if is_hidden { DATA } else { kind };
        let header = |length: usize| [shown_kind, 3, 3, (length >> 8) as u8, length as u8];
        let mut record = header(sealed.len() + 16).to_vec();
        let context = if is_hidden {
            record.clone()
        } else {
            [&self.number.to_be_bytes()[..], &header(plain.len())].concat()
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(context), &mut sealed)
            .expect("sealed");
        self.number += 1;
        record.extend_from_slice(&sealed);
        record
    }

    /// Records of these kinds and with this plaintext, one behind the other.
    fn seal_all(&mut self, records: &[(u8, &[u8])]) -> Vec<u8> {
        let sealed = records.iter().map(|(kind, plain)| self.seal(*kind, plain));
        sealed.collect::<Vec<_>>().concat()
    }
}

/// A server with a cipher that both versions have, whose keys can be had.
pub(super) fn server_config(
    version: &'static SupportedProtocolVersion,
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> ServerConfig {
    let mut provider = rustls::crypto::ring::default_provider();
    let suites = &mut provider.cipher_suites;
    suites.retain(|suite| {
        suite
            .suite()
            .as_str()
            .is_some_and(|name| name.contains("CHACHA20"))
    });
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a certificate");
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    config
}

/// Both ends of a connection once hands are shaken.
async fn shake_hands(
    version: &'static SupportedProtocolVersion,
) -> (TlsStream, server::TlsStream<TcpStream>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let config = server_config(version, &made);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let connector = tls::connector(&HttpSettings::trusting(file.path())).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, far) = tokio::join!(
        connector.connect(
            "localhost".try_into().expect("a name"),
            near.expect("connected")
        ),
        TlsAcceptor::from(Arc::new(config)).accept(far.expect("accepted").0),
    );
    (near.expect("a handshake"), far.expect("a handshake"))
}

/// The client's end of a connection, and the server's taken apart.
async fn taken_apart(version: &'static SupportedProtocolVersion) -> (TlsStream, TcpStream, Sealer) {
    let (near, far) = shake_hands(version).await;
    let (tcp, session) = far.into_inner();
    (near, tcp, Sealer::new(session))
}

/// What a client reads, and how it ends, when a server says this and nothing else.
struct Heard {
    bytes: Vec<u8>,
    outcome: io::Result<usize>,
}

impl Heard {
    async fn of(version: &'static SupportedProtocolVersion, records: &[(u8, &[u8])]) -> Self {
        let (near, mut tcp, mut sealer) = taken_apart(version).await;
        let sealed = sealer.seal_all(records);
        tcp.write_all(&sealed).await.expect("room");
        Self::all(near).await
    }

    async fn all(mut near: TlsStream) -> Self {
        let mut bytes = Vec::new();
        let reading = clock::deadline(Duration::from_secs(20), near.read_to_end(&mut bytes));
        let outcome = reading.await.expect("it ends");
        Self { bytes, outcome }
    }

    #[track_caller]
    fn is_whole(&self, expected: &[u8]) {
        self.outcome.as_ref().expect("an end with notice");
        assert_eq!(self.bytes, expected);
    }

    #[track_caller]
    fn is_broken(&self, why: &str) {
        let error = self.outcome.as_ref().expect_err("broken");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// What a handshake breaks off for before rustls has an alert to send: a length that cannot be, and half a message
/// before a record of another kind.
#[tokio::test]
async fn a_handshake_of_garbage_is_an_error() {
    let answers: [&[u8]; 3] = [
        &[22, 3, 3, 0, 4, 2, 255, 255, 255],
        &[22, 3, 3, 0, 5, 2, 0, 0, 80, 3, 23, 3, 3, 0, 1, 0],
        &[22, 3, 3, 0, 5, 2, 0, 0, 80, 3, 21, 3, 3, 0, 2, 2, 40],
    ];
    for garbage in answers {
        let (plain, _server) = serve(move |_, mut stream| async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(garbage).await;
            let _ = stream.read(&mut [0; 4096]).await;
        })
        .await;
        let origin = Origin::parse(&format!("https://localhost:{}", plain.port)).expect("valid");
        let error = get(&client(), &Arc::new(origin)).await;
        let error = error.expect_err("garbage");
        assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    }
}

/// A server whose answer is refused hears why: `protocol_version` for TLS 1.1.
#[tokio::test]
async fn a_server_hears_why_a_handshake_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let heard = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.read(&mut [0; 4096]).await.expect("a hello");
        let mut hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0xc0, 0x13, 0]);
        stream.write_all(&hello).await.expect("it is read");
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).await.expect("an alert");
        alert
    };
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let (client, origin) = (client(), Arc::new(origin));
    let (alert, answer) = tokio::join!(heard, get(&client, &origin));
    answer.expect_err("too old");
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 70]);
}

/// A server that says first that it gives up and then that this is the end has ended (RFC 8446, section 6.1).
#[tokio::test]
async fn a_warning_before_the_end_is_no_error() {
    for version in [&TLS12, &TLS13] {
        let end = [
            (DATA, &b"ok"[..]),
            (ALERT, &USER_CANCELED),
            (ALERT, &CLOSE_NOTIFY),
        ];
        Heard::of(version, &end).await.is_whole(b"ok");
    }
}

/// TLS 1.2 has warnings that change nothing, and a wish for another handshake that a client may ignore.
#[tokio::test]
async fn few_warnings_of_tls_1_2_are_ignored() {
    let few: [(u8, &[u8]); 7] = [
        (ALERT, &NO_RENEGOTIATION),
        (ALERT, &USER_CANCELED),
        (DATA, b"o"),
        (ALERT, &NO_RENEGOTIATION),
        (HANDSHAKE, &HELLO_REQUEST),
        (DATA, b"k"),
        (ALERT, &CLOSE_NOTIFY),
    ];
    Heard::of(&TLS12, &few).await.is_whole(b"ok");
    let fifth = [&few[..6], &[(ALERT, &NO_RENEGOTIATION[..])]].concat();
    Heard::of(&TLS12, &fifth).await.is_broken("warns too often");
}

/// A wish for another handshake is ignored, but a handshake is not begun, nor is one that the server begins by itself: who
/// stands between could make the words before it those of somebody else (RFC 5746).
#[tokio::test]
async fn a_renegotiation_is_refused() {
    let hello_of_a_server = [&[2, 0, 0, 38, 3, 3][..], &[7; 36]].concat();
    let insisting: [(u8, &[u8]); 3] = [
        (DATA, b"ok"),
        (HANDSHAKE, &HELLO_REQUEST),
        (HANDSHAKE, &hello_of_a_server),
    ];
    let heard = Heard::of(&TLS12, &insisting).await;
    heard.is_broken("wants to shake hands anew");
    assert_eq!(heard.bytes, b"ok");
    let often = [(HANDSHAKE, &HELLO_REQUEST[..]); 5];
    Heard::of(&TLS12, &often).await.is_broken("warns too often");
    let with_more = [&HELLO_REQUEST[..], &hello_of_a_server].concat();
    let joined = [(HANDSHAKE, &with_more[..])];
    let heard = Heard::of(&TLS12, &joined).await;
    heard.is_broken("wants to shake hands anew");
}

/// A client that is wished to shake hands anew says nothing: what it would say is the beginning of a handshake.
#[tokio::test]
async fn a_wish_for_another_handshake_is_not_answered() {
    let (mut near, mut tcp, mut sealer) = taken_apart(&TLS12).await;
    let wish = sealer.seal_all(&[(HANDSHAKE, &HELLO_REQUEST), (DATA, b"ok")]);
    tcp.write_all(&wish).await.expect("room");
    let mut bytes = [0; 2];
    near.read_exact(&mut bytes).await.expect("the data behind");
    assert_eq!(&bytes, b"ok");
    drop(near);
    let mut said = Vec::new();
    tcp.read_to_end(&mut said).await.expect("an end");
    assert_eq!(said, b"", "no record left the client");
}

#[tokio::test]
async fn other_warnings_of_tls_1_3_are_errors() {
    let other = [(DATA, &b"ok"[..]), (ALERT, &NO_RENEGOTIATION)];
    Heard::of(&TLS13, &other).await.is_broken("NoRenegotiation");
    let again = [(HANDSHAKE, &HELLO_REQUEST[..])];
    Heard::of(&TLS13, &again).await.is_broken("must not");
}

/// Nothing that takes time and brings nothing goes on without end.
#[tokio::test]
async fn records_without_data_are_bounded() {
    let empty: [(u8, &[u8]); 3] = [(DATA, b""), (HANDSHAKE, b""), (HANDSHAKE, &TICKET)];
    for (kind, plain) in empty {
        let (near, mut tcp, mut sealer) = taken_apart(&TLS13).await;
        let server = tokio::spawn(async move {
            let mut records = sealer.seal(DATA, b"head");
            while tcp.write_all(&records).await.is_ok() {
                records = sealer.seal_all(&[(kind, plain); 100]);
            }
        });
        let heard = Heard::all(near).await;
        heard.is_broken("without data");
        server.await.expect("no panic");
    }
}

#[tokio::test]
async fn data_between_lets_a_server_send_more_of_the_rest() {
    let mut records = vec![(DATA, &b""[..]); 30];
    records.push((DATA, b"o"));
    records.extend([(DATA, &b""[..]); 30]);
    records.extend([(DATA, &b"k"[..]), (ALERT, &CLOSE_NOTIFY)]);
    Heard::of(&TLS13, &records).await.is_whole(b"ok");
}

#[tokio::test]
async fn renewals_of_keys_are_bounded() {
    let (near, mut far) = shake_hands(&TLS13).await;
    for _ in 0..40 {
        let session = far.get_mut().1;
        session.refresh_traffic_keys().expect("TLS 1.3");
    }
    let mut records = Vec::new();
    let (mut tcp, mut session) = far.into_inner();
    while session.wants_write() {
        session.write_tls(&mut records).expect("memory");
    }
    tcp.write_all(&records).await.expect("room");
    Heard::all(near).await.is_broken("without data");
}

/// Answers to renewed keys wait for the next request. A client that only reads does not collect them without end.
#[tokio::test]
async fn answers_to_renewed_keys_are_bounded() {
    let (near, far) = shake_hands(&TLS13).await;
    let server = tokio::spawn(async move {
        let (mut tcp, mut session) = far.into_inner();
        loop {
            let mut records = Vec::new();
            for _ in 0..100 {
                session.refresh_traffic_keys().expect("TLS 1.3");
                io::Write::write_all(&mut session.writer(), b"x").expect("room");
                while session.wants_write() {
                    session.write_tls(&mut records).expect("memory");
                }
            }
            if tcp.write_all(&records).await.is_err() {
                return;
            }
        }
    });
    let heard = Heard::all(near).await;
    heard.is_broken("renews keys and takes nothing");
    assert!(heard.bytes.len() > 1000, "many were followed");
    server.await.expect("no panic");
}

/// 64 tickets are read, those after them are not: one of them that is none changes nothing.
#[tokio::test]
async fn tickets_are_bounded() {
    for (count, is_read) in [(63, true), (64, false)] {
        let mut tickets = TICKET.repeat(count);
        tickets.extend_from_slice(&NO_TICKET);
        let records = [
            (HANDSHAKE, &tickets[..]),
            (DATA, b"ok"),
            (ALERT, &CLOSE_NOTIFY),
        ];
        let heard = Heard::of(&TLS13, &records).await;
        if is_read {
            heard.is_broken("corrupt message");
        } else {
            heard.is_whole(b"ok");
        }
    }
}

/// What was opened before a changed record is handed out; nothing after it ever is, although its key would open it.
#[tokio::test]
async fn a_stream_that_failed_stays_so() {
    for at_once in [16, 64 << 10] {
        let (mut near, mut tcp, mut sealer) = taken_apart(&TLS13).await;
        let mut records = sealer.seal_all(&[(DATA, b"good"), (DATA, b"good")]);
        let third = sealer.seal(DATA, b"bad");
        let mut changed = third.clone();
        changed[6] ^= 1;
        records.extend_from_slice(&[changed, third].concat());
        tcp.write_all(&records).await.expect("room");
        let (mut memory, mut all) = (vec![0; at_once], Vec::new());
        let error = loop {
            match near.read(&mut memory).await {
                Ok(count) => all.extend_from_slice(&memory[..count]),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("changed on its way"), "{error}");
        assert_eq!(all, b"goodgood");
        let fourth = sealer.seal(DATA, b"bad");
        tcp.write_all(&fourth).await.expect("room");
        for _ in 0..3 {
            near.read(&mut memory).await.expect_err("failed before");
            near.write(b"request").await.expect_err("failed before");
        }
    }
}

#[tokio::test]
async fn what_comes_after_the_end_is_ignored() {
    let (near, mut tcp, mut sealer) = taken_apart(&TLS13).await;
    let mut records = sealer.seal_all(&[(DATA, b"ok"), (ALERT, &CLOSE_NOTIFY)]);
    records.extend_from_slice(b"HTTP/1.1 200 OK");
    tcp.write_all(&records).await.expect("room");
    Heard::all(near).await.is_whole(b"ok");
}

/// Receives at most `limit` bytes once, with so much room behind them, when all `sealed` bytes have come.
async fn receive_once(stream: &mut Stream, sealed: usize, limit: usize, behind: usize) -> Vec<u8> {
    let Stream::Secure(secure) = &*stream else {
        panic!("the tests speak TLS");
    };
    let mut seen = vec![0; sealed];
    while secure.tcp().peek(&mut seen).await.expect("connected") < sealed {}
    let mut room = vec![MaybeUninit::new(0); limit + behind];
    let count = poll_fn(|cx| stream.poll_receive(cx, &mut room, limit)).await;
    room.truncate(count.expect("records come"));
    // SAFETY: it was all initialised.
    #[allow(unsafe_code)]
    let bytes = room.iter().map(|byte| unsafe { byte.assume_init() });
    bytes.collect()
}

#[tokio::test]
async fn a_body_that_has_room_behind_it_is_received_at_once() {
    let body: Vec<u8> = (0..64 << 10).map(|at: u32| (at / 7) as u8).collect();
    for (version, behind, at_once) in [
        (&TLS13, SEALS_MAX, body.len()),
        (&TLS12, SEALS_MAX, body.len()),
        (&TLS13, 0, 48 << 10),
    ] {
        let (near, mut tcp, mut sealer) = taken_apart(version).await;
        let records: Vec<_> = body.chunks(16 << 10).map(|piece| (DATA, piece)).collect();
        let sealed = sealer.seal_all(&records);
        tcp.write_all(&sealed).await.expect("room");
        let mut near = Stream::Secure(Box::new(near));
        let received = receive_once(&mut near, sealed.len(), body.len(), behind).await;
        assert!(received == body[..at_once]);
    }
}

#[tokio::test]
async fn what_was_opened_behind_the_limit_is_read_next() {
    let body: Vec<u8> = (0..33_168).map(|at: u32| (at / 7) as u8).collect();
    let (first, rest) = body.split_at(16 << 10);
    let (second, rest) = rest.split_at(16 << 10);
    let (third, fourth) = rest.split_at(300);
    let (near, mut tcp, mut sealer) = taken_apart(&TLS13).await;
    let sealed = sealer.seal_all(&[first, second, third, fourth].map(|piece| (DATA, piece)));
    tcp.write_all(&sealed).await.expect("room");
    let mut near = Stream::Secure(Box::new(near));
    let received = receive_once(&mut near, sealed.len(), 32_900, SEALS_MAX).await;
    assert!(received == body[..32_900]);
    let mut next = vec![0; body.len() - 32_900];
    near.read_exact(&mut next).await.expect("it is there");
    assert!(next == body[32_900..]);
}
