//! A file system of one machine on bad days: its mount is killed, stopped and remounted with little memory, and its
//! store fails.
//!
//! What was answered is there, however the mount ended. In the end `check` finds all of it whole, and nothing is left in
//! the bucket that belongs to nobody. `make soak` does so for hundreds of rounds.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic
)]

#[path = "machines/worker.rs"]
mod worker;

use std::{fs::File, path::PathBuf, thread, time::Duration};

use penstock_tests::{
    Fileset, Mount,
    soak::{Chance, Weather},
};
use worker::{JOURNAL, Worker};

const ROUNDS_VARIABLE: &str = "PENSTOCK_TEST_WEATHER_ROUNDS";
const ROUNDS_DEFAULT: u64 = 4;
/// Makes another run: what is done and what goes wrong follow from it.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_WEATHER_SEED";

const WORKERS: u64 = 4;
const REST: Duration = Duration::from_millis(500);

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
enum Bad {
    /// The mount is killed while the store fails.
    KilledInWeather,
    /// The store fails, and the mount goes on.
    Store,
    /// The mount is killed.
    Killed,
    /// It is unmounted while the store fails, and mounted again.
    Unmounted,
}

impl Bad {
    const ALL: [Self; 4] = [
        Self::KilledInWeather,
        Self::Store,
        Self::Killed,
        Self::Unmounted,
    ];
}

struct Ground {
    fileset: Fileset,
    mount: Option<Mount>,
    workers: Vec<Worker>,
    chance: Chance,
    weather: Weather,
}

impl Ground {
    fn new((durability, compression): (&str, &str), seed: u64) -> Self {
        let what = format!("weather-{durability}-{}", &compression[..3]);
        let options = ["--durability", durability, "--compression", compression];
        let fileset = Fileset::made_with(&what, &options);
        let mut ground = Self {
            fileset,
            mount: None,
            workers: Vec::new(),
            chance: Chance::new(seed),
            weather: Weather::new(seed),
        };
        ground.mount();
        let root = ground.root();
        File::create(root.join(JOURNAL)).unwrap();
        ground.workers = (0..WORKERS)
            .map(|number| Worker::start(number, seed, &root))
            .collect();
        ground
    }

    fn mount(&mut self) {
        let memory = *self.chance.pick(&["64MiB", "512MiB"]);
        let options = self.fileset.options().option("memory", memory);
        let options = options
            .option("request-timeout", "5s")
            .option("retry-timeout", "60s");
        self.mount = Some(self.fileset.mount_with(&options));
    }

    fn root(&self) -> PathBuf {
        self.mount.as_ref().unwrap().path().to_owned()
    }

    fn round(&mut self, bad: Bad) {
        let lasts = Duration::from_millis(300 + self.chance.below(3000) as u64);
        let root = self.root();
        for worker in &mut self.workers {
            worker.begin(&root);
        }
        thread::sleep(REST);
        if !matches!(bad, Bad::Killed) {
            self.fileset.fail(self.weather.change().0);
        }
        thread::sleep(lasts);
        if matches!(bad, Bad::Killed | Bad::KilledInWeather) {
            self.mount.as_ref().unwrap().process().kill();
        }
        self.workers.iter_mut().for_each(Worker::stop);
        for worker in &mut self.workers {
            worker.wait();
        }
        self.recover(bad);
        let root = self.root();
        for worker in &mut self.workers {
            worker.verify(&root);
        }
    }

    fn recover(&mut self, bad: Bad) {
        match bad {
            Bad::Killed | Bad::KilledInWeather => {
                self.mount.take().unwrap().kill_and_unmount();
                self.fileset.heal();
                self.mount();
            }
            Bad::Unmounted => {
                self.fileset.heal();
                self.mount.take().unwrap().unmount();
                self.mount();
            }
            Bad::Store => self.fileset.heal(),
        }
    }

    fn end(mut self) {
        self.mount.take().unwrap().unmount();
        self.fileset.run("check", &["--data"]).expect_success();
        self.fileset.run("gc", &[]).expect_success();
        let collected = self.fileset.run("gc", &["--json"]).expect_success();
        let found: serde_json::Value = serde_json::from_str(&collected.stdout).unwrap();
        assert_eq!(found["leaked"]["objects"], 0, "{found}");
    }
}

fn endure(durability: &str, compression: &str) {
    let seed = number(SEED_VARIABLE, 1);
    let mut ground = Ground::new((durability, compression), seed);
    for round in 0..number(ROUNDS_VARIABLE, ROUNDS_DEFAULT) {
        let bad = Bad::ALL[round as usize % Bad::ALL.len()];
        println!("{durability}, {compression}, seed {seed}, round {round}: {bad:?}");
        ground.round(bad);
    }
    ground.end();
}

#[test]
fn what_was_answered_outlives_kills_and_weather() {
    endure("local", "none");
}

#[test]
fn what_was_answered_outlives_kills_and_weather_where_the_log_is_shipped() {
    endure("store", "none");
}

#[test]
fn what_was_compressed_and_answered_outlives_kills_and_weather() {
    endure("local", "lz4");
    endure("store", "zstd:1");
}

/// Nothing by itself: a worker of the tests above.
#[test]
fn worker_of_a_machine() {
    if let Ok(order) = std::env::var(worker::VARIABLE) {
        worker::obey(&order);
    }
}
