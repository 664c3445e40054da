//! What machines make of answers that come late, out of order, or never.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{
    DatabaseEngine, Engine, Peers, Transaction, counter, query, transact,
};
use tokio::time::sleep;

use crate::database::gate::Gate;
use crate::database::{Server, place, schema, settings_at, settings_of};
use crate::keys::{Outcome, append_to, count, get, model, put, put_value, step};

/// The answer to our group is on its way while another machine changes the same key, and news come by another
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_does_not_build_on_a_sent_group_that_others_changed_over() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let b = DatabaseEngine::create(&settings_of(server, &there, identity))
        .await
        .unwrap();
    let a = DatabaseEngine::open(&settings_at(port, here.path(), identity))
        .await
        .unwrap();
    let a = Arc::new(a);
    put(&b, "k", "-").await;
    a.catch_up().await.unwrap();
    assert_eq!(get(&*a, "k").await.unwrap().as_deref(), Some(&b"-"[..]));
    gate.holds_writer_answers.store(true, Ordering::SeqCst);
    let first = tokio::spawn({
        let a = Arc::clone(&a);
        async move { append_to(&*a, "k", "a").await }
    });
    loop {
        b.catch_up().await.unwrap();
        if get(&b, "k").await.unwrap().as_deref() == Some(&b"-a"[..]) {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    append_to(&b, "k", "b").await.unwrap();
    a.catch_up().await.unwrap();
    println!("a look here sees {:?}", get(&*a, "k").await.unwrap());
    let second = tokio::spawn({
        let a = Arc::clone(&a);
        async move { append_to(&*a, "k", "c").await }
    });
    sleep(Duration::from_millis(2000)).await;
    gate.holds_writer_answers.store(false, Ordering::SeqCst);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    b.catch_up().await.unwrap();
    let found = get(&b, "k").await.unwrap().unwrap();
    assert_eq!(
        found,
        Bytes::from_static(b"-abc"),
        "an acknowledged change is lost"
    );
}

/// The same with a counter on one machine alone: what was sent counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_was_sent_is_not_counted_twice() {
    let Some(server) = Server::shared() else {
        return;
    };
    let here = place();
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let calm = settings_of(server, &here, identity);
    DatabaseEngine::create(&calm)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let a = DatabaseEngine::open(&settings_at(port, here.path(), identity))
        .await
        .unwrap();
    let a = Arc::new(a);
    gate.holds_writer_answers.store(true, Ordering::SeqCst);
    let add = |transaction: &mut dyn Transaction| transaction.add(b"count", 1);
    transact(&*a, add).await.unwrap();
    let sync = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.sync().await }
    });
    let sql = format!("SELECT number FROM {}.kv", schema(&calm));
    while server.sql(&sql) != "1" {
        sleep(Duration::from_millis(20)).await;
    }
    let seen = count(&*a).await;
    let note = |transaction: &mut dyn Transaction| -> Outcome<()> {
        let count = counter(transaction.get(b"count")?.as_ref());
        transaction.put(b"note", Bytes::from(count.to_string()));
        Ok(())
    };
    transact(&*a, note).await.unwrap();
    gate.holds_writer_answers.store(false, Ordering::SeqCst);
    sync.await.unwrap().unwrap();
    a.sync().await.unwrap();
    let noted = get(&*a, "note").await.unwrap().unwrap();
    println!(
        "looked at: {seen}, noted for good: {noted:?}, at last: {}",
        count(&*a).await
    );
    assert_eq!((seen, &noted[..]), (1, &b"1"[..]));
}

/// And on a machine that shares: operations see what was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_was_sent_is_not_counted_twice_by_who_shares() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let b = DatabaseEngine::create(&settings_of(server, &there, identity))
        .await
        .unwrap();
    let a = DatabaseEngine::open(&settings_at(port, here.path(), identity))
        .await
        .unwrap();
    let a = Arc::new(a);
    gate.holds_writer_answers.store(true, Ordering::SeqCst);
    let first = tokio::spawn({
        let a = Arc::clone(&a);
        let add = |transaction: &mut dyn Transaction| transaction.add(b"count", 1);
        async move { transact(&*a, add).await }
    });
    while count(&b).await != 1 {
        b.catch_up().await.unwrap();
    }
    let second = tokio::spawn({
        let a = Arc::clone(&a);
        let note = |transaction: &mut dyn Transaction| -> Outcome<()> {
            let count = counter(transaction.get(b"count")?.as_ref());
            transaction.put(b"note", Bytes::from(count.to_string()));
            Ok(())
        };
        async move { transact(&*a, note).await }
    });
    sleep(Duration::from_millis(2000)).await;
    gate.holds_writer_answers.store(false, Ordering::SeqCst);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    b.catch_up().await.unwrap();
    let noted = get(&b, "note").await.unwrap().unwrap();
    assert_eq!(&noted[..], b"1");
}

/// Now and then a packet of the connection that writes is lost, and comes 200 ms later; other connections go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_lose_nothing_of_keys_that_both_machines_change() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let b = DatabaseEngine::create(&settings_of(server, &there, identity))
        .await
        .unwrap();
    let a = DatabaseEngine::open(&settings_at(port, here.path(), identity))
        .await
        .unwrap();
    let engines = [Arc::new(a), Arc::new(b)];
    gate.delays_writer_answers.store(true, Ordering::SeqCst);
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..8_usize {
        let (engine, done) = (Arc::clone(&engines[task % 2]), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(8) {
                // Neither has much to do: what comes after a change is not outdated by the next one.
                sleep(Duration::from_millis(random::number() % 300)).await;
                let key = (random::number() % 2) as u8;
                let work = move |transaction: &mut dyn Transaction| -> Outcome<()> {
                    let count = counter(transaction.get(&[key])?.as_ref()) + 1;
                    transaction.put(&[key], Bytes::copy_from_slice(&count.to_le_bytes()));
                    Ok(())
                };
                transact(&*engine, work).await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    // Somebody looks, too, as who opens a file.
    let looks = Arc::clone(&engines[0]);
    let looks = tokio::spawn(async move {
        loop {
            let _ = looks.catch_up().await;
            sleep(Duration::from_millis(5)).await;
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    looks.abort();
    engines[1].catch_up().await.unwrap();
    let found = model(&*engines[1]).await;
    let found = found
        .values()
        .map(|value| counter(Some(&Bytes::from(value.clone()))))
        .sum::<i64>();
    let done = done.load(Ordering::SeqCst) as i64;
    println!("{} lost of {done} acknowledged", done - found);
    assert_eq!(found, done, "acknowledged, and not there");
}

/// The answer that a machine has the keys alone was lost; another one comes before it asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_that_a_machine_is_alone_keeps_nobody_out() {
    let Some(server) = Server::shared() else {
        return;
    };
    let places = [place(), place(), place()];
    let identity = random::number();
    let settings = places
        .each_ref()
        .map(|place| settings_of(server, place, identity));
    let a = DatabaseEngine::create(&settings[0]).await.unwrap();
    let b = DatabaseEngine::open(&settings[1]).await.unwrap();
    step(&a, "a".to_owned()).await.unwrap();
    b.close().await.unwrap();
    // `ask` of `a` at its beat, whose answer does not come.
    let (schema, session) = (schema(&settings[0]), a.session().0);
    server.sql(&format!("UPDATE {schema}.head SET alone = {session}"));
    let mut late = settings[2].clone();
    late.lease = Duration::from_secs(3);
    let opened = DatabaseEngine::open(&late).await;
    step(&a, "b".to_owned()).await.unwrap();
    assert!(opened.is_ok(), "{opened:?}");
}

/// What a query sees is never earlier than what the query before it saw, also if that went over everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_behind_one_at_all_keys_does_not_go_back() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let b = DatabaseEngine::create(&settings_of(server, &there, identity))
        .await
        .unwrap();
    let mut own = settings_of(server, &here, identity);
    own.memory = 32 << 10;
    let a = Arc::new(DatabaseEngine::open(&own).await.unwrap());
    let looks = {
        let a = Arc::clone(&a);
        tokio::spawn(async move {
            loop {
                let _ = get(&*a, "zz").await;
                sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let fill = |transaction: &mut dyn Transaction| -> Outcome<()> {
        for number in 0..20_000_u32 {
            transaction.put(&number.to_be_bytes(), Bytes::from_static(b"x"));
        }
        Ok(())
    };
    transact(&b, fill).await.unwrap();
    let (ask, asked) = mpsc::channel::<u32>();
    let (tell, told) = mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let runtime = tokio::runtime::Handle::current();
    let writer = std::thread::spawn(move || {
        for number in asked {
            let written = put_value(&b, "zz", number.to_string().into_bytes());
            runtime.block_on(written).unwrap();
            tell.send(()).unwrap();
        }
    });
    let mut back = 0;
    for round in 1..=10_u32 {
        let (mut runs, mut in_all) = (0, None);
        let look = query(&*a, |reads| -> Outcome<()> {
            runs += 1;
            if runs == 25 {
                // Now it goes over everything: what is changed before its first page is in it.
                ask.send(round).unwrap();
                told.lock().unwrap().recv().unwrap();
                in_all = reads.get(b"zz")?;
                return Ok(());
            }
            reads.scan(&[]..&[0xff; 8], &mut |_, _| ControlFlow::Continue(()))
        });
        look.await.unwrap();
        let later = get(&*a, "zz").await.unwrap();
        assert_eq!(runs, 25);
        assert_eq!(in_all.as_deref(), Some(round.to_string().as_bytes()));
        back += u32::from(later != in_all);
    }
    looks.abort();
    drop(ask);
    writer.join().unwrap();
    assert_eq!(back, 0, "looks that went back, of 10");
}
