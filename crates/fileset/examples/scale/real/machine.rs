//! One machine: a session and the operations that its callers do.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use fastrand::Rng;
use penstock_fileset::engine::{EngineError, Peers, PostgresEngine, Transaction, query, transact};

use super::POPULATION;
use crate::load::{Kind, SHARED_FILES};

/// Where the files begin that exist before, and their directories.
pub const POPULATION_FIRST: u64 = 1 << 40;
pub const POPULATION_DIRECTORY: u64 = 1 << 32;
/// From one unseen file to the next: a page brings the ones between.
const STRIDE: u64 = 8;
/// Of files that a machine made it saves one of the last.
const LAST: u64 = 1_000;
const DIRECTORIES: u64 = 100;
/// Where shared files begin.
const SHARED_FIRST: u64 = 1 << 48;

pub struct Machine {
    pub engine: Arc<PostgresEngine>,
    number: u64,
    made: AtomicU64,
    seen: AtomicU64,
}

pub fn entry(directory: u64, number: u64) -> Vec<u8> {
    [
        b"D".as_slice(),
        &directory.to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat()
}

pub fn of(letter: u8, number: u64) -> Vec<u8> {
    [&[letter], number.to_be_bytes().as_slice()].concat()
}

fn value(length: usize) -> Bytes {
    Bytes::from(vec![7; length])
}

/// What the maker of a file reads and changes.
pub fn made(
    transaction: &mut dyn Transaction,
    directory: u64,
    number: u64,
) -> Result<(), EngineError> {
    let entry = entry(directory, number);
    transaction.get(&of(b'I', directory))?;
    transaction.get(&entry)?;
    transaction.put(&entry, value(17));
    transaction.put(&of(b'N', number), value(112));
    transaction.advance(&of(b'T', directory), 1)?;
    transaction.add(b"Uf", 1)
}

/// What a save of a small file reads and changes.
pub fn saved(transaction: &mut dyn Transaction, number: u64) -> Result<(), EngineError> {
    let node = of(b'N', number);
    transaction.get(&node)?;
    transaction.put(&node, value(112));
    transaction.put(&of(b'C', number), value(40));
    transaction.put(&of(b'B', number), value(16));
    transaction.add(b"Ub", 4096)
}

impl Machine {
    pub fn new(engine: PostgresEngine, number: u64) -> Self {
        Self {
            engine: Arc::new(engine),
            number,
            made: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }

    /// Sees what a machine that was at work has seen.
    pub async fn warm(&self) {
        for _ in 0..2 * DIRECTORIES {
            self.create().await;
        }
    }

    pub async fn run(&self, kind: Kind, chance: &mut Rng) {
        let made = self.made.load(Ordering::Relaxed);
        let own = self.file(made - 1 - chance.u64(..made.min(LAST)));
        match kind {
            Kind::Create => self.create().await,
            Kind::Close => self.save(own).await,
            Kind::CloseShared => self.save(SHARED_FIRST + chance.u64(..SHARED_FILES)).await,
            Kind::Lookup => {
                let entry = entry(self.directory(own), own);
                self.look(&entry, &of(b'N', own)).await;
            }
            Kind::Stat => self.look(&of(b'N', own), &of(b'N', own)).await,
            Kind::Unknown => {
                let next = self.seen.fetch_add(STRIDE, Ordering::Relaxed) % POPULATION;
                let entry = entry(POPULATION_DIRECTORY + next / 1000, POPULATION_FIRST + next);
                self.look(&entry, &of(b'N', POPULATION_FIRST + next)).await;
            }
            Kind::Open => {
                self.engine.catch_up().await.unwrap();
                self.look(&of(b'N', own), &of(b'N', own)).await;
            }
        }
    }

    fn file(&self, made: u64) -> u64 {
        ((self.number + 1) << 32) | made
    }

    fn directory(&self, file: u64) -> u64 {
        ((self.number + 1) << 16) | (file % DIRECTORIES)
    }

    async fn create(&self) {
        let number = self.file(self.made.fetch_add(1, Ordering::Relaxed));
        let directory = self.directory(number);
        let make = move |transaction: &mut dyn Transaction| made(transaction, directory, number);
        transact(&*self.engine, make).await.unwrap();
    }

    async fn save(&self, number: u64) {
        let save = move |transaction: &mut dyn Transaction| saved(transaction, number);
        transact(&*self.engine, save).await.unwrap();
    }

    async fn look(&self, first: &[u8], second: &[u8]) {
        let looked = query(&*self.engine, |reads| -> Result<bool, EngineError> {
            Ok(reads.get(first)?.is_some() && reads.get(second)?.is_some())
        });
        looked.await.unwrap();
    }
}
