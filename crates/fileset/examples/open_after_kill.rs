//! How long an embedded engine takes to open after a kill, with as much in its log as there can be:
//! `cargo run --release -p penstock-fileset --example open_after_kill [FILES]`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::{path::Path, time::Instant};

use bytes::Bytes;
use penstock_fileset::engine::{
    EmbeddedEngine, EmbeddedSettings, Engine, EngineError, Transaction, transact,
};

const ROUNDS: usize = 7;
/// Another number each round, so that the log is now long and now short.
const STEP: u64 = 3_307;

fn settings(directory: &Path) -> EmbeddedSettings {
    EmbeddedSettings {
        directory: directory.to_owned(),
        memory: 256 << 20,
    }
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

/// What a create changes: an inode, an entry, and the times of the directory.
async fn create(engine: &EmbeddedEngine, number: u64) {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let change = move |transaction: &mut dyn Transaction| -> Result<(), EngineError> {
        let node = [b"I".as_slice(), &number.to_be_bytes()].concat();
        transaction.put(&node, Bytes::from(vec![7; 100]));
        let directory = (spread >> 54).to_be_bytes();
        let entry = [b"D".as_slice(), &directory, &spread.to_be_bytes()].concat();
        transaction.put(&entry, Bytes::from(vec![7; 17]));
        transaction.advance(&[b"T".as_slice(), &directory].concat(), number)
    };
    transact(engine, change).await.unwrap();
}

#[tokio::main]
async fn main() {
    let files = std::env::args().nth(1);
    let files: u64 = files.map_or(200_000, |files| files.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    let begun = Instant::now();
    let mut number = 0;
    while number < files {
        create(&engine, number).await;
        number += 1;
    }
    engine.sync().await.unwrap();
    let rate = files as f64 / begun.elapsed().as_secs_f64();
    println!("{files} files, {rate:.0} creates per second by one caller");
    for _ in 0..ROUNDS {
        for _ in 0..STEP {
            create(&engine, number).await;
            number += 1;
        }
        engine.sync().await.unwrap();
        let killed = copy(directory.path());
        let names = std::fs::read_dir(killed.path()).unwrap().flatten();
        let logs = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("log."));
        let log: u64 = logs.map(|entry| entry.metadata().unwrap().len()).sum();
        let begun = Instant::now();
        let opened = EmbeddedEngine::open(&settings(killed.path())).unwrap();
        let took = begun.elapsed();
        println!("{log} bytes of log: opened in {took:.1?}");
        drop(opened);
    }
}
