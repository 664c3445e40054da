//! Random lives of two machines, compared with what close-to-open says.
//!
//! What a machine wrote it sees at once, the other one when it was saved: at the latest when that opens the file after it was
//! closed. Cuts, holes and names are everybody's at once, whatever the machine that makes them has heard of.

use std::collections::{BTreeMap, BTreeSet};

use penstock_base::FsError;
use penstock_vfs::{
    Allocation, AttributeChanges, HandleId, Inode, OpenOptions, RemoveKind, RenameMode, WritePlace,
};
use proptest::prelude::*;

use crate::{
    contents::open,
    ground::{Ground, Machine},
    support::{ROOT, file},
};

const FILES: usize = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Deed {
    /// Opens the file and reads it; whatever is open is closed first.
    Open,
    Close,
    Write(u16, u8),
    Cut(u16),
    Punch(u16, u8),
    Sync,
    /// Hears of nothing until it opens something.
    Deafen,
    Make(usize),
    Remove(usize),
    Rename(usize, usize),
}

/// Which machine does what, to which file.
type Step = (usize, usize, Deed);

fn deed() -> impl Strategy<Value = Deed> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => Just(Deed::Open),
        2 => Just(Deed::Close),
        6 => (0u16..300, 1u8..100).prop_map(|(at, length)| Deed::Write(at, length)),
        2 => (0u16..300).prop_map(Deed::Cut),
        2 => (0u16..300, 1u8..100).prop_map(|(at, length)| Deed::Punch(at, length)),
        2 => Just(Deed::Sync),
        3 => Just(Deed::Deafen),
        1 => name.clone().prop_map(Deed::Make),
        1 => name.clone().prop_map(Deed::Remove),
        1 => (name.clone(), name).prop_map(|(from, to)| Deed::Rename(from, to)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..2usize, 0..FILES, deed()), 1..60)
}

/// Bytes, of which some are not there: a file, or what is pending of one.
fn write(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(at + data.len()), 0);
    bytes[at..at + data.len()].copy_from_slice(data);
}

/// Bytes as runs.
fn told(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, other| one == other);
    let runs: Vec<_> = runs
        .map(|run| format!("{}x{}", run.len(), run[0]))
        .collect();
    runs.join(" ")
}

/// A file as a machine knows it.
#[derive(Debug, Default)]
struct Own {
    handle: Option<HandleId>,
    /// What it wrote and did not save.
    pending: BTreeMap<usize, u8>,
    /// How long that makes the file at least, also where it was punched since.
    reach: usize,
    /// What its kernel keeps.
    cached: Option<Vec<u8>>,
}

impl Own {
    fn show(&self, saved: &[u8]) -> Vec<u8> {
        let mut shown = saved.to_vec();
        for (at, byte) in &self.pending {
            write(&mut shown, *at, &[*byte]);
        }
        shown.resize(shown.len().max(self.reach), 0);
        shown
    }
}

struct Life {
    machines: [Machine; 2],
    inodes: Vec<Inode>,
    saved: Vec<Vec<u8>>,
    own: [Vec<Own>; 2],
    names: BTreeSet<usize>,
    count: u8,
}

impl Life {
    async fn new(ground: &Ground) -> Self {
        let machines = ground.two().await;
        let mut inodes = Vec::new();
        for index in 0..FILES {
            let text = format!("file {index}");
            inodes.push(
                machines[0]
                    .place
                    .make(ROOT, &text, file(0o644))
                    .await
                    .unwrap(),
            );
        }
        for machine in &machines {
            machine.catch_up().await;
            for index in 0..FILES {
                let text = format!("file {index}");
                machine.place.find(ROOT, &text).await.unwrap();
            }
        }
        let own = || (0..FILES).map(|_| Own::default()).collect();
        Self {
            machines,
            inodes,
            saved: vec![Vec::new(); FILES],
            own: [own(), own()],
            names: BTreeSet::new(),
            count: 0,
        }
    }

    async fn step(&mut self, (who, which, deed): &Step) {
        self.count = self.count % 250 + 1;
        match deed {
            Deed::Open => self.open(*who, *which).await,
            Deed::Close => self.close(*who, *which).await,
            Deed::Write(at, length) => {
                let range = usize::from(*at)..usize::from(*at) + usize::from(*length);
                self.write(*who, *which, range).await;
            }
            Deed::Cut(size) => self.cut(*who, *which, usize::from(*size)).await,
            Deed::Punch(at, length) => {
                let range = usize::from(*at)..usize::from(*at) + usize::from(*length);
                self.punch(*who, *which, range).await;
            }
            Deed::Sync => self.sync(*who, *which).await,
            Deed::Deafen => self.machines[*who].session.hear(false),
            Deed::Make(name) => self.make(*who, *name).await,
            Deed::Remove(name) => self.remove(*who, *name).await,
            Deed::Rename(from, to) => self.rename(*who, *from, *to).await,
        }
    }

    async fn open(&mut self, who: usize, which: usize) {
        self.close(who, which).await;
        let machine = &self.machines[who];
        machine.session.hear(true);
        let opened = open(machine, self.inodes[which], OpenOptions::READ_WRITE).await;
        let read = machine.place.read(opened.handle, 0, 10_000).await.unwrap();
        let own = &mut self.own[who][which];
        let expected = own.show(&self.saved[which]);
        assert!(
            read == expected,
            "{} and not {}",
            told(&read),
            told(&expected)
        );
        if let Some(mut cached) = own.cached.take().filter(|_| opened.is_unchanged) {
            cached.resize(expected.len(), 0);
            let (kept, there) = (told(&cached), told(&expected));
            assert!(cached == expected, "{kept} is kept, {there} is there");
        }
        own.cached = Some(read);
        own.handle = Some(opened.handle);
    }

    async fn close(&mut self, who: usize, which: usize) {
        if let Some(handle) = self.own[who][which].handle.take() {
            self.machines[who].place.close(handle).await.unwrap();
            self.save(who, which);
        }
    }

    async fn sync(&mut self, who: usize, which: usize) {
        if let Some(handle) = self.own[who][which].handle {
            self.machines[who].place.sync(handle).await.unwrap();
            self.save(who, which);
        }
    }

    fn save(&mut self, who: usize, which: usize) {
        let own = &mut self.own[who][which];
        self.saved[which] = own.show(&self.saved[which]);
        own.pending.clear();
        own.reach = 0;
    }

    async fn write(&mut self, who: usize, which: usize, range: std::ops::Range<usize>) {
        let own = &mut self.own[who][which];
        let Some(handle) = own.handle else { return };
        let data = vec![self.count; range.len()];
        let place = WritePlace::At(range.start as u64);
        let written = self.machines[who].place.write(handle, place, &data);
        written.await.unwrap();
        if let Some(cached) = &mut own.cached {
            write(cached, range.start, &data);
        }
        own.reach = own.reach.max(range.end);
        own.pending.extend(range.map(|at| (at, self.count)));
    }

    async fn cut(&mut self, who: usize, which: usize, size: usize) {
        let changes = AttributeChanges {
            size: Some(size as u64),
            ..AttributeChanges::default()
        };
        let changed = self.machines[who].place.change(self.inodes[which], changes);
        changed.await.unwrap();
        let own = &mut self.own[who][which];
        own.pending.retain(|at, _| *at < size);
        own.reach = own.pending.last_key_value().map_or(0, |(at, _)| at + 1);
        if let Some(cached) = &mut own.cached {
            cached.resize(size, 0);
        }
        self.saved[which].resize(size, 0);
    }

    async fn punch(&mut self, who: usize, which: usize, range: std::ops::Range<usize>) {
        let own = &mut self.own[who][which];
        let Some(handle) = own.handle else { return };
        let punched = range.start as u64..range.end as u64;
        let punched = self.machines[who]
            .place
            .allocate(handle, punched, Allocation::PunchHole);
        punched.await.unwrap();
        own.pending.retain(|at, _| !range.contains(at));
        for bytes in [Some(&mut self.saved[which]), own.cached.as_mut()] {
            let Some(bytes) = bytes else { continue };
            let end = range.end.min(bytes.len());
            bytes[range.start.min(end)..end].fill(0);
        }
    }

    async fn make(&mut self, who: usize, name: usize) {
        let made = self.machines[who]
            .place
            .make(ROOT, NAMES[name], file(0o644));
        let expected = match self.names.insert(name) {
            true => None,
            false => Some(FsError::AlreadyExists),
        };
        assert_eq!(made.await.err(), expected);
    }

    async fn remove(&mut self, who: usize, name: usize) {
        let removed = self.machines[who]
            .place
            .remove(ROOT, NAMES[name], RemoveKind::File);
        let expected = match self.names.remove(&name) {
            true => None,
            false => Some(FsError::NotFound),
        };
        assert_eq!(removed.await.err(), expected);
    }

    async fn rename(&mut self, who: usize, from: usize, to: usize) {
        let (source, target) = ((ROOT, NAMES[from]), (ROOT, NAMES[to]));
        let renamed = self.machines[who]
            .place
            .rename(source, target, RenameMode::Replace);
        let expected = match self.names.remove(&from) {
            true => {
                self.names.insert(to);
                None
            }
            false => Some(FsError::NotFound),
        };
        assert_eq!(renamed.await.err(), expected);
    }

    /// Both see the same in the end, and all of it fits.
    async fn end(mut self) {
        for who in 0..2 {
            self.machines[who].session.hear(true);
            for which in 0..FILES {
                self.close(who, which).await;
            }
        }
        for who in 0..2 {
            for which in 0..FILES {
                self.open(who, which).await;
                self.close(who, which).await;
            }
            self.machines[who].catch_up().await;
            for (index, name) in NAMES.iter().enumerate() {
                let found = self.machines[who].place.find(ROOT, name).await;
                assert_eq!(found.is_ok(), self.names.contains(&index));
            }
        }
        self.machines[0].place.is_whole().await;
    }
}

async fn live(ground: Ground, days: u32, steps: &[Step]) {
    let mut life = Life::new(&ground).await;
    life.machines[0].place.volume.set_trash(days).await.unwrap();
    for step in steps {
        life.step(step).await;
    }
    life.end().await;
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_random_life_of_two_machines_is_close_to_open(steps in steps()) {
        block_on(async { live(Ground::in_memory().await, 0, &steps).await });
    }

    #[test]
    fn a_random_life_of_two_machines_with_a_trash_is_close_to_open(steps in steps()) {
        block_on(async { live(Ground::in_memory().await, 7, &steps).await });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn a_random_life_of_two_machines_is_close_to_open_on_a_database(steps in steps()) {
        block_on(async {
            if let Some(ground) = Ground::on_a_database().await {
                live(ground, 7, &steps).await;
            }
        });
    }
}
