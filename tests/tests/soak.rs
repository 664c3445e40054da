//! Everything at once, for as long as one likes: `make soak DURATION=15m`.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    BUCKET, Bucket, Kind, Mount,
    data::noise,
    soak::{Chance, Shadow, Shared, Watch, Weather, read_shared},
};

/// How long the load lasts, in seconds.
const DURATION_VARIABLE: &str = "PENSTOCK_TEST_SOAK_SECONDS";
const DURATION_DEFAULT: u64 = 16;
/// Makes another run: what is done and what goes wrong follow from it.
const SEED_VARIABLE: &str = "PENSTOCK_TEST_SOAK_SEED";

const MIB: usize = 1 << 20;
/// What `--memory=256MiB` may come to with code, stacks and the rest.
const RESIDENT_MAX: u64 = 320 << 20;
/// Threads of any kind at any moment.
const THREADS_MAX: usize = 64;
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

fn mount(bucket: &Bucket) -> Mount {
    let options = bucket
        .options()
        .option("memory", "256MiB")
        .option("request-timeout", "5s")
        .option("retry-timeout", "15s");
    bucket.mount_with(&options)
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

/// Changes the weather until `done`.
fn change_weather(bucket: &Bucket, seed: u64, done: &AtomicBool) {
    let mut weather = Weather::new(seed);
    while !done.load(Ordering::Relaxed) {
        let (faults, lasts) = weather.change();
        bucket.fail(faults);
        thread::sleep(lasts);
    }
    bucket.heal();
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
    seed: u64,
    goes_on: impl Fn() -> bool + Sync,
    failed: &AtomicBool,
) -> Vec<Shadow> {
    let goes_on = &goes_on;
    thread::scope(|scope| {
        let writers: Vec<_> = FOLDERS
            .iter()
            .enumerate()
            .map(|(index, folder)| {
                let large = folder.starts_with("large");
                let mut shadow = Shadow::new(mount.join(folder), seed + index as u64, large);
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
fn load(bucket: &Bucket, mount: &Mount, seed: u64, duration: Duration) -> Vec<Shadow> {
    let files = shared(bucket, mount);
    for folder in FOLDERS {
        fs::create_dir(mount.join(folder)).expect("mkdir while all is well");
    }
    let (failed, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let end = Instant::now() + duration;
    let goes_on = || Instant::now() < end && !failed.load(Ordering::Relaxed);
    let watch = Watch::new(mount);
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch.until(&done));
        scope.spawn(|| change_weather(bucket, seed, &done));
        let shadows = {
            let _ends = Ends(&done);
            work(mount, &files, seed, goes_on, &failed)
        };
        let peaks = watching.join().expect("no panic");
        println!("at most {peaks:?}");
        assert!(peaks.resident < RESIDENT_MAX, "{peaks:?}");
        assert!(peaks.threads < THREADS_MAX, "{peaks:?}");
        assert!(peaks.descriptors < DESCRIPTORS_MAX, "{peaks:?}");
        shadows
    })
}

fn soak(kind: Kind, seed: u64, duration: Duration) {
    println!("{kind:?}: seed {seed}, {duration:?}");
    let bucket = Bucket::new(kind);
    let mounted = mount(&bucket);
    let mut shadows = load(&bucket, &mounted, seed, duration);
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
    let fresh = mount(&bucket);
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

#[test]
fn nothing_is_lost_or_leaked_while_faults_come_and_go() {
    let seed = number(SEED_VARIABLE, 1);
    let duration = Duration::from_secs(number(DURATION_VARIABLE, DURATION_DEFAULT));
    for kind in Kind::REMOTE {
        soak(kind, seed, duration / Kind::REMOTE.len() as u32);
    }
}
