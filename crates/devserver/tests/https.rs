//! HTTPS beside HTTP on one port, as a client of another make sees it.

// Tests watch the server from outside, with the clock.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::Arc,
};

use penstock_devserver::{Fault, FaultRule, Faults, Identity, Server, Settings};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject},
};
use support::Client;

/// Larger than several steps of what is received and sent at once.
const LARGE: usize = 700_001;

fn server() -> (Server, Arc<ClientConfig>) {
    let identity = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("an identity");
    let authority = CertificateDer::from_pem_slice(identity.authority().as_bytes());
    let mut roots = RootCertStore::empty();
    roots.add(authority.expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let settings = Settings {
        identity: Some(identity),
        ..Settings::with_bucket("b")
    };
    let server = Server::start(settings).expect("a server");
    assert!(server.url().starts_with("https://127.0.0.1:"));
    (server, Arc::new(client))
}

/// Sends one request on a connection of its own and reads until the server ends it.
fn ask(
    server: &Server,
    client: &Arc<ClientConfig>,
    request: &str,
    body: &[u8],
) -> std::io::Result<Vec<u8>> {
    let name = "127.0.0.1".try_into().expect("an address");
    let session = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let tcp = TcpStream::connect(server.address()).expect("a listening server");
    let mut stream = StreamOwned::new(session, tcp);
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[test]
fn bodies_pass_both_ways_and_the_end_is_announced() {
    let (server, client) = server();
    let body: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
    let answer = ask(&server, &client, "PUT /b/k", &body).expect("an end that is announced");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let answer = ask(&server, &client, "GET /b/k", b"").expect("an end that is announced");
    assert!(answer.ends_with(&body));
    let mut plain = Client::connect(server.address());
    assert_eq!(plain.get("/b/k").body, body, "the same port speaks HTTP");
}

#[test]
fn a_client_that_comes_back_shakes_hands_shortly() {
    let (server, client) = server();
    for _ in 0..3 {
        ask(&server, &client, "GET /b/none", b"").expect("an answer");
    }
    let counters = server.counters();
    assert_eq!((counters.handshakes, counters.resumptions), (1, 2));
}

#[test]
fn a_body_that_is_cut_is_not_announced_to_end() {
    let (server, client) = server();
    server.data().put("b", "k", &[7; LARGE]).expect("stored");
    server.faults().set(Faults {
        rules: vec![FaultRule::new(Fault::CutBody { after: 100_000 })],
        ..Faults::default()
    });
    let error = ask(&server, &client, "GET /b/k", b"").expect_err("a cut");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}
