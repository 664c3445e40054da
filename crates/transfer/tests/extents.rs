//! Reads of files whose bytes lie in many objects.

// Helpers of tests may panic.
#![allow(clippy::panic)]

mod support;

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use penstock_base::{ChecksumKind, KIB, MIB, Payload, Summing, clock};
use penstock_object::{ETag, ErrorKind, GetOptions, Operation, PutOptions, Store};
use penstock_transfer::{
    Codec, Encoder, Extent, ExtentReader, FileRead, Frames, Grains, MapPart, ObjectVersion,
    Refused, TransferError, TransferResult, TransferSettings,
};
use proptest::prelude::*;
use support::{Bench, Fault, Network, TestStore, key, pattern};

const GRAIN: u64 = 128 * KIB;
const CHUNK: u64 = 4 * MIB;

/// What is to be stored of a file: where, and where in its object the run begins that has it.
struct Run {
    range: Range<u64>,
    before: u64,
}

/// A file as whoever wrote it knows it.
struct Layout {
    bench: Bench,
    bytes: Vec<u8>,
    extents: Vec<Extent>,
    edition: u64,
    objects: u64,
    /// Whether bytes have checksums.
    sealed: bool,
    /// How runs with checksums are compressed.
    codec: Option<Codec>,
}

impl Layout {
    fn new(bench: Bench, size: u64) -> Self {
        Self {
            bench,
            bytes: vec![0; size as usize],
            extents: Vec::new(),
            edition: 0,
            objects: 0,
            sealed: true,
            codec: None,
        }
    }

    /// A file of a mebibyte or more that was written from its beginning to its end.
    async fn written(bench: Bench, size: u64) -> Self {
        let mut layout = Self::new(bench, size);
        for start in (0..size).step_by(CHUNK as usize) {
            let range = start..size.min(start + CHUNK);
            layout.store(vec![Run { range, before: 0 }]).await;
        }
        layout
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Nothing is in `range` any more.
    fn clear(&mut self, range: &Range<u64>) {
        self.edition += 1;
        self.bytes[range.start as usize..range.end as usize].fill(0);
        let former = std::mem::take(&mut self.extents);
        for extent in former {
            let parts = [0..range.start, range.end..u64::MAX];
            self.extents
                .extend(parts.iter().filter_map(|kept| part(&extent, kept)));
        }
    }

    /// Writes runs, which do not overlap, into one object.
    async fn store(&mut self, runs: Vec<Run>) {
        self.objects += 1;
        let name = format!("object-{}", self.objects);
        let (mut content, mut places) = (Vec::new(), Vec::new());
        for Run { range, before } in runs {
            self.clear(&range);
            let salt = self.objects * 7919;
            let mut bytes = pattern(range.start + salt..range.end + salt);
            if self.codec.is_some() {
                // All but every fourth 256 KiB become smaller.
                let pages = bytes.chunks_mut(4096).enumerate();
                let plain = pages.filter(|(page, _)| page % 2 == 0 && page / 64 % 4 != 3);
                plain.for_each(|(_, page)| page.fill(salt as u8));
            }
            content.extend(vec![0xee; before as usize]);
            let at = content.len() as u64;
            let (stored, frames) = self.packed(&bytes);
            let run = at..at + (range.end - range.start);
            let grains = Grains {
                run,
                size: GRAIN,
                checksums: bytes.chunks(GRAIN as usize).map(sum).collect(),
                frames,
            };
            places.push((range.clone(), grains));
            content.extend(&stored);
            self.bytes[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        }
        let object = Arc::new(ObjectVersion {
            key: key(&name),
            etag: ETag::new(""),
            size: content.len() as u64,
        });
        for (range, grains) in places {
            self.extents.push(Extent {
                range,
                object: Arc::clone(&object),
                at: grains.run.start,
                grains: self.sealed.then_some(grains),
            });
        }
        self.extents.sort_by_key(|extent| extent.range.start);
        self.put(&name, content).await;
    }

    /// What is stored of a run, and the frames it consists of if they are compressed.
    fn packed(&self, bytes: &[u8]) -> (Vec<u8>, Option<Frames>) {
        let Some(codec) = self.codec.filter(|_| self.sealed) else {
            return (bytes.to_vec(), None);
        };
        let mut encoder = match codec {
            Codec::Lz4 => Encoder::lz4(),
            Codec::Zstd => Encoder::zstd(1).expect("memory"),
        };
        let grains = bytes.chunks(GRAIN as usize);
        let frames = grains.map(|grain| encoder.encode(grain).unwrap_or(grain).to_vec());
        let frames: Vec<_> = frames.collect();
        let lengths = frames.iter().map(|frame| frame.len() as u32).collect();
        (frames.concat(), Some(Frames { codec, lengths }))
    }

    async fn put(&self, name: &str, content: Vec<u8>) {
        let store = &self.bench.store;
        let (key, options) = (key(name), PutOptions::default());
        let stored = store.put(&key, content.into(), options).await;
        stored.expect("stored");
    }

    fn map_part(&self, range: Range<u64>) -> MapPart {
        let extents = self.extents.iter();
        MapPart {
            edition: self.edition,
            extents: extents.filter_map(|extent| part(extent, &range)).collect(),
            range,
        }
    }

    /// Reads once, whatever has to be told for that.
    async fn read(&self, reader: &ExtentReader, range: Range<u64>) -> TransferResult<Payload> {
        let range = range.start.min(self.size())..range.end.min(self.size());
        if range.is_empty() {
            return Ok(Payload::new());
        }
        let asked = FileRead {
            range,
            size: self.size(),
            edition: self.edition,
        };
        loop {
            match reader.read(&asked).await? {
                Ok(payload) => return Ok(payload),
                Err(Refused::Unknown(missing)) => reader.learn(&self.map_part(missing)),
                Err(Refused::Outdated) => panic!("there is no newer edition"),
            }
        }
    }

    /// Reads, once more after a failure that was injected, and compares.
    async fn check(&self, reader: &ExtentReader, range: Range<u64>) {
        let mut tries = 0;
        let read = loop {
            match self.read(reader, range.clone()).await {
                Ok(read) => break read,
                Err(error) => assert!(tries < 20, "{range:?}: {error}"),
            }
            tries += 1;
        };
        let end = range.end.min(self.size()) as usize;
        let expected = &self.bytes[(range.start as usize).min(end)..end];
        assert!(read.to_vec() == expected, "wrong bytes in {range:?}");
    }

    async fn check_all(&self, reader: &ExtentReader, piece: u64) {
        for start in (0..self.size()).step_by(piece as usize) {
            self.check(reader, start..start + piece).await;
        }
    }
}

fn part(extent: &Extent, range: &Range<u64>) -> Option<Extent> {
    let (start, end) = (
        extent.range.start.max(range.start),
        extent.range.end.min(range.end),
    );
    (start < end).then(|| Extent {
        range: start..end,
        at: extent.at + (start - extent.range.start),
        ..extent.clone()
    })
}

fn sum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    summing.take().value() as u32
}

fn slow(latency: Duration, memory: u64) -> Bench {
    let network = Network {
        latency,
        bandwidth: Some(1e9),
    };
    Bench::new(TestStore::new(network), memory, TransferSettings::default())
}

#[tokio::test(start_paused = true)]
async fn a_sequential_read_takes_as_many_requests_as_there_are_objects_or_few_more() {
    // How far ahead is fetched depends on how fast, so time is that of the store alone.
    let near = || slow(Duration::from_millis(1), 512 * MIB);
    let layout = Layout::written(near(), 64 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    layout.check_all(&reader, 128 * KIB).await;
    let gets = layout.bench.store.gets();
    assert_eq!(layout.bench.store.bytes_got(), 64 * MIB, "{gets:?}");
    let bench = near();
    let reader = bench.transfer.reader(bench.store.fill("a", 64 * MIB).await);
    for start in (0..64 * MIB).step_by(128 << 10) {
        reader.read(start, 128 << 10).await.expect("read");
    }
    // Parts of one object grow to 8 MiB.
    let of_one = bench.store.gets().len();
    assert!(gets.len() <= of_one + 7, "{of_one}: {gets:?}");
}

#[tokio::test(start_paused = true)]
async fn latency_costs_no_throughput() {
    let bench = slow(Duration::from_millis(30), 512 * MIB);
    let layout = Layout::written(bench, 256 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    let began = clock::now();
    layout.check_all(&reader, 128 * KIB).await;
    let elapsed = clock::now() - began;
    // At full bandwidth it takes 268 ms.
    assert!(elapsed < Duration::from_millis(550), "{elapsed:?}");
}

#[tokio::test]
async fn random_reads_fetch_the_grains_that_they_touch() {
    let layout = Layout::written(Bench::plain(), 64 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    let mut expected = Vec::new();
    for place in [50 * MIB, 7 * MIB + 5, 30 * MIB - 10, 61 * MIB] {
        layout.check(&reader, place..place + 4 * KIB).await;
        let first = place % CHUNK / GRAIN * GRAIN;
        let last = (place + 4 * KIB - 1) % CHUNK / GRAIN * GRAIN;
        expected.push(first..last + GRAIN);
    }
    assert_eq!(layout.bench.store.gets(), expected);
    // What came along with the last ones is there.
    layout
        .check(&reader, 61 * MIB + 64 * KIB..61 * MIB + 65 * KIB)
        .await;
    assert_eq!(layout.bench.store.gets(), expected);
}

#[tokio::test]
async fn random_reads_of_compressed_runs_fetch_the_frames_that_they_touch() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut layout = Layout::new(Bench::plain(), 64 * MIB);
        layout.codec = Some(codec);
        for start in (0..64 * MIB).step_by(CHUNK as usize) {
            let range = start..start + CHUNK;
            layout.store(vec![Run { range, before: 5 }]).await;
        }
        let reader = layout.bench.transfer.extent_reader();
        let mut expected = Vec::new();
        for place in [50 * MIB, 7 * MIB + 5, 30 * MIB - 10, 61 * MIB] {
            layout.check(&reader, place..place + 4 * KIB).await;
            let extent = layout.extents.iter();
            let mut extent = extent.filter(|extent| extent.range.contains(&place));
            let grains = extent.next().and_then(|extent| extent.grains.as_ref());
            let lengths = &grains.and_then(|grains| grains.frames.as_ref());
            let lengths = &lengths.expect("compressed").lengths[..];
            let ends = lengths.iter().scan(5, |at, length| {
                *at += u64::from(*length);
                Some(*at)
            });
            let ends: Vec<_> = ends.collect();
            let first = (place % CHUNK / GRAIN) as usize;
            let last = ((place + 4 * KIB - 1) % CHUNK / GRAIN) as usize;
            let start = first.checked_sub(1).map_or(5, |before| ends[before]);
            expected.push(start..ends[last]);
        }
        assert!(expected.iter().any(|range| range.end - range.start < GRAIN));
        assert_eq!(layout.bench.store.gets(), expected);
    }
}

/// A program that reads pages of a file here and there comes back to grains that it has read of.
#[tokio::test]
async fn random_reads_of_a_small_file_fetch_each_grain_once() {
    let layout = Layout::written(Bench::plain(), 6 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    for number in 0..2000 {
        let page = number * 7919 % (layout.size() / (4 * KIB));
        let start = page * 4 * KIB;
        layout.check(&reader, start..start + 4 * KIB).await;
    }
    // A mebibyte at the beginning, and the other grains.
    let gets = layout.bench.store.gets().len();
    assert_eq!(gets, 1 + 40);
}

/// Nor do they hold more than that.
#[tokio::test]
async fn random_reads_of_a_large_file_hold_the_last_grains() {
    let layout = Layout::written(Bench::plain(), 64 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    for number in 0..500 {
        let start = 4 * MIB + number * 1933 % (60 * MIB / (4 * KIB)) * 4 * KIB;
        layout.check(&reader, start..start + 4 * KIB).await;
    }
    let used = layout.bench.budget().used();
    assert!(
        (64 * GRAIN..=73 * GRAIN).contains(&used),
        "{}",
        used / GRAIN
    );
}

#[tokio::test]
async fn small_objects_without_checksums_come_whole() {
    let mut layout = Layout::new(Bench::plain(), 10 * 300 * KIB);
    layout.sealed = false;
    for start in (0..layout.size()).step_by(300 << 10) {
        let range = start..start + 300 * KIB;
        layout.store(vec![Run { range, before: 0 }]).await;
    }
    let reader = layout.bench.transfer.extent_reader();
    layout.check_all(&reader, 100 * KIB).await;
    assert_eq!(layout.bench.store.gets(), vec![support::WHOLE; 10]);
}

#[tokio::test]
async fn a_large_hole_is_passed_over() {
    let mut layout = Layout::new(Bench::plain(), 96 * MIB);
    for start in [0, 92 * MIB] {
        let range = start..start + CHUNK;
        layout.store(vec![Run { range, before: 0 }]).await;
    }
    let reader = layout.bench.transfer.extent_reader();
    layout.check_all(&reader, MIB).await;
    assert_eq!(layout.bench.store.bytes_got(), 2 * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn the_first_grain_is_shown_before_the_others_came() {
    let network = Network {
        latency: Duration::ZERO,
        bandwidth: Some(1e6),
    };
    let bench = Bench::new(
        TestStore::new(network),
        64 * MIB,
        TransferSettings::default(),
    );
    let layout = Layout::written(bench, 4 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    let began = clock::now();
    layout.check(&reader, 0..4 * KIB).await;
    // A quarter of the first part: what arrives at once here. All of it takes a second.
    let elapsed = clock::now() - began;
    assert!(elapsed < Duration::from_millis(300), "{elapsed:?}");
}

/// Each of them takes a page of the budget, and all together fill fewer.
#[tokio::test(start_paused = true)]
async fn a_read_of_many_short_extents_that_waited_for_memory_pays_for_each() {
    let mut layout = Layout::new(slow(Duration::ZERO, 16 * MIB), 64 * KIB);
    for start in (0..64 * KIB).step_by(2 * KIB as usize) {
        let range = start..start + 700;
        layout.store(vec![Run { range, before: 0 }]).await;
    }
    let reader = layout.bench.transfer.extent_reader();
    let all = layout.bench.budget().try_reserve(16 * MIB);
    let held = async {
        clock::sleep(Duration::from_secs(1)).await;
        drop(all.expect("nobody has any"));
    };
    tokio::join!(layout.check(&reader, 0..64 * KIB), held);
}

#[tokio::test]
async fn a_dropped_reader_cancels_what_it_fetches() {
    let mut layout = Layout::written(Bench::plain(), 64 * MIB).await;
    layout.bench = Bench::new(
        TestStore::new(Network {
            latency: Duration::from_secs(3600),
            bandwidth: None,
        }),
        64 * MIB,
        TransferSettings::default(),
    );
    let reader = layout.bench.transfer.extent_reader();
    for start in [0, 128 * KIB] {
        let read = layout.read(&reader, start..start + 128 * KIB);
        let read = clock::deadline(Duration::from_millis(5), read).await;
        assert!(read.is_err(), "nothing arrives");
    }
    let in_flight = || {
        let store = &layout.bench.store;
        store.in_flight.load(std::sync::atomic::Ordering::SeqCst)
    };
    assert!(in_flight() > 1);
    drop(reader);
    clock::deadline(Duration::from_secs(5), async {
        while layout.bench.budget().used() > 0 || in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the requests were cancelled");
}

#[tokio::test]
async fn damaged_bytes_are_never_shown_and_the_others_are() {
    let layout = Layout::written(Bench::plain(), 12 * MIB).await;
    let mut damaged = layout.bytes[CHUNK as usize..2 * CHUNK as usize].to_vec();
    let place = CHUNK + 1_500_000;
    damaged[1_500_000] ^= 1;
    layout.put("object-2", damaged).await;
    let grain = place / GRAIN * GRAIN..place / GRAIN * GRAIN + GRAIN;
    for _ in 0..2 {
        let reader = layout.bench.transfer.extent_reader();
        for start in (0..layout.size()).step_by(64 << 10) {
            let range = start..start + 64 * KIB;
            let read = layout.read(&reader, range.clone()).await;
            if grain.contains(&start) {
                assert_eq!(support::kind(read), ErrorKind::ChecksumMismatch);
            } else {
                let expected = &layout.bytes[range.start as usize..range.end as usize];
                assert!(read.expect("read").to_vec() == expected);
            }
        }
    }
}

/// A file of which a cache has the second grain in memory, and what is read of that.
async fn of_a_grain_in_memory() -> (Layout, Range<u64>) {
    let bench = Bench::cached(TestStore::new(Network::default()), 256 * MIB);
    let layout = Layout::written(bench, 4 * MIB).await;
    let within = GRAIN + 5000..GRAIN + 9000;
    let reader = layout.bench.transfer.extent_reader();
    layout.check(&reader, within.clone()).await;
    (layout, within)
}

#[tokio::test]
async fn grains_that_a_cache_has_are_shown_at_once_as_they_lie_there() {
    let (layout, within) = of_a_grain_in_memory().await;
    let before = layout.bench.store.gets();
    for _ in 0..2 {
        let reader = layout.bench.transfer.extent_reader();
        reader.learn(&layout.map_part(0..layout.size()));
        let asked = FileRead {
            range: within.clone(),
            size: layout.size(),
            edition: layout.edition,
        };
        let read = reader.read(&asked).now_or_never();
        let read = read.expect("nothing is waited for").expect("read");
        let shown = read.expect("it is known where it lies");
        let store = layout.bench.transfer.store();
        let there = store.at_hand(&key("object-1"), &(GRAIN..2 * GRAIN), None);
        let there = there.expect("it is there").bytes.slice(5000..9000);
        let shown: Vec<_> = shown
            .slices()
            .iter()
            .map(|chunk| chunk.as_ptr_range())
            .collect();
        assert_eq!(shown, [there.as_ptr_range()]);
        layout.check(&reader, within.clone()).await;
    }
    assert_eq!(layout.bench.store.gets(), before);
}

#[tokio::test]
async fn what_a_cache_has_of_damaged_bytes_is_never_shown() {
    let bench = Bench::cached(TestStore::new(Network::default()), 256 * MIB);
    let layout = Layout::written(bench, 4 * MIB).await;
    let mut damaged = layout.bytes.clone();
    damaged[GRAIN as usize + 6000] ^= 1;
    layout.put("object-1", damaged).await;
    let store = layout.bench.transfer.store();
    let options = GetOptions {
        range: Some(GRAIN..2 * GRAIN),
        ..GetOptions::default()
    };
    // Who has no checksums brought it there.
    let got = store.get(&key("object-1"), options, &mut Vec::new()).await;
    got.expect("it is there");
    layout.put("object-1", layout.bytes.clone()).await;
    for _ in 0..3 {
        let reader = layout.bench.transfer.extent_reader();
        layout.check(&reader, GRAIN + 5000..GRAIN + 9000).await;
    }
    assert_eq!(layout.bench.store.gets().len(), 3);
}

#[tokio::test]
async fn what_is_shown_of_a_cache_is_paid_for_as_long_as_it_is_seen() {
    let (layout, within) = of_a_grain_in_memory().await;
    let reader = layout.bench.transfer.extent_reader();
    let seen = layout.read(&reader, within).await.expect("read");
    let budget = Arc::clone(layout.bench.budget());
    drop((reader, layout));
    assert!(budget.used() >= GRAIN, "{}", budget.used());
    drop(seen);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn damaged_frames_are_never_shown_and_the_others_are() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut layout = Layout::new(Bench::plain(), 2 * MIB);
        layout.codec = Some(codec);
        let range = 0..2 * MIB;
        layout.store(vec![Run { range, before: 0 }]).await;
        let (mut stored, frames) = layout.packed(&layout.bytes);
        let lengths = frames.expect("compressed").lengths;
        let before: u32 = lengths[..5].iter().sum();
        // In the midst of the sixth grain, which then is no frame or becomes something else.
        stored[(before + lengths[5] / 2) as usize] ^= 0x55;
        layout.put("object-1", stored).await;
        let reader = layout.bench.transfer.extent_reader();
        for start in (0..2 * MIB).step_by(64 << 10) {
            let range = start..start + 64 * KIB;
            let read = layout.read(&reader, range.clone()).await;
            if start / GRAIN == 5 {
                assert_eq!(support::kind(read), ErrorKind::ChecksumMismatch);
            } else {
                let expected = &layout.bytes[range.start as usize..range.end as usize];
                assert!(read.expect("read").to_vec() == expected);
            }
        }
    }
}

#[tokio::test]
async fn what_lies_where_it_lay_is_kept_and_what_was_overwritten_is_not() {
    let mut layout = Layout::written(Bench::plain(), 16 * MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    for start in (0..2 * MIB).step_by(128 << 10) {
        layout.check(&reader, start..start + 128 * KIB).await;
    }
    let store = Arc::clone(&layout.bench.store);
    let got = || {
        let gets = store.gets_of("object-1").into_iter();
        gets.filter(|get| get.start < 3 * MIB).count()
    };
    let before = got();
    let range = 3 * MIB..3 * MIB + 4 * KIB;
    layout.store(vec![Run { range, before: 0 }]).await;
    layout.check(&reader, 2 * MIB..3 * MIB).await;
    assert_eq!(got(), before);
    for start in (2 * MIB..16 * MIB).step_by(128 << 10) {
        layout.check(&reader, start..start + 128 * KIB).await;
    }
}

#[tokio::test]
async fn an_older_edition_is_refused() {
    let mut layout = Layout::written(Bench::plain(), MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    let former = FileRead {
        range: 0..MIB,
        size: MIB,
        edition: layout.edition,
    };
    let stale = layout.map_part(0..CHUNK);
    layout.clear(&(0..100));
    layout.check(&reader, 0..MIB).await;
    let refused = reader.read(&former).await.expect("no request");
    assert_eq!(refused.err(), Some(Refused::Outdated));
    reader.learn(&stale);
    layout.check(&reader, 0..MIB).await;
}

/// A file that was written in small pieces all over, each of which is a request.
#[tokio::test]
async fn the_requests_of_a_file_in_pieces_have_a_limit() {
    let mut layout = Layout::written(slow(Duration::from_millis(2), 64 * MIB), 8 * MIB).await;
    let places = (0..8 * MIB).step_by(32 << 10);
    let runs = places.map(|start| Run {
        range: start..start + 4 * KIB,
        before: 0,
    });
    layout.store(runs.collect()).await;
    let reader = layout.bench.transfer.extent_reader();
    layout.check_all(&reader, 128 * KIB).await;
    let in_flight = layout
        .bench
        .store
        .in_flight_max
        .load(std::sync::atomic::Ordering::SeqCst);
    assert!((8..=80).contains(&in_flight), "{in_flight}");
    layout
        .check(&layout.bench.transfer.extent_reader(), 0..8 * MIB)
        .await;
    assert!(layout.bench.budget().peak() <= 64 * MIB);
}

/// All memory is read-ahead of those who read in sequence and pause. Somebody else reads here and there.
#[tokio::test]
async fn no_read_waits_for_the_read_ahead_of_others() {
    let bench = slow(Duration::from_millis(2), 64 * MIB);
    let layout = Arc::new(Layout::written(bench, 64 * MIB).await);
    let readers: Vec<_> = (0..100)
        .map(|_| layout.bench.transfer.extent_reader())
        .collect();
    let streams = readers.iter().map(async |reader| {
        for start in (0..MIB).step_by(128 << 10) {
            layout.check(reader, start..start + 128 * KIB).await;
        }
    });
    join_all(streams).await;
    let reader = layout.bench.transfer.extent_reader();
    for number in 0..50 {
        let place = number * 7_919_000 % (60 * MIB);
        let read = layout.check(&reader, place..place + MIB);
        let read = clock::deadline(Duration::from_secs(5), read).await;
        read.expect("memory is given back at once");
    }
    assert!(layout.bench.budget().peak() <= 64 * MIB);
}

#[derive(Debug, Clone)]
enum Step {
    /// Runs at these places, of these lengths, with so much before each in the object.
    Store(Vec<(u64, u64, u64)>),
    Clear(u64, u64),
    /// The next bytes, as a program reads.
    Next(usize, u64),
    At(u64, u64),
    /// Several consecutive reads at once, in any order.
    Burst(usize, Vec<u64>),
    Break(Fault),
}

fn step(size: u64) -> impl Strategy<Value = Step> {
    let length = || prop_oneof![1u64..5000, Just(128 * KIB), Just(MIB), 1..2 * MIB];
    let run = (0..size, prop_oneof![1u64..3000, 1..5 * MIB], 0u64..3000);
    let fault = prop_oneof![
        (0..2 * MIB).prop_map(Fault::CutAfter),
        (0..2 * MIB).prop_map(Fault::EndAfter),
        Just(Fault::Refuse(ErrorKind::Unavailable)),
    ];
    prop_oneof![
        2 => prop::collection::vec(run, 1..8).prop_map(Step::Store),
        1 => (0..size, 1..3 * MIB).prop_map(|(start, length)| Step::Clear(start, length)),
        8 => (0..3usize, length()).prop_map(|(stream, length)| Step::Next(stream, length)),
        2 => (0..size, length()).prop_map(|(start, length)| Step::At(start, length)),
        3 => (0..3usize, Just((0..6).collect::<Vec<_>>()).prop_shuffle())
            .prop_map(|(stream, order)| Step::Burst(stream, order)),
        1 => fault.prop_map(Step::Break),
    ]
}

fn within(size: u64, (start, length): (u64, u64)) -> Range<u64> {
    start.min(size)..size.min(start + length)
}

/// Runs that do not overlap, the first of each that do.
fn runs(size: u64, wanted: Vec<(u64, u64, u64)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (start, length, before) in wanted {
        let range = within(size, (start, length));
        let apart = |run: &Run| run.range.end <= range.start || range.end <= run.range.start;
        if !range.is_empty() && runs.iter().all(apart) {
            runs.push(Run { range, before });
        }
    }
    runs
}

async fn run_steps(
    size: u64,
    steps: Vec<Step>,
    memory: u64,
    (sealed, codec): (bool, Option<Codec>),
    is_cached: bool,
) {
    let bench = match is_cached {
        true => Bench::cached(TestStore::new(Network::default()), memory),
        false => slow(Duration::from_millis(3), memory),
    };
    let mut layout = Layout::new(bench, size);
    layout.sealed = sealed;
    layout.codec = codec;
    let reader = layout.bench.transfer.extent_reader();
    let mut positions = [0, size / 3, size / 2];
    for step in steps {
        match step {
            Step::Store(wanted) => {
                let runs = runs(size, wanted);
                if !runs.is_empty() {
                    layout.store(runs).await;
                }
            }
            Step::Clear(start, length) => layout.clear(&within(size, (start, length))),
            Step::Next(stream, length) => {
                let start = positions[stream];
                layout.check(&reader, start..start + length).await;
                positions[stream] += length;
            }
            Step::At(start, length) => {
                layout.check(&reader, start..start + length).await;
                let another = layout.bench.transfer.extent_reader();
                layout.check(&another, start..start + length).await;
            }
            Step::Burst(stream, order) => {
                let start = positions[stream];
                let reads = order.iter().map(|index| {
                    let start = start + index * 256 * KIB;
                    layout.check(&reader, start..start + 256 * KIB)
                });
                join_all(reads).await;
                positions[stream] += order.len() as u64 * 256 * KIB;
            }
            Step::Break(fault) => layout.bench.store.fail_next(Operation::Get, fault),
        }
    }
    assert!(layout.bench.budget().peak() <= memory);
    drop(reader);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let budget = Arc::clone(layout.bench.budget());
    assert!(is_cached || budget.used() == 0);
    drop(layout);
    assert_eq!(budget.used(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn reads_return_what_the_extents_hold(
        size in prop_oneof![1..MIB, MIB..(24 * MIB)],
        steps in prop::collection::vec(step(24 * MIB), 1..50),
        memory in prop_oneof![Just(8 * MIB), Just(16 * MIB), Just(256 * MIB)],
        sealed in any::<bool>(),
        codec in prop::option::of(prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)]),
        is_cached in any::<bool>(),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("built")
            .block_on(run_steps(size, steps, memory, (sealed, codec), is_cached));
    }
}

#[tokio::test]
async fn a_budget_that_is_too_small_for_a_grain_is_told() {
    let layout = Layout::written(slow(Duration::ZERO, 64 * KIB), MIB).await;
    let reader = layout.bench.transfer.extent_reader();
    let read = layout.read(&reader, 0..4 * KIB).await;
    assert!(matches!(read, Err(TransferError::OutOfMemory)), "{read:?}");
}
