//! Everything at once, for as long as one likes: `make soak DURATION=15m`.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Scratch,
    data::noise,
    shortage::{self, Mode},
    soak::{Chance, Shadow, Shared, Watch, Weather, read_shared},
};

/// How long the load lasts, in seconds, all rounds together.
const DURATION_VARIABLE: &str = "PENSTOCK_TEST_SOAK_SECONDS";
const DURATION_DEFAULT: u64 = 24;
/// Makes another run: what is done and what goes wrong follow from it. Each round has its own, which is
/// printed: given here, it is that of the first round.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_SOAK_SEED";
/// The longest that a round lasts: what goes wrong in it can be repeated in that time.
const ROUND_MAX: Duration = Duration::from_secs(60);

const MIB: usize = 1 << 20;
/// What the process may have resident beside `--memory`: code, stacks and the rest.
const RESIDENT_BESIDE: u64 = 64 << 20;
/// Threads of any kind at any moment, however many processors there are: workers and those that stand in
/// for them, receivers of requests, disks.
const THREADS_MAX: usize = 128;
/// Descriptors at any moment: connections, and what is open besides.
const DESCRIPTORS_MAX: usize = 1024;
/// Descriptors that may be open when nothing is under way: idle connections and the rest.
const DESCRIPTORS_QUIET_MAX: usize = 160;

const SHARED_SIZES: [usize; 4] = [300_000, 3 * MIB, 11 * MIB + 1, 40 * MIB + 77];
const READERS: u64 = 3;
/// Folders with a writer each; those of names in `small` hold small files only.
const FOLDERS: [&str; 4] = ["small-1", "small-2", "large-1", "large-2"];

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

/// How a round is mounted.
#[derive(Debug, Clone, Copy)]
enum Ground {
    /// With memory enough for all that is done.
    Ample,
    /// With little of everything.
    Short(Mode),
}

impl Ground {
    const ALL: [Self; 5] = [
        Self::Ample,
        Self::Short(Mode::Streaming),
        Self::Short(Mode::Staged),
        Self::Short(Mode::Gathered),
        Self::Short(Mode::Behind),
    ];

    fn mount(self, bucket: &Bucket, scratch: &Scratch) -> Mount {
        let options = match self {
            Self::Ample => bucket.options().option("memory", "256MiB"),
            Self::Short(mode) => shortage::options(bucket, mode, &scratch.path().join("staging")),
        };
        // What is staged and not saved needs room until it is: those in a hurry would run out of it.
        let patience = if self.is_in_place() { "60s" } else { "15s" };
        let options = options
            .option("request-timeout", "5s")
            .option("retry-timeout", patience);
        bucket.mount_with(&options)
    }

    fn memory(self) -> u64 {
        match self {
            Self::Ample => 256 << 20,
            Self::Short(_) => 64 << 20,
        }
    }

    fn is_in_place(self) -> bool {
        matches!(self, Self::Short(mode) if mode != Mode::Streaming)
    }

    fn shadow(self, folder: PathBuf, seed: u64) -> Shadow {
        let large = folder.ends_with("large-1") || folder.ends_with("large-2");
        let shadow = Shadow::new(folder, seed, large);
        if self.is_in_place() {
            shadow.in_place()
        } else {
            shadow
        }
    }
}

/// Files that nobody changes.
fn shared(bucket: &Bucket, mount: &Mount) -> Vec<Shared> {
    let files = SHARED_SIZES.iter().enumerate().map(|(index, size)| {
        let name = format!("shared/{index}");
        let content = noise(index as u64 + 1000, *size);
        bucket.put_outside(&name, &content);
        Shared {
            path: mount.join(name),
            content,
        }
    });
    files.collect()
}

/// Sets a flag when it goes, also when its thread panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets a flag when its thread panics, so that the others end, too.
struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Writes and reads until `goes_on` says otherwise; returns the folders.
fn work(
    mount: &Mount,
    files: &[Shared],
    (ground, seed): (Ground, u64),
    goes_on: impl Fn() -> bool + Sync,
    failed: &AtomicBool,
) -> Vec<Shadow> {
    let goes_on = &goes_on;
    thread::scope(|scope| {
        let writers: Vec<_> = FOLDERS
            .iter()
            .enumerate()
            .map(|(index, folder)| {
                let mut shadow = ground.shadow(mount.join(folder), seed + index as u64);
                scope.spawn(move || {
                    let _panic = OnPanic(failed);
                    while goes_on() {
                        shadow.step();
                    }
                    shadow
                })
            })
            .collect();
        for index in 0..READERS {
            scope.spawn(move || {
                let _panic = OnPanic(failed);
                let mut chance = Chance::new(seed + 100 + index);
                while goes_on() {
                    read_shared(files, &mut chance);
                }
            });
        }
        let ended = writers.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|shadow| shadow.expect("no panic")).collect()
    })
}

/// Loads the mount for a while; returns what its folders should hold then.
fn load(bucket: &Bucket, mount: &Mount, round: Round) -> Vec<Shadow> {
    let files = shared(bucket, mount);
    for folder in FOLDERS {
        fs::create_dir(mount.join(folder)).expect("mkdir while all is well");
    }
    let Round { ground, seed, .. } = round;
    let (failed, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let end = Instant::now() + round.duration;
    let goes_on = || Instant::now() < end && !failed.load(Ordering::Relaxed);
    let watch = Watch::new(mount);
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch.until(&done));
        scope.spawn(|| Weather::new(seed).pass_over(bucket, &done));
        let shadows = {
            let _ends = Ends(&done);
            work(mount, &files, (ground, seed), goes_on, &failed)
        };
        let peaks = watching.join().expect("no panic");
        println!("at most {peaks:?}");
        let resident_max = ground.memory() + RESIDENT_BESIDE;
        assert!(peaks.resident < resident_max, "{peaks:?}");
        assert!(peaks.threads < THREADS_MAX, "{peaks:?}");
        assert!(peaks.descriptors < DESCRIPTORS_MAX, "{peaks:?}");
        shadows
    })
}

/// Load for a while, in weather that follows from the seed.
#[derive(Debug, Clone, Copy)]
struct Round {
    kind: Kind,
    ground: Ground,
    seed: u64,
    duration: Duration,
}

fn soak(round: Round) {
    println!("{round:?}: {SEED_VARIABLE}={} repeats it", round.seed);
    let (bucket, scratch) = (Bucket::new(round.kind), Scratch::new());
    let mounted = round.ground.mount(&bucket, &scratch);
    let mut shadows = load(&bucket, &mounted, round);
    bucket.heal();
    let quiet = Watch::new(&mounted).when_quiet(&mounted);
    println!("quiet: {quiet:?}");
    assert!(quiet.descriptors < DESCRIPTORS_QUIET_MAX, "{quiet:?}");
    for shadow in &mut shadows {
        println!("{} operations, {} failed", shadow.done, shadow.failed);
        assert!(shadow.done > 0, "nothing was tried");
        compare_with_store(shadow, &bucket);
        for name in shadow.names() {
            shadow.verify(&name);
        }
    }
    mounted.unmount();
    let fresh = round.ground.mount(&bucket, &scratch);
    for shadow in &mut shadows {
        shadow.move_to(fresh.path());
        for name in shadow.names() {
            assert!(
                shadow.verify(&name),
                "{name} cannot be read though all is well"
            );
        }
        compare_with_store(shadow, &bucket);
    }
    fresh.unmount();
}

fn compare_with_store(shadow: &Shadow, bucket: &Bucket) {
    let folder = shadow.folder_name();
    shadow.compare_stored(|name| bucket.data().get(BUCKET, &format!("{folder}/{name}")));
}

/// Rounds on `ground`, on each kind of server, until its share of the time is over.
fn rounds(ground: Ground) {
    let first = number(SEED_VARIABLE, 1);
    let all = Duration::from_secs(number(DURATION_VARIABLE, DURATION_DEFAULT));
    let share = all / (Ground::ALL.len() * Kind::REMOTE.len()) as u32;
    let count = share.as_secs().div_ceil(ROUND_MAX.as_secs()).max(1);
    for seed in first..first + count {
        for kind in Kind::REMOTE {
            let duration = share / count as u32;
            soak(Round {
                kind,
                ground,
                seed,
                duration,
            });
        }
    }
}

#[test]
fn nothing_is_lost_or_leaked_while_faults_come_and_go() {
    rounds(Ground::Ample);
}

#[test]
fn nothing_is_lost_while_faults_come_and_go_and_memory_is_short() {
    rounds(Ground::Short(Mode::Streaming));
}

#[test]
fn nothing_is_lost_while_faults_come_and_go_and_memory_and_staging_are_short() {
    rounds(Ground::Short(Mode::Staged));
}

#[test]
fn nothing_is_lost_while_faults_come_and_go_and_a_short_mount_has_its_writes_gathered() {
    rounds(Ground::Short(Mode::Gathered));
}

#[test]
fn nothing_is_lost_while_faults_come_and_go_and_a_short_mount_saves_behind() {
    rounds(Ground::Short(Mode::Behind));
}
