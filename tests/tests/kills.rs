//! The mount is killed again and again, at random points of writes, saves and recoveries, with
//! little memory: `make soak` does so for hundreds of rounds.
//!
//! Nobody else uses the bucket. So after each kill the next mount shows every change that was
//! answered, synced or not, and in the end the bucket has it; nothing is put aside, and no upload
//! stays behind. Of a change that a kill cut off, all or nothing is there.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use penstock_devserver::Faults;
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Scratch,
    data::noise,
    files::ANY,
    soak::Chance,
    system::{self, Errno},
};

const ROUNDS_VARIABLE: &str = "PENSTOCK_TEST_KILL_ROUNDS";
const ROUNDS_DEFAULT: u64 = 16;
/// Makes another run: what is done, and when it is cut off, follows from it.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_KILL_SEED";

const MIB: usize = 1 << 20;
const FILES: usize = 4;
const SIZE_MAX: usize = 14 * MIB;
const WRITE_MAX: usize = 600_000;

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

/// What a file should hold.
struct Shadow {
    name: String,
    content: Vec<u8>,
    /// The change that was cut off. Of a write a part from its beginning may have been made: the
    /// kernel passes it on in pieces.
    cut: Option<Change>,
    chance: Chance,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Resize(u64),
}

impl Change {
    /// Makes the change, or a part of it; returns what was made, and the rest.
    fn make(self, file: &OwnedFd) -> Result<(Self, Option<Self>), Errno> {
        match self {
            Self::Write(at, mut data) => {
                let written = system::write_at(file, &data, at)?;
                let rest = data.split_off(written);
                let more = (!rest.is_empty()).then_some(Self::Write(at + written as u64, rest));
                Ok((Self::Write(at, data), more))
            }
            Self::Resize(size) => system::truncate_open(file, size).map(|()| (self, None)),
        }
    }

    /// As much of the change as `found` shows.
    fn as_found(&self, found: &[u8]) -> Self {
        match self {
            Self::Write(at, data) => {
                let there = found.get(*at as usize..).unwrap_or_default().iter();
                let made = there
                    .zip(data)
                    .take_while(|(one, other)| one == other)
                    .count();
                Self::Write(*at, data[..made].to_vec())
            }
            Self::Resize(_) => self.clone(),
        }
    }
}

impl Shadow {
    fn new(name: String, seed: u64) -> Self {
        Self {
            name,
            content: Vec::new(),
            cut: None,
            chance: Chance::new(seed),
        }
    }

    /// Compares what was found with what may be there, and goes on with that.
    #[track_caller]
    fn settle(&mut self, found: Vec<u8>, place: &str) {
        let cut = self.cut.take();
        let with_cut = cut.as_ref().map(|cut| self.changed(&cut.as_found(&found)));
        let mut pairs = found.iter().zip(&self.content);
        let differs = pairs.position(|(one, other)| one != other);
        let said = cut.map(|cut| match cut {
            Change::Write(at, data) => format!("a write of {} at {at}", data.len()),
            Change::Resize(size) => format!("a truncation to {size}"),
        });
        assert!(
            found == self.content || Some(&found) == with_cut.as_ref(),
            "{} in {place}: {} bytes in place of {}; the first that differs: {differs:?}; {said:?} was \
             cut off",
            self.name,
            found.len(),
            self.content.len(),
        );
        self.content = found;
    }

    fn next(&mut self) -> Change {
        let chance = &mut self.chance;
        if chance.below(20) == 0 {
            return Change::Resize(chance.below(SIZE_MAX) as u64);
        }
        let length = 1 + chance.below(WRITE_MAX);
        let at = match chance.below(2) {
            0 => self.content.len().min(SIZE_MAX - length),
            _ => chance.below(SIZE_MAX - length),
        };
        Change::Write(at as u64, noise(chance.below(1 << 30) as u64, length))
    }

    fn changed(&self, change: &Change) -> Vec<u8> {
        let mut content = self.content.clone();
        match change {
            Change::Write(at, data) => {
                let at = *at as usize;
                if data.is_empty() {
                    return content;
                }
                content.resize(content.len().max(at + data.len()), 0);
                content[at..at + data.len()].copy_from_slice(data);
            }
            Change::Resize(size) => content.resize(*size as usize, 0),
        }
        content
    }

    /// Changes the file until an operation fails.
    fn work(&mut self, path: &Path) -> Errno {
        loop {
            if let Err(errno) = self.open_and_change(path) {
                return errno;
            }
        }
    }

    fn open_and_change(&mut self, path: &Path) -> Result<(), Errno> {
        let file = system::open(path, ANY)?;
        let found = read_all(&file)?;
        self.settle(found, "the mount");
        for _ in 0..1 + self.chance.below(12) {
            let mut next = Some(self.next());
            while let Some(change) = next {
                self.cut = Some(change.clone());
                let (made, rest) = change.make(&file)?;
                (self.content, self.cut) = (self.changed(&made), None);
                next = rest;
            }
            if self.chance.below(6) == 0 {
                system::sync(&file)?;
            }
        }
        Ok(())
    }
}

fn read_all(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let size = system::status_open(file)?.size as usize;
    let mut content = Vec::new();
    while content.len() < size {
        let more = system::read_at(file, MIB, content.len() as u64)?;
        assert!(!more.is_empty(), "ends at {} of {size}", content.len());
        content.extend(more);
    }
    Ok(content)
}

struct Bed {
    bucket: Bucket,
    scratch: Scratch,
    shadows: Vec<Shadow>,
    chance: Chance,
    /// When files are saved.
    save: &'static str,
}

impl Bed {
    fn new(kind: Kind, seed: u64, save: &'static str) -> Self {
        let files = 0..FILES as u64;
        Self {
            bucket: Bucket::new(kind),
            scratch: Scratch::new(),
            shadows: files
                .map(|number| Shadow::new(format!("file-{number}"), seed * 31 + number))
                .collect(),
            chance: Chance::new(seed),
            save,
        }
    }

    fn staging(&self) -> PathBuf {
        self.scratch.path().join("staging")
    }

    #[track_caller]
    fn mount(&self) -> Mount {
        let options = self
            .bucket
            .staged_options(&self.staging())
            .option("save", self.save)
            .option("memory", "64MiB")
            .option("max-dirty-data", "5MiB")
            .option("multipart-threshold", "5MiB")
            .option("part-size", "5MiB");
        self.bucket.mount_with(&options)
    }

    fn pause(&mut self, longest: usize) -> Duration {
        Duration::from_millis(self.chance.below(longest) as u64)
    }

    fn change_weather(&mut self) {
        let chance = &mut self.chance;
        self.bucket.fail(Faults {
            latency_ms: *chance.pick(&[0, 0, 5, 40, 200]),
            bandwidth_total: *chance.pick(&[None, Some(60 << 20), Some(15 << 20)]),
            ..Faults::default()
        });
    }

    fn round(&mut self) {
        self.change_weather();
        match self.chance.below(10) {
            0..6 => self.kill_while_writing(),
            6..8 => {
                let mount = self.mount();
                thread::sleep(self.pause(600));
                mount.kill_and_unmount();
            }
            _ => self.compare_stored(),
        }
        self.check_kept();
    }

    fn kill_while_writing(&mut self) {
        let mount = self.mount();
        let (pause, killed) = (self.pause(2500), AtomicBool::new(false));
        thread::scope(|scope| {
            for shadow in &mut self.shadows {
                let (mount, killed) = (&mount, &killed);
                scope.spawn(move || {
                    let errno = shadow.work(&mount.join(&shadow.name));
                    let name = &shadow.name;
                    assert!(killed.load(Ordering::SeqCst), "{name}: {errno:?}");
                });
            }
            thread::sleep(pause);
            killed.store(true, Ordering::SeqCst);
            mount.process().kill();
        });
        mount.kill_and_unmount();
    }

    /// After a mount that ended well the bucket has everything.
    fn compare_stored(&mut self) {
        self.mount().unmount();
        for shadow in &mut self.shadows {
            let found = self.bucket.data().get(BUCKET, &shadow.name);
            shadow.settle(found.unwrap_or_default(), "the bucket");
        }
        let uploads = || self.bucket.data().uploads(BUCKET);
        assert_eq!(uploads(), [], "uploads stay behind");
        assert_eq!(self.files("files"), Vec::<PathBuf>::new());
    }

    fn check_kept(&self) {
        assert_eq!(
            self.files("kept"),
            Vec::<PathBuf>::new(),
            "nobody else was there"
        );
    }

    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.staging().join(folder)).expect("a staging directory");
        files.flatten().map(|file| file.path()).collect()
    }
}

fn kill_again_and_again(kind: Kind, save: &'static str, rounds: u64, seed: u64) {
    let mut bed = Bed::new(kind, seed, save);
    for round in 0..rounds {
        println!("{kind:?}, saved {save}: seed {seed}, round {round}");
        bed.round();
    }
    bed.bucket.heal();
    bed.compare_stored();
    bed.check_kept();
}

#[test]
fn nothing_that_was_answered_is_lost_by_kills() {
    kill("close");
}

#[test]
fn nothing_that_was_answered_is_lost_by_kills_of_a_mount_that_saves_behind() {
    kill("behind");
}

fn kill(save: &'static str) {
    let rounds = number(ROUNDS_VARIABLE, ROUNDS_DEFAULT);
    let seed = number(SEED_VARIABLE, 1);
    thread::scope(|scope| {
        for kind in Kind::REMOTE {
            scope.spawn(move || kill_again_and_again(kind, save, rounds / 2, seed));
        }
    });
}
