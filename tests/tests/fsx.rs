//! fsx, the file system exerciser, on staged mounts: random reads, writes, mappings, truncations
//! and holes in a few files, each compared with what should be there. `make soak` runs a million
//! operations.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

#[path = "machines/place.rs"]
mod place;
#[path = "../../crates/fileset/tests/database/server.rs"]
mod server;

use std::{
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    Bucket, Fileset, Kind, Mount, NfsMount, Patience, Scratch, run_within,
    shortage::{self, Mode, slow_store},
};
use place::Pair;

/// How many operations a run has while the store works, on S3 only if this is given.
const OPERATIONS_VARIABLE: &str = "PENSTOCK_TEST_FSX_OPERATIONS";
const OPERATIONS_DEFAULT: u32 = 4000;
/// The same while the store fails, on OSS only if this is given.
const FAILING_VARIABLE: &str = "PENSTOCK_TEST_FSX_FAILING_OPERATIONS";
const FAILING_DEFAULT: u32 = 1000;
/// The same on a mount that is short of everything.
const SHORT_VARIABLE: &str = "PENSTOCK_TEST_FSX_SHORT_OPERATIONS";
const SHORT_DEFAULT: u32 = 240;
/// The same through a mount target.
const NFS_VARIABLE: &str = "PENSTOCK_TEST_FSX_NFS_OPERATIONS";
const NFS_DEFAULT: u32 = 2000;
/// Makes another run.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_FSX_SEED";
/// The seed unless it is given, so that a failure can be repeated.
const SEED_DEFAULT: u32 = 7;

/// The least time that a run may take.
const PATIENCE_MIN: Duration = Duration::from_secs(120);
/// What an operation may take, on a busy machine with a store that fails and little of everything.
const PATIENCE_EACH: Duration = Duration::from_millis(600);

/// Bytes that the files have at most while the store works; one run each, at the same time. Files
/// above 1 MiB are staged without what the store has of them.
const SIZES: [u32; 4] = [256 << 10, 256 << 10, 256 << 10, 3 << 20];
/// The same on a fileset: below a chunk of 4 MiB, and over the ends of some.
const SIZES_OF_A_FILESET: [u32; 4] = [256 << 10, 256 << 10, 9 << 20, 9 << 20];
/// The same while it fails: more of them, for most of the time they wait.
const SIZES_FAILING: [u32; 8] = {
    let (small, large) = (256 << 10, 3 << 20);
    [small, small, small, large, small, small, small, large]
};

/// The same on a mount that is short: more than its staging area holds, and more than a save may wait for.
const SIZES_SHORT: [u32; 4] = [8 << 20; 4];
/// Files above this are worked on in larger pieces.
const SMALL_MAX: u32 = 4 << 20;

/// What a run does. Operations of no bytes would end it: `posix_fallocate` refuses them everywhere.
const WEIGHTS: &str = "[weights]\n\
    close_open = 0.3\ninvalidate = 1\nmapread = 10\nmapwrite = 10\nread = 10\nwrite = 10\n\
    truncate = 5\nfsync = 0.2\nfdatasync = 0.2\nposix_fallocate = 3\n\
    sendfile = 3\nposix_fadvise = 1\ncopy_file_range = 3\n";
/// The same where holes can be punched.
const WEIGHT_OF_HOLES: &str = "punch_hole = 5\n";

/// How often a mount target is killed under a run.
const KILLED_EVERY: Duration = Duration::from_secs(20);

fn given(variable: &str) -> Option<u32> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a whole number"))
}

fn has_fsx() -> bool {
    let mut fsx = Command::new("fsx");
    let fsx = fsx.arg("--version").stdout(Stdio::null());
    let found = fsx.stderr(Stdio::null()).status().is_ok();
    if !found {
        penstock_skips::skipped("there is no fsx");
    }
    found
}

/// One run of fsx.
#[derive(Debug, Clone, Copy)]
struct Exercise {
    operations: u32,
    /// Bytes that the file has at most.
    size: u32,
    seed: u32,
    /// Whether it punches holes.
    holes: bool,
}

/// Runs fsx on a mount.
#[track_caller]
fn exercise(mount: &Path, scratch: &Scratch, exercise: Exercise) {
    let Exercise {
        operations,
        size,
        seed,
        holes,
    } = exercise;
    let weight_of_holes = if holes { WEIGHT_OF_HOLES } else { "" };
    let artifacts = scratch.folder(&format!("artifacts-{seed}"));
    let configuration = artifacts.join("fsx.toml");
    let most = if size > SMALL_MAX { 1 << 20 } else { 64 << 10 };
    let text =
        format!("flen = {size}\n[opsize]\nmin = 1\nmax = {most}\n{WEIGHTS}{weight_of_holes}");
    std::fs::write(&configuration, text).expect("scratch is writable");
    let mut fsx = Command::new("fsx");
    fsx.args(["-q", "-q", "-S", &seed.to_string()])
        .args(["-N", &operations.to_string(), "-P"])
        .arg(&artifacts)
        .arg("-f")
        .arg(&configuration)
        .arg(mount.join(format!("exercised-{seed}")));
    let patience = Patience(PATIENCE_MIN.max(PATIENCE_EACH * operations));
    let finished = run_within(patience, &mut fsx).expect_success();
    println!("{exercise:?} in {:.1?}", finished.took);
}

/// What fsx runs on.
#[derive(Debug, Clone, Copy)]
struct Ground {
    kind: Kind,
    mode: Mode,
    /// Whether the mount has little of everything.
    short: bool,
}

impl Ground {
    /// Every kind, and on S3 the kernel may gather writes too, and files be saved behind.
    fn all(kinds: &[Kind]) -> Vec<Self> {
        let usual = kinds.iter().map(|kind| (*kind, Mode::Staged));
        let all = usual.chain([(Kind::S3, Mode::Gathered), (Kind::S3, Mode::Behind)]);
        all.map(|(kind, mode)| Self {
            kind,
            mode,
            short: false,
        })
        .collect()
    }

    fn mount(self, bucket: &Bucket, scratch: &Scratch) -> Mount {
        let staging = scratch.path().join("staging");
        let usual = || bucket.staged_options(&staging).option("memory", "64MiB");
        let options = match (self.short, self.mode) {
            (true, mode) => shortage::options(bucket, mode, &staging),
            (false, mode) => mode.choose(usual()),
        };
        bucket.mount_with(&options)
    }
}

/// Mounts a bucket, runs fsx on several files at once while `faults` come, and unmounts.
#[track_caller]
fn run(ground: Ground, faults: Option<Faults>, (operations, sizes): (u32, &[u32])) {
    let weather = faults.as_ref().map_or("all is well", |_| "failing");
    println!("{ground:?}, {weather}");
    let (bucket, scratch) = (Bucket::new(ground.kind), Scratch::new());
    let mount = ground.mount(&bucket, &scratch);
    let failing = faults.is_some();
    if let Some(faults) = faults {
        bucket.fail(faults);
    }
    exercise_all(mount.path(), &scratch, Load::new(operations, sizes));
    if failing {
        bucket.heal();
    }
    mount.unmount();
}

/// Several files that fsx works on at once.
#[derive(Debug, Clone, Copy)]
struct Load<'a> {
    /// Of all files together.
    operations: u32,
    /// Bytes that each has at most.
    sizes: &'a [u32],
    holes: bool,
}

impl<'a> Load<'a> {
    fn new(operations: u32, sizes: &'a [u32]) -> Self {
        Self {
            operations,
            sizes,
            holes: true,
        }
    }
}

#[track_caller]
fn exercise_all(mount: &Path, scratch: &Scratch, load: Load<'_>) {
    let seed = given(SEED_VARIABLE).unwrap_or(SEED_DEFAULT);
    thread::scope(|scope| {
        for (size, seed) in load.sizes.iter().zip(seed..) {
            let one = Exercise {
                operations: load.operations / load.sizes.len() as u32,
                size: *size,
                seed,
                holes: load.holes,
            };
            scope.spawn(move || exercise(mount, scratch, one));
        }
    });
}

/// A store that is slow, and of which one request in six goes wrong.
fn bad_weather() -> Faults {
    let rule = |fault, rate| FaultRule::new(fault).rate(rate);
    let cut = Fault::CutBody { after: 20_000 };
    Faults {
        latency_ms: 5,
        rules: vec![
            rule(Fault::InternalError, 0.05),
            rule(Fault::SlowDown { retry_after: None }, 0.02),
            rule(Fault::Reset { after: 0 }, 0.03),
            rule(Fault::Reset { after: 20_000 }, 0.03),
            rule(cut, 0.05).on(&[Operation::GetObject]),
            rule(Fault::LoseAnswer, 0.02),
        ],
        ..Faults::default()
    }
}

#[test]
fn a_file_system_exerciser_finds_nothing() {
    let operations = given(OPERATIONS_VARIABLE);
    let kinds = operations.map_or(&Kind::ALL[..], |_| &[Kind::S3]);
    for ground in Ground::all(kinds).into_iter().filter(|_| has_fsx()) {
        let operations = operations.unwrap_or(OPERATIONS_DEFAULT);
        run(ground, None, (operations, &SIZES));
    }
}

/// Copies are by reference there.
#[test]
fn a_file_system_exerciser_finds_nothing_on_a_fileset() {
    if !has_fsx() {
        return;
    }
    let operations = given(OPERATIONS_VARIABLE).unwrap_or(OPERATIONS_DEFAULT);
    let (fileset, scratch) = (Fileset::new("fsx"), Scratch::new());
    let mount = fileset.mount();
    let load = Load::new(operations, &SIZES_OF_A_FILESET);
    exercise_all(mount.path(), &scratch, load);
    mount.unmount();
    fileset.run("check", &["--data"]).expect_success();
}

/// Whose metadata is in a database, and which another machine has mounted.
#[track_caller]
fn run_on_machines(coherence: &str) {
    if !has_fsx() {
        return;
    }
    let Some(mut pair) = Pair::new(Bucket::new(Kind::S3)) else {
        return;
    };
    let operations = given(OPERATIONS_VARIABLE).unwrap_or(OPERATIONS_DEFAULT);
    let mount = pair.mount(|options| options.option("coherence", coherence));
    let load = Load::new(operations, &SIZES_OF_A_FILESET);
    exercise_all(mount.path(), &Scratch::new(), load);
    mount.unmount();
    pair.end();
}

#[test]
fn a_file_system_exerciser_finds_nothing_on_a_fileset_of_several_machines() {
    run_on_machines("close-to-open");
}

/// The kernel keeps no page but those that are mapped.
#[test]
fn a_file_system_exerciser_finds_nothing_on_a_strict_fileset_of_several_machines() {
    run_on_machines("strict");
}

/// Runs it on a fileset through the kernel's NFS client, which `kill` may trouble meanwhile.
#[track_caller]
fn run_through_nfs(kill: impl FnOnce(&mut NfsMount, &thread::ScopedJoinHandle<'_, ()>)) {
    if !NfsMount::is_possible() || !has_fsx() {
        return;
    }
    let (fileset, scratch) = (Rc::new(Fileset::new("fsx-nfs")), Scratch::new());
    let served = Rc::clone(&fileset);
    let mut mounted = NfsMount::new(move || served.command("serve"));
    let load = Load {
        // NFSv3 has no word for it.
        holes: false,
        ..Load::new(
            given(NFS_VARIABLE).unwrap_or(NFS_DEFAULT),
            &SIZES_OF_A_FILESET,
        )
    };
    let (place, scratch) = (mounted.path().to_owned(), &scratch);
    thread::scope(|scope| {
        let running = scope.spawn(move || exercise_all(&place, scratch, load));
        kill(&mut mounted, &running);
    });
    drop(mounted);
    fileset.run("check", &["--data"]).expect_success();
}

#[test]
fn a_file_system_exerciser_finds_nothing_through_nfs() {
    run_through_nfs(|_, _| {});
}

#[test]
fn a_file_system_exerciser_finds_nothing_through_nfs_while_the_target_is_killed() {
    run_through_nfs(|mounted, running| {
        let (mut killed, mut kills) = (Instant::now(), 0);
        while !running.is_finished() {
            thread::sleep(Duration::from_millis(50));
            if killed.elapsed() > KILLED_EVERY {
                mounted.kill_and_start();
                killed = Instant::now();
                kills += 1;
            }
        }
        assert!(kills > 0, "it ended too soon");
    });
}

#[test]
fn a_file_system_exerciser_finds_nothing_while_the_store_fails_and_is_slow() {
    let operations = given(FAILING_VARIABLE);
    let kinds = operations.map_or(&Kind::REMOTE[..], |_| &[Kind::Oss]);
    for ground in Ground::all(kinds).into_iter().filter(|_| has_fsx()) {
        let operations = operations.unwrap_or(FAILING_DEFAULT);
        run(ground, Some(bad_weather()), (operations, &SIZES_FAILING));
    }
}

/// Runs it with little memory and staging area, in all modes that write anywhere at the same time.
#[track_caller]
fn run_short(faults: &Faults) {
    if !has_fsx() {
        return;
    }
    let operations = given(SHORT_VARIABLE).unwrap_or(SHORT_DEFAULT);
    let grounds = Mode::ANYWHERE.map(|mode| Ground {
        kind: Kind::S3,
        mode,
        short: true,
    });
    thread::scope(|scope| {
        for ground in grounds {
            scope.spawn(move || run(ground, Some(faults.clone()), (operations, &SIZES_SHORT)));
        }
    });
}

#[test]
fn a_file_system_exerciser_finds_nothing_while_memory_and_staging_are_short() {
    run_short(&slow_store());
}

#[test]
fn a_file_system_exerciser_finds_nothing_while_memory_is_short_and_the_store_fails() {
    run_short(&Faults {
        rules: bad_weather().rules,
        ..slow_store()
    });
}
