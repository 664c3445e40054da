//! Which requests reads lead to, and what they return.

// A list of one range is a list of the one GET that was made.
#![allow(clippy::single_range_in_vec_init)]

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use penstock_base::{KIB, MIB, clock};
use penstock_object::{ErrorKind, Operation};
use penstock_transfer::{Reader, TransferSettings};
use support::{Bench, Fault, Network, TestStore, WHOLE, kind, pattern};

const BLOCK: u32 = 1 << 20;

/// Reads `length` bytes at `offset` and checks them.
async fn check(reader: &Reader, offset: u64, length: u32) {
    let size = reader.version().size;
    let read = reader.read(offset, length).await.expect("read");
    let end = size.min(offset + u64::from(length));
    assert!(
        read.to_vec() == pattern(offset.min(end)..end),
        "wrong bytes at {offset}"
    );
}

#[tokio::test]
async fn a_sequential_read_fetches_every_byte_once() {
    let bench = Bench::plain();
    let size = 64 * MIB + 12345;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    for offset in (0..size).step_by(128 << 10) {
        check(&reader, offset, 128 << 10).await;
    }
    let gets = bench.store.gets();
    assert_eq!(bench.store.bytes_got(), size, "{gets:?}");
    let sizes: Vec<_> = gets
        .iter()
        .map(|range| (range.end - range.start) / MIB)
        .collect();
    assert!(sizes[..sizes.len() - 1].is_sorted(), "{sizes:?}");
    assert!(gets.len() <= 18, "{sizes:?}");
}

/// A bench where read-ahead is bounded by `settings`.
fn bounded(settings: TransferSettings) -> Bench {
    let slow = Network {
        latency: Duration::from_millis(2),
        ..Network::default()
    };
    Bench::new(TestStore::new(slow), 512 * MIB, settings)
}

/// In virtual time: how far ahead a file is read depends on how fast it is read, which is the machine's business.
#[tokio::test(start_paused = true)]
async fn no_more_parts_are_fetched_ahead_of_a_file_than_are_allowed() {
    for (parts, most) in [(1, 2), (4, 8), (16, 32)] {
        let bench = bounded(TransferSettings {
            read_part_size: 2 * MIB,
            parts_ahead_max: Some(parts),
            ..TransferSettings::default()
        });
        let reader = bench.transfer.reader(bench.store.fill("a", 96 * MIB).await);
        let mut farthest = 0;
        for offset in (0..64 * MIB).step_by(128 << 10) {
            check(&reader, offset, 128 << 10).await;
            let asked = bench.store.gets().iter().map(|range| range.end).max();
            farthest = farthest.max(asked.expect("it was read") - offset - (128 << 10));
        }
        assert!(farthest <= most * MIB, "{parts}: {farthest}");
        assert!(farthest >= most * MIB / 4, "{parts}: {farthest}");
    }
}

#[tokio::test]
async fn without_parts_ahead_reads_fetch_what_they_ask_for() {
    let bench = bounded(TransferSettings {
        parts_ahead_max: Some(0),
        ..TransferSettings::default()
    });
    let reader = bench.transfer.reader(bench.store.fill("a", 16 * MIB).await);
    let mut asked = Vec::new();
    for offset in (0..4 * MIB).step_by(128 << 10) {
        check(&reader, offset, 128 << 10).await;
        asked.push(offset..offset + (128 << 10));
    }
    assert_eq!(bench.store.gets(), asked);
}

/// More and more programs read, each a little of its file, and then stand still.
#[tokio::test]
async fn all_read_ahead_together_stays_within_its_limit() {
    let used = async |limit: Option<u64>| {
        let bench = bounded(TransferSettings {
            read_ahead_max: limit,
            ..TransferSettings::default()
        });
        let mut readers = Vec::new();
        for number in 0..12 {
            let version = bench.store.fill(&format!("{number}"), 48 * MIB).await;
            let reader = bench.transfer.reader(version);
            for offset in (0..16 * MIB).step_by(128 << 10) {
                check(&reader, offset, 128 << 10).await;
            }
            readers.push(reader);
        }
        bench.budget().peak()
    };
    let limit = 24 * MIB;
    let unlimited = used(None).await;
    assert!(unlimited > 3 * limit, "{unlimited}");
    // Beside it only what a read itself waits for.
    let limited = used(Some(limit)).await;
    assert!(limited <= limit + 2 * MIB, "{limited}");
}

#[tokio::test]
async fn files_of_some_mebibytes_are_fetched_whole_by_habit() {
    let bench = Bench::plain();
    let mut left_open = Vec::new();
    let mut read = async |number: usize, length: u64| {
        let name = format!("file{number}");
        let reader = bench
            .transfer
            .reader(bench.store.fill(&name, 5 * MIB).await);
        for offset in (0..length).step_by(128 << 10) {
            check(&reader, offset, 128 << 10).await;
        }
        if number < 4 {
            left_open.push(reader);
        }
        bench.store.gets().len()
    };
    let mut before = 0;
    let mut gets = async |number: usize, length: u64| {
        let after = read(number, length).await;
        after - std::mem::replace(&mut before, after)
    };
    for number in 0..4 {
        assert!(gets(number, 5 * MIB).await > 1);
    }
    for number in 4..20 {
        assert_eq!(gets(number, 5 * MIB).await, 1, "file {number}");
    }
    // Whoever looks at the beginning only is believed soon.
    for number in 20..22 {
        gets(number, 256 << 10).await;
    }
    gets(22, 128 << 10).await;
    assert_eq!(bench.store.gets().last(), Some(&(0..MIB)));
}

/// Readers of Parquet and zip files often want no more of them.
#[tokio::test]
async fn files_whose_heads_and_tails_are_read_make_no_habit() {
    let bench = Bench::plain();
    for number in 0..20 {
        let name = format!("file{number}");
        let reader = bench
            .transfer
            .reader(bench.store.fill(&name, 5 * MIB).await);
        check(&reader, 0, 4 << 10).await;
        check(&reader, 5 * MIB - (64 << 10), 64 << 10).await;
    }
    let most = 20 * (MIB + (64 << 10));
    let got = bench.store.bytes_got();
    assert!(got <= most, "{got} of at most {most}");
}

#[tokio::test]
async fn random_reads_fetch_what_was_asked_and_nothing_more() {
    let bench = Bench::plain();
    let size = 64 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    let mut asked = Vec::new();
    for index in 0..200u64 {
        let offset = (index * 104_729 * KIB + 17 * MIB + 123) % (size - MIB);
        let length = [4 * KIB, 128 * KIB, MIB][index as usize % 3];
        check(&reader, offset, length as u32).await;
        asked.push(offset..offset + length);
    }
    assert_eq!(bench.store.gets(), asked);
    assert_eq!(bench.metric("transfer_prefetched_bytes_total"), 0);
    assert_eq!(bench.budget().used(), 0);
}

#[tokio::test(start_paused = true)]
async fn random_reads_that_touch_by_chance_fetch_nothing_in_vain() {
    let network = Network {
        latency: Duration::from_millis(1),
        bandwidth: None,
    };
    for (size, length, count) in [
        (128 * MIB, 4 * KIB, 32_768),
        (128 * MIB, 128 * KIB, 4096),
        (1024 * MIB, MIB, 1024),
    ] {
        let store = TestStore::new(network.clone());
        let bench = Bench::new(store, 512 * MIB, TransferSettings::default());
        let reader = &bench.transfer.reader(bench.store.blank("a", size));
        let mut chance = 1u64;
        let reads = (0..count).map(|_| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let place = (chance >> 33) % (size / length);
            reader.read(place * length, length as u32)
        });
        let read = futures_util::stream::iter(reads).buffer_unordered(64);
        let read: Vec<_> = read
            .map(|read| read.expect("read").len() as u64)
            .collect()
            .await;
        let (read, got) = (read.iter().sum::<u64>(), bench.store.bytes_got());
        assert!(got <= read + read / 20, "{} for {}", got / MIB, read / MIB);
    }
}

#[tokio::test]
async fn a_stream_among_random_reads_is_found_all_the_same() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 64 * MIB).await);
    let (mut sequential, mut stray) = (32 * MIB, 0);
    for index in 0..1000 {
        if index % 4 == 0 {
            stray = (stray + 7_654_321 * 4096) % (31 * MIB);
            check(&reader, stray, 4 << 10).await;
        } else {
            check(&reader, sequential, 16 << 10).await;
            sequential += 16 << 10;
        }
    }
    let gets = bench.store.gets();
    assert!(gets.len() <= 250 + 20, "{}: {gets:?}", gets.len());
}

#[tokio::test]
async fn a_backward_reader_is_a_random_reader() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 64 * MIB).await);
    for index in (10..60).rev() {
        check(&reader, index * MIB, BLOCK).await;
    }
    assert_eq!(bench.store.bytes_got(), 50 * MIB);
    assert_eq!(bench.store.gets().len(), 50);
}

#[tokio::test]
async fn a_strided_reader_is_a_random_reader() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 32 * MIB).await);
    for index in 0..16 {
        check(&reader, index * 2 * MIB, 4 << 10).await;
    }
    let first = MIB;
    assert_eq!(
        bench.store.bytes_got(),
        first + 15 * 4 * KIB,
        "{:?}",
        bench.store.gets()
    );
}

#[tokio::test]
async fn a_program_that_skips_more_than_it_reads_loses_its_stream() {
    let bench = Bench::plain();
    let size = 128 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    check(&reader, 0, BLOCK).await;
    check(&reader, MIB, BLOCK).await;
    for index in 1..40 {
        check(&reader, index * 3 * MIB, 4 << 10).await;
    }
    // What was on its way when the stream was lost still arrives; most of the rest is not asked for.
    assert!(
        bench.store.bytes_got() < 48 * MIB,
        "{}",
        bench.store.bytes_got() / MIB
    );
}

#[tokio::test]
async fn a_small_file_is_one_get() {
    for (size, length) in [(1, 4 << 10), (100 << 10, 128 << 10), (1 << 20, 128 << 10)] {
        let bench = Bench::plain();
        let reader = bench.transfer.reader(bench.store.fill("a", size).await);
        for offset in (0..size + u64::from(length)).step_by(length as usize) {
            check(&reader, offset, length).await;
        }
        // Without a range, so that the store tells the checksum over all of it.
        assert_eq!(bench.store.gets(), [WHOLE]);
    }
}

#[tokio::test]
async fn a_small_file_comes_whole_whatever_is_read_of_it() {
    for begin in [0, 300 * KIB, 599 * KIB] {
        let bench = Bench::plain();
        let reader = bench
            .transfer
            .reader(bench.store.fill("a", 600 * KIB).await);
        check(&reader, begin, 4 << 10).await;
        assert_eq!(bench.store.gets(), [WHOLE]);
        for offset in (0..600 * KIB).step_by(100 << 10) {
            check(&reader, offset, 100 << 10).await;
        }
        // What was read was let go, some of the rest not.
        check(&reader, 0, 4 << 10).await;
        for offset in (0..600 * KIB).step_by(4 << 10) {
            check(&reader, offset, 4 << 10).await;
        }
        let gets = bench.store.gets();
        assert!(gets.len() <= 4, "{gets:?}");
        assert!(gets.iter().all(|range| *range == WHOLE), "{gets:?}");
    }
}

#[tokio::test]
async fn a_small_file_comes_whole_when_memory_is_short() {
    let store = TestStore::new(Network::default());
    let bench = Bench::new(store, 4 * MIB, TransferSettings::default());
    let reader = bench
        .transfer
        .reader(bench.store.fill("a", 600 * KIB).await);
    let budget = bench.budget();
    let taken = budget.try_reserve(budget.available() - 64 * KIB);
    let read = check(&reader, 300 * KIB, 4 << 10);
    let soon = async {
        clock::sleep(Duration::from_millis(20)).await;
        drop(taken.expect("it is free"));
    };
    futures_util::future::join(read, soon).await;
    assert_eq!(bench.metric("transfer_memory_waits_total"), 1);
    assert_eq!(bench.store.gets(), [WHOLE]);
}

#[tokio::test]
async fn reading_only_the_head_of_a_large_file_fetches_one_small_part() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 20 * MIB).await);
    check(&reader, 0, 4 << 10).await;
    assert_eq!(bench.store.gets(), [0..MIB]);
}

#[tokio::test]
async fn interleaved_streams_do_not_disturb_each_other() {
    let bench = Bench::plain();
    let size = 128 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    let stretch = size / 4;
    for step in 0..stretch / MIB {
        for stream in 0..4 {
            check(&reader, stream * stretch + step * MIB, BLOCK).await;
        }
    }
    // Where one stream ends another one has begun, so what it fetched ahead there is lost.
    let twice = bench.store.bytes_got() - size;
    assert!(twice <= 3 * 16 * MIB, "{} MiB twice", twice / MIB);
    assert!(bench.store.gets().len() < 60, "{:?}", bench.store.gets());
}

#[tokio::test]
async fn reading_again_in_small_pieces_is_sequential_every_time() {
    for size in [700 * KIB, 3 * MIB, 8 * MIB, 24 * MIB] {
        let bench = Bench::plain();
        let reader = bench.transfer.reader(bench.store.fill("a", size).await);
        for _ in 0..4 {
            for offset in (0..size).step_by(16 << 10) {
                check(&reader, offset, 16 << 10).await;
            }
        }
        let gets = bench.store.gets();
        // 1 MiB at least, and more the longer it goes on; how soon depends on how busy the machine is.
        let pass_max = 2 + size.div_ceil(MIB) as usize;
        assert!(gets.len() <= 4 * pass_max, "{size}: {gets:?}");
        let ends = gets.iter().map(|get| get.end.min(size) - get.start);
        assert_eq!(ends.sum::<u64>(), 4 * size, "{size}: {gets:?}");
    }
}

#[tokio::test]
async fn going_back_over_what_was_read_is_another_stream() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 64 * MIB).await);
    for start in [0, 2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB] {
        for offset in (start..start + 4 * MIB).step_by(16 << 10) {
            check(&reader, offset, 16 << 10).await;
        }
    }
    let gets = bench.store.gets();
    assert!(gets.len() <= 40, "{}: {gets:?}", gets.len());
}

#[tokio::test]
async fn a_forward_skip_stays_in_the_stream() {
    let bench = Bench::plain();
    let size = 128 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    let mut offset = 0;
    while offset < size {
        for _ in 0..8 {
            check(&reader, offset, BLOCK).await;
            offset += MIB;
        }
        offset += 2 * MIB;
    }
    let gets = bench.store.gets();
    assert!(bench.store.bytes_got() <= size, "{gets:?}");
    assert!(gets.len() < 40, "{} {gets:?}", gets.len());
}

#[tokio::test]
async fn reads_that_overtake_each_other_are_one_stream() {
    let network = Network {
        latency: Duration::from_millis(2),
        bandwidth: None,
    };
    let store = TestStore::new(network);
    let bench = Bench::new(store, 512 * MIB, TransferSettings::default());
    let size = 64 * MIB;
    let reader = Arc::new(bench.transfer.reader(bench.store.fill("a", size).await));
    for group in 0..size / (4 * MIB) {
        let reads = [2, 0, 3, 1].map(|index| {
            let reader = Arc::clone(&reader);
            async move { check(&reader, group * 4 * MIB + index * MIB, BLOCK).await }
        });
        futures_util::future::join_all(reads).await;
    }
    let gets = bench.store.gets();
    assert_eq!(bench.store.bytes_got(), size, "{gets:?}");
    assert!(gets.len() <= 17, "{gets:?}");
}

#[tokio::test(start_paused = true)]
async fn latency_costs_no_throughput() {
    let mut rates = Vec::new();
    for latency in [0, 30] {
        let network = Network {
            latency: Duration::from_millis(latency),
            bandwidth: Some(1000.0 * MIB as f64),
        };
        let bench = Bench::new(
            TestStore::new(network),
            512 * MIB,
            TransferSettings::default(),
        );
        let size = 1024 * MIB;
        let reader = bench.transfer.reader(bench.store.blank("a", size));
        let start = clock::now();
        for offset in (0..size).step_by(1 << 20) {
            reader.read(offset, BLOCK).await.expect("read");
        }
        rates.push(1024.0 / start.elapsed().as_secs_f64());
    }
    assert!(rates[0] > 950.0, "{rates:?}");
    assert!(rates[1] > 0.85 * rates[0], "{rates:?}");
}

#[tokio::test(start_paused = true)]
async fn the_window_stops_at_the_bandwidth_delay_product() {
    let network = Network {
        latency: Duration::from_millis(30),
        bandwidth: Some(200.0 * MIB as f64),
    };
    let bench = Bench::new(
        TestStore::new(network),
        1024 * MIB,
        TransferSettings::default(),
    );
    let size = 1024 * MIB;
    let reader = bench.transfer.reader(bench.store.blank("a", size));
    for offset in (0..size / 2).step_by(1 << 20) {
        reader.read(offset, BLOCK).await.expect("read");
    }
    let window = bench.metric("transfer_window_bytes");
    // 200 MiB/s for 30 ms and the 40 ms that 8 MiB take are 14 MiB; twice that and two parts.
    assert!(window < 72 * MIB, "{} MiB", window / MIB);
    assert!(
        bench.budget().peak() < 90 * MIB,
        "{}",
        bench.budget().peak() / MIB
    );
}

#[tokio::test]
async fn bytes_arrive_before_their_part_is_complete() {
    let network = Network {
        latency: Duration::ZERO,
        bandwidth: Some(4.0 * MIB as f64),
    };
    let bench = Bench::new(
        TestStore::new(network),
        64 * MIB,
        TransferSettings::default(),
    );
    let reader = bench.transfer.reader(bench.store.fill("a", 2 * MIB).await);
    let start = clock::now();
    check(&reader, 0, 4 << 10).await;
    assert!(
        start.elapsed() < Duration::from_millis(180),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn what_is_there_is_returned_at_the_first_poll() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", MIB).await);
    check(&reader, 0, 4 << 10).await;
    while bench
        .store
        .in_flight
        .load(std::sync::atomic::Ordering::SeqCst)
        > 0
    {
        tokio::task::yield_now().await;
    }
    let read = Box::pin(reader.read(4 << 10, 4 << 10));
    match futures_util::future::select(read, std::future::ready(())).await {
        futures_util::future::Either::Left((read, _)) => {
            assert_eq!(read.expect("read").to_vec(), pattern(4 * KIB..8 * KIB));
        }
        futures_util::future::Either::Right(_) => panic!("it had to wait"),
    }
}

#[tokio::test]
async fn memory_returns_when_the_file_was_read() {
    let bench = Bench::plain();
    let size = 48 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    for offset in (0..size).step_by(1 << 20) {
        check(&reader, offset, BLOCK).await;
    }
    assert_eq!(bench.budget().used(), 0);
}

#[tokio::test]
async fn a_dropped_reader_cancels_what_it_fetches() {
    let network = Network {
        latency: Duration::from_secs(3600),
        bandwidth: None,
    };
    let bench = Bench::new(
        TestStore::new(network),
        64 * MIB,
        TransferSettings::default(),
    );
    let version = bench.store.fill("a", 64 * MIB).await;
    let reader = bench.transfer.reader(version);
    for offset in [0, 128 << 10] {
        let read = reader.read(offset, 128 << 10);
        assert!(
            clock::deadline(Duration::from_millis(5), read)
                .await
                .is_err()
        );
    }
    assert!(
        bench
            .store
            .in_flight
            .load(std::sync::atomic::Ordering::SeqCst)
            > 1
    );
    drop(reader);
    clock::deadline(Duration::from_secs(5), async {
        while bench.budget().used() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the requests were cancelled");
    assert_eq!(
        bench
            .store
            .in_flight
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
}

#[tokio::test]
async fn a_failure_is_reported_once_and_the_next_read_tries_again() {
    for fault in [
        Fault::Refuse(ErrorKind::Unavailable),
        Fault::CutAfter(100),
        Fault::EndAfter(100),
    ] {
        let bench = Bench::plain();
        let reader = bench.transfer.reader(bench.store.fill("a", 16 * MIB).await);
        bench.store.fail_next(Operation::Get, fault);
        let failed = kind(reader.read(0, BLOCK).await);
        assert!(failed.is_transient(), "{failed:?}");
        for offset in (0..16 * MIB).step_by(1 << 20) {
            check(&reader, offset, BLOCK).await;
        }
    }
}

#[tokio::test]
async fn a_small_object_that_arrived_damaged_is_not_read_in_pieces() {
    let bench = Bench::plain();
    let size = 300 * KIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    let damage = Fault::Refuse(ErrorKind::ChecksumMismatch);
    bench.store.fail_next(Operation::Get, damage);
    let failed = kind(reader.read(0, 128 << 10).await);
    assert_eq!(failed, ErrorKind::ChecksumMismatch);
    for page in [64 * KIB, 0, 4 * KIB] {
        check(&reader, page, 4 << 10).await;
    }
    assert_eq!(bench.store.gets(), vec![WHOLE; 2]);
}

#[tokio::test]
async fn a_failed_prefetch_is_repaired_by_the_read_that_needs_it() {
    let bench = Bench::plain();
    let size = 40 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    let mut failures = 0;
    for offset in (0..size).step_by(128 << 10) {
        if offset % (5 * MIB) == 0 {
            bench
                .store
                .fail_next(Operation::Get, Fault::CutAfter(700 << 10));
        }
        match reader.read(offset, 128 << 10).await {
            Ok(read) => assert!(read.to_vec() == pattern(offset..offset + 128 * KIB)),
            Err(_) => {
                failures += 1;
                check(&reader, offset, 128 << 10).await;
            }
        }
    }
    assert!(failures <= 8, "{failures}");
}

#[tokio::test]
async fn a_replaced_object_fails_reads_and_never_mixes_versions() {
    let bench = Bench::plain();
    let reader = bench.transfer.reader(bench.store.fill("a", 32 * MIB).await);
    check(&reader, 20 * MIB, BLOCK).await;
    bench.store.fill("a", 31 * MIB).await;
    assert_eq!(
        kind(reader.read(8 * MIB, BLOCK).await),
        ErrorKind::PreconditionFailed
    );
    assert_eq!(
        kind(reader.read(0, BLOCK).await),
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test]
async fn idle_readers_give_their_read_ahead_to_those_who_wait() {
    let network = Network {
        latency: Duration::from_millis(1),
        bandwidth: None,
    };
    let bench = Bench::new(
        TestStore::new(network),
        16 * MIB,
        TransferSettings::default(),
    );
    let version = bench.store.fill("a", 64 * MIB).await;
    let idle: Vec<_> = (0..4)
        .map(|_| bench.transfer.reader(version.clone()))
        .collect();
    for reader in &idle {
        for offset in 0..3 {
            check(reader, offset * MIB, BLOCK).await;
        }
    }
    let held: Vec<_> = {
        let reader = bench.transfer.reader(version.clone());
        let mut held = Vec::new();
        for index in 0..12 {
            // Payloads that are kept occupy memory that nobody can reclaim.
            held.push(
                reader
                    .read(index * 5 * MIB, BLOCK)
                    .await
                    .expect("memory was reclaimed"),
            );
        }
        held
    };
    assert_eq!(held.len(), 12);
    assert!(bench.budget().peak() <= 16 * MIB);
    for reader in &idle {
        check(reader, 3 * MIB, BLOCK).await;
    }
}

#[tokio::test]
async fn beyond_the_end_there_is_nothing() {
    let bench = Bench::plain();
    let size = 2 * MIB;
    let reader = bench.transfer.reader(bench.store.fill("a", size).await);
    check(&reader, size - 5, 100).await;
    for offset in [size, size + 1, u64::MAX] {
        assert!(reader.read(offset, 100).await.expect("read").is_empty());
    }
    assert_eq!(bench.store.gets(), [size - 5..size]);
    let empty = bench.transfer.reader(bench.store.fill("b", 0).await);
    assert!(empty.read(0, 100).await.expect("read").is_empty());
}
