//! Servers that break the rules of TLS, each in one way, and what a session is good for.

use rustls::{
    ServerConfig, ServerConnection,
    pki_types::{PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use std::io::{Read, Write};
use tokio_rustls::server::TlsStream;

use super::*;

/// What a server of [`Host`] does with each connection once hands are shaken.
type Serving = fn(TlsStream<TcpStream>) -> futures_util::future::BoxFuture<'static, ()>;

/// A server with a certificate for `localhost`, and a client that trusts it.
pub(super) struct Host {
    client: Client,
    pub(super) origin: Arc<Origin>,
    file: tempfile::NamedTempFile,
    _server: JoinHandle<()>,
}

fn server_config(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ServerConfig {
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes());
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a certificate")
}

async fn host(change: impl FnOnce(&mut ServerConfig), serving: Serving) -> Host {
    host_of(&[&TLS12, &TLS13], change, serving).await
}

async fn host_of(
    versions: &[&'static rustls::SupportedProtocolVersion],
    change: impl FnOnce(&mut ServerConfig),
    serving: Serving,
) -> Host {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let mut config = server_config(&made, versions);
    change(&mut config);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serving(stream));
            }
        }
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    Host {
        client: client_with(HttpSettings::trusting(file.path())),
        origin: Arc::new(origin),
        file,
        _server: server,
    }
}

impl Host {
    /// With a client that trusts this certificate alone.
    pub(super) fn trusting(self, made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Self {
        std::fs::write(self.file.path(), made.cert.pem()).expect("written");
        let client = client_with(HttpSettings::trusting(self.file.path()));
        Self { client, ..self }
    }

    /// A client of the same trust that has the certificate and the key in this file.
    pub(super) fn client_showing(&self, shown: &std::path::Path) -> Client {
        client_with(self.settings_showing(shown))
    }

    pub(super) fn settings_showing(&self, shown: &std::path::Path) -> HttpSettings {
        HttpSettings {
            ca_file: Some(self.file.path().to_owned()),
            client_certificate: Some(crate::ClientCertificate {
                certificate: shown.to_owned(),
                key: shown.to_owned(),
            }),
            ..HttpSettings::default()
        }
    }

    pub(super) async fn get(&self) -> Result<Vec<u8>, HttpError> {
        get(&self.client, &self.origin).await
    }
}

async fn hear(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut head = vec![0; 4096];
    stream.read(&mut head).await.is_ok_and(|count| count > 0)
}

async fn say(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    stream.write_all(bytes).await.expect("it is read");
    stream.flush().await.expect("it is read");
}

/// Bytes that show where they are.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 * 31 + at) as u8).collect()
}

/// Bytes of an answer: many records and no round number.
const BODY: usize = 900_001;

fn answers_with_a_pattern(
    mut stream: TlsStream<TcpStream>,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        while hear(&mut stream).await {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
            say(&mut stream, head.as_bytes()).await;
            say(&mut stream, &pattern(BODY)).await;
        }
    })
}

/// What comes with each version and cipher, and with records of each size, is what was sent.
#[tokio::test]
async fn bodies_arrive_whole_with_each_version_cipher_and_size_of_record() {
    for version in [&TLS12, &TLS13] {
        let provider = rustls::crypto::ring::default_provider();
        let names: Vec<_> = provider
            .cipher_suites
            .iter()
            .map(rustls::SupportedCipherSuite::suite)
            .collect();
        for name in names {
            let suite = provider
                .cipher_suites
                .iter()
                .find(|suite| suite.suite() == name);
            if suite.is_none_or(|suite| suite.version() != version) || is_of_rsa(name) {
                continue;
            }
            for size in [100, 1 << 10, 16 << 10] {
                let host = host_with_suite(version, name, size).await;
                for _ in 0..2 {
                    let body = host.get().await.expect("answered");
                    assert!(body == pattern(BODY), "{name:?} {size}");
                }
                assert_eq!(host.client.idle_connections(), 1);
            }
        }
    }
}

fn is_of_rsa(name: rustls::CipherSuite) -> bool {
    format!("{name:?}").contains("_RSA_")
}

async fn host_with_suite(
    version: &'static rustls::SupportedProtocolVersion,
    name: rustls::CipherSuite,
    size: usize,
) -> Host {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == name);
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes());
    let narrow = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a certificate");
    let change = |config: &mut ServerConfig| {
        *config = narrow;
        config.max_fragment_size = Some(size);
    };
    let host = host_of(&[version], change, answers_with_a_pattern).await;
    host.trusting(&made)
}

/// Reads a request of [`BODY`] bytes and answers with what came.
fn echoes(mut stream: TlsStream<TcpStream>) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut all = Vec::new();
        let head = loop {
            let mut part = vec![0; 64 << 10];
            let count = stream.read(&mut part).await.expect("a request");
            assert!(count > 0, "the request ended early");
            all.extend_from_slice(&part[..count]);
            let head = all.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(head) = head.filter(|head| all.len() == head + 4 + BODY) {
                break head + 4;
            }
        };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
        say(&mut stream, answer.as_bytes()).await;
        say(&mut stream, &all[head..]).await;
    })
}

#[tokio::test]
async fn what_is_sent_in_slices_of_any_size_arrives_whole() {
    for version in [&TLS12, &TLS13] {
        let host = host_of(&[version], |_| {}, echoes).await;
        let whole = bytes::Bytes::from(pattern(BODY));
        let mut body = penstock_base::Payload::new();
        let mut at = 0;
        for size in [1, 5, 16_383, 16_384, 16_385, 1, 700_000]
            .into_iter()
            .chain([BODY])
        {
            let end = BODY.min(at + size);
            body.push(whole.slice(at..end));
            at = end;
        }
        let mut put = request(&host.origin, "PUT");
        put.body = body;
        let response = host.client.send(&put).await.expect("answered");
        assert!(response.collect(BODY).await.expect("a body") == whole);
    }
}

/// Ends what it says with the connection, with a `close_notify` or without one.
async fn ends_with(announced: bool, mut stream: TlsStream<TcpStream>) {
    hear(&mut stream).await;
    say(&mut stream, b"HTTP/1.1 200 OK\r\n\r\nhalf").await;
    if announced {
        stream.shutdown().await.expect("it listens");
    } else {
        let (mut tcp, _) = stream.into_inner();
        tcp.shutdown().await.expect("it listens");
        let _ = tcp.read(&mut [0; 16]).await;
    }
}

/// A body that ends with the connection is whole only when the server says so: anybody can end a connection.
#[tokio::test]
async fn an_end_without_notice_is_a_cut() {
    for version in [&TLS12, &TLS13] {
        let notified = host_of(
            &[version],
            |_| {},
            |stream| Box::pin(ends_with(true, stream)),
        )
        .await;
        let body = notified.get().await.expect("a whole body");
        assert_eq!(body, b"half");
        let cut = host_of(
            &[version],
            |_| {},
            |stream| Box::pin(ends_with(false, stream)),
        )
        .await;
        let error = cut.get().await.expect_err("cut");
        assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
        assert!(error.message.contains("did not end TLS"), "{error}");
    }
}

#[tokio::test]
async fn a_body_of_known_length_that_ends_with_notice_is_a_cut() {
    let host = host(
        |_| {},
        |mut stream| {
            Box::pin(async move {
                hear(&mut stream).await;
                say(
                    &mut stream,
                    b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
                )
                .await;
                stream.shutdown().await.expect("it listens");
            })
        },
    );
    let error = host.await.get().await.expect_err("cut");
    assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
    assert!(error.message.contains("5 bytes are missing"), "{error}");
}

/// Sends a record that its key does not open, in the middle of a body.
#[tokio::test]
async fn a_changed_record_is_never_taken() {
    let host = host(
        |_| {},
        |mut stream| {
            Box::pin(async move {
                hear(&mut stream).await;
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n";
                say(&mut stream, head).await;
                say(&mut stream, &pattern(100_000)).await;
                let (mut tcp, mut session) = stream.into_inner();
                session.writer().write_all(&pattern(16_000)).expect("room");
                let mut records = Vec::new();
                session.write_tls(&mut records).expect("room");
                records[8000] ^= 1;
                let _ = tcp.write_all(&records).await;
                let _ = tcp.read(&mut [0; 16]).await;
            })
        },
    );
    let error = host.await.get().await.expect_err("changed");
    assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
    assert!(error.message.contains("changed on its way"), "{error}");
}

#[tokio::test]
async fn what_is_no_record_or_too_long_ends_the_body() {
    for host in [
        host(|_| {}, |stream| Box::pin(no_record(stream))).await,
        host(|_| {}, |stream| Box::pin(too_long(stream))).await,
    ] {
        let error = host.get().await.expect_err("no record");
        assert!(error.message.contains("no record of TLS"), "{error}");
    }
}

async fn no_record(stream: TlsStream<TcpStream>) {
    send_raw(stream, b"HTTP/1.1 200 OK\r\n\r\n").await;
}

async fn too_long(stream: TlsStream<TcpStream>) {
    send_raw(stream, &[23, 3, 3, 0xff, 0xff, 0, 0]).await;
}

async fn send_raw(mut stream: TlsStream<TcpStream>, bytes: &[u8]) {
    hear(&mut stream).await;
    let (mut tcp, _) = stream.into_inner();
    let _ = tcp.write_all(bytes).await;
    let _ = tcp.read(&mut [0; 16]).await;
}

/// The same without TLS at all once a session is there: what is not sealed is not believed.
#[tokio::test]
async fn a_record_that_is_not_sealed_is_never_taken() {
    let host = host(
        |_| {},
        |stream| {
            Box::pin(async move {
                let mut record = vec![23, 3, 3, 0, 38];
                record.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                send_raw(stream, &record).await;
            })
        },
    );
    let error = host.await.get().await.expect_err("not sealed");
    assert!(error.message.contains("changed on its way"), "{error}");
}

/// Keys are renewed by the server's wish, in the middle of what it says.
#[tokio::test]
async fn renewed_keys_are_followed() {
    let host = host_of(
        &[&TLS13],
        |_| {},
        |mut stream| {
            Box::pin(async move {
                while hear(&mut stream).await {
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
                    say(&mut stream, head.as_bytes()).await;
                    for part in pattern(BODY).chunks(400_000) {
                        let session = stream.get_mut().1;
                        session.refresh_traffic_keys().expect("TLS 1.3");
                        say(&mut stream, part).await;
                    }
                }
            })
        },
    )
    .await;
    for _ in 0..3 {
        assert!(host.get().await.expect("answered") == pattern(BODY));
    }
    assert_eq!(host.client.idle_connections(), 1);
}

/// Answers with whether the session was resumed, once, and ends the connection.
fn tells_resumption(
    mut stream: TlsStream<TcpStream>,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        hear(&mut stream).await;
        let kind = format!("{:?}", stream.get_ref().1.handshake_kind().expect("done"));
        let length = kind.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        say(&mut stream, format!("{head}{kind}").as_bytes()).await;
        let _ = stream.shutdown().await;
        hear(&mut stream).await;
    })
}

#[tokio::test]
async fn a_new_connection_resumes_the_session() {
    for version in [&TLS12, &TLS13] {
        let host = host_of(&[version], |_| {}, tells_resumption).await;
        assert_eq!(host.get().await.expect("answered"), b"Full");
        for _ in 0..3 {
            assert_eq!(
                host.get().await.expect("answered"),
                b"Resumed",
                "{version:?}"
            );
        }
    }
}

/// Connections that the server of the next test has ended.
static ENDED: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

/// A connection that the server ended while it was idle is not tried.
#[tokio::test]
async fn an_idle_connection_that_ended_is_not_used() {
    let host = host(
        |_| {},
        |mut stream| {
            Box::pin(async move {
                hear(&mut stream).await;
                say(
                    &mut stream,
                    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                )
                .await;
                let _ = stream.shutdown().await;
                ENDED.add_permits(1);
            })
        },
    )
    .await;
    let mut once = request(&host.origin, "POST");
    once.repeatable = false;
    for _ in 0..2 {
        let response = host.client.send(&once).await.expect("a new connection");
        assert_eq!(response.collect(9).await.expect("a body"), b"ok");
        ENDED.acquire().await.expect("open").forget();
    }
}

/// The first bytes that a client says, as a server hears them.
async fn first_words(client: &Client) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let origin = Arc::new(origin);
    let heard = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut hello = vec![0; 4096];
        let count = stream.read(&mut hello).await.expect("a hello");
        hello.truncate(count);
        hello
    };
    let (hello, _) = tokio::join!(heard, get(client, &origin));
    hello
}

/// The name is in the hello, as are the versions from 1.2 on and no others.
#[tokio::test]
async fn a_hello_names_the_server_and_no_old_version() {
    let hello = first_words(&client()).await;
    assert!(hello.windows(9).any(|nine| nine == b"localhost"));
    let versions = [0, 43, 0, 5, 4, 3, 4, 3, 3];
    assert!(hello.windows(9).any(|nine| nine == versions));
}

/// An answer to a hello that offers TLS 1.1.
#[tokio::test]
async fn a_server_of_tls_1_1_is_refused() {
    let (plain, _server) = serve(|_, mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let mut hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0xc0, 0x13, 0]);
        let _ = stream.write_all(&hello).await;
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let origin = Origin::parse(&format!("https://localhost:{}", plain.port)).expect("valid");
    let error = get(&client(), &Arc::new(origin))
        .await
        .expect_err("too old");
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    assert!(error.message.contains("incompatible"), "{error}");
}

/// A server of TLS 1.2 that could do 1.3 says so in its random; one that does so towards a client that offered 1.3
/// was downgraded by somebody between.
#[tokio::test]
async fn a_downgrade_is_noticed() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let config = Arc::new(server_config(&made, &[&TLS12, &TLS13]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let server = tokio::task::spawn_blocking(move || downgrading(listener, config));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let error = get(&client, &Arc::new(origin)).await.expect_err("noticed");
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    assert!(error.message.contains("Downgrade"), "{error}");
    server.await.expect("no panic");
}

/// Strikes TLS 1.3 out of the hello on its way to the server.
fn downgrading(listener: TcpListener, config: Arc<ServerConfig>) {
    let listener = listener.into_std().expect("a listener");
    listener.set_nonblocking(false).expect("blocking");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut hello = vec![0; 4096];
    let count = stream.read(&mut hello).expect("a hello");
    hello.truncate(count);
    let at = hello
        .windows(9)
        .position(|nine| nine == [0, 43, 0, 5, 4, 3, 4, 3, 3]);
    let at = at.expect("versions");
    hello[at + 5..at + 7].copy_from_slice(&[3, 3]);
    let mut session = ServerConnection::new(config).expect("a session");
    session.read_tls(&mut &hello[..]).expect("read");
    session.process_new_packets().expect("a hello");
    session.write_tls(&mut stream).expect("it listens");
    let _ = stream.read(&mut [0; 4096]);
}

/// A server that lets in only whom `made` vouches for, and which has that certificate itself.
pub(super) async fn strict_host_of(
    version: &'static rustls::SupportedProtocolVersion,
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> Host {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        roots.into(),
        Arc::clone(&provider),
    );
    let verifier = verifier.build().expect("a verifier");
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes());
    let strict = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a certificate");
    host_of(
        &[version],
        |config| *config = strict,
        answers_with_a_pattern,
    )
    .await
}
