//! Calls for locks: their repeats, deadlines, limits and costs.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use penstock_nfs::TargetType;

use crate::support::{locks::*, *};

#[tokio::test(flavor = "multi_thread")]
async fn a_late_repeat_of_an_unlock_frees_no_newer_lock() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let held = of(1, (0, 0));
    let unlock = held.arguments(UNLOCK, &file);
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    client.begin(7, UNLOCK, &unlock).await;
    let first = client.end().await;
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    client.begin(7, UNLOCK, &unlock).await;
    assert_eq!(client.end().await, first);
    assert_eq!(client.lock(&file, &of(2, (0, 0))).await, DENIED);
    assert_eq!(target.metric("nfs_repeated_total"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_takes_long_keeps_no_call_under_way_and_is_told_to_who_asks_again() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let held = of(1, (0, 0));
    let wanted = held.arguments(LOCK, &file);
    target.volume.hold_locks(true);
    let mut client = LockClient::new(&target, 0).await;
    client.begin(7, LOCK, &wanted).await;
    until("it is begun", || {
        target.volume.begun.load(Ordering::SeqCst) == 1
    })
    .await;
    let mut other = LockClient::new(&target, 0).await;
    let begun = Instant::now();
    let second = other.lock(&file, &of(2, (0, 0))).await;
    assert_eq!(second, NO_LOCKS, "what the client asked for before goes on");
    assert!(begun.elapsed() < Duration::from_secs(15));
    target.volume.hold_locks(false);
    drop(client);
    other.begin(7, LOCK, &wanted).await;
    assert_eq!(other.end().await.last(), Some(&GRANTED));
    assert_eq!(target.volume.begun.load(Ordering::SeqCst), 1);
    assert_eq!(other.unlock(&file, &held).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_one_address_share_what_a_client_may_have() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let names: Vec<_> = (0..300).map(|number| format!("client {number}")).collect();
    let mut given = 0;
    for name in &names {
        let caller: &'static [u8] = name.clone().into_bytes().leak();
        let shared = Asked {
            caller,
            is_exclusive: false,
            ..of(1, (0, 0))
        };
        given += u32::from(client.lock(&file, &shared).await == GRANTED);
    }
    assert_eq!(given, 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_given_while_the_target_ends_is_taken_back() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let wanted = of(1, (0, 0));
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (90, 1))).await, GRANTED);
    target.volume.hold_locks(true);
    client.begin(7, LOCK, &wanted.arguments(LOCK, &file)).await;
    until("it is begun", || {
        target.volume.begun.load(Ordering::SeqCst) == 2
    })
    .await;
    target.server.leave(Duration::from_millis(20)).await;
    target.volume.hold_locks(false);
    let next = target.again(without_grace_period()).await;
    let mut client = LockClient::new(&next, 0).await;
    let begun = Instant::now();
    let other = of(2, (0, 0));
    while client.lock(&file, &other).await != GRANTED {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is still held");
        tokio::task::yield_now().await;
    }
    assert!(target.volume.begun.load(Ordering::SeqCst) >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_cost_what_the_table_says_and_are_counted() {
    let target = Target::made(
        Making {
            target_type: TargetType::Standard,
            ..Making::default()
        },
        Default::default(),
    )
    .await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    let before = target.metric("nfs_backend_operations_total");
    let held = of(1, (0, 0));
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    assert_eq!(client.ask(TEST, &file, &of(2, (0, 0))).await[0], DENIED);
    let directory = target.handle().await;
    assert_eq!(client.lock(&directory, &held).await, FAILED);
    let mut notice = Vec::new();
    opaque(b"client", &mut notice);
    flag(false, &mut notice);
    client.send(FREE_ALL, &notice).await;
    // Of which the MNT for the root costs nothing.
    let cost = target.metric("nfs_backend_operations_total") - before;
    assert_eq!(cost, 3 * 4 + 8);
    let counted =
        |name: &str| target.metric(&format!("nfs_{name}_total{{procedure=\"nlm_lock\"}}"));
    assert_eq!((counted("calls"), counted("errors")), (2, 1));
}
