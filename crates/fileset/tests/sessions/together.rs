//! Machines that have the same keys in a database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use penstock_fileset::engine::{Engine, Moment, Peers};

use crate::{
    database::Server,
    histories::histories,
    keys::{get, put, put_value, step},
    several::{Machines, check_whole},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_three_machines_have_one_order() {
    let Some(server) = Server::shared() else {
        return;
    };
    for _ in 0..3 {
        let (mut machines, first) = Machines::new(server).await;
        let mut engines: Vec<Arc<dyn Engine>> = vec![Arc::new(first)];
        for _ in 0..2 {
            engines.push(Arc::new(machines.join().await));
        }
        histories(engines).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_machine_changes_the_others_see_soon_and_when_they_ask_at_once() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let second = machines.join().await;
    assert_eq!(get(&second, "k").await.unwrap(), None);
    let mut waits = Vec::new();
    for number in 0..20_u8 {
        let began = Instant::now();
        put_value(&first, "k", vec![number]).await.unwrap();
        while get(&second, "k").await.unwrap().as_deref() != Some(&[number]) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waits.push(began.elapsed());
    }
    waits.sort();
    println!("seen after {:?}, at most {:?}", waits[10], waits[19]);
    for number in 0..20_u8 {
        put_value(&second, "k", vec![number]).await.unwrap();
        first.catch_up().await.unwrap();
        assert_eq!(
            get(&first, "k").await.unwrap().as_deref(),
            Some(&[number][..])
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_told_and_who_took_them_in_is_known() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let second = machines.join().await;
    let any = second.changes().await.unwrap();
    assert_eq!(any.keys, None, "what came before");
    second.took_in(any.until);
    put(&first, "k", "v").await;
    let changed = second.changes().await.unwrap();
    assert_eq!(changed.keys, Some(vec![Bytes::from_static(b"k")]));
    assert_eq!(get(&second, "k").await.unwrap().as_deref(), Some(&b"v"[..]));
    let reached = |moment: Moment| {
        let first = &first;
        async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            first.taken_in_by_all().await.unwrap() >= moment
        }
    };
    assert!(!reached(changed.until).await, "not taken in yet");
    second.took_in(changed.until);
    while !reached(changed.until).await {}
    // Of its own changes nobody keeps anything older.
    put(&second, "k", "w").await;
    let until = first.catch_up().await.unwrap();
    while !reached(until).await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_come_and_go_under_load_and_nothing_is_lost() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let first = Arc::new(first);
    let ends = Arc::new(AtomicBool::new(false));
    let load = {
        let (first, ends) = (Arc::clone(&first), Arc::clone(&ends));
        tokio::spawn(async move {
            let mut done = 0;
            while !ends.load(Ordering::SeqCst) {
                step(&*first, format!("first-{done}")).await.unwrap();
                done += 1;
            }
            done
        })
    };
    let mut total = 0;
    for round in 0..3 {
        let other = machines.join().await;
        for number in 0..50 {
            step(&other, format!("{round}-{number}")).await.unwrap();
        }
        total += 50;
        other.close().await.unwrap();
        // Long enough for the first one to have the keys alone again.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    ends.store(true, Ordering::SeqCst);
    total += load.await.unwrap();
    let last = machines.join().await;
    check_whole(&last, total).await;
}
