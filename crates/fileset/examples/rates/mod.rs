//! Creates and looks of several callers on an engine, counted.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use penstock_fileset::engine::{DatabaseEngine, Engine, EngineError, Transaction, query, transact};

/// How long each row runs.
const TIME: Duration = Duration::from_secs(4);
pub const DIRECTORIES: u64 = 900;

/// What an operation does with the number that is its own.
#[derive(Clone, Copy)]
pub enum Work {
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
async fn create(engine: &DatabaseEngine, number: u64, directories: u64) {
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

async fn lookup(engine: &DatabaseEngine, number: u64) {
    let look = query(engine, |reads| -> Result<bool, EngineError> {
        let entry = reads.get(&entry(number, DIRECTORIES))?;
        let node = [b"N".as_slice(), &number.to_be_bytes()].concat();
        Ok(entry.is_some() && reads.get(&node)?.is_some())
    });
    assert!(look.await.unwrap());
}

pub struct Row {
    pub work: Work,
    pub callers: u64,
    pub numbers: Arc<AtomicU64>,
    pub until: u64,
}

/// Runs callers for a while; returns how many operations they did in which time.
pub async fn run(engine: &Arc<DatabaseEngine>, row: Row) -> (u64, Duration) {
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
