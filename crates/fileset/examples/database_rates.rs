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

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use database::{Server, settings};
use penstock_base::random;
use penstock_fileset::engine::{Engine, EngineError, PostgresEngine, Transaction, query, transact};

/// How long each row runs.
const TIME: Duration = Duration::from_secs(4);
const DIRECTORIES: u64 = 900;

/// What an operation does with the number that is its own.
#[derive(Clone, Copy)]
enum Work {
    /// Directories, synced or not.
    Create(u64, bool),
    /// A name that may not be known.
    Lookup(u64),
}

fn entry(number: u64, directories: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let directory = (spread >> 40) % directories;
    [
        b"D".as_slice(),
        &directory.to_be_bytes(),
        &spread.to_be_bytes(),
    ]
    .concat()
}

/// What `make` of a file system reads and changes.
async fn create(engine: &PostgresEngine, number: u64, directories: u64) {
    let change = move |transaction: &mut dyn Transaction| -> Result<(), EngineError> {
        let entry = entry(number, directories);
        let parent = [b"I".as_slice(), &entry[1..9]].concat();
        transaction.get(&parent)?;
        assert_eq!(transaction.get(&entry)?, None);
        transaction.put(&entry, Bytes::from(vec![7; 17]));
        let node = [b"N".as_slice(), &number.to_be_bytes()].concat();
        transaction.put(&node, Bytes::from(vec![7; 112]));
        transaction.advance(&[b"T".as_slice(), &entry[1..9]].concat(), 1)?;
        transaction.add(b"Uf", 1)
    };
    transact(engine, change).await.unwrap();
}

async fn lookup(engine: &PostgresEngine, number: u64) {
    let look = query(engine, |reads| -> Result<bool, EngineError> {
        let entry = reads.get(&entry(number, DIRECTORIES))?;
        let node = [b"N".as_slice(), &number.to_be_bytes()].concat();
        Ok(entry.is_some() && reads.get(&node)?.is_some())
    });
    assert!(look.await.unwrap());
}

struct Row {
    work: Work,
    callers: u64,
    numbers: Arc<AtomicU64>,
    until: u64,
}

/// Runs callers for a while; returns how many operations they did in which time.
async fn run(engine: &Arc<PostgresEngine>, row: Row) -> (u64, Duration) {
    let (begun, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers = (0..row.callers).map(|_| {
        let (engine, numbers) = (Arc::clone(engine), Arc::clone(&row.numbers));
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            while begun.elapsed() < TIME {
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                if number >= row.until {
                    break;
                }
                match row.work {
                    Work::Create(directories, is_synced) => {
                        create(&engine, number, directories).await;
                        if is_synced {
                            engine.sync().await.unwrap();
                        }
                    }
                    Work::Lookup(first) => lookup(&engine, first + number).await,
                }
                done.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    engine.sync().await.unwrap();
    (done.load(Ordering::SeqCst), begun.elapsed())
}

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
    let mut engine = Arc::new(PostgresEngine::create(&settings).await.unwrap());
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
        engine = Arc::new(PostgresEngine::open(&settings).await.unwrap());
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
