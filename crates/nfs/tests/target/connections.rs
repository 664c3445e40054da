//! Many connections, slow ones, and what is under way on one.

use std::{sync::atomic::Ordering, time::Duration};

use nfs3_types::{
    nfs3::{GETATTR3args, READ3args, WRITE3args, stable_how},
    xdr_codec::{Opaque, Void},
};
use penstock_nfs::Rule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::*;

const NFS: u32 = 100_003;

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_connection_overtake_each_other() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    write(&mut client, &file, (0, b"content"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    target.volume.hold_reads(true);
    let mut raw = RawClient::new(&target).await;
    let read = READ3args {
        file,
        offset: 0,
        count: 7,
    };
    let read = call_bytes(1, (NFS, 3, 6), credential(0, 0, &[]), &read);
    let look = GETATTR3args { object: root };
    let look = call_bytes(2, (NFS, 3, 1), credential(0, 0, &[]), &look);
    raw.send(&[record(&read), record(&look)].concat()).await;
    assert_eq!(raw.words().await[0], 2);
    target.volume.hold_reads(false);
    let words = raw.receive().await.unwrap();
    assert_eq!(words[..4], [0, 0, 0, 1]);
    assert!(words.ends_with(b"content\0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_to_calls_that_came_together_leave_together() {
    let target = Target::new().await;
    let mut raw = RawClient::new(&target).await;
    let look = GETATTR3args {
        object: target.handle().await,
    };
    let call = |xid| record(&call_bytes(xid, (NFS, 3, 1), credential(0, 0, &[]), &look));
    raw.send(&call(100)).await;
    let length = raw.receive().await.unwrap().len() + 4;
    let calls: Vec<_> = (0..12).map(call).collect();
    let (begun, rest) = calls[11].split_at(50);
    raw.send(&[&calls[..11].concat(), begun].concat()).await;
    let mut replies = vec![0; 64 << 10];
    let together = raw.0.read(&mut replies).await.unwrap();
    assert_eq!(
        together,
        11 * length,
        "with one system call, before more is waited for"
    );
    raw.send(rest).await;
    assert_eq!(raw.words().await[0], 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_no_more_has_all_its_answers() {
    let target = Target::new().await;
    let mut raw = RawClient::new(&target).await;
    let look = GETATTR3args {
        object: target.handle().await,
    };
    let call = |xid| record(&call_bytes(xid, (NFS, 3, 1), credential(0, 0, &[]), &look));
    let calls: Vec<_> = (0..50).map(call).collect();
    raw.send(&calls.concat()).await;
    raw.0.shutdown().await.unwrap();
    for xid in 0..50 {
        assert_eq!(raw.words().await[0], xid);
    }
    assert!(raw.receive().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_a_bounded_number_of_calls_under_way() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    target.volume.hold_reads(true);
    let mut raw = RawClient::new(&target).await;
    let read = READ3args {
        file,
        offset: 0,
        count: 7,
    };
    for xid in 0..200 {
        let call = call_bytes(xid, (NFS, 3, 6), credential(0, 0, &[]), &read);
        raw.send(&record(&call)).await;
    }
    until("the bound is reached", || {
        target.volume.begun.load(Ordering::SeqCst) >= 64
    })
    .await;
    // Others are not held up.
    for _ in 0..20 {
        assert!(attributes(&mut client, &root).await.is_ok());
    }
    assert_eq!(target.volume.begun.load(Ordering::SeqCst), 64);
    target.volume.hold_reads(false);
    let mut answered = 0;
    while answered < 200 {
        raw.receive().await.unwrap();
        answered += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_are_served_at_once() {
    let target = Target::new().await;
    let root = target.handle().await;
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(target.root().await);
    }
    let mut tasks = Vec::new();
    for mut client in clients {
        let root = root.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                attributes(&mut client, &root).await.unwrap();
            }
            client
        }));
    }
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(task.await.unwrap());
    }
    assert!(target.server.connections() >= 200);
    drop(clients);
    until("they are gone", || target.server.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_replies_holds_up_nobody_else() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let mib = vec![5; 1 << 20];
    write(&mut client, &file, (0, &mib), stable_how::UNSTABLE)
        .await
        .unwrap();
    let mut slow = RawClient::new(&target).await;
    let read = READ3args {
        file: file.clone(),
        offset: 0,
        count: 1 << 20,
    };
    for xid in 0..100 {
        let call = call_bytes(xid, (NFS, 3, 6), credential(0, 0, &[]), &read);
        slow.send(&record(&call)).await;
    }
    let begun = || target.volume.begun.load(Ordering::SeqCst);
    until("its share is under way", || begun() >= 8).await;
    for _ in 0..20 {
        let (bytes, _) = crate::support::read(&mut client, &file, 0, 1 << 20)
            .await
            .unwrap();
        assert!(bytes == mib);
    }
    assert!(
        begun() < 100,
        "it was read from only as far as its share goes"
    );
    for _ in 0..100 {
        assert_eq!(slow.receive().await.unwrap().len(), 128 + (1 << 20));
    }
}

#[tokio::test(start_paused = true)]
async fn silent_and_half_open_connections_end() {
    let target = Target::new().await;
    let mut silent = target.connect().await;
    let mut half = RawClient::new(&target).await;
    let null = call_bytes(1, (NFS, 3, 0), credential(0, 0, &[]), &Void);
    let null = record(&null);
    half.send(&null[..10]).await;
    let begun = tokio::time::Instant::now();
    let mut byte = [0];
    assert_eq!(half.0.read(&mut byte).await.unwrap_or(0), 0);
    assert_eq!(begun.elapsed().as_secs(), 60, "a record that does not end");
    assert_eq!(silent.read(&mut byte).await.unwrap(), 0);
    assert_eq!(begun.elapsed().as_secs(), 360, "nothing was asked");
}

/// A target that is for other machines than this one.
async fn of_others() -> Target {
    let rule = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..open_to_all()
    };
    Target::with_rule(rule).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_rule_has_no_memory_for_what_it_writes() {
    let known = Target::new().await;
    let mut client = known.root().await;
    let root = known.handle().await;
    let file = create(&mut client, &root, "file").await;
    let length = 1 << 20;
    let all = WRITE3args {
        file,
        offset: 0,
        count: length,
        stable: stable_how::UNSTABLE,
        data: Opaque::owned(vec![0; length as usize]),
    };
    let call = record(&call_bytes(1, (NFS, 3, 7), credential(0, 0, &[]), &all));
    let target = of_others().await;
    let mut stranger = RawClient::new(&target).await;
    // Who never sends the rest would have the memory for as long as a record may take.
    stranger.send(&call[..2000]).await;
    let answer = tokio::time::timeout(Duration::from_secs(10), stranger.receive()).await;
    assert_eq!(answer, Ok(None), "the connection ends");
    until("it is counted", || target.metric("nfs_refused_total") > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_a_rule_have_few_connections() {
    let target = of_others().await;
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(target.connect().await);
    }
    until("the rest is refused", || {
        target.metric("nfs_refused_total") == 300 - 256
    })
    .await;
    assert_eq!(target.server.connections(), 256);
    drop(strangers);
    until("they are gone", || target.server.connections() == 0).await;
    let mut client = target.root().await;
    client.null().await.unwrap();
}
