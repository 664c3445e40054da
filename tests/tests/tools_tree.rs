//! A tree with every kind of file, name and attribute is the same after parcp, and after partar there and back: in a
//! directory, on a fileset, through NFS and on a staged mount; also when they are killed on their way and begin again.
//!
//! `make test` takes some hundred entries, `make soak` a hundred thousand.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

#[path = "../../crates/tools/tests/support/mod.rs"]
mod support;

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    Bucket, Fileset, Finished, Kind, NfsMount, Patience, Scratch, penstock, run_within,
};
use support::{Description, EVERYTHING, Variety, assert_alike, describe, fill};

/// How many entries the tree has.
const ENTRIES_VARIABLE: &str = "PENSTOCK_TEST_TOOLS_ENTRIES";
const ENTRIES_DEFAULT: usize = 300;
/// Which tree it is, and when what works on it is killed.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_TOOLS_SEED";
/// How often each program is killed.
const KILLS: usize = 3;

/// What a fileset keeps: all but access lists.
const OF_A_FILESET: Variety = Variety {
    lists: false,
    ..EVERYTHING
};
/// What NFSv3 passes on of a fileset: no attributes.
const THROUGH_NFS: Variety = Variety {
    attributes: false,
    ..OF_A_FILESET
};
/// What a bucket keeps, see docs/semantics/bucket.md: an object has one name, of 1,023 bytes at most, which is UTF-8; access
/// lists are refused.
const OF_A_BUCKET: Variety = Variety {
    lists: false,
    hard_links: false,
    raw_names: false,
    deep: 300,
    ..EVERYTHING
};

fn number(variable: &str, or: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.map_or(or, |text| text.parse().unwrap())
}

/// A tree, and a place to which it is brought.
struct Journey<'a> {
    scratch: &'a Scratch,
    target: &'a Path,
    random: fastrand::Rng,
    entries: usize,
    /// How long it took to copy all of it.
    took: Duration,
    source: PathBuf,
    expected: Description,
}

impl<'a> Journey<'a> {
    fn new(scratch: &'a Scratch, target: &'a Path, variety: Variety) -> Self {
        let entries = number(ENTRIES_VARIABLE, ENTRIES_DEFAULT);
        let seed = number(SEED_VARIABLE, 1) as u64;
        let source = scratch.folder("source");
        fill(&source, entries, seed, variety);
        println!("{entries} entries, seed {seed}");
        Self {
            scratch,
            target,
            random: fastrand::Rng::with_seed(seed),
            entries,
            took: Duration::ZERO,
            expected: describe(&source),
            source,
        }
    }

    fn patience(&self) -> Patience {
        Patience::seconds(60 + self.entries as u64 / 20)
    }

    fn run(&self, command: &mut Command) -> Finished {
        let finished = run_within(self.patience(), command).expect_success();
        println!("{:?} took {:?}", command.get_args(), finished.took);
        finished
    }

    fn place(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    /// A directory into which an archive is extracted.
    fn made(&self, name: &str) -> PathBuf {
        let path = self.place(name);
        fs::create_dir(&path).unwrap();
        path
    }

    fn archive(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn remove(&self, path: &Path) {
        self.run(tool("parrm").arg("-r").arg(path));
    }

    fn assert_arrived(&self, path: &Path) {
        assert_alike(&self.expected, &describe(path));
    }

    fn assert_extracted(&self, path: &Path) {
        let mut expected = self.expected.clone();
        // No archive holds sockets.
        expected.retain(|_, words| !is_socket(words));
        assert_alike(&expected, &describe(path));
    }

    /// Copied, and again, which copies nothing; archived from there and extracted there.
    fn there_and_back(&mut self) {
        let copy = self.place("copy");
        self.took = self.run(&mut restoring(&self.source, &copy)).took;
        self.assert_arrived(&copy);
        let again = self.run(&mut restoring(&self.source, &copy));
        let done: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
        assert_eq!((&done["files"], &done["bytes"]), (&0.into(), &0.into()));
        self.assert_arrived(&copy);
        let archive = self.archive("there.tar");
        self.run(&mut archiving(&copy, &archive));
        self.remove(&copy);
        let extracted = self.made("extracted");
        self.run(&mut extracting(&archive, &extracted));
        self.assert_extracted(&extracted);
        self.remove(&extracted);
        fs::remove_file(archive).unwrap();
    }

    /// Each is killed on its way, and does the same when it is run again.
    fn killed_and_run_again(&mut self) {
        let copy = self.place("killed");
        let restore = |journey: &Self| restoring(&journey.source, &copy);
        let undo = |journey: &Self| journey.remove(&copy);
        self.kill("parcp", &restore, &undo);
        self.run(&mut restoring(&self.source, &copy));
        self.assert_arrived(&copy);
        let archive = self.archive("killed.tar");
        let create = |_: &Self| archiving(&copy, &archive);
        self.kill("partar -c", &create, &|_| {
            fs::remove_file(&archive).unwrap();
        });
        // An archive has its name when it is whole, which may be just before the end.
        if archive.exists() {
            self.run(&mut listing(&archive));
            fs::remove_file(&archive).unwrap();
        }
        self.run(&mut archiving(&copy, &archive));
        self.remove(&copy);
        let extracted = self.made("killed-extracted");
        let extract = |_: &Self| extracting(&archive, &extracted);
        let undo = |journey: &Self| {
            journey.remove(&extracted);
            journey.made("killed-extracted");
        };
        self.kill("partar -x", &extract, &undo);
        self.run(&mut extracting(&archive, &extracted));
        self.assert_extracted(&extracted);
        self.remove(&extracted);
    }

    /// Kills the command some times, each a random while after its begin. Where it had ended already, what it did is undone,
    /// and it gets less time.
    fn kill(&mut self, what: &str, make: &dyn Fn(&Self) -> Command, undo: &dyn Fn(&Self)) {
        let mut longest = self.took / 2;
        let mut kills = Vec::new();
        while kills.len() < KILLS {
            let mut command = make(self);
            let begun = Instant::now();
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            thread::sleep(longest.mul_f64(self.random.f64()));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{what} ended with {status}");
                undo(self);
                longest /= 2;
                continue;
            }
            child.kill().unwrap();
            if child.wait().unwrap().success() {
                undo(self);
                continue;
            }
            kills.push(begun.elapsed());
        }
        println!("{what} was killed after {kills:?}");
    }
}

/// Whether these words, which begin with the mode, are about a socket.
fn is_socket(words: &str) -> bool {
    let mode = words.split(' ').next().unwrap();
    u32::from_str_radix(mode, 8).unwrap() & libc::S_IFMT == libc::S_IFSOCK
}

fn tool(name: &str) -> Command {
    let mut command = penstock();
    command.args(["as", name]);
    command
}

fn restoring(source: &Path, target: &Path) -> Command {
    let mut command = tool("parcp");
    command.args(["--restore", "--json"]);
    command.args([source, target]);
    command
}

fn listing(archive: &Path) -> Command {
    let mut command = tool("partar");
    command.arg("-tf").arg(archive);
    command
}

fn archiving(source: &Path, archive: &Path) -> Command {
    let mut command = tool("partar");
    command.arg("-cf").arg(archive).arg("-C").arg(source);
    command.arg(".");
    command
}

fn extracting(archive: &Path, target: &Path) -> Command {
    let mut command = tool("partar");
    command.arg("-xf").arg(archive).arg("-C").arg(target);
    command.args(["--numeric-owner", "--allow-links-out"]);
    command
}

fn travel(scratch: &Scratch, target: &Path, variety: Variety) {
    let mut journey = Journey::new(scratch, target, variety);
    journey.there_and_back();
    journey.killed_and_run_again();
}

#[test]
fn a_random_tree_arrives_whole_in_a_directory() {
    let scratch = Scratch::new();
    travel(&scratch, &scratch.folder("target"), EVERYTHING);
}

#[test]
fn a_random_tree_arrives_whole_on_a_fileset() {
    let fileset = Fileset::new("tools");
    let (scratch, mount) = (Scratch::new(), fileset.mount());
    travel(&scratch, mount.path(), OF_A_FILESET);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn a_random_tree_arrives_whole_through_nfs() {
    if !NfsMount::is_possible() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("tools-nfs"));
    let served = std::rc::Rc::clone(&fileset);
    let mount = NfsMount::new(move || served.command("serve"));
    travel(&Scratch::new(), mount.path(), THROUGH_NFS);
    drop(mount);
    fileset.run("check", &[]).expect_success();
}

/// A file gets no size there before its bytes, and nothing is written but behind the last of them.
#[test]
fn files_of_each_size_are_copied_to_and_within_a_mount_that_appends_alone() {
    let (bucket, scratch) = (Bucket::new(Kind::Local), Scratch::new());
    let source = scratch.folder("source");
    for (name, length) in [
        ("empty", 0),
        ("small", 5000),
        ("middle", 300_000),
        ("large", 65 << 20),
    ] {
        let content: Vec<u8> = (0..length).map(|at| (at / 251) as u8).collect();
        fs::write(source.join(name), content).unwrap();
    }
    let holes = fs::File::create(source.join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    holes.write_all_at(b"data", 500_000).unwrap();
    let mount = bucket.mount();
    let copies = ["copy", "copy of it"].map(|name| mount.path().join(name));
    for ends in [[&source, &copies[0]], [&copies[0], &copies[1]]] {
        let mut command = tool("parcp");
        run_within(Patience::seconds(120), command.arg("-r").args(ends)).expect_success();
        for entry in fs::read_dir(&source).unwrap() {
            let name = entry.unwrap().file_name();
            let [wanted, made] = [&source, ends[1]].map(|place| fs::read(place.join(&name)));
            assert!(wanted.unwrap() == made.unwrap(), "{name:?}");
        }
    }
    mount.unmount();
}

#[test]
fn a_random_tree_arrives_whole_on_a_staged_mount() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    let mount = bucket.mount_with(&options);
    travel(&scratch, mount.path(), OF_A_BUCKET);
    mount.unmount();
}
