//! Servers that are stopped and started again, and the program around the library.

// Tests watch the server from outside, with the clock.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use penstock_devserver::{Credentials, Fill, Server, Settings, expected};
use support::Client;

#[test]
fn a_server_comes_back_on_its_port_with_its_data() {
    let settings = Settings::with_bucket("b");
    let server = Server::start(settings.clone()).expect("a server");
    let address = server.address();
    let mut client = Client::connect(address);
    assert_eq!(client.put("/b/k", b"hello").status, 200);
    let begun = client.request("POST /b/u?uploads", &[], b"");
    for _ in 0..3 {
        let server = Server::start_with(data_of(&settings, address), settings.clone());
        drop(server);
    }
    let data = server.stop();
    assert!(client.try_request("GET /b/k", &[], b"").is_err());
    assert!(std::net::TcpStream::connect(address).is_err());
    let server = Server::start_with(
        data,
        Settings {
            address,
            ..settings
        },
    )
    .expect("the same port");
    let mut client = Client::connect(address);
    assert_eq!(client.get("/b/k").text(), "hello");
    assert_eq!(
        server.data().uploads("b")[0].1,
        begun.element("UploadId").expect("an id")
    );
}

/// Data of another server, which must not disturb the first.
fn data_of(settings: &Settings, taken: std::net::SocketAddr) -> penstock_devserver::Data {
    let refused = Server::start(Settings {
        address: taken,
        ..settings.clone()
    });
    assert!(refused.is_err(), "a port is not shared");
    Server::start(settings.clone()).expect("a server").stop()
}

#[test]
fn connections_have_a_limit() {
    let settings = Settings {
        connections_max: 2,
        ..Settings::with_bucket("b")
    };
    let server = Server::start(settings).expect("a server");
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/b").status, 200);
    }
    let mut third = Client::connect(server.address());
    assert_eq!(third.receive(false).expect("an answer").status, 503);
    drop(clients);
    let served = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        Client::connect(server.address())
            .try_request("GET /b", &[], b"")
            .is_ok_and(|answer| answer.status == 200)
    });
    assert!(served, "room is made");
}

/// The program, killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

fn program(arguments: &[&str]) -> (Program, Client) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_penstock-devserver"))
        .args(["--address", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("a line");
    let program = Program(child);
    let address = line
        .trim()
        .strip_prefix("listening on http://")
        .expect("an address");
    (
        program,
        Client::connect(address.parse().expect("an address")),
    )
}

#[test]
fn the_program_serves_what_it_is_told_to() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("loaded")).expect("a directory");
    std::fs::write(directory.path().join("loaded/k"), "from a file").expect("a file");
    let directory = directory.path().to_string_lossy().into_owned();
    let (_program, mut client) = program(&[
        "--bucket",
        "one",
        "two",
        "--fill",
        "filled/f/:3:100KiB",
        "--fill",
        "filled/big:1:3GiB",
        "--directory",
        &directory,
        "--latency",
        "1ms",
        "--prepared-memory",
        "4MiB",
    ]);
    let listed = client.get("/");
    assert_eq!(listed.elements("Name"), ["filled", "loaded", "one", "two"]);
    assert_eq!(client.get("/loaded/k").text(), "from a file");
    let mut bytes = vec![0; 100 << 10];
    expected("f/00000002", 0, &mut bytes);
    assert!(client.get("/filled/f/00000002").body == bytes);
    let tail = client.request("GET /filled/big", &[("Range", "bytes=3221225462-")], b"");
    let mut bytes = [0; 10];
    expected("big", (3 << 30) - 10, &mut bytes);
    assert_eq!(tail.body, bytes);
}

#[test]
fn the_program_can_insist_on_signatures() {
    let (_program, mut client) = program(&[
        "--bucket",
        "bkt",
        "--credentials",
        "id:secret",
        "--verify-signatures",
    ]);
    assert_eq!(
        client.get("/bkt").element("Code").as_deref(),
        Some("AccessDenied")
    );
    assert_eq!(client.get("/-/health").status, 200);
}

#[test]
fn the_program_says_why_it_cannot_start() {
    let fails = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_penstock-devserver"))
            .args(arguments)
            .output()
            .expect("started");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let server = Server::start(Settings::default()).expect("a server");
    assert!(fails(&["--address", &server.address().to_string()]).contains("in use"));
    assert!(fails(&["--fill", "nonsense"]).contains("BUCKET/PREFIX:COUNT:SIZE"));
    assert!(fails(&["--verify-signatures"]).contains("--credentials"));
}

#[test]
fn settings_make_what_they_say() {
    let fill: Fill = "bench/s/:2:1KiB".parse().expect("well formed");
    let server = Server::start(Settings {
        fills: vec![fill],
        credentials: vec![Credentials::new("id", "secret")],
        ..Settings::default()
    })
    .expect("a server");
    assert_eq!(server.data().keys("bench"), ["s/00000000", "s/00000001"]);
    assert_eq!(server.url(), format!("http://{}", server.address()));
}

#[test]
fn crowds_come_from_settings_and_over_http() {
    let server = Server::start(Settings {
        crowds: vec!["bench/c/:3:1KiB:0".parse().expect("well formed")],
        ..Settings::default()
    })
    .expect("a server");
    let mut client = Client::connect(server.address());
    let refused = client.request("POST /-/crowds", &[], b"bench/x:1");
    assert_eq!(refused.status, 400);
    let added = client.request("POST /-/crowds", &[], b"bench/d/:2:5:2\nbench/e/:1:0:0\n");
    assert_eq!(added.status, 204);
    let keys = server.data().keys("bench");
    assert_eq!(keys[..3], ["c/00000000", "c/00000001", "c/00000002"]);
    assert_eq!(
        keys[3..],
        ["d/0000/00000000", "d/0001/00000001", "e/00000000"]
    );
    let got = client.get("/bench/d/0001/00000001");
    let mut bytes = vec![0; 5];
    expected("d/0001/00000001", 0, &mut bytes);
    assert_eq!((got.status, got.body), (200, bytes));
}
