//! Bodies in all their codings, and bodies that do not come to their end.

// Tests watch the server from outside, with the clock.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{io::Write, net::TcpStream, thread, time::Duration};

use penstock_devserver::{Operation, Server, Settings};
use support::Client;

fn start() -> (Server, Client) {
    let server = Server::start(Settings::with_bucket("b")).expect("a server");
    let client = Client::connect(server.address());
    (server, client)
}

const STREAMING: (&str, &str) = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");

/// A body in `aws-chunked` coding with a checksum behind it.
fn aws_chunked(pieces: &[&[u8]], trailer: &str) -> Vec<u8> {
    let mut coded = Vec::new();
    for piece in pieces {
        coded.extend(format!("{:x};chunk-signature=00\r\n", piece.len()).bytes());
        coded.extend_from_slice(piece);
        coded.extend(b"\r\n");
    }
    coded.extend(format!("0;chunk-signature=00\r\n{trailer}\r\n\r\n").bytes());
    coded
}

#[test]
fn aws_chunked_bodies_are_decoded_and_their_trailers_checked() {
    let (server, mut client) = start();
    let large = vec![9; 3 << 20];
    for (pieces, length) in [
        (vec![&b"1234"[..], b"56789"], "9"),
        (vec![&large[..], b"x"], "3145729"),
    ] {
        let plain = pieces.concat();
        let coded = aws_chunked(&pieces, "");
        let headers = [
            STREAMING,
            ("Content-Encoding", "aws-chunked,gzip"),
            ("x-amz-decoded-content-length", length),
        ];
        assert_eq!(client.request("PUT /b/k", &headers, &coded).status, 200);
        assert!(server.data().get("b", "k").expect("there") == plain);
        assert_eq!(
            client
                .request("HEAD /b/k", &[], b"")
                .header("content-encoding"),
            Some("gzip")
        );
    }
    let announced = [
        STREAMING,
        ("x-amz-decoded-content-length", "9"),
        ("x-amz-trailer", "x-amz-checksum-crc32c"),
    ];
    let coded = aws_chunked(&[b"123456789"], "x-amz-checksum-crc32c:4waSgw==\r\n");
    let right = client.request("PUT /b/right", &announced, &coded);
    assert_eq!(
        (right.status, right.header("x-amz-checksum-crc32c")),
        (200, Some("4waSgw=="))
    );
    for trailer in [
        "x-amz-checksum-crc32c:AAAAAA==\r\n",
        "",
        "x-amz-checksum-crc32c:nonsense\r\n",
    ] {
        let coded = aws_chunked(&[b"123456789"], trailer);
        assert_eq!(
            client.request("PUT /b/wrong", &announced, &coded).status,
            400,
            "{trailer}"
        );
    }
    let short = aws_chunked(&[b"12345678"], "x-amz-checksum-crc32c:4waSgw==\r\n");
    assert_eq!(
        client.request("PUT /b/wrong", &announced, &short).status,
        400
    );
    assert_eq!(server.data().keys("b"), ["k", "right"]);
}

#[test]
fn bodies_of_unknown_length_are_taken() {
    let (server, mut client) = start();
    let piece = vec![5; 300_000];
    let mut coded = Vec::new();
    for _ in 0..9 {
        coded.extend(format!("{:x}\r\n", piece.len()).bytes());
        coded.extend_from_slice(&piece);
        coded.extend(b"\r\n");
    }
    coded.extend(b"0\r\n\r\n");
    client
        .send(
            "PUT /b/k HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked",
            &coded,
        )
        .expect("sent");
    assert_eq!(client.receive(false).expect("an answer").status, 200);
    assert!(server.data().get("b", "k").expect("there") == vec![5; 2_700_000]);
    assert_eq!(
        client.get("/b/k").body.len(),
        2_700_000,
        "the connection goes on"
    );
}

#[test]
fn the_client_is_told_to_go_on_or_that_it_need_not() {
    let (_server, mut client) = start();
    let head = "PUT /b/k HTTP/1.1\nHost: localhost\nContent-Length: 5\nExpect: 100-continue";
    client.send(head, b"").expect("sent");
    assert_eq!(client.line().expect("a word"), "HTTP/1.1 100 Continue");
    assert_eq!(client.line().expect("its end"), "");
    let (_server, mut client) = start();
    client.send(head, b"hello").expect("sent");
    assert_eq!(client.receive(false).expect("an answer").status, 200);
    let head = head.replace("/b/k", "/none/k");
    client.send(&head, b"").expect("sent");
    let refused = client.receive(false).expect("an answer");
    assert_eq!(
        (refused.status, refused.header("connection")),
        (404, Some("close"))
    );
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let (server, client) = start();
    drop(client);
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream
        .write_all(b"PUT /b/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
        .expect("sent");
    drop(stream);
    while server.counters().operation(Operation::PutObject) == 0 || server.counters().in_flight > 0
    {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(server.data().keys("b").is_empty());
}

/// Writes over what is on its way and then makes sure that memory is used again.
fn churn(server: &Server) {
    let mut client = Client::connect(server.address());
    for index in 0..8 {
        assert_eq!(
            client
                .put(&format!("/b/k{}", index % 2), &vec![0xee; 16 << 20])
                .status,
            200
        );
        assert_eq!(client.put("/b/k", &vec![0xee; 16 << 20]).status, 200);
    }
}

#[test]
fn what_is_on_its_way_does_not_change_when_the_object_does() {
    for closes in [false, true] {
        let server = Server::start(Settings::with_bucket("b")).expect("a server");
        let body: Vec<u8> = (0..16u32 << 20).map(|index| (index % 251) as u8).collect();
        server.data().put("b", "k", &body).expect("memory");
        let mut slow = Client::connect(server.address());
        let connection = if closes { "close" } else { "keep-alive" };
        // Small enough to lie in the sockets' buffers as a whole, so that the server is done
        // with it long before it is read.
        let head = format!(
            "GET /b/k HTTP/1.1\nHost: localhost\nRange: bytes=4096-1052671\nConnection: {connection}"
        );
        slow.send(&head, b"").expect("sent");
        while server.counters().in_flight > 0 || server.counters().total() == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(50));
        churn(&server);
        let got = slow.receive(false).expect("an answer");
        assert!(got.body == body[4096..1_052_672], "with {connection}");
    }
}
