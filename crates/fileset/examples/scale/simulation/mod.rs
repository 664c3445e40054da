//! Machines on one database, event by event: who waits for what, and for how long.
//!
//! | module | what it has |
//! |---|---|
//! | `resources` | processors with cores, and wires |
//! | `history` | all changes in their order, and what is told of them |
//! | `machine` | callers, the group that waits and the one under way, what is known |
//! | `database` | the lock and the connections |
//! | `trips` | groups, and all that reads |
//!
//! Events that are due at the same time happen in the order in which they were planned, and all chance is of one seed:
//! so a run can be repeated.

mod database;
mod history;
mod machine;
mod resources;
#[cfg(test)]
mod tests;
mod trips;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use fastrand::Rng;

use self::{
    database::{Database, Reads},
    history::History,
    machine::Machine,
    resources::{Processor, Wire},
};
use crate::{
    costs::{Costs, Site},
    figures::Latencies,
    load::{Kind, Load, PAGES},
};

/// Before that nothing is counted.
const WARM_UP: u64 = 3_000_000_000;
/// How often a session that does nothing asks what others changed, and how often each says that it is alive.
const POLL: u64 = 40_000_000;
const BEAT: u64 = 5_000_000_000;

/// Nanoseconds of so many microseconds.
fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1e3).round() as u64
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A caller begins an operation.
    Begin(usize, usize),
    /// A look at what is known is done.
    Looked(usize, usize),
    /// A change was run on what is known.
    Apply(usize, usize),
    /// A group is ready to be sent, arrives, was made behind the lock, is on the disk, was answered, is taken in.
    GroupReady(usize),
    GroupArrived(usize),
    GroupMade(usize),
    GroupFlushed(usize),
    GroupAnswered(usize),
    GroupTaken(usize),
    /// The same of a trip that reads, by its number.
    ReadReady(usize),
    ReadArrived(usize),
    ReadMade(usize),
    ReadAnswered(usize),
    ReadTaken(usize),
    /// A session that did nothing since asks what others changed.
    Poll(usize, u64),
    Beat(usize),
    /// Work that nobody waits for was done.
    Nothing,
}

/// Whose processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Database,
    Machine(usize),
}

type Event = (u64, u64, Option<usize>, Step);

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Operations a second, and those of them that change something.
    pub operations: f64,
    pub changes: f64,
    pub groups: f64,
    /// Groups a second that were refused.
    pub refused: f64,
    /// Keys a second that the feed told.
    pub told: f64,
    /// Cores of the database at work, and of all machines.
    pub database: f64,
    pub machines: f64,
    /// Parts of the time: behind the lock, and of what the wire carries.
    pub locked: f64,
    pub wire: f64,
    /// Bytes a second from the database.
    pub down: f64,
    /// Milliseconds of a kind: the median and p99.
    pub latencies: BTreeMap<&'static str, (f64, f64)>,
}

/// What is counted.
#[derive(Debug, Default)]
struct Counts {
    operations: u64,
    changes: u64,
    groups: u64,
    refused: u64,
    told: u64,
    locked: u64,
    /// Nanoseconds of CPU of the database, and of the machines.
    database: u64,
    machines: u64,
    latencies: BTreeMap<&'static str, Latencies>,
}

/// See the module.
pub struct World {
    costs: Costs,
    site: Site,
    load: Load,
    now: u64,
    planned: u64,
    events: BinaryHeap<Reverse<Event>>,
    chance: Rng,
    processors: Vec<Processor>,
    up: Wire,
    down: Wire,
    machines: Vec<Machine>,
    database: Database,
    reads: Reads,
    history: History,
    counts: Counts,
}

impl World {
    /// `busy` machines that do this, and others that listen.
    pub fn new(
        (costs, site): (Costs, Site),
        load: Load,
        (busy, listeners): (usize, usize),
        seed: u64,
    ) -> Self {
        let machines = busy + listeners;
        let mut processors = vec![Processor::new(site.database_cores)];
        if !site.is_one_computer {
            processors.extend((0..machines).map(|_| Processor::new(site.machine_cores)));
        }
        let mut world = Self {
            costs,
            site,
            load,
            now: 0,
            planned: 0,
            events: BinaryHeap::new(),
            chance: Rng::with_seed(seed),
            processors,
            up: Wire::new(site.bytes_per_second),
            down: Wire::new(site.bytes_per_second),
            machines: (0..machines)
                .map(|machine| Machine::new(if machine < busy { load.callers } else { 0 }))
                .collect(),
            database: Database::new(machines, site.connections),
            reads: Reads::default(),
            history: History::new(machines),
            counts: Counts::default(),
        };
        world.begin();
        world
    }

    /// Callers and sessions begin at different times.
    fn begin(&mut self) {
        for machine in 0..self.machines.len() {
            for caller in 0..self.machines[machine].callers.len() {
                let first = self.chance.u64(..10_000_000) + nanoseconds(self.pause() * 1e6);
                self.plan(first, Step::Begin(machine, caller));
            }
            let poll = self.chance.u64(..POLL);
            self.plan(poll, Step::Poll(machine, 0));
            let beat = self.chance.u64(..BEAT);
            self.plan(beat, Step::Beat(machine));
        }
    }

    fn pause(&mut self) -> f64 {
        self.load.next_pause(&mut self.chance).as_secs_f64()
    }

    /// Runs for a while, and says what was found.
    pub fn run(mut self, time: Duration) -> Found {
        let end = WARM_UP + time.as_nanos() as u64;
        let mut is_warm = false;
        while let Some(Reverse((at, _, processor, step))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            if !is_warm && at >= WARM_UP {
                is_warm = true;
                self.forget();
            }
            if let Some(processor) = processor
                && let Some((work, next)) = self.processors[processor].end()
            {
                self.plan_worked(processor, work, next);
            }
            self.step(step);
        }
        self.found(time.as_secs_f64())
    }

    /// What happened so far is not counted.
    fn forget(&mut self) {
        self.counts = Counts::default();
        self.up.forget();
        self.down.forget();
    }

    fn plan(&mut self, after: u64, step: Step) {
        self.planned += 1;
        self.events
            .push(Reverse((self.now + after, self.planned, None, step)));
    }

    fn plan_worked(&mut self, processor: usize, work: u64, step: Step) {
        self.planned += 1;
        let event = (self.now + work, self.planned, Some(processor), step);
        self.events.push(Reverse(event));
    }

    /// Works for so many microseconds, when a core is free.
    fn work(&mut self, at: At, microseconds: f64, then: Step) {
        let work = nanoseconds(microseconds);
        let processor = match at {
            At::Database => 0,
            At::Machine(_) if self.site.is_one_computer => 0,
            At::Machine(machine) => machine + 1,
        };
        match at {
            At::Database => self.counts.database += work,
            At::Machine(_) => self.counts.machines += work,
        }
        if self.processors[processor].begin(work, then) {
            self.plan_worked(processor, work, then);
        }
    }

    /// Sends bytes to the database, or from it.
    fn send(&mut self, is_up: bool, bytes: f64, then: Step) {
        let wire = match is_up {
            true => &mut self.up,
            false => &mut self.down,
        };
        let sent = wire.send(self.now, bytes);
        let arrives = sent + nanoseconds((self.site.round_trip + self.costs.idle) / 2.0);
        self.plan(arrives - self.now, then);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(machine, caller) => self.begin_operation(machine, caller),
            Step::Looked(machine, caller) => self.end_operation(machine, caller),
            Step::Apply(machine, caller) => self.apply(machine, caller),
            Step::GroupReady(machine) => self.send_group(machine),
            Step::GroupArrived(machine) => self.take_lock(machine),
            Step::GroupMade(machine) => {
                let flush = nanoseconds(self.costs.flush);
                self.plan(flush, Step::GroupFlushed(machine));
            }
            Step::GroupFlushed(machine) => self.leave_lock(machine),
            Step::GroupAnswered(machine) => self.take_in_group(machine),
            Step::GroupTaken(machine) => self.end_group(machine),
            Step::ReadReady(read) => self.send_read(read),
            Step::ReadArrived(read) => self.queue_read(read),
            Step::ReadMade(read) => self.answer_read(read),
            Step::ReadAnswered(read) => self.take_in_read(read),
            Step::ReadTaken(read) => self.end_read(read),
            Step::Poll(machine, turn) => self.poll(machine, turn),
            Step::Beat(machine) => self.beat(machine),
            Step::Nothing => {}
        }
    }

    fn begin_operation(&mut self, machine: usize, caller: usize) {
        let kind = self.load.next(&mut self.chance);
        let file = self.chance.usize(..self.machines[machine].shared_files());
        let one = &mut self.machines[machine].callers[caller];
        (one.kind, one.file, one.begun, one.pages) = (kind, file, self.now, PAGES);
        match kind {
            Kind::Open => self.read(machine, trips::Purpose::CatchUp(caller)),
            Kind::Unknown => self.read(machine, trips::Purpose::Page(caller)),
            Kind::Lookup | Kind::Stat => {
                let look = self.costs.machine_look;
                self.work(At::Machine(machine), look, Step::Looked(machine, caller));
            }
            Kind::Create | Kind::Close | Kind::CloseShared => {
                let change = self.costs.machine_operation;
                self.work(At::Machine(machine), change, Step::Apply(machine, caller));
            }
        }
    }

    fn end_operation(&mut self, machine: usize, caller: usize) {
        let one = &self.machines[machine].callers[caller];
        let (kind, took) = (one.kind, self.now - one.begun);
        self.counts.operations += 1;
        self.counts.changes += u64::from(kind.is_change());
        let latencies = self.counts.latencies.entry(kind.name()).or_default();
        latencies.add(Duration::from_nanos(took));
        let pause = nanoseconds(self.pause() * 1e6);
        self.plan(pause, Step::Begin(machine, caller));
    }

    fn found(self, seconds: f64) -> Found {
        let rate = |count: u64| count as f64 / seconds;
        let counts = self.counts;
        let told = counts.latencies.into_iter();
        let quantiles = |mut one: Latencies| (one.quantile(0.5), one.quantile(0.99));
        Found {
            operations: rate(counts.operations),
            changes: rate(counts.changes),
            groups: rate(counts.groups),
            refused: rate(counts.refused),
            told: rate(counts.told),
            database: rate(counts.database) / 1e9,
            machines: rate(counts.machines) / 1e9,
            locked: rate(counts.locked) / 1e9,
            wire: self.up.share(seconds).max(self.down.share(seconds)),
            down: self.down.bytes() / seconds,
            latencies: told.map(|(kind, one)| (kind, quantiles(one))).collect(),
        }
    }
}
