//! The client against servers that do exactly what a test says.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{Payload, clock, metrics::Registry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::*;
use crate::{BodySink, ErrorKind};

/// Runs `script` on each connection, one after the other, and tells where to connect to.
async fn serve<F>(
    script: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> (Arc<Origin>, JoinHandle<()>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        for index in 0.. {
            let (stream, _) = listener.accept().await.expect("a connection");
            script(index, stream).await;
        }
    });
    let origin = Origin::parse(&format!("http://{address}")).expect("valid");
    (Arc::new(origin), server)
}

/// Reads a head and `body` bytes after it.
async fn read_request(stream: &mut TcpStream, body: usize) -> String {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if end.is_some_and(|end| bytes.len() >= end + 4 + body) {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        let count = stream.read(&mut piece).await.unwrap_or(0);
        if count == 0 {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        bytes.extend_from_slice(&piece[..count]);
    }
}

async fn answer(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.expect("it is read");
}

fn client_with(settings: HttpSettings) -> Client {
    Client::new(settings, ClientMetrics::new(&Registry::default()))
}

fn client() -> Client {
    client_with(HttpSettings {
        first_byte_timeout: Duration::from_millis(300),
        stall_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    })
}

fn request(origin: &Arc<Origin>, method: &'static str) -> Request {
    let mut headers = RequestHeaders::default();
    headers.push("host", origin.authority());
    Request {
        origin: Arc::clone(origin),
        method,
        target: "/path?q".to_owned(),
        headers,
        body: Payload::new(),
        patience: Patience::Usual,
        repeatable: true,
    }
}

async fn get(client: &Client, origin: &Arc<Origin>) -> Result<Vec<u8>, HttpError> {
    client
        .send(&request(origin, "GET"))
        .await?
        .collect(1 << 20)
        .await
}

#[tokio::test]
async fn an_old_connection_is_not_used_again() {
    let (origin, _server) = serve(|index, mut stream| async move {
        read_request(&mut stream, 0).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n";
        answer(&mut stream, &format!("{head}{index}")).await;
    })
    .await;
    let client = client_with(HttpSettings {
        connection_age_max: Duration::ZERO,
        ..HttpSettings::default()
    });
    for expected in ["0", "1"] {
        let got = get(&client, &origin).await.expect("answered");
        assert_eq!(got, expected.as_bytes());
        assert_eq!(client.idle_connections(), 0);
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (origin, _server) = serve(|index, mut stream| async move {
        for turn in 0..3 {
            read_request(&mut stream, 0).await;
            let body = format!("{index}-{turn}");
            let head = "HTTP/1.1 200 OK\r\nCONTENT-length: 3\r\n\r\n";
            answer(&mut stream, &format!("{head}{body}")).await;
        }
    })
    .await;
    let client = client();
    for expected in ["0-0", "0-1", "0-2"] {
        assert_eq!(
            get(&client, &origin).await.expect("answered"),
            expected.as_bytes()
        );
        assert_eq!(client.idle_connections(), 1);
    }
}

#[tokio::test]
async fn heads_are_what_the_server_expects() {
    let (origin, _server) = serve(|_, mut stream| async move {
        let head = read_request(&mut stream, 0).await;
        let length = head.len();
        answer(
            &mut stream,
            &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}"),
        )
        .await;
    })
    .await;
    let client = client();
    let mut put = request(&origin, "PUT");
    put.headers.push("x-value", "one\r\ntwo: three");
    let echoed = client
        .send(&put)
        .await
        .expect("answered")
        .collect(1000)
        .await;
    let echoed = String::from_utf8(echoed.expect("received")).expect("text");
    assert!(
        echoed.starts_with("PUT /path?q HTTP/1.1\r\nhost: 127.0.0.1:"),
        "{echoed}"
    );
    assert!(
        echoed.contains("\r\nx-value: onetwo: three\r\n"),
        "{echoed}"
    );
    assert!(echoed.contains("\r\ncontent-length: 0\r\n\r\n"), "{echoed}");
}

#[tokio::test]
async fn bodies_of_many_slices_arrive_in_order() {
    let (origin, _server) = serve(|_, mut stream| async move {
        let request = read_request(&mut stream, 600_000).await;
        let body = request.split_once("\r\n\r\n").expect("a head").1;
        let expected: String = (0..200).map(slice_text).collect();
        let verdict = if body == expected {
            "same"
        } else {
            "different"
        };
        answer(
            &mut stream,
            &format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{verdict}"),
        )
        .await;
    })
    .await;
    let mut put = request(&origin, "PUT");
    for index in 0..200 {
        put.body.push(Bytes::from(slice_text(index)));
    }
    let client = client();
    let body = client
        .send(&put)
        .await
        .expect("answered")
        .collect(100)
        .await;
    assert_eq!(body.expect("received"), b"same");
    assert_eq!(
        client.idle_connections(),
        0,
        "the server said that it closes"
    );
}

fn slice_text(index: usize) -> String {
    let letter = char::from(b'a' + (index % 26) as u8);
    letter.to_string().repeat(3000)
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_replaced_once() {
    let (origin, _server) = serve(|index, mut stream| async move {
        read_request(&mut stream, 0).await;
        answer(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n").await;
        answer(&mut stream, &index.to_string()).await;
        if index == 0 {
            // Takes the second request and closes without a word.
            read_request(&mut stream, 0).await;
        }
    })
    .await;
    let client = client();
    assert_eq!(get(&client, &origin).await.expect("answered"), b"0");
    assert_eq!(get(&client, &origin).await.expect("answered"), b"1");
    let error = {
        let (origin, _server) = serve(|_, stream| async move { drop(stream) }).await;
        get(&client, &origin).await.expect_err("never answers")
    };
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn what_may_not_happen_twice_is_sent_once() {
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let (origin, _server) = serve(move |_, mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            // Answers one request, takes another one and closes without a word.
            read_request(&mut stream, 0).await;
            answer(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            read_request(&mut stream, 0).await;
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    })
    .await;
    let client = client();
    get(&client, &origin).await.expect("answered");
    let mut once = request(&origin, "POST");
    once.repeatable = false;
    let error = client.send(&once).await.expect_err("not answered");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn every_framing_ends_where_it_should() {
    for (head, body, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "abc", "abc"),
        ("HTTP/1.1 200 OK\r\n\r\n", "until close", "until close"),
        ("HTTP/1.0 200 OK\r\n\r\n", "old", "old"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n",
            "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
            "abcde",
        ),
        (
            "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
            "",
            "",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n",
            "x",
            "x",
        ),
    ] {
        let (origin, _server) = serve(move |_, mut stream| async move {
            read_request(&mut stream, 0).await;
            answer(&mut stream, head).await;
            // In pieces, so that no read sees all of it.
            for byte in body.as_bytes() {
                stream.write_all(&[*byte]).await.expect("it is read");
                tokio::task::yield_now().await;
            }
        })
        .await;
        let received = get(&client(), &origin).await.expect(head);
        assert_eq!(String::from_utf8_lossy(&received), expected, "{head}");
    }
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let (origin, _server) = serve(|_, mut stream| async move {
        for _ in 0..2 {
            read_request(&mut stream, 0).await;
            answer(
                &mut stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n",
            )
            .await;
        }
    })
    .await;
    let client = client();
    for _ in 0..2 {
        let response = client
            .send(&request(&origin, "HEAD"))
            .await
            .expect("answered");
        assert_eq!(response.headers.number("Content-Length"), Some(5000));
        assert_eq!(client.idle_connections(), 1);
    }
}

#[tokio::test]
async fn bodies_that_are_cut_or_stall_are_interrupted() {
    for (head, body, hang) in [
        ("content-length: 100", "some", false),
        ("content-length: 100", "some", true),
        ("transfer-encoding: chunked", "9\r\nsome", false),
        ("transfer-encoding: chunked", "4\r\nsome\r\n", false),
        ("transfer-encoding: chunked", "4\r\nsome\r\n", true),
    ] {
        let (origin, _server) = serve(move |_, mut stream| async move {
            read_request(&mut stream, 0).await;
            answer(
                &mut stream,
                &format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}"),
            )
            .await;
            if hang {
                clock::sleep(Duration::from_secs(60)).await;
            }
        })
        .await;
        let client = client();
        let mut response = client
            .send(&request(&origin, "GET"))
            .await
            .expect("answered");
        let mut sink = Vec::new();
        let error = response
            .receive(&mut sink, u64::MAX)
            .await
            .expect_err("it is cut");
        assert_eq!(error.kind, ErrorKind::Interrupted, "{head} {hang}: {error}");
        assert_eq!(sink, b"some", "what arrived stays");
        drop(response);
        assert_eq!(client.idle_connections(), 0);
    }
}

#[tokio::test]
async fn silence_has_a_deadline() {
    let (origin, _server) = serve(|_, stream| async move {
        clock::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let error = get(&client(), &origin).await.expect_err("no answer");
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    let mut large = request(&origin, "PUT");
    large.body = Payload::from(vec![0; 64 << 20]);
    let error = client().send(&large).await.expect_err("nobody reads");
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn an_early_refusal_is_heard() {
    let (origin, _server) = serve(|_, mut stream| async move {
        let mut some = [0; 1000];
        stream.read_exact(&mut some).await.expect("a request");
        answer(
            &mut stream,
            "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        clock::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let mut large = request(&origin, "PUT");
    large.body = Payload::from(vec![0; 64 << 20]);
    let client = client();
    let response = client.send(&large).await.expect("answered");
    assert_eq!((response.status, response.early), (503, true));
    assert_eq!(
        client.idle_connections(),
        0,
        "half a request is on that connection"
    );
}

#[tokio::test]
async fn a_short_rest_is_read_and_a_long_one_is_not() {
    for (rest, kept) in [(1000, 1), (10 << 20, 0)] {
        let (origin, _server) = serve(move |_, mut stream| async move {
            read_request(&mut stream, 0).await;
            let length = 10 + rest;
            answer(
                &mut stream,
                &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"),
            )
            .await;
            let _ = stream.write_all(&vec![1; length]).await;
            read_request(&mut stream, 0).await;
        })
        .await;
        let client = client();
        let mut response = client
            .send(&request(&origin, "GET"))
            .await
            .expect("answered");
        let mut sink = Vec::new();
        let received = response.receive(&mut sink, 10).await.expect("received");
        assert_eq!(
            (received.bytes, received.complete, sink.len()),
            (10, false, 10)
        );
        drop(response);
        assert_eq!(client.idle_connections(), kept, "a rest of {rest}");
    }
}

/// A sink of a fixed size.
struct Small(Vec<u8>);

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Small {
    fn filled(&self) -> u64 {
        self.0.len() as u64
    }

    fn unfilled(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        let room = 5 - self.0.len().min(5);
        &mut self.0.spare_capacity_mut()[..room]
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller initialised `count` bytes of the spare capacity.
        unsafe { self.0.set_len(self.0.len() + count) };
    }
}

#[tokio::test]
async fn a_full_sink_ends_the_transfer() {
    let (origin, _server) = serve(|_, mut stream| async move {
        read_request(&mut stream, 0).await;
        answer(
            &mut stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n12345678",
        )
        .await;
        clock::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let mut sink = Small(Vec::with_capacity(64));
    let mut response = client()
        .send(&request(&origin, "GET"))
        .await
        .expect("answered");
    let received = response.receive(&mut sink, 100).await.expect("received");
    assert_eq!((received.bytes, &sink.0[..]), (5, &b"12345"[..]));
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    let (closed, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (origin, _server) = serve(move |_, mut stream| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream, 0).await;
            let gone = stream.read(&mut [0; 1]).await.unwrap_or(0) == 0;
            closed.send(gone).expect("the test listens");
        }
    })
    .await;
    let client = client();
    let sending = request(&origin, "GET");
    let waiting = clock::deadline(Duration::from_millis(50), client.send(&sending)).await;
    assert!(waiting.is_err(), "there is no answer");
    assert_eq!(told.recv().await, Some(true));
}

#[tokio::test]
async fn nonsense_is_a_protocol_error() {
    for text in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ] {
        let (origin, _server) = serve(move |_, mut stream| async move {
            read_request(&mut stream, 0).await;
            answer(&mut stream, text).await;
        })
        .await;
        let error = get(&client(), &origin).await.expect_err(text);
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
    let (origin, _server) = serve(|_, mut stream| async move {
        read_request(&mut stream, 0).await;
        answer(&mut stream, "HTTP/1.1 200 OK\r\n").await;
        let _ = stream.write_all("x: y\r\n".repeat(20_000).as_bytes()).await;
        clock::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let error = get(&client(), &origin).await.expect_err("an endless head");
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    for text in [
        format!("http://{address}"),
        "http://no-such-host.invalid".to_owned(),
    ] {
        let origin = Arc::new(Origin::parse(&text).expect("valid"));
        let error = get(&client(), &origin).await.expect_err("nobody is there");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains(&text), "{error}");
    }
}

#[tokio::test]
async fn old_idle_connections_are_closed() {
    let (origin, _server) = serve(|_, mut stream| async move {
        read_request(&mut stream, 0).await;
        answer(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        read_request(&mut stream, 0).await;
    })
    .await;
    let client = client_with(HttpSettings {
        idle_age_max: Duration::from_millis(50),
        ..HttpSettings::default()
    });
    get(&client, &origin).await.expect("answered");
    assert_eq!(client.idle_connections(), 1);
    clock::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn a_proxy_gets_the_whole_url() {
    let (proxy, _server) = serve(|_, mut stream| async move {
        let head = read_request(&mut stream, 0).await;
        let line = head.lines().next().unwrap_or_default();
        let length = line.len();
        answer(
            &mut stream,
            &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{line}"),
        )
        .await;
    })
    .await;
    let client = client_with(HttpSettings {
        proxy: Some((*proxy).clone()),
        ..HttpSettings::default()
    });
    let origin = Arc::new(Origin::parse("http://store.example:81").expect("valid"));
    let line = get(&client, &origin).await.expect("answered");
    assert_eq!(line, b"GET http://store.example:81/path?q HTTP/1.1");
}

mod tls {
    use tokio_rustls::TlsAcceptor;

    use super::*;

    mod cuts;
    mod handshakes;
    mod misbehaving;
    mod raw_records;
    mod trust;

    /// A server with a certificate for `localhost`, signed by itself, and that certificate.
    async fn serve_tls() -> (Arc<Origin>, String, JoinHandle<()>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let (origin, server) = serve_as(&made).await;
        (origin, made.cert.pem(), server)
    }

    /// A server on `localhost` that shows this certificate.
    async fn serve_as(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (Arc<Origin>, JoinHandle<()>) {
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        serve_certificates(vec![made.cert.der().clone()], key.expect("a key")).await
    }

    async fn serve_certificates(
        chain: Vec<rustls::pki_types::CertificateDer<'static>>,
        key: rustls::pki_types::PrivateKeyDer<'static>,
    ) -> (Arc<Origin>, JoinHandle<()>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut head = vec![0; 1000];
                    while stream.read(&mut head).await.is_ok_and(|count| count > 0) {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret";
                        stream.write_all(answer).await.expect("it is read");
                        stream.flush().await.expect("it is read");
                    }
                }
            }
        });
        let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
        (Arc::new(origin), server)
    }

    #[tokio::test]
    async fn a_certificate_file_is_trusted() {
        let (origin, certificate, _server) = serve_tls().await;
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), certificate).expect("written");
        let client = client_with(HttpSettings::trusting(file.path()));
        for _ in 0..2 {
            assert_eq!(get(&client, &origin).await.expect("trusted"), b"secret");
        }
        assert_eq!(client.idle_connections(), 1);
    }

    #[tokio::test]
    async fn a_stranger_is_not_trusted() {
        let (origin, certificate, _server) = serve_tls().await;
        let other =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        assert_ne!(other.cert.pem(), certificate);
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), other.cert.pem()).expect("written");
        let client = client_with(HttpSettings::trusting(file.path()));
        let error = get(&client, &origin).await.expect_err("not trusted");
        assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
        assert!(error.message.contains("--ca-file"), "{error}");
    }

    #[tokio::test]
    async fn a_file_without_certificates_is_refused_at_once() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let client = client_with(HttpSettings::trusting(file.path()));
        let origin = Origin::parse("https://localhost").expect("valid");
        let error = client.prepare(&origin).expect_err("no certificate");
        assert_eq!(error.kind, ErrorKind::InvalidRequest, "{error}");
    }

    /// A proxy that connects to whatever it is asked for, once, and tells what that was.
    async fn serve_tunnel() -> (Origin, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.expect("a connection");
            let head = read_request(&mut near, 0).await;
            let target = head.split(' ').nth(1).expect("a target").to_owned();
            let mut far = TcpStream::connect(&target).await.expect("it is there");
            answer(&mut near, "HTTP/1.1 200 Connected\r\n\r\n").await;
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            head
        });
        let origin = Origin::parse(&format!("http://{address}")).expect("valid");
        (origin, server)
    }

    #[tokio::test]
    async fn a_proxy_makes_a_tunnel() {
        let (origin, certificate, _server) = serve_tls().await;
        let (proxy, tunnel) = serve_tunnel().await;
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), certificate).expect("written");
        let client = client_with(HttpSettings {
            ca_file: Some(file.path().to_owned()),
            proxy: Some(proxy),
            ..HttpSettings::default()
        });
        assert_eq!(get(&client, &origin).await.expect("reached"), b"secret");
        drop(client);
        let head = tunnel.await.expect("the tunnel ends with the client");
        assert!(
            head.starts_with(&format!("CONNECT {} ", origin.authority())),
            "{head}"
        );
    }
}
