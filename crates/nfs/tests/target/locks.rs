//! Locks of ranges.

use std::sync::{Arc, atomic::Ordering};

use nfs3_types::nfs3::nfs_fh3;
use penstock_nfs::Rule;

use crate::support::{locks::*, *};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_keeps_others_out_until_it_is_given_back() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let (one, other) = (of(1, (10, 10)), of(2, (15, 0)));
    assert_eq!(client.lock(&file, &one).await, GRANTED);
    assert_eq!(client.lock(&file, &one).await, GRANTED, "a repeat");
    assert_eq!(client.lock(&file, &other).await, DENIED);
    let told = client.ask(TEST, &file, &other).await;
    assert_eq!(told, [DENIED, 1, 1, 0, 0, 10, 0, 10]);
    assert_eq!(client.unlock(&file, &one).await, GRANTED);
    assert_eq!(client.ask(TEST, &file, &other).await, [GRANTED]);
    assert_eq!(client.lock(&file, &other).await, GRANTED);
    let told = client.ask(TEST, &file, &one).await;
    assert_eq!(told[4..], [0, 15, 0, 0], "up to the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_told_apart_by_each_part_of_their_names() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let held = of(1, (0, 0));
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    let others = [
        Asked {
            caller: b"clientowner",
            owner: b"",
            ..held.clone()
        },
        Asked {
            caller: b"\0\xff",
            ..held.clone()
        },
        Asked {
            owner: b"owner\0",
            ..held.clone()
        },
        Asked {
            process: 2,
            ..held.clone()
        },
    ];
    for other in &others {
        assert_eq!(client.lock(&file, other).await, DENIED);
        assert_eq!(
            client.unlock(&file, other).await,
            GRANTED,
            "nothing is held"
        );
        assert_eq!(client.lock(&file, other).await, DENIED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_would_wait_is_told_so_and_has_it_when_it_asks_again() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let held = of(1, (0, 0));
    let waiting = Asked {
        waits: true,
        ..of(2, (0, 0))
    };
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting).await, BLOCKED);
    assert_eq!(client.ask(CANCEL, &file, &waiting).await, [GRANTED]);
    assert_eq!(client.unlock(&file, &held).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_holds_nothing() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    let mut notice = Vec::new();
    for (caller, then) in [(&b"stranger"[..], DENIED), (b"client", GRANTED)] {
        notice.clear();
        opaque(caller, &mut notice);
        flag(false, &mut notice);
        assert_eq!(client.send(FREE_ALL, &notice).await, [0], "no result");
        assert_eq!(client.lock(&file, &of(2, (0, 0))).await, then);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_cannot_be_are_refused() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    for range in [(u64::MAX, 0), (u64::MAX, 1), (2, u64::MAX)] {
        assert_eq!(client.lock(&file, &of(1, range)).await, TOO_BIG);
    }
    let reclaimed = Asked {
        reclaims: true,
        ..of(1, (0, 0))
    };
    assert_eq!(client.lock(&file, &reclaimed).await, GRACE_PERIOD);
    assert_eq!(client.lock(&handle(&[7; 20]), &of(1, (0, 0))).await, STALE);
    let root = target.handle().await;
    assert_eq!(client.lock(&root, &of(1, (0, 0))).await, FAILED);
    assert_eq!(
        client.ask(SHARE, &file, &of(1, (0, 0))).await,
        [NO_LOCKS, 0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_neither_read_nor_write_a_file_does_not_lock_it() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut root = target.root().await;
    let args = nfs3_types::nfs3::SETATTR3args {
        object: file.clone(),
        new_attributes: mode(0o600),
        guard: nfs3_types::nfs3::Nfs3Option::None,
    };
    root.setattr(&args).await.unwrap();
    let mut client = LockClient::new(&target, 1000).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, FAILED);
    let making = Making {
        rule: Rule {
            read_only: true,
            ..open_to_all()
        },
        ..Making::default()
    };
    let read_only = target.again(making).await;
    let mut client = LockClient::new(&read_only, 0).await;
    let handle = file_in(&read_only).await;
    assert_eq!(client.lock(&handle, &of(1, (0, 0))).await, READ_ONLY);
    let shared = Asked {
        is_exclusive: false,
        ..of(1, (0, 0))
    };
    assert_eq!(client.lock(&handle, &shared).await, GRANTED);
}

/// The file that another target of the volume made.
async fn file_in(target: &Target) -> nfs_fh3 {
    let root = target.handle().await;
    lookup(&mut target.root().await, &root, "file")
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_so_many_locks_and_no_more_also_by_breaking_them() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let mut last = GRANTED;
    let mut given = 0;
    while given < 10_000 && last == GRANTED {
        last = client.lock(&file, &of(1, (given * 4, 3))).await;
        given += u64::from(last == GRANTED);
    }
    assert_eq!((given, last), (8192, NO_LOCKS));
    assert_eq!(client.unlock(&file, &of(1, (1, 1))).await, NO_LOCKS);
    assert_eq!(client.unlock(&file, &of(1, (0, 4))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(2, (0, 1))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_locks_gives_none() {
    let shape = Shape {
        locks: false,
        ..Shape::default()
    };
    let target = Target::over(Arc::new(Shaped::new(shape))).await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let asked = of(1, (0, 0));
    for procedure in [TEST, LOCK, UNLOCK] {
        assert_eq!(client.ask(procedure, &file, &asked).await, [NO_LOCKS]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_file_is_held_until_its_lock_is_gone() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let held = || target.volume.references.load(Ordering::SeqCst);
    let before = held();
    assert_eq!(client.lock(&file, &of(1, (0, 9))).await, GRANTED);
    assert_eq!(held(), before + 1);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(held(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_rule_locks_nothing_and_cut_arguments_are_garbage() {
    let target = Target::with_rule(Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..open_to_all()
    })
    .await;
    let mut raw = RawClient::new(&target).await;
    let arguments = of(1, (0, 0)).arguments(LOCK, &handle(&[7; 20]));
    let mut bytes = call_bytes(
        7,
        (NLM, 4, LOCK),
        credential(0, 0, &[]),
        &nfs3_types::xdr_codec::Void,
    );
    bytes.extend_from_slice(&arguments);
    raw.send(&record(&bytes)).await;
    assert_eq!(raw.words().await[..4], [7, 1, 1, 1], "denied");
    raw.send(&record(&bytes[..bytes.len() - 4])).await;
    assert_eq!(raw.words().await[5], 4, "garbage");
}
