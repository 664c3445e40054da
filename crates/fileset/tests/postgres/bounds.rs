//! What operations may need at once, and how long they may take.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Engine, Transaction, transact};
use tokio::time::timeout;

use crate::database::{Server, place, settings_of};
use crate::keys::Outcome;

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
    let engine = DatabaseEngine::create(&settings).await.unwrap();
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
        DatabaseEngine::create(&settings_of(server, &there, identity))
            .await
            .unwrap(),
    );
    let mut own = settings_of(server, &here, identity);
    own.patience = Duration::from_secs(5);
    let a = DatabaseEngine::open(&own).await.unwrap();
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
