//! Measures the object map at its full size and whole-file reads at 10 ms of latency, without a
//! network and without a kernel: what the data path itself can do.
//!
//! `cargo run --release -p penstock-stream --example data_path [map] [random] [ordered]`

// A measurement reads its arguments and tells its figures.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use penstock_base::{MIB, clock};
use penstock_stream::{
    BlockAddress, ObjectMap, ObjectMapWriter, ObjectSource, Placement, SnapshotObject, Timestamp,
};
use support::{Bench, Setup, many};

const OBJECTS: u64 = 10_000_000;

/// Bytes that the process had in memory at most, without what the page cache holds for it.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line("VmHWM:").expect("told").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Writes the map of ten million objects and asks it.
fn measure_map() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map");
    let began = clock::now();
    let mut writer = ObjectMapWriter::create(&path).expect("created");
    let mut placement = Placement::new(4);
    let mut places = Vec::new();
    for index in 0..OBJECTS {
        let key = format!("training/part-{:05}/image-{index:010}.jpg", index / 1000);
        let etag = format!("{:016x}{:016x}", scattered(index), scattered(!index));
        let size = 50_000 + scattered(index) % 100_000;
        let object = SnapshotObject {
            key: key.as_bytes(),
            size,
            modified: Timestamp {
                seconds: 1_700_000_000 + (scattered(index) % 10_000_000) as i64,
                nanoseconds: 0,
            },
            etag: &etag,
            target: "",
        };
        let start = placement.place(size);
        writer.add(&object, start).expect("added");
        if index % 1000 == 0 {
            places.push(start);
        }
    }
    writer.finish().expect("finished");
    let wrote = began.elapsed();
    let bytes = std::fs::metadata(&path).expect("there").len();
    let peak = peak_memory();
    println!("wrote {OBJECTS} objects in {wrote:?}, {bytes} bytes, peak RSS {peak}");
    assert!(bytes < 1 << 30 && peak < 100 * MIB);
    look_up(&path, &places);
}

fn look_up(path: &std::path::Path, places: &[BlockAddress]) {
    let began = clock::now();
    let map = ObjectMap::open(path).expect("whole");
    println!("opened in {:?}", began.elapsed());
    for round in ["cold", "warm"] {
        let began = clock::now();
        for index in 0..places.len() as u64 {
            let number = scattered(index) as usize % places.len();
            let found = map.find(places[number]).expect("sound").expect("there");
            assert_eq!(found.number as usize, number * 1000);
        }
        let each = began.elapsed() / places.len() as u32;
        println!("{} lookups, {round}: {each:?} each", places.len());
    }
    let began = clock::now();
    let (mut source, mut count) = (map.objects(), 0);
    while source.next_object().expect("sound").is_some() {
        count += 1;
    }
    assert_eq!(count, OBJECTS);
    println!("listed all in {:?}", began.elapsed());
}

/// Files per second of `readers` that read whole files at random.
async fn random_reads(bench: &Arc<Bench>, files: usize, readers: usize) -> f64 {
    let began = clock::now();
    let per_reader = files.div_ceil(readers);
    let tasks = (0..readers).map(|reader| {
        let bench = Arc::clone(bench);
        tokio::spawn(async move {
            for step in 0..per_reader {
                let number = scattered((reader * per_reader + step) as u64) as usize % 4000;
                let place = bench.places[number];
                let read = bench.disks[usize::from(place.disk)].clone();
                let (offset, length) = (place.block * 4096, 25 * 4096);
                let payload = penstock_vfs::Disk::read(read.as_ref(), offset, length).await;
                assert_eq!(payload.expect("read").len(), 25 * 4096);
            }
        })
    });
    join_all(tasks).await;
    (per_reader * readers) as f64 / began.elapsed().as_secs_f64()
}

async fn measure_random_reads() {
    for direct in [true, false] {
        let setup = Setup {
            direct,
            disks: 2,
            cache: Some(0),
            latency: Duration::from_millis(10),
            ..Setup::default()
        };
        let bench = Arc::new(setup.bench(&many(4000, 100_000)).await);
        for readers in [1, 16, 32, 64, 128, 256] {
            let rate = random_reads(&bench, 150 * readers, readers).await;
            let ideal = readers as f64 * 100.0;
            let share = 100.0 * rate / ideal;
            println!("direct {direct}, {readers} readers: {rate:.0} files/s, {share:.0} %");
        }
    }
}

async fn measure_ordered_reads() {
    for cache in [0, 128 * MIB] {
        let setup = Setup {
            disks: 2,
            cache: Some(cache),
            latency: Duration::from_millis(10),
            ..Setup::default()
        };
        let bench = setup.bench(&many(4000, 100_000)).await;
        let count = if cache == 0 { 400 } else { 4000 };
        let began = clock::now();
        for number in 0..count {
            let place = bench.places[number];
            let disk = &bench.disks[usize::from(place.disk)];
            let read = penstock_vfs::Disk::read(disk.as_ref(), place.block * 4096, 25 * 4096);
            read.await.expect("read");
        }
        let rate = count as f64 / began.elapsed().as_secs_f64();
        let (ahead, wasted) = (
            bench.metric("stream_prefetched_objects_total"),
            bench.metric("stream_prefetch_wasted_objects_total"),
        );
        println!("cache {cache}: {rate:.0} files/s in order, {ahead} ahead, {wasted} wasted");
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    if is_chosen("map") {
        measure_map();
    }
    if is_chosen("random") {
        measure_random_reads().await;
    }
    if is_chosen("ordered") {
        measure_ordered_reads().await;
    }
}
