//! What is told of a server that refuses, and what it does not refuse.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use penstock_base::random;
use penstock_fileset::engine::{Engine, EngineError, PostgresEngine, Transaction, transact};

use crate::database::gate::Gate;
use crate::database::{Server, fail_changes, place, schema, settings_at, settings_of};
use crate::keys::{get, put, step};
use tokio::time::{sleep, timeout};

/// Marks at their end are marks still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_at_its_end_stops_nobody() {
    let Some(server) = Server::shared() else {
        return;
    };
    let here = place();
    let mut settings = settings_of(server, &here, random::number());
    settings.patience = Duration::from_secs(3);
    let engine = PostgresEngine::create(&settings).await.unwrap();
    for _ in 0..2 {
        let far = |transaction: &mut dyn Transaction| transaction.advance(b"mark", u64::MAX);
        transact(&engine, far).await.unwrap();
        engine.sync().await.unwrap();
    }
}

/// Why a session cannot begin is told as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_to_who_opens() {
    let Some(server) = Server::shared() else {
        return;
    };
    let here = place();
    let settings = settings_of(server, &here, random::number());
    PostgresEngine::create(&settings)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    fail_changes(server, &settings, ("session", "53100", 1.0));
    let opened = PostgresEngine::open(&settings).await;
    assert!(matches!(opened, Err(EngineError::Full(_))), "{opened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_is_there_is_not_made_again() {
    let Some(server) = Server::shared() else {
        return;
    };
    let here = place();
    let settings = settings_of(server, &here, random::number());
    PostgresEngine::create(&settings)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let again = PostgresEngine::create(&settings).await;
    assert!(matches!(again, Err(EngineError::Fenced(_))), "{again:?}");
}

/// How many transactions were refused by the server, whose engines are all closed.
async fn rollbacks(server: &Server) -> String {
    // What connections counted is there when they ended.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'";
    while server.sql(others) != "0" {
        sleep(Duration::from_millis(20)).await;
    }
    server.sql("SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'")
}

/// The isolation of transactions that say none is for who runs the server to set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_of_isolation_makes_nobody_run_again() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql("ALTER ROLE penstock SET default_transaction_isolation = 'serializable'");
    let places = [place(), place()];
    let identity = random::number();
    let [first, second] = places
        .each_ref()
        .map(|place| settings_of(&server, place, identity));
    let first = Arc::new(PostgresEngine::create(&first).await.unwrap());
    let second = Arc::new(PostgresEngine::open(&second).await.unwrap());
    let tasks = [Arc::clone(&first), Arc::clone(&second)];
    let tasks = tasks.into_iter().enumerate().map(|(machine, engine)| {
        tokio::spawn(async move {
            for number in 0..200 {
                step(&*engine, format!("{machine}-{number}")).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    first.close().await.unwrap();
    second.close().await.unwrap();
    drop((first, second));
    assert_eq!(rollbacks(&server).await, "0");
}

/// What makes a beat wait for its row, and lets it go on as soon as it does.
fn hold_a_beat_up(server: &Server, schema: &str) {
    server.sql(&format!(
        "BEGIN; UPDATE {schema}.session SET name = name; \
         DO $$ BEGIN FOR turn IN 1..3000 LOOP \
           IF turn = 3000 THEN RAISE EXCEPTION 'no beat waits'; END IF; \
           PERFORM pg_stat_clear_snapshot(); \
           EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
             AND query LIKE 'UPDATE {schema}.session SET beat%'); \
           PERFORM pg_sleep(0.01); \
         END LOOP; END $$; COMMIT"
    ));
}

/// A beat meets the changes of its own session and does not fail for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_of_isolation_refuses_no_beat_that_waited() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql("ALTER ROLE penstock SET default_transaction_isolation = 'serializable'");
    let here = place();
    let settings = settings_of(&server, &here, random::number());
    let engine = PostgresEngine::create(&settings).await.unwrap();
    let schema = schema(&settings);
    tokio::task::block_in_place(|| hold_a_beat_up(&server, &schema));
    put(&engine, "k", "v").await;
    engine.close().await.unwrap();
    drop(engine);
    assert_eq!(rollbacks(&server).await, "0");
}

/// A standby that lags and takes no changes is behind the address until it has what was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_behind_the_address_is_waited_out() {
    let Some(server) = Server::start() else {
        return;
    };
    let here = place();
    let (gate, port) = Gate::new(server.port).await;
    let settings = settings_at(port, here.path(), 1);
    let engine = PostgresEngine::create(&settings).await.unwrap();
    put(&engine, "k", "v").await;
    engine.sync().await.unwrap();
    let schema = schema(&settings);
    gate.is_frozen.store(true, Ordering::SeqCst);
    server.sql(&format!(
        "ALTER ROLE penstock SET default_transaction_read_only = on; \
         UPDATE {schema}.head SET sequence = sequence - 1; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
           WHERE application_name = 'penstock';"
    ));
    gate.is_frozen.store(false, Ordering::SeqCst);
    let looked = timeout(Duration::from_secs(1), get(&engine, "other")).await;
    assert!(looked.is_err(), "it is waited for: {looked:?}");
    server.sql(&format!(
        "SET default_transaction_read_only = off; \
         UPDATE {schema}.head SET sequence = sequence + 1; \
         ALTER ROLE penstock RESET default_transaction_read_only;"
    ));
    assert_eq!(get(&engine, "other").await, Ok(None));
    put(&engine, "k", "w").await;
    engine.sync().await.unwrap();
}
