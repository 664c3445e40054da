//! What operations may need at once, and how long they may take.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{Engine, PostgresEngine, Transaction, transact};
use tokio::time::timeout;

use crate::database::{Server, place, schema, settings_of};
use crate::keys::{Outcome, put};

/// An operation may look at more than fits in memory, or fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_looks_at_more_than_fits_in_memory_ends() {
    let Some(server) = Server::shared() else {
        return;
    };
    let here = place();
    let mut settings = settings_of(server, &here, random::number());
    settings.memory = 32 << 10;
    settings.patience = Duration::from_secs(3);
    let engine = PostgresEngine::create(&settings).await.unwrap();
    let fill = |transaction: &mut dyn Transaction| -> Outcome<()> {
        for number in 0..20_000_u32 {
            transaction.put(&number.to_be_bytes(), Bytes::from(vec![1; 100]));
        }
        Ok(())
    };
    transact(&engine, fill).await.unwrap();
    engine.sync().await.unwrap();
    let tries = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&tries);
    let scan = transact(&engine, move |transaction| -> Outcome<u64> {
        counts.fetch_add(1, Ordering::SeqCst);
        let mut seen = 0;
        transaction.scan(&[]..&[0xff; 8], &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        })?;
        transaction.put(b"\xfeseen", Bytes::from(seen.to_string()));
        Ok(seen)
    });
    let done = timeout(Duration::from_secs(20), scan).await;
    println!("{done:?} after {} runs", tries.load(Ordering::SeqCst));
    assert!(done.is_ok(), "it neither ended nor failed");
}

/// An operation over many keys that others change all the time ends, or fails in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_others_meet_again_and_again_ends() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let b = Arc::new(
        PostgresEngine::create(&settings_of(server, &there, identity))
            .await
            .unwrap(),
    );
    let mut own = settings_of(server, &here, identity);
    own.patience = Duration::from_secs(5);
    let a = PostgresEngine::open(&own).await.unwrap();
    let fill = |transaction: &mut dyn Transaction| -> Outcome<()> {
        for number in 0..1000_u32 {
            transaction.put(&number.to_be_bytes(), Bytes::from(vec![1; 100]));
        }
        Ok(())
    };
    transact(&*b, fill).await.unwrap();
    let changers: Vec<_> = (0..4)
        .map(|_| {
            let b = Arc::clone(&b);
            tokio::spawn(async move {
                loop {
                    let key = (random::number() % 1000) as u32;
                    let work = move |transaction: &mut dyn Transaction| -> Outcome<()> {
                        transaction.put(&key.to_be_bytes(), Bytes::from(vec![2; 100]));
                        Ok(())
                    };
                    transact(&*b, work).await.unwrap();
                }
            })
        })
        .collect();
    let runs = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&runs);
    let scan = transact(&a, move |transaction| -> Outcome<u64> {
        counts.fetch_add(1, Ordering::SeqCst);
        let mut seen = 0;
        transaction.scan(&[]..&[0xff; 8], &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        })?;
        transaction.put(b"\xfeseen", Bytes::from(seen.to_string()));
        Ok(seen)
    });
    let done = timeout(Duration::from_secs(20), scan).await;
    changers.iter().for_each(tokio::task::JoinHandle::abort);
    println!("{done:?} after {} runs", runs.load(Ordering::SeqCst));
    assert!(done.is_ok(), "it neither ended nor failed");
}

/// Plans are kept for as long as a connection lives, and the first ones are made when there is next to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_counts_does_not_walk_over_all_keys_once_there_are_many() {
    const MANY: u64 = 20_000;
    let Some(server) = Server::start() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let settings = settings_of(&server, &here, identity);
    let first = PostgresEngine::create(&settings).await.unwrap();
    let other = settings_of(&server, &there, identity);
    let second = PostgresEngine::open(&other).await.unwrap();
    let schema = schema(&settings);
    // What is kept must not depend on when the server looks by itself.
    server.sql(&format!(
        "ALTER TABLE {schema}.kv SET (autovacuum_enabled = off)"
    ));
    for number in 0..60_u64 {
        put(&first, &format!("few {number}"), "value").await;
    }
    server.sql(&format!("ANALYZE {schema}.kv"));
    let count = |transaction: &mut dyn Transaction| -> Outcome<()> { transaction.add(b"count", 1) };
    transact(&first, count).await.unwrap();
    server.sql(&format!(
        "INSERT INTO {schema}.kv (key, value) SELECT '\\x6d'::bytea || int8send(i), '\\x00'::bytea \
           FROM generate_series(1, {MANY}) AS i"
    ));
    let read = || {
        let read = server.sql(&format!(
            "SELECT idx_tup_read FROM pg_stat_user_indexes \
               WHERE schemaname = '{schema}' AND relname = 'kv'"
        ));
        read.parse::<u64>().unwrap()
    };
    // The server notes what a connection did a second later.
    let note = async || {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        transact(&first, count).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        read()
    };
    let before = note().await;
    for _ in 0..10 {
        transact(&first, count).await.unwrap();
    }
    let walked = note().await - before;
    assert!(walked < MANY, "{walked} keys in a dozen groups");
    first.close().await.unwrap();
    second.close().await.unwrap();
}
