//! Faults strike as told, and the server's own requests control them.

// Tests watch the server from outside, with the clock.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use penstock_devserver::{Counters, Fault, FaultRule, Faults, Operation, Server, Settings};
use support::Client;

fn start(faults: Faults) -> (Server, Client) {
    let server = Server::start(Settings {
        faults,
        ..Settings::with_bucket("b")
    })
    .expect("a server");
    server.data().put("b", "k", &[7; 100_000]).expect("memory");
    let client = Client::connect(server.address());
    (server, client)
}

fn rule(fault: Fault) -> Faults {
    Faults::rule(FaultRule::new(fault))
}

#[test]
fn errors_come_as_often_as_told() {
    let slow = FaultRule::new(Fault::SlowDown {
        retry_after: Some(2),
    })
    .on(&[Operation::GetObject])
    .next(2);
    let (server, mut client) = start(Faults::rule(slow));
    for _ in 0..2 {
        let refused = client.get("/b/k");
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            (503, Some("2"))
        );
        assert_eq!(refused.element("Code").as_deref(), Some("SlowDown"));
        assert_eq!(client.request("HEAD /b/k", &[], b"").status, 200);
    }
    assert_eq!(client.get("/b/k").status, 200);
    server.faults().set(rule(Fault::Status {
        status: 418,
        code: "Teapot".to_owned(),
    }));
    let refused = client.put("/b/new", &[1; 3 << 20]);
    assert_eq!(
        (refused.status, refused.element("Code").as_deref()),
        (418, Some("Teapot"))
    );
    server.faults().clear();
    assert_eq!(server.data().keys("b"), ["k"]);
    assert_eq!(
        Client::connect(server.address()).put("/b/new", b"x").status,
        200
    );
    assert_eq!(server.counters().faults, 3);
}

#[test]
fn answers_are_cut_and_damaged() {
    let (server, mut client) = start(rule(Fault::CutBody { after: 60_000 }));
    client
        .send("GET /b/k HTTP/1.1\nHost: localhost", b"")
        .expect("sent");
    let bytes = client.read_to_end().expect("a proper end");
    let head = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head")
        + 4;
    assert_eq!(bytes.len() - head, 60_000);
    assert!(String::from_utf8_lossy(&bytes[..head]).contains("Content-Length: 100000"));

    server.faults().set(rule(Fault::FlipByte { at: 50_000 }));
    let got = Client::connect(server.address()).get("/b/k");
    let wrong: Vec<_> = got
        .body
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte != 7)
        .collect();
    assert_eq!(wrong, [(50_000, &6)]);
    assert_eq!(got.body.len(), 100_000);
}

#[test]
fn connections_are_reset() {
    let (server, mut client) = start(rule(Fault::Reset { after: 0 }));
    let outcome = client
        .try_request("GET /b/k", &[], b"")
        .expect_err("a reset");
    assert_eq!(outcome.kind(), ErrorKind::ConnectionReset);

    server.faults().set(rule(Fault::Reset { after: 1000 }));
    let mut client = Client::connect(server.address());
    assert!(
        client
            .try_request("PUT /b/new", &[], &[1; 100_000])
            .is_err()
    );
    assert_eq!(server.data().keys("b"), ["k"]);
    assert!(
        Client::connect(server.address())
            .try_request("GET /b/k", &[], b"")
            .is_err()
    );

    server.faults().set(rule(Fault::LoseAnswer));
    assert!(
        Client::connect(server.address())
            .try_request("PUT /b/new", &[], b"kept")
            .is_err()
    );
    assert_eq!(server.data().get("b", "new").as_deref(), Some(&b"kept"[..]));
}

#[test]
fn damage_on_the_way_in_is_noticed_by_checksums_only() {
    let (server, mut client) = start(rule(Fault::FlipByte { at: 2 }));
    let checked = client.request(
        "PUT /b/new",
        &[("x-amz-checksum-crc32c", "4waSgw==")],
        b"123456789",
    );
    assert_eq!(
        (checked.status, checked.element("Code").as_deref()),
        (400, Some("BadDigest"))
    );
    assert_eq!(client.put("/b/new", b"123456789").status, 200);
    assert_eq!(
        server.data().get("b", "new").as_deref(),
        Some(&b"122456789"[..])
    );
    server.faults().clear();
    let checked = client.request(
        "PUT /b/new",
        &[("x-amz-checksum-crc32c", "4waSgw==")],
        b"123456789",
    );
    assert_eq!(checked.status, 200);
}

#[test]
fn slowness_is_kept() {
    let (server, mut client) = start(Faults::latency(Duration::from_millis(50)));
    let begin = Instant::now();
    assert_eq!(client.get("/b/k").status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(50));

    server.faults().set(Faults {
        bandwidth: Some(400_000),
        ..Faults::default()
    });
    for put in [false, true] {
        let begin = Instant::now();
        let answer = if put {
            client.put("/b/new", &[1; 100_000])
        } else {
            client.get("/b/k")
        };
        assert_eq!(answer.status, 200);
        // The first step goes at once and is 64 KiB.
        assert!(
            begin.elapsed() >= Duration::from_millis(150),
            "{:?}",
            begin.elapsed()
        );
    }
    server.faults().set(rule(Fault::Hang { duration_ms: 100 }));
    let begin = Instant::now();
    assert_eq!(client.get("/b/k").status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_hanging_request_does_not_keep_the_server_from_stopping() {
    let (server, mut client) = start(rule(Fault::Hang {
        duration_ms: 60_000,
    }));
    client
        .send("GET /b/k HTTP/1.1\nHost: localhost", b"")
        .expect("sent");
    while server.counters().in_flight == 0 {
        std::thread::yield_now();
    }
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(client.receive(false).is_err());
}

#[test]
fn faults_and_counters_are_controlled_over_http() {
    let (server, mut client) = start(Faults::default());
    assert_eq!(client.get("/-/health").status, 200);
    let text =
        r#"{"rules": [{"operations": ["get_object"], "fault": "internal_error", "next": 1}]}"#;
    assert_eq!(client.put("/-/faults", text.as_bytes()).status, 200);
    assert_eq!(client.get("/b/k").status, 500);
    assert_eq!(client.get("/b/k").status, 200);
    let left: Faults = serde_json::from_slice(&client.get("/-/faults").body).expect("faults");
    assert_eq!(left.rules[0].next, Some(0));
    let refused = client.put("/-/faults", br#"{"latncy_ms": 3}"#);
    assert_eq!(
        (refused.status, refused.text().contains("latncy_ms")),
        (400, true)
    );
    assert_eq!(client.delete("/-/faults").status, 204);
    assert_eq!(server.faults().get(), Faults::default());

    let counters: Counters =
        serde_json::from_slice(&client.get("/-/counters").body).expect("counters");
    assert_eq!(
        (
            counters.operation(Operation::GetObject),
            counters.status(500)
        ),
        (2, 1)
    );
    assert_eq!(counters.connections, 1);
    assert!(
        counters.bytes_out > 100_000,
        "the object and an error document"
    );
    assert_eq!(
        client.request("POST /-/counters/reset", &[], b"").status,
        204
    );
    assert_eq!(server.counters().total(), 0);
    assert_eq!(client.get("/-/nothing").status, 404);
}
