//! Databases that were put back, or whose standby lagged, and went on.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Engine, Peers};

use crate::database::gate::Gate;
use crate::database::{Server, place, schema, settings_at, settings_of};
use crate::keys::{append_to, get, put, put_value};

/// A standby that had not heard of a session yet becomes the primary; another machine gets the same number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_a_session_that_a_failover_gives_out_again_acknowledges_nothing() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let settings = settings_of(server, &here, identity);
    DatabaseEngine::create(&settings)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let a = DatabaseEngine::open(&settings).await.unwrap();
    let schema = schema(&settings);
    // As it was before `a` began.
    server.sql(&format!(
        "BEGIN; LOCK TABLE {schema}.session; UPDATE {schema}.head SET sessions = 1, alone = NULL; \
         DELETE FROM {schema}.session; \
         UPDATE {schema}.head SET sessions = 2, alone = 2; \
         INSERT INTO {schema}.session SELECT 2, 77, 'other', now(), now(), 0, sequence, 0, sequence, 1 \
           FROM {schema}.head; COMMIT"
    ));
    // That is what `begin` and `ask` of another machine do; it changes something.
    drop(there);
    server.sql(&format!(
        "BEGIN; UPDATE {schema}.head SET sequence = sequence + 1; \
         UPDATE {schema}.session SET batch = 1, beat = 1, at = (SELECT sequence FROM {schema}.head); \
         INSERT INTO {schema}.kv (key, value) VALUES ('b', 'b'); COMMIT"
    ));
    let acknowledged = put_value(&a, "a", b"a".to_vec()).await.and(a.sync().await);
    let found = server.sql(&format!(
        "SELECT convert_from(key, 'UTF8') FROM {schema}.kv ORDER BY key"
    ));
    println!("{acknowledged:?}, and there are {found:?}");
    assert!(
        acknowledged.is_err() || found.contains('a'),
        "synced, and not there"
    );
}

/// A failover to a standby that lagged; a machine that only read reconnects when others went on there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_was_put_back_and_went_on_is_noticed() {
    let Some(server) = Server::shared() else {
        return;
    };
    let places = [place(), place(), place()];
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let settings = settings_of(server, &places[0], identity);
    let b = DatabaseEngine::create(&settings).await.unwrap();
    let a = DatabaseEngine::open(&settings_at(port, places[1].path(), identity))
        .await
        .unwrap();
    put(&b, "k", "-").await;
    let schema = schema(&settings);
    let tables = ["kv", "head", "session", "feed"];
    let copies = tables
        .map(|table| format!("CREATE TABLE {schema}.c_{table} AS SELECT * FROM {schema}.{table};"));
    server.sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; {} COMMIT",
        copies.concat()
    ));
    append_to(&b, "k", "lost").await.unwrap();
    a.catch_up().await.unwrap();
    assert_eq!(get(&a, "k").await.unwrap().as_deref(), Some(&b"-lost"[..]));
    gate.is_frozen.store(true, Ordering::SeqCst);
    let back = tables.map(|table| {
        format!("DELETE FROM {schema}.{table}; INSERT INTO {schema}.{table} SELECT * FROM {schema}.c_{table};")
    });
    server.sql(&format!("BEGIN; {} COMMIT", back.concat()));
    let c = DatabaseEngine::open(&settings_of(server, &places[2], identity))
        .await
        .unwrap();
    append_to(&c, "k", "c").await.unwrap();
    put(&c, "other", "1").await;
    gate.is_frozen.store(false, Ordering::SeqCst);
    let caught_up = a.catch_up().await;
    let seen = get(&a, "k").await;
    let changed = append_to(&a, "k", "a").await;
    c.catch_up().await.unwrap();
    let found = get(&c, "k").await.unwrap().unwrap();
    println!("{caught_up:?}, seen {seen:?}, changed {changed:?}, there is {found:?}");
    assert!(
        changed.is_err() || found == Bytes::from_static(b"-ca"),
        "{found:?}"
    );
}
