//! How many machines one PostgreSQL carries: a simulation of the engine's trips, whose costs were measured.
//!
//! ```text
//!   callers ──► group that waits ──► one trip, one at a time ──► lock ─► compare, change, list news, flush ─► answer
//!      │           of each machine                                 one for all machines
//!      └─ open, unknown name, 40 ms without a trip ──► a connection that reads ─► news since the last trip, a page
//! ```
//!
//! | part of the model | what it waits for |
//! |---|---|
//! | a look at what is known | a core of its machine |
//! | a change | the group before its own, the wire, the lock, a core of the database, a flush of its log |
//! | an open, a poll, a beat | the wire, its connection, a core of the database |
//! | a name that is not known | two such trips, one behind the other |
//! | any trip's answer | all keys that were changed since the last one, each of which costs the database, the wire and the machine |
//!
//! A group is refused if another machine changed a shared file that it builds on since it was known; all its operations
//! run again. Who waits for the lock gets it by lot, as was seen of PostgreSQL. What a machine knows has no bound here, a
//! database's data is in its memory, no trip fails, and vacuum and checkpoints cost nothing.
//!
//! ```text
//! cargo run --release -p penstock-fileset --example scale             the tables for 1 to 100 machines
//! ... --example scale measure     measures the costs, with a PostgreSQL of its own
//! ... --example scale waiting     those of them alone that are of machines which wait for each other
//! ... --example scale check       1, 2, 4 and 16 real sessions beside the simulation of the same
//! ... --example scale engines     what one engine of each kind carries
//! ```
//!
//! Costs and tables are in `docs/measurements/2026-11.md`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs
)]

mod check;
mod costs;
#[path = "../../tests/database/mod.rs"]
mod database;
mod engines;
mod figures;
mod load;
mod measure;
mod real;
mod report;
mod simulation;

use std::sync::Arc;

use costs::Costs;
use database::Server;

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|said| said == word);
    if !["measure", "waiting", "check", "engines"]
        .iter()
        .any(|word| has(word))
    {
        report::tell(Costs::MEASURED);
        return;
    }
    let server = Arc::new(Server::start().unwrap());
    server.sql("ALTER SYSTEM SET track_wal_io_timing = on");
    server.sql("SELECT pg_reload_conf()");
    if has("measure") {
        measure::measure(&server).await;
    } else if has("waiting") {
        measure::waiting(&server).await;
    } else if has("check") {
        check::check(&server, Costs::MEASURED).await;
    } else {
        engines::compare(&server).await;
    }
}
