//! Where programs listen, told over TCP and UDP.

use std::net::{IpAddr, SocketAddr};

use nfs3_types::xdr_codec::{Pack, Void};
use penstock_nfs::Rule;
use tokio::net::{TcpStream, UdpSocket};

use crate::support::{locks::opaque, *};

const PORTMAP: u32 = 100_000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NLM: u32 = 100_021;
const NSM: u32 = 100_024;
const TCP: u32 = 6;
const UDP: u32 = 17;

async fn target() -> Target {
    Target::made(with_portmap("127.0.0.1:0"), Default::default()).await
}

fn call(which: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
    let mut bytes = call_bytes(7, which, Default::default(), &Void);
    bytes.extend_from_slice(arguments);
    bytes
}

fn words_of(numbers: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|number| {
        number.pack(&mut out).unwrap();
    });
    out
}

/// The words of an answer behind its number.
async fn over_tcp(place: SocketAddr, call: &[u8]) -> Vec<u32> {
    let mut raw = RawClient(TcpStream::connect(place).await.unwrap());
    raw.send(&record(call)).await;
    raw.words().await[1..].to_vec()
}

async fn over_udp(place: SocketAddr, call: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind((place.ip(), 0)).await.unwrap();
    socket.connect(place).await.unwrap();
    socket.send(call).await.unwrap();
    let mut answer = vec![0; 10_000];
    let length = socket.recv(&mut answer).await.unwrap();
    answer[..length].to_vec()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect()
}

async fn port(place: SocketAddr, wanted: [u32; 3]) -> u32 {
    let [program, version, transport] = wanted;
    let arguments = words_of(&[program, version, transport, 0]);
    let answer = over_tcp(place, &call((PORTMAP, 2, 3), &arguments)).await;
    assert_eq!(answer[..5], [1, 0, 0, 0, 0]);
    answer[5]
}

fn by_name(program: u32, version: u32, transport: &str) -> Vec<u8> {
    let mut out = words_of(&[program, version]);
    for text in [transport, "127.0.0.1.0.111", "superuser"] {
        opaque(text.as_bytes(), &mut out);
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn portmap_tells_the_port_of_each_program_and_zero_of_others() {
    let target = target().await;
    let mapper = target.port_mapper().unwrap();
    let ours = u32::from(target.address().port());
    for wanted in [
        [NFS, 3, TCP],
        [MOUNT, 3, TCP],
        [MOUNT, 3, UDP],
        [MOUNT, 1, UDP],
        [NLM, 4, TCP],
        [NSM, 1, UDP],
    ] {
        assert_eq!(port(mapper, wanted).await, ours, "{wanted:?}");
    }
    assert_eq!(port(mapper, [PORTMAP, 4, UDP]).await, mapper.port().into());
    for wanted in [[NFS, 4, TCP], [NFS, 3, UDP], [NLM, 3, TCP], [NFS, 3, 1]] {
        assert_eq!(port(mapper, wanted).await, 0, "{wanted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpcbind_tells_addresses_as_text() {
    let target = target().await;
    let mapper = target.port_mapper().unwrap();
    let [high, low] = target.address().port().to_be_bytes();
    let mut expected = words_of(&[0]);
    opaque(format!("127.0.0.1.{high}.{low}").as_bytes(), &mut expected);
    for (version, procedure) in [(3, 3), (4, 3), (4, 9)] {
        let asked = call((PORTMAP, version, procedure), &by_name(NFS, 3, "tcp"));
        let answer = over_udp(mapper, &asked).await;
        assert_eq!(answer[20..], expected, "{version} {procedure}");
    }
    let asked = call((PORTMAP, 4, 3), &by_name(NFS, 3, "local"));
    assert_eq!(words(&over_udp(mapper, &asked).await)[5..], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_programs_are_listed_in_each_version() {
    let target = target().await;
    let mapper = target.port_mapper().unwrap();
    let ours = u32::from(target.address().port());
    let list = over_tcp(mapper, &call((PORTMAP, 2, 4), &[])).await;
    let list: Vec<_> = list[5..list.len() - 1].chunks_exact(5).collect();
    assert!(list.contains(&&[1, NFS, 3, TCP, ours][..]));
    assert!(list.contains(&&[1, PORTMAP, 2, UDP, mapper.port().into()][..]));
    for version in [3, 4] {
        let asked = call((PORTMAP, version, 4), &[]);
        let answer = over_udp(mapper, &asked).await;
        let mut name = Vec::new();
        opaque(b"udp", &mut name);
        let begin = [words_of(&[1, MOUNT, 3]), name].concat();
        let mut found = answer.windows(begin.len());
        assert!(found.any(|window| window == begin));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_listens_everywhere_tells_the_address_that_its_client_reaches() {
    let target = Target::made(with_portmap("0.0.0.0:0"), Default::default()).await;
    let port = target.port_mapper().unwrap().port();
    let mapper = SocketAddr::from(([127, 0, 0, 1], port));
    let [high, low] = port.to_be_bytes();
    let mut expected = words_of(&[0]);
    opaque(format!("127.0.0.1.{high}.{low}").as_bytes(), &mut expected);
    let asked = call((PORTMAP, 4, 3), &by_name(PORTMAP, 4, "tcp"));
    assert_eq!(over_udp(mapper, &asked).await[20..], expected);
    let told = over_tcp(mapper, &asked).await;
    assert_eq!(told[4..], words(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_registered_and_nothing_passed_on() {
    let target = target().await;
    let mapper = target.port_mapper().unwrap();
    let arguments = words_of(&[NFS, 4, TCP, 2049]);
    for procedure in [1, 2] {
        let answer = over_tcp(mapper, &call((PORTMAP, 2, procedure), &arguments)).await;
        assert_eq!(answer, [1, 0, 0, 0, 0, 0], "refused");
    }
    assert_eq!(port(mapper, [NFS, 4, TCP]).await, 0);
    let passing_on = [(2, 5, 3), (3, 5, 3), (4, 10, 3)];
    let unknown = [(5, 0, 2), (1, 0, 2)];
    for (version, procedure, refusal) in passing_on.into_iter().chain(unknown) {
        let answer = over_tcp(mapper, &call((PORTMAP, version, procedure), &[])).await;
        assert_eq!(answer[4], refusal, "{version} {procedure}");
    }
    let cut = over_tcp(mapper, &call((PORTMAP, 2, 3), &[0; 12])).await;
    assert_eq!(cut[4], 4, "garbage");
    let elsewhere = over_tcp(mapper, &call((NFS, 3, 0), &[])).await;
    assert_eq!(elsewhere[4], 1, "no such program");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_carry_mount_but_no_files_and_no_locks() {
    let target = target().await;
    let place = target.address();
    let exports = over_udp(place, &call((MOUNT, 1, 5), &[])).await;
    assert_eq!(
        words(&exports)[1..],
        [1, 0, 0, 0, 0, 1, 1, 0x2f00_0000, 0, 0]
    );
    let old_handle = over_udp(place, &call((MOUNT, 1, 1), &words_of(&[0]))).await;
    assert_eq!(words(&old_handle)[5], 3, "no handles of version 2");
    for program in [(NFS, 3, 0), (NLM, 4, 0)] {
        let answer = over_udp(place, &call(program, &[])).await;
        assert_eq!(words(&answer)[1..], [1, 0, 0, 0, 1], "{program:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_rule_is_not_answered() {
    let making = Making {
        rule: Rule {
            clients: vec!["127.0.0.2".parse().unwrap()],
            ..open_to_all()
        },
        ..with_portmap("127.0.0.1:0")
    };
    let target = Target::made(making, Default::default()).await;
    let asked = call((PORTMAP, 2, 4), &[]);
    let mapper = target.port_mapper().unwrap();
    let mut refused = RawClient(TcpStream::connect(mapper).await.unwrap());
    refused.send(&record(&asked)).await;
    assert!(refused.receive().await.is_none());
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let known = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    for place in [mapper, target.address()] {
        socket.send_to(&asked, place).await.unwrap();
        // Datagrams of one socket are answered in their order, and of this one there is an answer.
        known.send_to(&asked, place).await.unwrap();
        let mut answer = [0; 10_000];
        assert!(known.recv(&mut answer).await.unwrap() > 0);
        assert!(socket.try_recv(&mut answer).is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_that_are_no_calls_or_too_long_are_not_answered() {
    let target = target().await;
    let mapper = target.port_mapper().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut long = call((PORTMAP, 2, 0), &[]);
    long.resize(9000, 0);
    for wrong in [&b""[..], b"abc", &[0xff; 64], &long] {
        socket.send_to(wrong, mapper).await.unwrap();
    }
    let good = call((PORTMAP, 2, 0), &[]);
    socket.send_to(&good, mapper).await.unwrap();
    let mut answer = [0; 10_000];
    let length = socket.recv(&mut answer).await.unwrap();
    assert_eq!(words(&answer[..length]), [7, 1, 0, 0, 0, 0]);
    assert!(socket.try_recv(&mut answer).is_err());
}

/// A target whose ports are told where programs look for them; nothing where that cannot be.
async fn target_at_the_port_of_portmap(address: &str) -> Option<Target> {
    let ip: IpAddr = address.parse().unwrap();
    if let Err(error) = std::net::TcpListener::bind((ip, 111)) {
        penstock_skips::skipped(format!("port 111 of {ip}: {error}"));
        return None;
    }
    let making = Making {
        address: SocketAddr::new(ip, 0),
        path: "/exports/home",
        ..with_portmap(&format!("{ip}:111"))
    };
    Some(Target::made(making, Default::default()).await)
}

/// What a program prints; nothing where it is not installed.
async fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    match command.args(arguments).output().await {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}: {text}{errors}");
            Some(text)
        }
        Err(_) => {
            penstock_skips::skipped(format!("{program} is not installed"));
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpcinfo_lists_and_calls_the_programs() {
    let Some(target) = target_at_the_port_of_portmap("127.0.111.1").await else {
        return;
    };
    let port = target.address().port().to_string();
    let Some(list) = printed("rpcinfo", &["-p", "127.0.111.1"]).await else {
        return;
    };
    let has = |line: [&str; 4]| {
        let mut lines = list.lines().map(|line| line.split_whitespace());
        lines.any(|words| words.take(4).eq(line))
    };
    assert!(has(["100003", "3", "tcp", &port]), "{list}");
    assert!(has(["100005", "3", "udp", &port]), "{list}");
    let addresses = printed("rpcinfo", &["127.0.111.1"]).await.unwrap();
    assert!(addresses.contains("127.0.111.1.0.111"), "{addresses}");
    for arguments in [
        ["-t", "127.0.111.1", "100003", "3"],
        ["-t", "127.0.111.1", "100021", "4"],
        ["-u", "127.0.111.1", "100005", "3"],
    ] {
        printed("rpcinfo", &arguments).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn showmount_shows_exports_and_mounts() {
    let Some(target) = target_at_the_port_of_portmap("127.0.111.2").await else {
        return;
    };
    let Some(exports) = printed("showmount", &["-e", "127.0.111.2"]).await else {
        return;
    };
    assert!(exports.contains("/exports/home"), "{exports}");
    target.mount("/exports/home").await.unwrap();
    let mounts = printed("showmount", &["-a", "127.0.111.2"]).await.unwrap();
    assert!(mounts.contains(":/exports/home"), "{mounts}");
}
