//! The S3 dialect over a real socket.

mod support;

use penstock_devserver::{Operation, Server, Settings};
use support::Client;

fn start() -> (Server, Client) {
    let server = Server::start(Settings::with_bucket("b")).expect("a server");
    let client = Client::connect(server.address());
    (server, client)
}

#[test]
fn objects_are_put_and_got() {
    let (server, mut client) = start();
    let put = client.request(
        "PUT /b/a/k%20+",
        &[
            ("x-amz-meta-Colour", "blue"),
            ("Content-Type", "text/x"),
            ("Cache-Control", "no-store"),
        ],
        b"hello world",
    );
    assert_eq!(
        (put.status, put.etag()),
        (200, "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"".to_owned())
    );
    let got = client.get("/b/a/k%20%2B");
    assert_eq!((got.status, got.text().as_str()), (200, "hello world"));
    assert_eq!(got.header("x-amz-meta-colour"), Some("blue"));
    assert_eq!(got.header("content-type"), Some("text/x"));
    assert_eq!(got.header("cache-control"), Some("no-store"));
    assert_eq!(got.etag(), put.etag());
    let head = client.request("HEAD /b/a/k%20+", &[], b"");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("11"))
    );
    assert_eq!(client.delete("/b/a/k%20+").status, 204);
    assert_eq!(client.delete("/b/a/k%20+").status, 204);
    let gone = client.get("/b/a/k%20+");
    assert_eq!(
        (gone.status, gone.element("Code").as_deref()),
        (404, Some("NoSuchKey"))
    );
    assert_eq!(
        client.get("/none/k").element("Code").as_deref(),
        Some("NoSuchBucket")
    );
    assert_eq!(server.counters().operation(Operation::GetObject), 3);
}

#[test]
fn ranges_are_served() {
    let (server, mut client) = start();
    let body: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    server.data().put("b", "k", &body).expect("memory");
    for (range, expected) in [
        ("bytes=0-9", 0..10),
        ("bytes=1000-250999", 1000..251_000),
        ("bytes=299990-", 299_990..300_000),
        ("bytes=-7", 299_993..300_000),
        ("bytes=299999-999999999", 299_999..300_000),
    ] {
        let got = client.request("GET /b/k", &[("Range", range)], b"");
        assert_eq!(got.status, 206, "{range}");
        assert!(got.body == body[expected.clone()], "{range}");
        let said = format!("bytes {}-{}/300000", expected.start, expected.end - 1);
        assert_eq!(got.header("content-range"), Some(said.as_str()));
    }
    let beyond = client.request("GET /b/k", &[("Range", "bytes=300000-")], b"");
    assert_eq!(
        (beyond.status, beyond.element("Code").as_deref()),
        (416, Some("InvalidRange"))
    );
    assert!(client.get("/b/k").body == body);
}

#[test]
fn uploads_are_completed_without_copies() {
    let (server, mut client) = start();
    let begun = client.request("POST /b/k?uploads", &[("x-amz-meta-a", "1")], b"");
    let id = begun.element("UploadId").expect("an id");
    let part = vec![7u8; 5 << 20];
    let mut tags = Vec::new();
    for number in [1, 2] {
        tags.push(
            client
                .put(&format!("/b/k?partNumber={number}&uploadId={id}"), &part)
                .etag(),
        );
    }
    tags.push(
        client
            .put(&format!("/b/k?partNumber=3&uploadId={id}"), b"tail")
            .etag(),
    );
    assert_eq!(client.get("/b/k").status, 404);
    let parts = client.get(&format!("/b/k?uploadId={id}&max-parts=2"));
    assert_eq!(parts.elements("PartNumber"), ["1", "2"]);
    assert_eq!(parts.element("IsTruncated").as_deref(), Some("true"));
    assert_eq!(client.get("/b?uploads").elements("UploadId"), [id.as_str()]);

    let lines = tags.iter().enumerate().map(|(index, tag)| {
        format!(
            "<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>",
            index + 1
        )
    });
    let document = format!(
        "<CompleteMultipartUpload>{}</CompleteMultipartUpload>",
        lines.collect::<String>()
    );
    let done = client.request(
        &format!("POST /b/k?uploadId={id}"),
        &[],
        document.as_bytes(),
    );
    assert_eq!(done.status, 200, "{}", done.text());
    let object = server.data().get("b", "k").expect("there");
    assert_eq!(object.len(), (10 << 20) + 4);
    assert!(object.ends_with(b"\x07tail"));
    let tail = client.request("GET /b/k", &[("Range", "bytes=10485755-")], b"");
    assert_eq!(tail.body, b"\x07\x07\x07\x07\x07tail");
    assert_eq!(
        client.request("HEAD /b/k", &[], b"").header("x-amz-meta-a"),
        Some("1")
    );
    let again = client.request(
        &format!("POST /b/k?uploadId={id}"),
        &[],
        document.as_bytes(),
    );
    assert_eq!(again.element("Code").as_deref(), Some("NoSuchUpload"));
}

#[test]
fn listings_come_in_pages() {
    let (server, mut client) = start();
    for key in ["a", "b/1", "b/2", "c&d", "e"] {
        server.data().put("b", key, b"x").expect("memory");
    }
    let first = client.get("/b?list-type=2&delimiter=/&max-keys=2");
    assert_eq!(first.elements("Key"), ["a"]);
    assert_eq!(first.elements("Prefix"), ["", "b/"]);
    let token = first.element("NextContinuationToken").expect("more");
    let second = client.get(&format!(
        "/b?list-type=2&delimiter=/&max-keys=2&continuation-token={token}"
    ));
    assert_eq!(second.elements("Key"), ["c&amp;d", "e"]);
    assert_eq!(second.element("IsTruncated").as_deref(), Some("false"));
    let none = client.get("/b?list-type=2&max-keys=0");
    assert_eq!(none.element("IsTruncated").as_deref(), Some("false"));
    assert_eq!(none.element("KeyCount").as_deref(), Some("0"));
    let old = client.get("/b?max-keys=2&marker=a");
    assert_eq!(old.elements("Key"), ["b/1", "b/2"]);
}

#[test]
fn conditions_are_kept_by_writers_that_race() {
    let (server, _client) = start();
    let wins: usize = std::thread::scope(|scope| {
        let attempt = |index: u8| {
            let mut client = Client::connect(server.address());
            let condition = [("If-None-Match", "*")];
            usize::from(
                client
                    .request("PUT /b/k", &condition, &[index; 1000])
                    .status
                    == 200,
            )
        };
        let threads: Vec<_> = (0..8)
            .map(|index| scope.spawn(move || attempt(index)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    assert_eq!(wins, 1);
    let tag = server.data().etag("b", "k").expect("there");
    let mut client = Client::connect(server.address());
    let matching = client.request("PUT /b/k", &[("If-Match", &tag)], b"new");
    assert_eq!(matching.status, 200);
    let stale = client.request("PUT /b/k", &[("If-Match", &tag)], b"newer");
    assert_eq!(
        (stale.status, stale.element("Code").as_deref()),
        (412, Some("PreconditionFailed"))
    );
    let read = client.request("GET /b/k", &[("If-None-Match", &matching.etag())], b"");
    assert_eq!((read.status, read.body.len()), (304, 0));
    assert_eq!(client.get("/b/k").text(), "new", "the connection goes on");
}

#[test]
fn large_bodies_get_tags_that_nobody_takes_for_hashes() {
    let (_server, mut client) = start();
    let small = client.put("/b/small", &vec![1; 1 << 20]).etag();
    let large = client.put("/b/large", &vec![1; (1 << 20) + 1]).etag();
    assert_eq!((small.len(), small.contains('-')), (34, false));
    assert!(large.ends_with("-1\""), "{large}");
    assert_ne!(
        large,
        client.put("/b/large", &vec![1; (1 << 20) + 1]).etag()
    );
}

#[test]
fn malformed_requests_are_refused() {
    let (server, mut client) = start();
    for (line, headers, code) in [
        (
            "PUT /b/k?partNumber=0&uploadId=1",
            vec![],
            "InvalidArgument",
        ),
        ("PUT /b/k?partNumber=1&uploadId=1", vec![], "NoSuchUpload"),
        ("GET /b?max-keys=x", vec![], "InvalidArgument"),
        (
            "GET /b?list-type=2&continuation-token=%21",
            vec![],
            "InvalidArgument",
        ),
        ("POST /b?delete", vec![], "MalformedXML"),
        ("PUT /Not_A_Bucket", vec![], "InvalidBucketName"),
        ("PUT /b", vec![], "BucketAlreadyOwnedByYou"),
        ("PUT /b/k?tagging", vec![], "NotImplemented"),
        ("PUT /b/k", vec![("Content-MD5", "AAAA")], "InvalidDigest"),
        (
            "PUT /b/k",
            vec![("x-amz-checksum-crc32", "AAAA")],
            "InvalidRequest",
        ),
        (
            "PUT /b/k",
            vec![("x-amz-copy-source", "nothing")],
            "InvalidArgument",
        ),
        ("GET /b/%ff", vec![], "InvalidURI"),
    ] {
        assert_eq!(
            client
                .request(line, &headers, b"")
                .element("Code")
                .as_deref(),
            Some(code),
            "{line}"
        );
    }
    let long = "k".repeat(1025);
    assert_eq!(
        client
            .put(&format!("/b/{long}"), b"")
            .element("Code")
            .as_deref(),
        Some("KeyTooLongError")
    );
    assert!(server.data().keys("b").is_empty());
    client.send("NONSENSE", b"").expect("sent");
    assert_eq!(client.receive(false).expect("an answer").status, 400);
}
