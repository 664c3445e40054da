//! The OSS dialect over a real socket. The official SDKs test more of it in `oracles.rs`.

mod support;

use penstock_devserver::{Operation, Server, Settings};
use support::{Answer, Client};

/// Makes a request speak OSS.
const OSS: (&str, &str) = ("Authorization", "OSS ak:unchecked");

fn start() -> (Server, Client) {
    let server = Server::start(Settings::with_bucket("b")).expect("a server");
    let client = Client::connect(server.address());
    (server, client)
}

fn oss(client: &mut Client, line: &str, more: &[(&str, &str)], body: &[u8]) -> Answer {
    let headers: Vec<_> = more.iter().copied().chain([OSS]).collect();
    client.request(line, &headers, body)
}

fn code(answer: &Answer) -> (u16, Option<String>) {
    (answer.status, answer.element("Code"))
}

#[test]
fn checksums_are_told_for_every_write() {
    let (_server, mut client) = start();
    let put = oss(&mut client, "PUT /b/k", &[], b"123456789");
    assert_eq!(
        put.header("x-oss-hash-crc64ecma"),
        Some("11051210869376104954")
    );
    let got = oss(&mut client, "GET /b/k", &[("Range", "bytes=0-3")], b"");
    assert_eq!((got.status, got.text().as_str()), (206, "1234"));
    assert_eq!(
        got.header("x-oss-hash-crc64ecma"),
        Some("11051210869376104954")
    );
    assert!(got.header("x-oss-request-id").is_some());
    let one = oss(&mut client, "POST /b/log?append&position=0", &[], b"12345");
    assert_eq!(one.header("x-oss-next-append-position"), Some("5"));
    let two = oss(&mut client, "POST /b/log?append&position=5", &[], b"6789");
    assert_eq!(
        two.header("x-oss-hash-crc64ecma"),
        Some("11051210869376104954")
    );
    let wrong = oss(&mut client, "POST /b/log?append&position=5", &[], b"x");
    assert_eq!(
        code(&wrong),
        (409, Some("PositionNotEqualToLength".to_owned()))
    );
    assert_eq!(wrong.header("x-oss-next-append-position"), Some("9"));
}

#[test]
fn ranges_outside_the_object_give_all_of_it() {
    let (server, mut client) = start();
    server.data().put("b", "k", b"0123456789").expect("memory");
    for range in ["bytes=5-20", "bytes=10-", "bytes=20-30"] {
        let got = oss(&mut client, "GET /b/k", &[("Range", range)], b"");
        assert_eq!((got.status, got.body.len()), (200, 10), "{range}");
    }
    let standard = ("x-oss-range-behavior", "standard");
    let got = oss(
        &mut client,
        "GET /b/k",
        &[("Range", "bytes=5-20"), standard],
        b"",
    );
    assert_eq!((got.status, got.text().as_str()), (206, "56789"));
    let got = oss(
        &mut client,
        "GET /b/k",
        &[("Range", "bytes=10-20"), standard],
        b"",
    );
    assert_eq!(code(&got), (416, Some("InvalidRange".to_owned())));
}

#[test]
fn overwriting_can_be_forbidden() {
    let (server, mut client) = start();
    let forbid = ("x-oss-forbid-overwrite", "true");
    assert_eq!(oss(&mut client, "PUT /b/k", &[forbid], b"one").status, 200);
    let second = oss(&mut client, "PUT /b/k", &[forbid], b"two");
    assert_eq!(code(&second), (409, Some("FileAlreadyExists".to_owned())));
    let link = oss(
        &mut client,
        "PUT /b/k?symlink",
        &[forbid, ("x-oss-symlink-target", "t")],
        b"",
    );
    assert_eq!(link.status, 409);
    assert_eq!(server.data().get("b", "k").as_deref(), Some(&b"one"[..]));
}

#[test]
fn listings_have_what_clients_insist_on() {
    let (server, mut client) = start();
    for index in 0..150 {
        server
            .data()
            .put("b", &format!("k/{index:03} &"), b"x")
            .expect("memory");
    }
    oss(
        &mut client,
        "PUT /b/link?symlink",
        &[("x-oss-symlink-target", "k/000%20%26")],
        b"",
    );
    let page = oss(
        &mut client,
        "GET /b?list-type=2&encoding-type=url",
        &[],
        b"",
    );
    assert!(page.header("content-length").is_some());
    assert_eq!(page.elements("Key").len(), 100, "the default of OSS");
    assert_eq!(page.elements("Key")[0], "k%2F000%20%26");
    assert!(
        page.element("LastModified")
            .expect("a time")
            .ends_with(".000Z")
    );
    assert_eq!(page.element("Type").as_deref(), Some("Normal"));
    let token = page.element("NextContinuationToken").expect("more");
    let line = format!("GET /b?list-type=2&continuation-token={token}");
    let rest = oss(&mut client, &line, &[], b"");
    assert_eq!(rest.elements("Key").len(), 51);
    assert_eq!(
        rest.elements("Type").last().map(String::as_str),
        Some("Symlink")
    );
    let none = oss(&mut client, "GET /b?list-type=2&max-keys=0", &[], b"");
    assert_eq!(code(&none), (400, Some("InvalidArgument".to_owned())));
    assert_eq!(server.counters().requests["oss"]["list_objects_v2"], 3);
}

#[test]
fn any_host_is_served_through_the_server_as_a_proxy() {
    let (server, mut client) = start();
    let line = "PUT http://b.oss-cn-hangzhou-internal.aliyuncs.com/a%2Fb";
    assert_eq!(client.request(line, &[], b"proxied").status, 200);
    assert_eq!(
        server.data().get("b", "a/b").as_deref(),
        Some(&b"proxied"[..])
    );
    assert_eq!(
        server.counters().requests["oss"][Operation::PutObject.name()],
        1
    );
}

#[test]
fn errors_of_head_come_in_a_header() {
    let (_server, mut client) = start();
    let head = oss(&mut client, "HEAD /b/none", &[], b"");
    assert_eq!((head.status, head.body.len()), (404, 0));
    assert!(head.header("x-oss-err").is_some_and(|text| text.len() > 50));
    assert_eq!(
        client.request("HEAD /b/none", &[], b"").header("x-oss-err"),
        None
    );
}

#[test]
fn small_parts_are_allowed_down_to_100_kib() {
    let (server, mut client) = start();
    for (size, status) in [(100 << 10, 200), ((100 << 10) - 1, 400)] {
        let id = oss(&mut client, "POST /b/k?uploads", &[], b"")
            .element("UploadId")
            .expect("an id");
        let mut document = String::new();
        for number in 1..=2 {
            let line = format!("PUT /b/k?partNumber={number}&uploadId={id}");
            let tag = oss(&mut client, &line, &[], &vec![1; size]).etag();
            document +=
                &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        let document = format!("<CompleteMultipartUpload>{document}</CompleteMultipartUpload>");
        let line = format!("POST /b/k?uploadId={id}");
        assert_eq!(
            oss(&mut client, &line, &[], document.as_bytes()).status,
            status,
            "{size}"
        );
    }
    assert_eq!(
        server.data().uploads("b").len(),
        1,
        "a refused upload stays"
    );
    let all = ("x-oss-complete-all", "yes");
    let id = oss(&mut client, "POST /b/all?uploads", &[], b"")
        .element("UploadId")
        .expect("an id");
    oss(
        &mut client,
        &format!("PUT /b/all?partNumber=7&uploadId={id}"),
        &[],
        b"seven",
    );
    assert_eq!(
        oss(
            &mut client,
            &format!("POST /b/all?uploadId={id}"),
            &[all],
            b""
        )
        .status,
        200
    );
    assert_eq!(
        server.data().get("b", "all").as_deref(),
        Some(&b"seven"[..])
    );
}
