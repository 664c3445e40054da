//! Machines that have one file system mounted, whose metadata is in a database, on bad days.
//!
//! Each worker has a folder, and what was closed there without an error is there on every machine. A round goes
//! wrong in one way; then each worker goes on at the next machine, where it must find what it left. All workers add
//! lines to one journal, each under its lock. In the end nothing is left that belongs to nobody. `make soak` does so
//! for hundreds of rounds.
//!
//! With strict coherence programs on all machines read and write registers of one file besides, and what they saw can have
//! happened one thing after the other.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub
)]

mod place;
#[path = "../../../crates/fileset/tests/machines/register.rs"]
mod register;
mod registers;
#[path = "../../../crates/fileset/tests/database/server.rs"]
mod server;
mod worker;

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_skips::skipped;
use penstock_tests::{
    Bucket, Finished, Kind, Mount, MountOptions, Patience, Process, Road, Scratch, Traffic,
    soak::{Chance, Weather},
};
use place::Place;
use register::contradiction;
use registers::{Noted, PLAY, SYNCED};
use server::Server;
use worker::{JOURNAL, Worker};

const ROUNDS_VARIABLE: &str = "PENSTOCK_TEST_MACHINES_ROUNDS";
const ROUNDS_DEFAULT: u64 = 4;
/// Makes another run: what is done and what goes wrong follow from it.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_MACHINES_SEED";

const MACHINES: usize = 3;
const WORKERS: u64 = 5;
const PATIENCE: Patience = Patience::seconds(90);
/// How long a kernel may believe that there is no such name which another machine made since.
const BELIEVED: Duration = Duration::from_secs(1);
/// A session that is silent for longer is over for all others: a lease of 30 s, and half of one until the last one
/// has looked.
const LEASE: Duration = Duration::from_secs(45);

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

/// What goes wrong, of one machine where it says so.
#[derive(Debug, Clone, Copy)]
enum Bad {
    /// Its mount is killed.
    Killed,
    /// It stands still and goes on.
    Slow,
    /// It stands still, is shut out, and goes on.
    Evicted,
    /// It stands still for longer than a session lasts.
    Late,
    /// Its way to the database is cut.
    Cut(Traffic),
    /// The same for longer than a session lasts.
    Away,
    /// The database is killed.
    Database,
    /// Its clock jumps by hours, there and back.
    Clock,
    /// The store fails in one way or another.
    Store,
}

impl Bad {
    const SHORT: [Self; 9] = [
        Self::Killed,
        Self::Evicted,
        Self::Cut(Traffic::OneWay),
        Self::Database,
        Self::Clock,
        Self::Slow,
        Self::Cut(Traffic::Silent),
        Self::Cut(Traffic::Refused),
        Self::Store,
    ];
    /// They take a lease each.
    const LONG: [Self; 2] = [Self::Late, Self::Away];

    /// Whether the mount cannot be used behind it.
    fn ends_mount(self) -> bool {
        matches!(self, Self::Killed | Self::Evicted | Self::Late | Self::Away)
    }

    /// Whether what was written and not synced may be lost.
    fn may_lose(self) -> bool {
        self.ends_mount() || matches!(self, Self::Store)
    }
}

/// A machine: a place for filesets, a way to the database, and a mount.
struct Machine {
    place: Place,
    clock: PathBuf,
    road: Road,
    mount: Option<Mount>,
}

impl Machine {
    /// Options of a process whose clock can be set.
    fn with_clock(&self, options: MountOptions) -> MountOptions {
        let Some(library) = clock_library() else {
            return options;
        };
        self.set_clock("+0");
        options
            .variable("LD_PRELOAD", &library.display().to_string())
            .variable("FAKETIME_TIMESTAMP_FILE", &self.clock.display().to_string())
            .variable("FAKETIME_CACHE_DURATION", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .variable("DONT_FAKE_MONOTONIC", "1")
    }

    fn set_clock(&self, offset: &str) {
        fs::write(&self.clock, offset).unwrap();
    }

    fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it is mounted between rounds")
    }

    fn process(&self) -> Process {
        self.mount().process()
    }
}

struct Ground {
    server: Server,
    bucket: Bucket,
    _scratch: Scratch,
    machines: Vec<Machine>,
    coherence: &'static str,
    workers: Vec<Worker>,
    players: Vec<Worker>,
    deeds: Vec<Noted>,
    chance: Chance,
    weather: Weather,
}

impl Ground {
    fn new(seed: u64, coherence: &'static str) -> Option<Self> {
        let server = Server::start()?;
        let scratch = Scratch::new();
        let machine = |number| {
            let road = Road::to(server.port);
            let filesets = scratch.folder(&format!("machine-{number}"));
            Machine {
                place: Place::new(filesets, road.port()),
                clock: scratch.path().join(format!("clock-{number}")),
                road,
                mount: None,
            }
        };
        let mut ground = Self {
            machines: (0..MACHINES).map(machine).collect(),
            server,
            bucket: Bucket::new(Kind::S3),
            _scratch: scratch,
            coherence,
            workers: Vec::new(),
            players: Vec::new(),
            deeds: Vec::new(),
            chance: Chance::new(seed),
            weather: Weather::new(seed),
        };
        for number in 0..MACHINES {
            let place = &ground.machines[number].place;
            place.introduce(&ground.bucket, number == 0);
            ground.mount(number);
        }
        Some(ground)
    }

    /// Workers with folders of their own.
    fn with_workers(mut self, seed: u64) -> Self {
        let root = self.machines[0].mount().path().to_owned();
        File::create(root.join(JOURNAL)).unwrap();
        self.workers = (0..WORKERS)
            .map(|number| Worker::start(number, seed, &root))
            .collect();
        let is_seen = |machine: &Machine| {
            let mut folders = (0..WORKERS).map(worker::folder);
            folders.all(|folder| machine.mount().join(folder).is_dir())
        };
        PATIENCE.until("all to see all folders", || {
            self.machines.iter().all(is_seen)
        });
        self
    }

    /// Two programs on each machine that play with the registers of one file.
    fn with_players(mut self, seed: u64) -> Self {
        registers::make(self.machines[0].mount().path());
        let players = 0..2 * MACHINES as u64;
        self.players = players
            .map(|number| registers::player(number, seed))
            .collect();
        self
    }

    /// `penstock fileset VERB home` on a machine.
    fn command(&self, machine: usize, verb: &str, more: &[&str]) -> Finished {
        let place = &self.machines[machine].place;
        place.command(&self.bucket, verb, more)
    }

    fn mount(&mut self, number: usize) {
        let machine = &self.machines[number];
        let options = machine.with_clock(self.bucket.signing_options());
        let options = options
            .option("request-timeout", "5s")
            .option("retry-timeout", "20s")
            .option("coherence", self.coherence);
        let mount = machine.place.mount(options);
        self.machines[number].mount = Some(mount);
    }

    fn round(&mut self, bad: Bad) {
        let victim = self.chance.below(MACHINES);
        let shift = self.chance.below(MACHINES);
        println!("{bad:?} at machine {victim}");
        let began = Instant::now();
        let lasts = Duration::from_millis(300 + self.chance.below(3000) as u64);
        let faults = self.weather.change().0;
        self.order(shift, Worker::begin);
        self.begin_to_play(bad.may_lose());
        thread::sleep(Duration::from_millis(500));
        match bad {
            Bad::Store => self.bucket.fail(faults),
            _ => self.happen(bad, victim, lasts),
        }
        thread::sleep(lasts);
        self.bucket.heal();
        thread::sleep(Duration::from_millis(500));
        self.workers.iter_mut().for_each(Worker::stop);
        for worker in &mut self.workers {
            worker.wait();
        }
        self.end_playing();
        self.recover(bad, victim);
        let recovered = began.elapsed();
        thread::sleep(BELIEVED);
        // Each finds on the next machine what it left on this one.
        self.order(shift + 1, Worker::verify);
        println!(
            "  recovered {recovered:.1?} after it began, compared {:.1?}",
            began.elapsed()
        );
    }

    fn begin_to_play(&mut self, is_synced: bool) {
        let machines = self.machines.iter().cycle();
        let verb = if is_synced { SYNCED } else { PLAY };
        for (player, machine) in self.players.iter_mut().zip(machines) {
            player.order(verb, machine.mount().path());
        }
    }

    /// Looks at all that was seen since the beginning.
    fn end_playing(&mut self) {
        self.players.iter_mut().for_each(Worker::stop);
        for player in &mut self.players {
            self.deeds.extend(registers::heard(&player.wait()));
        }
        for register in 0..2 * registers::BYTES {
            let deeds = self.deeds.iter().filter(|(of, _)| *of == register);
            let deeds: Vec<_> = deeds.map(|(_, deed)| *deed).collect();
            let done = deeds.iter().filter(|deed| deed.ended.is_some());
            println!("  register {register}: {} deeds", done.count());
            assert_eq!(contradiction(&deeds), None, "register {register}");
        }
    }

    fn happen(&self, bad: Bad, victim: usize, lasts: Duration) {
        let machine = &self.machines[victim];
        match bad {
            Bad::Killed => machine.process().kill(),
            Bad::Slow => stand_still(machine, || thread::sleep(lasts)),
            Bad::Evicted => stand_still(machine, || self.evict(victim)),
            Bad::Late => stand_still(machine, || thread::sleep(LEASE + lasts)),
            Bad::Cut(traffic) => cut(machine, traffic, lasts),
            Bad::Away => cut(machine, Traffic::Silent, LEASE + lasts),
            Bad::Database => {
                self.server.kill();
                thread::sleep(lasts);
                self.server.run();
            }
            Bad::Clock => jump(machine, lasts),
            Bad::Store => {}
        }
    }

    /// Another machine ends the session of this one.
    fn evict(&self, victim: usize) {
        let process = format!("process {})", self.machines[victim].process().0);
        let other = (victim + 1) % MACHINES;
        let listed = self
            .command(other, "sessions", &["--json"])
            .expect_success();
        let sessions: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).unwrap();
        let session = sessions
            .iter()
            .find(|session| session["machine"].as_str().unwrap().ends_with(&process));
        let session = session.expect("it has a session")["session"].to_string();
        self.command(other, "sessions", &["--evict", &session])
            .expect_success();
    }

    fn recover(&mut self, bad: Bad, victim: usize) {
        if bad.ends_mount() {
            let mount = self.machines[victim].mount.take().unwrap();
            if !matches!(bad, Bad::Killed) {
                let shown = fs::read_dir(mount.path());
                assert!(shown.is_err(), "it was shut out and shows the directory");
            }
            mount.kill_and_unmount();
            self.mount(victim);
        }
    }

    /// Tells each worker something on a machine: `shift` chooses which has which.
    fn order(&mut self, shift: usize, order: impl Fn(&mut Worker, &Path)) {
        let machines = self.machines.iter().cycle().skip(shift);
        for (worker, machine) in self.workers.iter_mut().zip(machines) {
            order(worker, machine.mount().path());
        }
    }

    /// All leave, and what is in the bucket belongs to somebody.
    fn end(mut self) {
        for machine in &mut self.machines {
            machine.mount.take().unwrap().unmount();
        }
        self.command(0, "check", &["--data"]).expect_success();
        self.command(0, "gc", &[]).expect_success();
        let collected = self.command(0, "gc", &["--json"]).expect_success();
        let found: serde_json::Value = serde_json::from_str(&collected.stdout).unwrap();
        assert_eq!(found["leaked"]["objects"], 0, "{found}");
        self.command(0, "destroy", &["--yes"]).expect_success();
    }
}

/// Lets a process go on, also when something panics.
struct GoesOn(Process);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.signal("-CONT");
    }
}

fn stand_still(machine: &Machine, meanwhile: impl FnOnce()) {
    let process = machine.process();
    process.signal("-STOP");
    let _goes_on = GoesOn(process);
    meanwhile();
}

/// What lets a process have a clock of its own, where it is installed.
fn clock_library() -> Option<PathBuf> {
    let library = |folder: fs::DirEntry| folder.path().join("faketime/libfaketimeMT.so.1");
    let folders = fs::read_dir("/usr/lib").ok()?.flatten();
    folders.map(library).find(|library| library.exists())
}

fn jump(machine: &Machine, lasts: Duration) {
    if clock_library().is_none() {
        return skipped("libfaketime is missing: no clock jumps");
    }
    for (offset, hours) in [("+3h", 3), ("-2h", -2), ("+0", 0)] {
        machine.set_clock(offset);
        thread::sleep(lasts.max(Duration::from_secs(2)));
        let made = File::create(machine.mount().join("clock")).unwrap();
        let shown = made.metadata().unwrap().mtime();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ahead = shown - now.as_secs().cast_signed();
        assert!(
            (ahead - hours * 3600).abs() < 60,
            "{ahead} s ahead and not {hours} h"
        );
    }
}

fn cut(machine: &Machine, traffic: Traffic, lasts: Duration) {
    machine.road.set(traffic);
    thread::sleep(lasts);
    machine.road.set(Traffic::Flows);
}

#[test]
fn what_was_closed_on_a_machine_is_there_on_all_whatever_happens_to_one() {
    let seed = number(SEED_VARIABLE, 1);
    let rounds = number(ROUNDS_VARIABLE, ROUNDS_DEFAULT);
    let Some(ground) = Ground::new(seed, "close-to-open") else {
        return;
    };
    live(ground.with_workers(seed), rounds, (seed, 0));
}

/// The same, and each read and write is seen as if there were one machine.
#[test]
fn what_strict_machines_see_can_have_happened_in_an_order_whatever_happens_to_one() {
    let seed = number(SEED_VARIABLE, 1);
    let rounds = number(ROUNDS_VARIABLE, ROUNDS_DEFAULT);
    let Some(ground) = Ground::new(seed, "strict") else {
        return;
    };
    live(
        ground.with_workers(seed).with_players(seed),
        rounds,
        (seed, 1),
    );
}

/// The kernel bounds what it copies, and seeks from the end of a file, by the size that it was told last.
#[test]
fn the_kernel_knows_the_end_of_what_another_strict_machine_wrote() {
    let Some(ground) = Ground::new(number(SEED_VARIABLE, 1), "strict") else {
        return;
    };
    let open = |machine: usize, name: &str| {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let path = ground.machines[machine].mount().join(name);
        options.open(path).unwrap()
    };
    let (writing, source, target) = (open(1, "source"), open(0, "source"), open(0, "target"));
    let copied = || {
        let (mut from, mut to) = (0, 0);
        let (from, to) = (Some(&mut from), Some(&mut to));
        rustix::fs::copy_file_range(&source, from, &target, to, 4096).unwrap() as u64
    };
    for round in 1..=5_u64 {
        writing.write_all_at(b"written", (round - 1) * 7).unwrap();
        let end = (&source).seek(SeekFrom::End(0)).unwrap();
        assert_eq!(end, round * 7, "lseek");
        writing.write_all_at(b"and", round * 7).unwrap();
        let length = source.metadata().unwrap().len();
        assert_eq!((length, copied()), (round * 7 + 3, round * 7 + 3), "copied");
        writing.set_len(round * 7).unwrap();
    }
}

fn live(mut ground: Ground, rounds: u64, (seed, first): (u64, u64)) {
    for round in 0..rounds {
        print!("seed {seed}, round {round}: ");
        // Each comes once before any comes again.
        let bad = match ground.chance.below(12) {
            0 if rounds > ROUNDS_DEFAULT => *ground.chance.pick(&Bad::LONG),
            _ => Bad::SHORT[(first + round) as usize % Bad::SHORT.len()],
        };
        ground.round(bad);
    }
    ground.end();
}

/// Nothing by itself: a worker of the test above.
#[test]
fn worker_of_a_machine() {
    if let Ok(order) = std::env::var(worker::VARIABLE) {
        let is_player = registers::obey(&order);
        if !is_player {
            worker::obey(&order);
        }
    }
}
