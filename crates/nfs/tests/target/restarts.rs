//! Clients and targets that were started again.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs3_types::{
    nfs3::nfs_fh3,
    xdr_codec::{Pack, Void},
};
use penstock_nfs::StartError;
use tokio::net::UdpSocket;

use crate::support::{
    called::{Call, CalledMachine},
    locks::*,
    *,
};

const NSM: u32 = 100_024;
const STATE: u32 = 1;
const NOTIFY: u32 = 6;

fn reclaimed(asked: &Asked) -> Asked {
    Asked {
        reclaims: true,
        ..asked.clone()
    }
}

fn nsm_call(xid: u32, procedure: u32, (name, state): (&[u8], u32)) -> Vec<u8> {
    let mut bytes = call_bytes(xid, (NSM, 1, procedure), Default::default(), &Void);
    opaque(name, &mut bytes);
    if procedure == NOTIFY {
        state.pack(&mut bytes).unwrap();
    }
    bytes
}

/// A machine tells in a datagram that it was started, and has its answer.
async fn notify(place: SocketAddr, name: &[u8], state: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let call = nsm_call(9, NOTIFY, (name, state));
    socket.send_to(&call, place).await.unwrap();
    let mut answer = [0; 100];
    let length = socket.recv(&mut answer).await.unwrap();
    assert_eq!(answer[..length].len(), 24, "no result");
    assert_eq!(answer[20..24], [0; 4]);
}

/// A target with datagrams, and a file of which a client has locked all.
async fn locked() -> (Target, nfs_fh3, LockClient) {
    let target = Target::made(with_portmap("127.0.0.1:0"), Default::default()).await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    (target, file, client)
}

fn stranger() -> Asked {
    Asked {
        caller: b"stranger",
        ..of(1, (0, 0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_started_again_holds_nothing() {
    for name in [&b"client"[..], b"client.example.org", b"10.0.0.1"] {
        let (target, file, mut client) = locked().await;
        notify(target.address(), name, 3).await;
        assert_eq!(client.lock(&file, &stranger()).await, GRANTED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_tells_the_same_start_again_keeps_what_it_got_since() {
    let (target, file, mut client) = locked().await;
    let place = target.address();
    notify(place, b"client", 1).await;
    assert_eq!(client.lock(&file, &stranger()).await, DENIED, "no news");
    notify(place, b"client", 3).await;
    let since = Asked {
        state: 3,
        ..of(1, (0, 0))
    };
    assert_eq!(client.lock(&file, &since).await, GRANTED);
    notify(place, b"client", 3).await;
    assert_eq!(client.lock(&file, &stranger()).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_a_lock_before_it_tells_of_its_start_holds_nothing_of_before() {
    let (target, file, mut client) = locked().await;
    let since = Asked {
        state: 3,
        ..of(2, (0, 10))
    };
    assert_eq!(client.lock(&file, &since).await, GRANTED);
    let rest = Asked {
        range: (10, 0),
        ..stranger()
    };
    assert_eq!(client.lock(&file, &rest).await, GRANTED);
    notify(target.address(), b"client", 3).await;
    let first = Asked {
        range: (0, 10),
        ..stranger()
    };
    assert_eq!(client.lock(&file, &first).await, DENIED, "it has it since");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_at_the_same_address_keeps_its_locks() {
    let (target, file, mut client) = locked().await;
    let neighbour = Asked {
        caller: b"neighbour",
        is_exclusive: false,
        ..of(1, (0, 0))
    };
    assert_eq!(client.unlock(&file, &of(1, (0, 10))).await, GRANTED);
    let first = Asked {
        range: (0, 10),
        ..neighbour
    };
    assert_eq!(client.lock(&file, &first).await, GRANTED);
    notify(target.address(), b"somebody", 3).await;
    notify(target.address(), b"neighbour", 3).await;
    assert_eq!(client.lock(&file, &of(1, (0, 10))).await, GRANTED);
    let rest = Asked {
        range: (10, 0),
        ..stranger()
    };
    assert_eq!(client.lock(&file, &rest).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_monitor_tells_its_state_and_watches_for_nobody_else() {
    let target = Target::new().await;
    let mut raw = RawClient::new(&target).await;
    raw.send(&record(&nsm_call(7, STATE, (b"me", 0)))).await;
    assert_eq!(raw.words().await, [7, 1, 0, 0, 0, 0, 1, 1]);
    for monitoring in [2, 3, 4, 5] {
        raw.send(&record(&nsm_call(7, monitoring, (b"me", 0))))
            .await;
        assert_eq!(raw.words().await[5], 3, "{monitoring}");
    }
    let notice = nsm_call(7, NOTIFY, (b"me", 3));
    raw.send(&record(&notice[..notice.len() - 4])).await;
    assert_eq!(raw.words().await[5], 4, "garbage");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_held_locks_is_told_of_a_start_and_reclaims_them_before_others_get_any() {
    let machine = CalledMachine::new([127, 0, 0, 1], &[]).await;
    let making = || Making {
        port_mappers_of_clients: machine.address.port(),
        grace_period: Duration::from_secs(5),
        ..Making::default()
    };
    let target = Target::made(making(), Default::default()).await;
    let file = file_of(&target).await;
    let held = of(1, (0, 10));
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &held).await, GRANTED);
    target.server.leave(Duration::ZERO).await;
    assert_eq!(machine.calls(), []);
    let begun = Instant::now();
    let next = target.again(making()).await;
    let mut client = LockClient::new(&next, 0).await;
    assert_eq!(client.lock(&file, &stranger()).await, GRACE_PERIOD);
    let tested = client.ask(TEST, &file, &stranger()).await;
    assert_eq!(tested, [GRACE_PERIOD]);
    assert_eq!(client.lock(&file, &reclaimed(&held)).await, GRANTED);
    until("it is told", || !machine.calls().is_empty()).await;
    let mut arguments = Vec::new();
    opaque(b"127.0.0.1", &mut arguments);
    3_u32.pack(&mut arguments).unwrap();
    let notice = Call {
        from: [127, 0, 0, 1].into(),
        which: [NSM, 1, NOTIFY],
        arguments,
    };
    assert_eq!(machine.calls(), [notice]);
    while client.lock(&file, &of(2, (20, 1))).await == GRACE_PERIOD {
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed() > Duration::from_secs(4));
    assert_eq!(client.lock(&file, &stranger()).await, DENIED);
    let late = reclaimed(&of(1, (30, 1)));
    assert_eq!(client.lock(&file, &late).await, GRACE_PERIOD, "too late");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_held_nothing_reclaims_nothing() {
    let making = || Making {
        grace_period: Duration::from_secs(60),
        ..Making::default()
    };
    let target = Target::made(making(), Default::default()).await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    target.server.leave(Duration::ZERO).await;
    let list = target.directory().join("lockers");
    let others = std::fs::read_to_string(&list).unwrap();
    let others = others.replace("client 127.0.0.1 ", "client 127.0.0.9 ");
    std::fs::write(&list, others).unwrap();
    let next = target.again(making()).await;
    let mut client = LockClient::new(&next, 0).await;
    let wanted = reclaimed(&of(1, (0, 0)));
    assert_eq!(client.lock(&file, &wanted).await, DENIED);
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRACE_PERIOD);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reclaimed_lock_waits_for_what_is_in_its_way() {
    let making = || Making {
        grace_period: Duration::from_secs(60),
        ..Making::default()
    };
    let target = Target::made(making(), Default::default()).await;
    let file = file_of(&target).await;
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
    target.server.leave(Duration::ZERO).await;
    let next = target.again(making()).await;
    let mut first = LockClient::new(&next, 0).await;
    let in_its_way = reclaimed(&of(1, (0, 0)));
    assert_eq!(first.lock(&file, &in_its_way).await, GRANTED);
    let mut second = LockClient::new(&next, 0).await;
    let wanted = reclaimed(&of(2, (0, 0)));
    second.begin(7, LOCK, &wanted.arguments(LOCK, &file)).await;
    let calls = || next.metric("nfs_calls_total{procedure=\"nlm_unlock\"}");
    assert_eq!(first.unlock(&file, &of(1, (0, 0))).await, GRANTED);
    assert_eq!(calls(), 1);
    assert_eq!(second.end().await.last(), Some(&GRANTED));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_grace_period_where_nobody_held_a_lock() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    target.server.leave(Duration::ZERO).await;
    let next = target.again(Making::default()).await;
    let mut client = LockClient::new(&next, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_given_to_who_could_not_be_told_of_a_start() {
    let target = Target::new().await;
    let file = file_of(&target).await;
    std::fs::remove_dir_all(target.directory()).unwrap();
    let mut client = LockClient::new(&target, 0).await;
    assert_eq!(client.lock(&file, &of(1, (0, 0))).await, NO_LOCKS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_whose_list_of_clients_is_damaged_does_not_start() {
    let target = Target::new().await;
    std::fs::write(target.directory().join("lockers"), "state ?").unwrap();
    let refused = target.try_again(Making::default()).await;
    assert!(matches!(refused, Err(StartError::Lockers(..))));
}
