//! Messages that are wrong.

use nfs3_types::{
    nfs3::{GETATTR3args, nfs_fh3, nfsstat3},
    rpc::{auth_flavor, opaque_auth},
    xdr_codec::{Opaque, Void},
};

use crate::support::*;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// What the words of a reply begin with: its number, and that it is an accepted one with an empty verifier.
const ACCEPTED: [u32; 5] = [7, 1, 0, 0, 0];

async fn answer(client: &mut RawClient, call: (u32, u32, u32)) -> Vec<u32> {
    let bytes = call_bytes(7, call, credential(0, 0, &[]), &Void);
    client.send(&record(&bytes)).await;
    let words = client.words().await;
    assert_eq!(words[..5], ACCEPTED);
    words[5..].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_programs_versions_and_procedures_are_told_so() {
    let target = Target::new().await;
    let mut client = RawClient::new(&target).await;
    assert_eq!(answer(&mut client, (NFS, 3, 0)).await, [0]);
    assert_eq!(answer(&mut client, (100_099, 1, 0)).await, [1]);
    assert_eq!(answer(&mut client, (NFS, 4, 0)).await, [2, 3, 3]);
    assert_eq!(answer(&mut client, (MOUNT, 2, 0)).await, [2, 1, 3]);
    assert_eq!(answer(&mut client, (NFS, 3, 22)).await, [3]);
    assert_eq!(answer(&mut client, (MOUNT, 3, 6)).await, [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_cut_are_garbage() {
    let target = Target::new().await;
    let mut client = RawClient::new(&target).await;
    for procedure in 1..22 {
        assert_eq!(
            answer(&mut client, (NFS, 3, procedure)).await,
            [4],
            "{procedure}"
        );
    }
    assert_eq!(answer(&mut client, (MOUNT, 3, 1)).await, [4]);
    assert_eq!(
        answer(&mut client, (NFS, 3, 0)).await,
        [0],
        "the connection goes on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_cannot_be_read_are_denied() {
    let target = Target::new().await;
    let mut client = RawClient::new(&target).await;
    for (flavor, why) in [(auth_flavor::AUTH_UNIX, 1), (auth_flavor::AUTH_DES, 2)] {
        let credential = opaque_auth {
            flavor,
            body: Opaque::borrowed(b"abcd"),
        };
        let bytes = call_bytes(7, (NFS, 3, 1), credential, &Void);
        client.send(&record(&bytes)).await;
        assert_eq!(client.words().await, [7, 1, 1, 1, why]);
    }
    let mut bytes = call_bytes(7, (NFS, 3, 0), credential(0, 0, &[]), &Void);
    bytes[11] = 3;
    client.send(&record(&bytes)).await;
    assert_eq!(
        client.words().await,
        [7, 1, 1, 0, 2, 2],
        "another version of RPC"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_call_or_too_large_ends_the_connection() {
    let target = Target::new().await;
    let reply = [0, 0, 0, 7, 0, 0, 0, 1];
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        record(&reply),
        record(b"abc"),
        record(&vec![0; 20_000]),
        vec![0; 8192],
        0xffff_ffff_u32.to_be_bytes().to_vec(),
    ] {
        let mut client = RawClient::new(&target).await;
        client.send(&bytes).await;
        assert_eq!(client.receive().await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_many_fragments_is_one_call() {
    let target = Target::new().await;
    let root = target.handle().await;
    let arguments = GETATTR3args { object: root };
    let bytes = call_bytes(7, (NFS, 3, 1), credential(0, 0, &[]), &arguments);
    let mut client = RawClient::new(&target).await;
    for (index, byte) in bytes.iter().enumerate() {
        let last = if index + 1 == bytes.len() {
            0x8000_0000_u32
        } else {
            0
        };
        client.send(&(last | 1).to_be_bytes()).await;
        client.send(&[*byte]).await;
    }
    let words = client.words().await;
    assert_eq!((&words[..5], words[6]), (&ACCEPTED[..], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_and_foreign_handles_lead_nowhere() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let bad = Some(nfsstat3::NFS3ERR_BADHANDLE);
    for index in 0..file.data.len() {
        let mut forged = file.data.to_vec();
        forged[index] ^= 0x40;
        assert_eq!(
            attributes(&mut client, &handle(&forged)).await.err(),
            bad,
            "{index}"
        );
    }
    for invented in [&b""[..], b"x", &[0; 64]] {
        assert_eq!(attributes(&mut client, &handle(invented)).await.err(), bad);
    }
    let other_server = Target::new().await.handle().await;
    assert_eq!(attributes(&mut client, &other_server).await.err(), bad);
    let making = Making {
        name: "another file system",
        ..Making::default()
    };
    let other_system: nfs_fh3 = target.again(making).await.handle().await;
    let stale = Some(nfsstat3::NFS3ERR_STALE);
    assert_eq!(attributes(&mut client, &other_system).await.err(), stale);
}
