//! A stream volume keeps to the memory and the processors that it was given, however many read.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::Faults;
use penstock_tests::{
    Kind, Mount, Process,
    stream::{Rig, WAYS},
};

const MIB: u64 = 1 << 20;
/// What a volume with `--memory=256MiB` is granted: the budget, and a third for code, stacks,
/// connections and what is mapped of the index.
const RESIDENT_MAX: u64 = 256 * MIB * 4 / 3;
const READERS: usize = 256;
const SMALL_FILES: usize = 2048;
const LARGE_FILES: usize = 16;
const LARGE_SIZE: u64 = 16 * MIB;
/// Bytes of a large file that one reader reads.
const SHARE: u64 = LARGE_SIZE * LARGE_FILES as u64 / READERS as u64;
/// Latency of the store, so that many requests are on their way.
const LATENCY: Duration = Duration::from_millis(10);
/// Processor time above the limit that rounding and a thread's start may take.
const SLACK: f64 = 1.1;

/// More bytes than the memory that is allowed, in files of two kinds.
fn filled() -> Rig {
    let rig = Rig::new(Kind::S3);
    rig.bucket.fill(&format!("small/:{SMALL_FILES}:100KiB"));
    rig.bucket
        .fill(&format!("large/:{LARGE_FILES}:{}MiB", LARGE_SIZE / MIB));
    rig.bucket.fail(Faults::latency(LATENCY));
    rig
}

fn paths(mount: &Mount, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(mount.join(folder)).expect("listed");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("read").path()).collect();
    paths.sort();
    paths
}

/// What reader number `reader` does: its share of the small files, one after the other from
/// anywhere, and its share of the large ones.
fn read(reader: usize, small: &[PathBuf], large: &[PathBuf]) {
    for step in 0..SMALL_FILES / READERS {
        let number = (step * READERS + reader) * 1009 % small.len();
        let bytes = fs::read(&small[number]).expect("readable");
        assert_eq!(bytes.len(), 100 << 10);
    }
    let file = File::open(&large[reader % LARGE_FILES]).expect("there");
    let mut buffer = vec![0; MIB as usize / 4];
    let start = (reader / LARGE_FILES) as u64 * SHARE;
    for offset in (start..start + SHARE).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, offset).expect("readable");
    }
}

/// Lets everybody read at once; says how long that took.
fn read_all(mount: &Mount) -> Duration {
    let (small, large) = (paths(mount, "small"), paths(mount, "large"));
    assert_eq!((small.len(), large.len()), (SMALL_FILES, LARGE_FILES));
    let start = Barrier::new(READERS + 1);
    let mut begun = Instant::now();
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (start, small, large) = (&start, &small, &large);
            scope.spawn(move || {
                start.wait();
                read(reader, small, large);
            });
        }
        start.wait();
        begun = Instant::now();
    });
    begun.elapsed()
}

/// Whether the kernel limits the process by a control group of its own.
fn has_group(process: Process) -> bool {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.0)).unwrap_or_default();
    let unified = groups.lines().find(|line| line.starts_with("0::"));
    unified.is_some_and(|line| line.contains("/penstock-"))
}

/// Mounts with 256 MiB and one processor, lets many read, and looks at what that took.
#[track_caller]
fn check(rig: &Rig, way: &str, direct: &str) {
    let options = rig.way(way).option("direct", direct);
    let options = options.option("memory", "256MiB").option("cpus", "1");
    let mount = rig.mount(&options);
    let process = mount.process();
    let before = process.processor_time();
    let took = read_all(&mount);
    let used = process.processor_time() - before;
    let peak = process.peak_resident();
    println!(
        "{way}, direct {direct}: {took:?}, {used:?} of processor time, peak of {} MiB",
        peak / MIB
    );
    assert!(
        peak < RESIDENT_MAX,
        "{way}, direct {direct}: peak of {} MiB",
        peak / MIB
    );
    let share = used.as_secs_f64() / took.as_secs_f64();
    assert!(share < SLACK, "{way}, direct {direct}: {share} processors");
    assert!(
        has_group(process) || process.processors_allowed() == 1,
        "{way}, direct {direct}: nothing limits its processors"
    );
    mount.unmount();
}

#[test]
fn memory_and_processors_hold_under_256_readers() {
    let rig = filled();
    for way in WAYS {
        for direct in ["off", "on"] {
            check(&rig, way, direct);
        }
    }
}

#[test]
fn a_tier_limits_the_requests_in_flight() {
    let rig = filled();
    // So many requests would all be under way at once otherwise.
    rig.bucket.fail(Faults::latency(LATENCY * 20));
    let options = rig.way("fuse").option("direct", "on").option("cpus", "1");
    let mount = rig.mount(&options);
    let small = paths(&mount, "small");
    let begun = Instant::now();
    thread::scope(|scope| {
        for path in &small[..READERS] {
            scope.spawn(move || fs::read(path).expect("readable"));
        }
    });
    // 64 at once: four rounds.
    assert!(begun.elapsed() >= LATENCY * 20 * 4, "{:?}", begun.elapsed());
    mount.unmount();
}
