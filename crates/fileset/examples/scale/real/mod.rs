//! The same load on real sessions, with a server of its own, and what it costs that server and this process.

pub mod bytes;
pub mod machine;
pub mod usage;

use std::{
    collections::HashMap,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fastrand::Rng;
use penstock_fileset::engine::{Engine, PostgresEngine, PostgresSettings};
use tempfile::TempDir;

use self::{machine::Machine, usage::Usage};
use crate::{
    database::{Server, schema, settings_at},
    figures::Latencies,
    load::Load,
};

/// Files that exist before, of which no machine has seen any.
const POPULATION: u64 = 1_000_000;
/// Changes that were made before, each of some keys: as many as the feed keeps.
const CHANGES: u64 = 100_000;

/// How long a run waits for a computer that nobody else uses, at most, and what of it others may use.
const CALM: Duration = Duration::from_secs(15);
const OTHERS: f64 = 0.15;
const LOOK: Duration = Duration::from_millis(500);

/// Machines on one file system.
pub struct Ground {
    pub server: Arc<Server>,
    settings: PostgresSettings,
    machines: Vec<Arc<Machine>>,
    directories: Vec<TempDir>,
}

/// What was done in a while.
pub struct Ran {
    pub took: Duration,
    pub done: HashMap<&'static str, Latencies>,
    pub operations: u64,
    pub groups: u64,
    pub database: Duration,
    pub clients: Duration,
    /// What others had of this computer meanwhile.
    pub others: Duration,
    /// Flushes of the server's log, and the time that they took.
    pub flushes: (f64, f64),
}

impl Ran {
    /// Microseconds of a flush of the server's log.
    pub fn flush(&self) -> f64 {
        self.flushes.1 * 1e3 / self.flushes.0.max(1.0)
    }

    pub fn cores_of_others(&self) -> f64 {
        self.others.as_secs_f64() / self.took.as_secs_f64()
    }
}

impl Ground {
    /// `count` machines; connections to `port` unless it is the server's own.
    pub async fn new(server: Arc<Server>, port: Option<u16>, count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let identity = penstock_base::random::number();
        let port = port.unwrap_or(server.port);
        let mut settings = settings_at(port, directory.path(), identity);
        settings.memory = 256 << 20;
        settings.connections = match count > 8 {
            true => 1,
            false => PostgresSettings::CONNECTIONS,
        };
        let first = PostgresEngine::create(&settings).await.unwrap();
        first.close().await.unwrap();
        let mut ground = Self {
            server,
            settings,
            machines: Vec::new(),
            directories: vec![directory],
        };
        ground.populate();
        for _ in 0..count {
            ground.add().await;
        }
        ground
    }

    async fn add(&mut self) {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = self.settings.clone();
        directory.path().clone_into(&mut settings.directory);
        let engine = PostgresEngine::open(&settings).await.unwrap();
        let number = self.machines.len() as u64;
        self.machines.push(Arc::new(Machine::new(engine, number)));
        self.directories.push(directory);
    }

    fn populate(&self) {
        let schema = schema(&self.settings);
        let (first, directory) = (machine::POPULATION_FIRST, machine::POPULATION_DIRECTORY);
        self.server.sql(&format!(
            "INSERT INTO {schema}.kv (key, value) \
               SELECT '\\x44'::bytea || int8send({directory} + i / 1000) || int8send({first} + i), \
                 decode(repeat('07', 17), 'hex') FROM generate_series(0, {POPULATION} - 1) AS i; \
             INSERT INTO {schema}.kv (key, value) \
               SELECT '\\x4e'::bytea || int8send({first} + i), decode(repeat('07', 112), 'hex') \
               FROM generate_series(0, {POPULATION} - 1) AS i; \
             INSERT INTO {schema}.feed (sequence, session, before, keys) \
               SELECT i, 1, 0, array_fill('\\x4e0123456789abcdef'::bytea, ARRAY[20]) \
               FROM generate_series(1, {CHANGES}) AS i; \
             UPDATE {schema}.head SET sequence = {CHANGES}; \
             VACUUM ANALYZE; CHECKPOINT;"
        ));
        // What waits to be written would be in the way of who flushes a log.
        assert!(Command::new("sync").status().unwrap().success());
    }

    /// Groups that were made so far.
    fn groups(&self) -> u64 {
        let schema = schema(&self.settings);
        let found = self
            .server
            .sql(&format!("SELECT sequence FROM {schema}.head"));
        found.parse().unwrap()
    }

    fn flushes(&self) -> (f64, f64) {
        let found = self
            .server
            .sql("SELECT wal_sync || ' ' || wal_sync_time + wal_write_time FROM pg_stat_wal");
        let mut numbers = found.split(' ').map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Runs a load on the first `busy` machines; the others listen.
    pub async fn run(&self, load: Load, busy: usize, time: Duration) -> Ran {
        for machine in &self.machines[..busy] {
            machine.warm().await;
        }
        let patience = Instant::now() + CALM;
        while usage::cores_in(LOOK).await > OTHERS && Instant::now() < patience {}
        let (flushes, groups) = (self.flushes(), self.groups());
        let (before, begun) = (Usage::of(&self.server), Instant::now());
        let done = Arc::new(Mutex::new(HashMap::new()));
        let mut callers = Vec::new();
        for (place, machine) in self.machines[..busy].iter().enumerate() {
            for caller in 0..load.callers {
                let (machine, done) = (Arc::clone(machine), Arc::clone(&done));
                let chance = Rng::with_seed((place * 1_000 + caller) as u64);
                callers.push(tokio::spawn(async move {
                    let own = call(&machine, load, (begun, time), chance).await;
                    let mut done = done.lock().unwrap();
                    for (kind, mut latencies) in own {
                        done.entry(kind)
                            .or_insert_with(Latencies::default)
                            .extend(&mut latencies);
                    }
                }));
            }
        }
        for caller in callers {
            caller.await.unwrap();
        }
        let (took, used) = (begun.elapsed(), Usage::of(&self.server));
        let (after, later) = (self.groups(), self.flushes());
        let done = std::mem::take(&mut *done.lock().unwrap());
        let (database, clients) = (
            used.server.saturating_sub(before.server),
            used.own - before.own,
        );
        Ran {
            took,
            operations: done.values().map(Latencies::count).sum(),
            done,
            groups: after - groups,
            others: (used.all - before.all).saturating_sub(database + clients),
            database,
            clients,
            flushes: (later.0 - flushes.0, later.1 - flushes.1),
        }
    }

    pub async fn close(self) {
        for machine in &self.machines {
            machine.engine.close().await.unwrap();
        }
    }
}

async fn call(
    machine: &Machine,
    load: Load,
    (begun, time): (Instant, Duration),
    mut chance: Rng,
) -> HashMap<&'static str, Latencies> {
    let mut done: HashMap<&'static str, Latencies> = HashMap::new();
    while begun.elapsed() < time {
        let kind = load.next(&mut chance);
        let from = Instant::now();
        machine.run(kind, &mut chance).await;
        let took = from.elapsed();
        done.entry(kind.name()).or_default().add(took);
        if !load.pause.is_zero() {
            tokio::time::sleep(load.next_pause(&mut chance)).await;
        }
    }
    done
}
