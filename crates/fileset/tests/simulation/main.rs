//! A deterministic simulation: a file system in one thread, whose time, chance, store and disk are the seed's, so that one seed is
//! one schedule and what fails once fails again.
//!
//! ```text
//!  clients (`client`, `deeds`) ─┐              ┌─ engine in memory ── disk that loses what was not synced (`disk`)
//!  director (`director`) ───────┴─ volume ─────┤
//!        against a model (`model`)             └─ retries, deadlines ── network that fails (`network`) ── bucket in memory
//! ```
//!
//! Clients use directories of their own beside each other, each with a model of its names and bytes that says what every answer
//! must be. The director takes and removes snapshots, looks through the bucket, empties the trash and lets hours go by. What the
//! volume does behind them (saves, packs, folds, collections, sweeps) runs as it does in a mount, by the clock, which stands still
//! while anything can go on and then jumps to the next thing that is due.
//!
//! A process ends at a step that was drawn (`power`): a step is before and behind each request and each call of the engine. All
//! that it has in memory goes, the disk keeps some of the operations that were not synced, and the next process is opened on that
//! (`world`). Then `check` compares all bytes and finds nothing, the names are those behind one of the operations, no later than
//! the disk has and no earlier than was acknowledged, each file is as an acknowledged `fsync` left it or as something later did,
//! and snapshots are as they were. In the end all is removed, and the bucket is empty: each reference was counted.
//!
//! What is not simulated: the embedded engine with its log and its worker's thread, the spool, databases and several machines,
//! quotas, encryption, short memory, damage to bytes, requests that take effect after they were given up, and the doors.
//! `tests/engines.rs`, `tests/shipped.rs`, `tests/spool.rs`, `tests/machines` and the end-to-end tests have those.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub
)]

mod client;
mod deeds;
mod director;
mod disk;
mod look;
mod model;
mod network;
mod power;
mod record;
#[path = "../support/mod.rs"]
mod support;
mod world;

/// Seeds, unless the environment says how many, and which is the first.
const SEEDS: u64 = 75;
const SEEDS_VARIABLE: &str = "PENSTOCK_TEST_SIMULATION_SEEDS";
const SEED_VARIABLE: &str = "PENSTOCK_TEST_SIMULATION_SEED";
/// Seeds that are run twice.
const TWICE: u64 = 5;

// A test is told by its environment.
#[allow(clippy::disallowed_methods)]
fn told(variable: &str) -> Option<u64> {
    let told = std::env::var(variable).ok()?;
    Some(told.parse().expect("a number"))
}

#[test]
fn what_was_acknowledged_is_there_whatever_happens_for_all_seeds() {
    let first = told(SEED_VARIABLE).unwrap_or(1);
    let count = told(SEEDS_VARIABLE).unwrap_or(SEEDS);
    for seed in first..first + count {
        world::run(seed);
    }
}

#[test]
fn one_seed_is_one_schedule() {
    for seed in 1..=TWICE {
        let (once, again) = (world::run(seed), world::run(seed));
        let differs = once.iter().zip(&again).find(|(one, other)| one != other);
        assert_eq!(differs, None, "of seed {seed}");
        assert_eq!(once.len(), again.len());
    }
}
