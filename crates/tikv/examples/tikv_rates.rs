//! What creates cost on TiKV, with servers of its own, which `PENSTOCK_TEST_TIKV` names:
//! `cargo run --release -p penstock-tikv --example tikv_rates`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

#[path = "../tests/database/mod.rs"]
mod database;
#[path = "../../fileset/examples/rates/mod.rs"]
mod rates;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use database::{Server, settings};
use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Engine};
use rates::{DIRECTORIES, Row, Work, run};

#[tokio::main]
async fn main() {
    let Some(server) = Server::start() else {
        return;
    };
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let identity = random::number();
    let mut settings = directories.each_ref().map(|directory| {
        let mut settings = settings(&server, directory.path(), identity);
        settings.memory = 256 << 20;
        settings
    });
    let engine = Arc::new(DatabaseEngine::create(&settings[0]).await.unwrap());
    let numbers = Arc::new(AtomicU64::new(1));
    for (what, callers, directories) in [
        ("create + sync, 1 caller", 1, DIRECTORIES),
        ("create + sync, 16 callers", 16, DIRECTORIES),
        ("create + sync, 64 callers", 64, DIRECTORIES),
        ("create + sync, 16 callers, one directory", 16, 1),
    ] {
        if directories == 1 {
            // Others' names hash elsewhere.
            numbers.fetch_add(1 << 32, Ordering::SeqCst);
        }
        let row = Row {
            work: Work::Create(directories, true),
            callers,
            numbers: Arc::clone(&numbers),
            until: u64::MAX,
        };
        let (count, took) = run(&engine, row).await;
        println!("{what:44} {:8.0}/s", count as f64 / took.as_secs_f64());
    }
    settings[1].identity = identity;
    let other = Arc::new(DatabaseEngine::open(&settings[1]).await.unwrap());
    let row = |first: u64| Row {
        work: Work::Create(DIRECTORIES, true),
        callers: 16,
        numbers: Arc::new(AtomicU64::new(first)),
        until: u64::MAX,
    };
    let both = tokio::join!(run(&engine, row(1 << 40)), run(&other, row(1 << 41)));
    let rate = |(count, took): (u64, std::time::Duration)| count as f64 / took.as_secs_f64();
    println!(
        "{:44} {:8.0}/s and {:.0}/s",
        "the same on two machines, 16 callers each",
        rate(both.0),
        rate(both.1)
    );
    other.close().await.unwrap();
    engine.close().await.unwrap();
}
