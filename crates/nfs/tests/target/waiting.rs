//! Locks that clients wait for, and how they are told that they have them.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nfs3_types::nfs3::nfs_fh3;
use tokio::net::TcpSocket;

use crate::support::{
    called::{Call, CalledMachine, NO_ANSWER},
    locks::*,
    *,
};

fn waiting(process: u32, range: (u64, u64)) -> Asked {
    Asked {
        waits: true,
        ..of(process, range)
    }
}

/// A target whose clients' port mappers are at the port of `machine`, and a file that process 1 has locked.
async fn locked(machine: &CalledMachine) -> (Target, nfs_fh3, LockClient) {
    let making = Making {
        port_mappers_of_clients: machine.address.port(),
        ..Making::default()
    };
    let target = Target::made(making, Default::default()).await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    (target, file, client)
}

async fn machine(statuses: &[u32]) -> CalledMachine {
    CalledMachine::new([127, 0, 0, 1], statuses).await
}

/// The arguments of the call that tells a client that it has a lock, behind its cookie.
fn told(file: &nfs_fh3, asked: &Asked) -> Vec<u8> {
    asked.arguments(TEST, file)[12..].to_vec()
}

fn waits(target: &Target) -> u64 {
    target.metric("nfs_waiting_locks")
}

async fn until_it_is_free(client: &mut LockClient, file: &nfs_fh3, asked: &Asked) {
    let begun = Instant::now();
    while client.lock(file, asked).await != GRANTED {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is kept");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_called_at_its_own_address_when_it_has_the_lock() {
    let machine = CalledMachine::new([127, 0, 0, 5], &[GRANTED]).await;
    let (target, file, mut holder) = locked(&machine).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.5:0".parse().unwrap()).unwrap();
    let stream = socket.connect(target.address()).await.unwrap();
    let mut waiter = LockClient::over(stream, 0);
    let wanted = waiting(2, (5, 10));
    assert_eq!(waiter.lock(&file, &wanted).await, BLOCKED);
    assert_eq!(waits(&target), 1);
    assert_eq!(machine.calls(), []);
    assert_eq!(holder.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it knows", || waits(&target) == 0).await;
    let calls = machine.calls();
    let [
        Call {
            from,
            which,
            arguments,
        },
    ] = &calls[..]
    else {
        panic!("{calls:?}");
    };
    assert_eq!(
        (from.to_string(), *which),
        ("127.0.0.1".to_owned(), [NLM, 4, 5])
    );
    assert_eq!(arguments[12..], told(&file, &wanted));
    assert_eq!(holder.lock(&file, &of(1, (14, 1))).await, DENIED);
    assert_eq!(holder.lock(&file, &of(1, (15, 1))).await, GRANTED);
    assert_eq!(waiter.unlock(&file, &wanted).await, GRANTED);
    assert_eq!(holder.lock(&file, &of(1, (14, 1))).await, GRANTED);
    assert_eq!(
        target.metric("nfs_granted_calls_total{outcome=\"taken\"}"),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_refuses_a_lock_does_not_keep_it() {
    let machine = machine(&[DENIED]).await;
    let (target, file, mut client) = locked(&machine).await;
    assert_eq!(client.lock(&file, &waiting(2, (0, 0))).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until_it_is_free(&mut client, &file, &of(3, (0, 0))).await;
    assert_eq!(machine.calls().len(), 1);
    assert_eq!(waits(&target), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_tell_yet_is_called_again() {
    let machine = machine(&[GRACE_PERIOD, GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    assert_eq!(client.lock(&file, &waiting(2, (0, 0))).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it knows", || waits(&target) == 0).await;
    assert_eq!(machine.calls().len(), 2);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_answer_was_lost_keeps_the_lock_that_it_then_does_not_know_of_any_more() {
    let machine = machine(&[NO_ANSWER, DENIED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let wanted = waiting(2, (0, 0));
    assert_eq!(client.lock(&file, &wanted).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it is called again", || machine.calls().len() > 2).await;
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, DENIED);
    assert_eq!(client.ask(CANCEL, &file, &wanted).await, [GRANTED]);
    assert_eq!(waits(&target), 0);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_be_called_does_not_keep_a_lock() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting(2, (0, 0))).await, BLOCKED);
    let begun = tokio::time::Instant::now();
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    while waits(&target) > 0 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        assert!(begun.elapsed() < Duration::from_secs(90), "it is kept");
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(30),
        "it was tried for a while"
    );
    assert_eq!(
        target.metric("nfs_granted_calls_total{outcome=\"failed\"}"),
        6
    );
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_want_more_than_it_had_keeps_what_it_had() {
    let machine = machine(&[DENIED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let shared = |process, range| Asked {
        is_exclusive: false,
        ..of(process, range)
    };
    assert_eq!(client.lock(&file, &shared(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &shared(2, (5, 10))).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting(2, (0, 20))).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it is refused", || waits(&target) == 0).await;
    for free in [(0, 5), (15, 0)] {
        assert_eq!(client.lock(&file, &of(3, free)).await, GRANTED);
    }
    for kept in [(5, 1), (14, 1)] {
        assert_eq!(client.lock(&file, &of(3, kept)).await, DENIED);
        assert_eq!(client.lock(&file, &shared(3, kept)).await, GRANTED);
    }
    assert_eq!(client.unlock(&file, &of(2, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_given_a_lock_while_it_gives_others_back_has_it() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let stranger = Asked {
        caller: b"stranger",
        ..of(1, (0, 10))
    };
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &stranger).await, GRANTED);
    assert_eq!(client.lock(&file, &of(2, (50, 10))).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting(2, (0, 10))).await, BLOCKED);
    target.volume.hold_unlocks(true);
    let begun = target.volume.begun.load(Ordering::SeqCst);
    let mut closing = LockClient::new(&target, 0).await;
    let all = of(2, (0, 0)).arguments(UNLOCK, &file);
    closing.begin(7, UNLOCK, &all).await;
    let is_begun = || target.volume.begun.load(Ordering::SeqCst) > begun;
    until("it is begun", is_begun).await;
    client.free_all(b"stranger").await;
    let until_the_volume_gave_it = Instant::now();
    while client.ask(TEST, &file, &stranger).await[0] != DENIED {
        let elapsed = until_the_volume_gave_it.elapsed();
        assert!(elapsed < Duration::from_secs(20), "it is not given");
    }
    target.volume.hold_unlocks(false);
    assert_eq!(closing.end().await.last(), Some(&GRANTED));
    until("it knows", || waits(&target) == 0).await;
    assert_eq!(machine.calls().len(), 1);
    assert_eq!(client.lock(&file, &stranger).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_more_while_it_is_given_a_lock_has_both() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let stranger = Asked {
        caller: b"stranger",
        ..of(1, (0, 10))
    };
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &stranger).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting(2, (0, 10))).await, BLOCKED);
    target.volume.hold_locks(true);
    let begun = target.volume.begun.load(Ordering::SeqCst);
    let mut more = LockClient::new(&target, 0).await;
    let other = of(2, (50, 10)).arguments(LOCK, &file);
    more.begin(7, LOCK, &other).await;
    let is_begun = || target.volume.begun.load(Ordering::SeqCst) > begun;
    until("it is begun", is_begun).await;
    client.free_all(b"stranger").await;
    let freed = Instant::now();
    while client.ask(TEST, &file, &stranger).await[0] != DENIED {
        assert!(freed.elapsed() < Duration::from_secs(20), "it is not given");
    }
    target.volume.hold_locks(false);
    assert_eq!(more.end().await.last(), Some(&GRANTED));
    until("it knows", || waits(&target) == 0).await;
    for held in [(0, 10), (50, 10)] {
        let wanted = Asked {
            range: held,
            ..stranger.clone()
        };
        assert_eq!(client.lock(&file, &wanted).await, DENIED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_wait_any_more_is_not_called() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let wanted = waiting(2, (0, 0));
    assert_eq!(client.lock(&file, &wanted).await, BLOCKED);
    let other = waiting(2, (0, 1));
    assert_eq!(client.ask(CANCEL, &file, &other).await, [GRANTED]);
    assert_eq!(waits(&target), 1, "another lock");
    assert_eq!(client.ask(CANCEL, &file, &wanted).await, [GRANTED]);
    assert_eq!(waits(&target), 0);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
    assert_eq!(machine.calls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_again_waits_once_and_is_told_that_it_has_the_lock() {
    // It never hears the call.
    let machine = machine(&[GRACE_PERIOD]).await;
    let (target, file, mut client) = locked(&machine).await;
    let wanted = waiting(2, (0, 0));
    assert_eq!(client.lock(&file, &wanted).await, BLOCKED);
    assert_eq!(client.lock(&file, &wanted).await, BLOCKED);
    assert_eq!(waits(&target), 1);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it is called", || !machine.calls().is_empty()).await;
    assert_eq!(client.lock(&file, &wanted).await, GRANTED);
    until("it knows", || waits(&target) == 0).await;
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_gave_back_or_took_anew_is_not_taken_from_it() {
    let machine = machine(&[GRACE_PERIOD, DENIED]).await;
    let (target, file, mut client) = locked(&machine).await;
    assert_eq!(client.lock(&file, &waiting(2, (0, 0))).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it is called", || !machine.calls().is_empty()).await;
    assert_eq!(client.unlock(&file, &of(2, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(2, (7, 7))).await, GRANTED);
    until("it is not called any more", || waits(&target) == 0).await;
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, DENIED);
    assert_eq!(machine.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_would_wait_for_ever_is_told_so() {
    let machine = machine(&[GRANTED]).await;
    let (_target, file, mut client) = locked(&machine).await;
    assert_eq!(client.unlock(&file, &of(1, (10, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(2, (10, 10))).await, GRANTED);
    assert_eq!(client.lock(&file, &waiting(1, (10, 10))).await, BLOCKED);
    assert_eq!(client.lock(&file, &waiting(2, (0, 5))).await, DEADLOCK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_waits_is_the_same_as_the_one_that_holds() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let second = waiting(2, (0, 10));
    assert_eq!(client.lock(&file, &second).await, BLOCKED);
    assert_eq!(client.unlock(&file, &of(1, (50, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(2, (50, 10))).await, GRANTED);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    until("it knows", || waits(&target) == 0).await;
    assert_eq!(client.unlock(&file, &of(2, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_locks_are_waited_for_as_may_be() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    for number in 0..256 {
        let wanted = waiting(2, (number, 1));
        assert_eq!(client.lock(&file, &wanted).await, BLOCKED, "{number}");
    }
    assert_eq!(client.lock(&file, &waiting(2, (999, 1))).await, NO_LOCKS);
    assert_eq!(waits(&target), 256);
    client.free_all(b"client").await;
    assert_eq!(waits(&target), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_waits_for_nothing() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    let gone = Asked {
        caller: b"gone",
        ..waiting(2, (0, 0))
    };
    assert_eq!(client.lock(&file, &gone).await, BLOCKED);
    client.free_all(b"gone").await;
    assert_eq!(waits(&target), 0);
    assert_eq!(client.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
    assert_eq!(machine.calls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_when_the_target_has_ended() {
    let machine = machine(&[GRANTED]).await;
    let (target, file, mut client) = locked(&machine).await;
    assert_eq!(client.lock(&file, &waiting(2, (0, 0))).await, BLOCKED);
    target.server.leave(Duration::from_millis(20)).await;
    until("it is over", || waits(&target) == 0).await;
    let next = target.again(without_grace_period()).await;
    let mut client = LockClient::new(&next, 0).await;
    assert_eq!(client.lock(&file, &of(3, (0, 0))).await, GRANTED);
    assert_eq!(machine.calls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_freed_also_of_what_it_is_given_late() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    target.volume.hold_locks(true);
    let mut gone = LockClient::new(&target, 0).await;
    let wanted = of(1, (0, 0)).arguments(LOCK, &file);
    gone.begin(7, LOCK, &wanted).await;
    let begun = || target.volume.begun.load(Ordering::SeqCst);
    until("it is begun", || begun() == 1).await;
    let mut freed = LockClient::new(&target, 0).await;
    freed.begin_free_all(b"client").await;
    // The call for the lock ends as late as it may.
    assert_eq!(gone.lock(&file, &of(2, (0, 0))).await, NO_LOCKS);
    target.volume.hold_locks(false);
    let mut other = LockClient::new(&target, 0).await;
    let stranger = Asked {
        caller: b"another",
        ..of(1, (0, 0))
    };
    until_it_is_free(&mut other, &file, &stranger).await;
}
