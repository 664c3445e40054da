//! What creates and looks cost on a database, with a server of its own:
//! `cargo run --release -p penstock-fileset --example database_rates`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods
)]

#[path = "../tests/database/mod.rs"]
mod database;
mod rates;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use database::{Server, settings};
use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Engine};
use rates::{DIRECTORIES, Row, Work, run};

/// Transactions and syncs of the log that the server counted so far.
fn counted(server: &Server) -> (f64, f64) {
    // A session tells its numbers when it is idle for a second.
    std::thread::sleep(Duration::from_millis(1500));
    let counted = server.sql(
        "SELECT sum(xact_commit) || ' ' || (SELECT wal_sync FROM pg_stat_wal) FROM pg_stat_database",
    );
    let mut numbers = counted.split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn tell(what: &str, server: &Server, before: (f64, f64), (count, took): (u64, Duration)) {
    let after = counted(server);
    let each = |number: f64| number / count.max(1) as f64;
    println!(
        "{what:44} {:8.0}/s {:6.2} transactions {:6.3} syncs of the log, each",
        count as f64 / took.as_secs_f64(),
        each(after.0 - before.0),
        each(after.1 - before.1),
    );
}

#[tokio::main]
async fn main() {
    let server = Server::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(&server, directory.path(), random::number());
    settings.memory = 256 << 20;
    settings.connections = 4;
    let mut engine = Arc::new(DatabaseEngine::create(&settings).await.unwrap());
    let numbers = Arc::new(AtomicU64::new(1));
    for (what, callers, work) in [
        (
            "create + sync, 1 caller",
            1,
            Work::Create(DIRECTORIES, true),
        ),
        (
            "create + sync, 16 callers",
            16,
            Work::Create(DIRECTORIES, true),
        ),
        (
            "create + sync, 64 callers",
            64,
            Work::Create(DIRECTORIES, true),
        ),
        (
            "create + sync, 16 callers, one directory",
            16,
            Work::Create(1, true),
        ),
        ("create, 1 caller", 1, Work::Create(DIRECTORIES, false)),
        ("create, 16 callers", 16, Work::Create(DIRECTORIES, false)),
    ] {
        if let Work::Create(1, _) = work {
            // Others' names hash elsewhere.
            numbers.fetch_add(1 << 32, Ordering::SeqCst);
        }
        let before = counted(&server);
        let row = Row {
            work,
            callers,
            numbers: Arc::clone(&numbers),
            until: u64::MAX,
        };
        let ran = run(&engine, row).await;
        tell(what, &server, before, ran);
    }
    let last = numbers.load(Ordering::SeqCst);
    for (what, callers, count) in [
        ("look that is not known, 1 caller", 1, 2_000),
        ("look that is not known, 16 callers", 16, 8_000),
    ] {
        engine.close().await.unwrap();
        engine = Arc::new(DatabaseEngine::open(&settings).await.unwrap());
        for round in ["", ", again"] {
            let before = counted(&server);
            let row = Row {
                work: Work::Lookup(last - 20_000),
                callers,
                numbers: Arc::default(),
                until: count,
            };
            let ran = run(&engine, row).await;
            tell(&format!("{what}{round}"), &server, before, ran);
        }
    }
    engine.close().await.unwrap();
}
