//! kill -9 at any moment of staged mounts that have little of everything, also while the next mount
//! recovers: what fsync promised is there, and nobody else is blamed for it.
//!
//! Each page of a file says which write it is from, so that a page can be too old, torn or foreign.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Scratch,
    data::noise,
    files::ANY,
    shortage::{self, Mode, slow_store},
    soak::Chance,
    system,
};

/// How often the mount is killed in each mode.
const ROUNDS_VARIABLE: &str = "PENSTOCK_TEST_SHORT_KILL_ROUNDS";
const ROUNDS_DEFAULT: u64 = 2;
/// Makes another run: when the mount is killed and what is written follow from it.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_SHORT_KILL_SEED";

const PAGE: usize = 4096;
/// Pages of a file: more than a part.
const PAGES: usize = 3000;
const FILES: u64 = 3;
/// Pages in one write at most.
const RUN: usize = 256;
/// One write in so many is followed by a sync.
const SYNC: usize = 6;
/// Milliseconds until a mount is killed, at least and in addition.
const LIFE: (u64, usize) = (300, 2000);
/// The same for a mount that recovers.
const RECOVERY: (u64, usize) = (20, 800);

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

fn any_time(chance: &mut Chance, (least, more): (u64, usize)) -> Duration {
    Duration::from_millis(least + chance.below(more) as u64)
}

/// A file, and which write each of its pages is from: 0 for none.
struct Ledger {
    number: u64,
    chance: Chance,
    /// The latest that was tried.
    tried: Vec<u32>,
    /// The latest that a sync promised.
    promised: Vec<u32>,
}

impl Ledger {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            chance: Chance::new(seed + number),
            tried: vec![0; PAGES],
            promised: vec![0; PAGES],
        }
    }

    fn name(&self) -> String {
        format!("file-{}", self.number)
    }

    /// The bytes of a page after its write of this number.
    fn page(&self, page: usize, version: u32) -> Vec<u8> {
        let place = self.number << 48 | (page as u64) << 32;
        let mut bytes = version.to_le_bytes().to_vec();
        bytes.extend(noise(place | u64::from(version), PAGE - bytes.len()));
        bytes
    }

    /// Writes and syncs until the mount is dead.
    fn work(&mut self, mount: &Path) {
        let Ok(file) = system::open(&mount.join(self.name()), ANY) else {
            return;
        };
        while self.step(&file).is_ok() {}
    }

    fn step(&mut self, file: &std::os::fd::OwnedFd) -> system::SystemResult<()> {
        let first = self.chance.below(PAGES);
        let last = PAGES.min(first + 1 + self.chance.below(RUN));
        let mut bytes = Vec::new();
        for page in first..last {
            self.tried[page] += 1;
            bytes.extend(self.page(page, self.tried[page]));
        }
        let (mut done, start) = (0, (first * PAGE) as u64);
        while done < bytes.len() {
            done += system::write_at(file, &bytes[done..], start + done as u64)?;
        }
        if self.chance.below(SYNC) == 0 {
            let written = self.tried.clone();
            system::sync(file)?;
            self.promised = written;
        }
        Ok(())
    }

    /// Looks at what the store has, and goes on from there.
    #[track_caller]
    fn settle(&mut self, stored: &[u8]) {
        for page in 0..PAGES {
            let found = stored.get(page * PAGE..(page + 1) * PAGE);
            let version = found.map_or(0, |bytes| {
                u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
            });
            let (promised, tried) = (self.promised[page], self.tried[page]);
            let place = format!("{}, page {page}", self.name());
            assert!(version >= promised, "{place}: {version} after {promised}");
            assert!(version <= tried, "{place}: {version} of {tried}");
            let whole = match version {
                0 => found.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)),
                _ => found.is_some_and(|bytes| bytes == self.page(page, version)),
            };
            assert!(whole, "{place}: no write of it looks like this");
            (self.tried[page], self.promised[page]) = (version, version);
        }
    }
}

/// Lets everybody write until the mount is killed.
fn write_until_killed(mount: Mount, ledgers: &mut [Ledger], life: Duration) {
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        for ledger in ledgers {
            let path = mount.path();
            let killed = &killed;
            scope.spawn(move || {
                ledger.work(path);
                assert!(killed.load(Ordering::SeqCst), "a write failed before");
            });
        }
        thread::sleep(life);
        killed.store(true, Ordering::SeqCst);
        mount.process().kill();
    });
    mount.kill_and_unmount();
}

/// Starts a mount and kills it, which may be before it is there.
fn recover_until_killed(bucket: &Bucket, options: &MountOptions, life: Duration) {
    let scratch = Scratch::new();
    let place = scratch.folder("mnt");
    let mut command = bucket.command_with("mount", options);
    command
        .arg(&place)
        .arg("-f")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("penstock was just built");
    thread::sleep(life);
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    system::detach(&place);
}

/// Nothing was put aside as somebody else's.
#[track_caller]
fn expect_nothing_put_aside(staging: &Path) {
    let kept = std::fs::read_dir(staging.join("kept"));
    let kept: Vec<_> = kept.into_iter().flatten().flatten().collect();
    assert!(
        kept.is_empty(),
        "put aside without another writer: {kept:?}"
    );
}

#[track_caller]
fn rounds(mode: Mode) {
    let first = number(SEED_VARIABLE, 1);
    for seed in first..first + number(ROUNDS_VARIABLE, ROUNDS_DEFAULT) {
        println!("{mode:?}: {SEED_VARIABLE}={seed} repeats this round");
        let mut chance = Chance::new(seed);
        let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
        let staging = scratch.path().join("staging");
        let options = shortage::options(&bucket, mode, &staging);
        let mut ledgers: Vec<_> = (0..FILES).map(|file| Ledger::new(file, seed)).collect();
        for _ in 0..2 {
            bucket.fail(slow_store());
            let mount = bucket.mount_with(&options);
            write_until_killed(mount, &mut ledgers, any_time(&mut chance, LIFE));
            for _ in 0..chance.below(3) {
                recover_until_killed(&bucket, &options, any_time(&mut chance, RECOVERY));
            }
            bucket.heal();
            bucket.mount_with(&options).unmount();
            for ledger in &mut ledgers {
                let stored = bucket.data().get(BUCKET, &ledger.name());
                ledger.settle(&stored.unwrap_or_default());
            }
            expect_nothing_put_aside(&staging);
        }
    }
}

#[test]
fn what_a_sync_promised_survives_kills_at_any_moment() {
    rounds(Mode::Staged);
}

#[test]
fn what_a_sync_promised_survives_kills_while_the_kernel_gathers_writes() {
    rounds(Mode::Gathered);
}

#[test]
fn what_a_sync_promised_survives_kills_where_files_are_saved_behind() {
    rounds(Mode::Behind);
}
