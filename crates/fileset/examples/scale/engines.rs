//! What one engine of each kind carries: creates, looks, and bytes that a file takes, on this computer.
//!
//! A file is a create and the save of what is in it: six keys. The bucket answers after 0.2 ms, from memory.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use penstock_fileset::engine::{
    EmbeddedEngine, EmbeddedSettings, Engine, EngineError, PostgresEngine, PostgresSettings,
    ShippedEngine, ShippedSettings, query, transact,
};
use penstock_object::{Operation, Store};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};

use crate::{
    database::{Server, schema, settings},
    figures::median,
    real::machine::{entry, made, of, saved},
};

const FILES: u64 = 200_000;
/// Files that are looked at, after a first look at each: they fit in the memory.
const SEEN: u64 = 20_000;
const DIRECTORIES: u64 = 400;
const TIME: Duration = Duration::from_secs(2);
const RUNS: usize = 3;
const REQUEST: Duration = Duration::from_micros(200);
const MEMORY: u64 = 256 << 20;

/// What callers do with a number.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Create,
    CreateSynced,
    Look,
}

type Any = Arc<dyn Engine>;

async fn make(engine: &Any, number: u64, is_saved: bool) {
    let change = move |transaction: &mut dyn penstock_fileset::engine::Transaction| {
        made(transaction, number % DIRECTORIES, number)?;
        match is_saved {
            true => saved(transaction, number),
            false => Ok::<(), EngineError>(()),
        }
    };
    transact(&**engine, change).await.unwrap();
}

async fn look(engine: &Any, number: u64) {
    let looked = query(&**engine, |reads| -> Result<bool, EngineError> {
        let entry = reads.get(&entry(number % DIRECTORIES, number))?;
        Ok(entry.is_some() && reads.get(&of(b'N', number))?.is_some())
    });
    assert!(looked.await.unwrap());
}

/// Operations a second of so many callers; `numbers` goes on.
async fn rate(engine: &Any, work: Work, callers: u64, numbers: &Arc<AtomicU64>) -> f64 {
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        let each = (0..callers).map(|caller| {
            let (engine, numbers) = (Arc::clone(engine), Arc::clone(numbers));
            let mut chance = Rng::with_seed(caller);
            tokio::spawn(async move {
                let mut done = 0_u64;
                while begun.elapsed() < TIME {
                    if work == Work::Look {
                        look(&engine, FILES - 1 - chance.u64(..SEEN)).await;
                    } else {
                        let number = numbers.fetch_add(1, Ordering::Relaxed);
                        make(&engine, number, false).await;
                    }
                    if work == Work::CreateSynced {
                        engine.sync().await.unwrap();
                    }
                    done += 1;
                }
                done
            })
        });
        let mut done = 0;
        for caller in each.collect::<Vec<_>>() {
            done += caller.await.unwrap();
        }
        engine.sync().await.unwrap();
        rates.push(done as f64 / begun.elapsed().as_secs_f64());
    }
    median(rates)
}

async fn fill(engine: &Any) {
    let callers = (0..64).map(|caller| {
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            for number in (caller..FILES).step_by(64) {
                make(&engine, number, true).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    engine.sync().await.unwrap();
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| {
            let data = entry.metadata().unwrap();
            match data.is_dir() {
                true => bytes_in(&entry.path()),
                false => data.len(),
            }
        })
        .sum()
}

async fn tell(what: &str, engine: Any) {
    let numbers = Arc::new(AtomicU64::new(FILES));
    let mut line = format!("| {what} |");
    for (work, callers) in [
        (Work::CreateSynced, 1),
        (Work::CreateSynced, 16),
        (Work::CreateSynced, 64),
        (Work::Create, 16),
        (Work::Look, 1),
    ] {
        let rate = rate(&engine, work, callers, &numbers).await;
        line += &format!(" {rate:.0} |");
    }
    println!("{line}");
}

/// Tells a row for each engine.
pub async fn compare(server: &Arc<Server>) {
    println!(
        "| engine | create and fsync: 1 caller | 16 | 64 | created, 16 callers | seen, 1 caller |"
    );
    let place = tempfile::tempdir().unwrap();
    let local = |name: &str| EmbeddedSettings {
        directory: place.path().join(name),
        memory: MEMORY,
    };
    let embedded: Any = Arc::new(EmbeddedEngine::open(&local("embedded")).unwrap());
    fill(&embedded).await;
    tell("embedded", Arc::clone(&embedded)).await;
    embedded.close().await.unwrap();
    drop(embedded);
    let faults = Faults::new(1);
    faults.rate(None, 1.0, Fault::Delay(REQUEST));
    let bucket = Arc::new(MemoryStore::new());
    let store: Arc<dyn Store> = Arc::new(Faulty::new(
        Arc::<MemoryStore>::clone(&bucket) as Arc<dyn Store>,
        Arc::clone(&faults),
    ));
    let shipped = ShippedSettings {
        local: local("store"),
        store,
        identity: 7,
    };
    let shipped: Any = Arc::new(ShippedEngine::create(&shipped).await.unwrap());
    fill(&shipped).await;
    let puts = faults.calls(Operation::Put);
    tell("embedded, durability=store", Arc::clone(&shipped)).await;
    println!("requests that put: {}", faults.calls(Operation::Put) - puts);
    shipped.close().await.unwrap();
    let mut of_server = settings(
        server,
        &place.path().join("postgres"),
        penstock_base::random::number(),
    );
    of_server.memory = MEMORY;
    of_server.connections = PostgresSettings::CONNECTIONS;
    let alone: Any = Arc::new(PostgresEngine::create(&of_server).await.unwrap());
    fill(&alone).await;
    server.sql("VACUUM ANALYZE");
    tell("PostgreSQL, one machine", Arc::clone(&alone)).await;
    let mut other = of_server.clone();
    other.directory = place.path().join("other");
    let other = PostgresEngine::open(&other).await.unwrap();
    tell("PostgreSQL, another one listens", Arc::clone(&alone)).await;
    other.close().await.unwrap();
    alone.close().await.unwrap();
    sizes(server).await;
}

/// Bytes for each file, where nothing else is.
async fn sizes(server: &Arc<Server>) {
    let place = tempfile::tempdir().unwrap();
    let local = EmbeddedSettings {
        directory: place.path().join("embedded"),
        memory: MEMORY,
    };
    let embedded: Any = Arc::new(EmbeddedEngine::open(&local).unwrap());
    fill(&embedded).await;
    embedded.close().await.unwrap();
    let each = |bytes: u64| bytes / FILES;
    println!(
        "embedded: {} bytes a file on the disk",
        each(bytes_in(&local.directory))
    );
    let mut of_server = settings(
        server,
        &place.path().join("postgres"),
        penstock_base::random::number(),
    );
    of_server.memory = MEMORY;
    let database: Any = Arc::new(PostgresEngine::create(&of_server).await.unwrap());
    fill(&database).await;
    let kv = format!("{}.kv", schema(&of_server));
    let size = || {
        server
            .sql(&format!("SELECT pg_total_relation_size('{kv}')"))
            .parse::<u64>()
            .unwrap()
    };
    let before = size();
    server.sql(&format!("VACUUM FULL {kv}"));
    println!(
        "PostgreSQL: {} bytes a file, {} behind VACUUM FULL",
        each(before),
        each(size())
    );
    database.close().await.unwrap();
}
