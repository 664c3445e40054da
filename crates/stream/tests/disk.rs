//! What reads of a disk return, and which requests they lead to.

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use penstock_base::{FsError, KIB, MIB};
use penstock_object::{ErrorKind, Key, Operation, Store};
use penstock_object_testing::Fault;
use penstock_stream::BLOCK_SIZE;
use penstock_vfs::Disk;
use proptest::prelude::*;
use support::{Bench, Setup, many, put};

/// Objects of all sorts: empty, small, of whole blocks, large.
fn mixed() -> Vec<(String, u64)> {
    let sizes = [
        100_000,
        0,
        4096,
        1,
        4097,
        MIB,
        MIB + 1,
        3 * MIB + 77,
        65_536,
        200 * KIB,
        12,
    ];
    let objects = sizes.into_iter().enumerate();
    objects
        .map(|(index, size)| (format!("o{index:02}"), size))
        .collect()
}

#[tokio::test]
async fn whole_disks_are_read_in_any_way() {
    for (direct, disks) in [(false, 1), (false, 3), (true, 2)] {
        let setup = Setup {
            direct,
            disks,
            ..Setup::default()
        };
        let bench = setup.bench(&mixed()).await;
        for disk in 0..disks {
            let size = bench.disks[usize::from(disk)].size();
            assert_eq!(size, bench.images[usize::from(disk)].len() as u64);
            for step in [128 * KIB, MIB] {
                for offset in (0..size).step_by(step as usize) {
                    let length = step.min(size - offset);
                    bench.check(disk, offset, length as u32).await;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_reads_return_what_the_objects_hold(
        sizes in prop::collection::vec(
            prop_oneof![4 => 0..50_000u64, 2 => 0..MIB, 1 => MIB..3 * MIB], 1..20),
        disks in 1..4u16,
        direct: bool,
        cache in prop_oneof![Just(0), Just(MIB), Just(64 * MIB)],
        reads in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=MIB), 1..24),
    ) {
        let objects: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(index, size)| (format!("k{index:03}"), *size))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let setup = Setup { direct, disks, cache: Some(cache), ..Setup::default() };
            let bench = setup.bench(&objects).await;
            let checks = reads.iter().map(|(disk, at, length)| {
                let disk = disk.index(usize::from(disks));
                let size = bench.images[disk].len();
                let offset = at.index(size) as u64;
                let length = (*length).min(size as u64 - offset);
                bench.check(disk as u16, offset, length as u32)
            });
            join_all(checks).await;
        });
    }
}

#[tokio::test]
async fn a_read_beyond_the_disk_is_refused() {
    let bench = Setup::default().bench(&many(1, 5000)).await;
    let refused = bench.disks[0].read(BLOCK_SIZE, 2 * BLOCK_SIZE as u32).await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
}

#[tokio::test]
async fn holes_and_tails_cost_nothing() {
    let bench = Setup::default().bench(&many(3, 0)).await;
    bench.check(0, 0, BLOCK_SIZE as u32).await;
    assert_eq!(bench.gets(), 0);
    let bench = Setup::default().bench(&many(1, 5000)).await;
    let tail = bench.disks[0].read(5100, 1000).await.expect("zeros");
    assert_eq!((tail.to_vec(), bench.gets()), (vec![0; 1000], 0));
}

#[tokio::test(start_paused = true)]
async fn concurrent_readers_of_a_small_object_share_one_get() {
    let setup = Setup {
        latency: Duration::from_millis(10),
        ..Setup::default()
    };
    let bench = setup.bench(&many(1, 100_000)).await;
    let readers = (0..25 * 4u64).map(|index| bench.check(0, index % 25 * BLOCK_SIZE, 4096));
    join_all(readers).await;
    assert_eq!(bench.gets(), 1);
    assert_eq!(bench.metric("stream_shared_gets_total"), 99);
    bench.check_whole(0).await;
    assert_eq!(bench.gets(), 1, "it is kept");
}

#[tokio::test]
async fn a_small_object_is_one_get_however_it_is_read() {
    let bench = Setup::default().bench(&many(40, 100_000)).await;
    let order = (0..40).map(|index| index * 17 % 40);
    for number in order {
        let place = bench.places[number];
        for block in (0..25).rev() {
            let offset = (place.block + block) * BLOCK_SIZE;
            bench.check(0, offset, BLOCK_SIZE as u32).await;
        }
    }
    assert_eq!(bench.gets(), 40);
}

#[tokio::test]
async fn in_direct_mode_each_read_is_one_get_of_its_range() {
    let setup = Setup {
        direct: true,
        ..Setup::default()
    };
    let bench = setup.bench(&many(200, 100_000)).await;
    for number in 0..200 {
        bench.check_whole(number).await;
    }
    assert_eq!(bench.gets(), 200, "in order, and nothing is fetched ahead");
    bench.check_whole(7).await;
    assert_eq!(bench.gets(), 201, "nothing is kept");
    bench.check(0, 4096, 8192).await;
    assert_eq!(bench.gets(), 202);
    assert_eq!(bench.budget.used(), 0);
    assert_eq!(bench.metric("stream_prefetched_objects_total"), 0);
}

#[tokio::test]
async fn a_large_object_is_read_by_ranges() {
    let bench = Setup::default().bench(&[("large".into(), 64 * MIB)]).await;
    bench.check(0, 33 * MIB, 4096).await;
    assert_eq!(bench.budget.peak(), 4096);
    let before = bench.gets();
    for offset in (0..64 * MIB).step_by(128 << 10) {
        bench.check(0, offset, 128 << 10).await;
    }
    assert!(bench.gets() - before < 24, "{} GETs", bench.gets() - before);
}

#[tokio::test]
async fn a_changed_object_fails_and_is_counted() {
    for direct in [false, true] {
        let setup = Setup {
            direct,
            ..Setup::default()
        };
        let objects = [("large".into(), 3 * MIB), ("small".into(), 5000)];
        let bench = setup.bench(&objects).await;
        bench.check(0, 0, 4096).await;
        put(bench.bucket.as_ref(), "large", vec![1; 3 * MIB as usize]).await;
        put(bench.bucket.as_ref(), "small", vec![1; 5000]).await;
        for number in 0..2 {
            let offset = bench.places[number].block * BLOCK_SIZE + MIB * 2 * (1 - number as u64);
            let read = bench.disks[0].read(offset, 4096).await;
            assert_eq!(read.err(), Some(FsError::Stale), "direct {direct}");
        }
        assert_eq!(bench.metric("stream_changed_objects_total"), 2);
        let small = Key::new("small").expect("valid");
        bench.bucket.delete(&small).await.expect("deleted");
        let offset = bench.places[1].block * BLOCK_SIZE;
        let read = bench.disks[0].read(offset, 4096).await;
        assert_eq!(read.err(), Some(FsError::Stale));
        assert_eq!(bench.metric("stream_changed_objects_total"), 3);
    }
}

#[tokio::test]
async fn what_was_read_before_the_change_stays_what_it_was() {
    let bench = Setup::default().bench(&many(1, 5000)).await;
    bench.check_whole(0).await;
    put(bench.bucket.as_ref(), "dir000/file000000", vec![1; 5000]).await;
    bench.check_whole(0).await;
    assert_eq!(bench.gets(), 1);
}

/// Reads everything while requests fail in passing.
async fn survive(direct: bool) {
    let setup = Setup {
        direct,
        disks: 2,
        ..Setup::default()
    };
    let mut objects = mixed();
    objects.extend(
        many(60, 40_000)
            .into_iter()
            .map(|(key, size)| (format!("z{key}"), size)),
    );
    let bench = setup.bench(&objects).await;
    let get = Some(Operation::Get);
    bench
        .faults
        .rate(get, 0.1, Fault::fail(ErrorKind::Unavailable));
    bench
        .faults
        .rate(get, 0.1, Fault::fail(ErrorKind::Throttled));
    bench.faults.rate(get, 0.1, Fault::Cut { after: 3000 });
    join_all(
        (0..objects.len())
            .filter(|number| objects[*number].1 > 0)
            .map(|number| bench.check_whole(number)),
    )
    .await;
    assert!(bench.faults.injected() > 5);
    assert_eq!(bench.metric("stream_failed_reads_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_passing_is_retried() {
    survive(false).await;
    survive(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_told_to_all_who_wait_and_forgotten() {
    let bench = Setup::default().bench(&many(1, 5000)).await;
    let kinds = [ErrorKind::Unavailable, ErrorKind::PermissionDenied];
    bench.faults.queue(Operation::Get, kinds.map(Fault::fail));
    let reads = join_all((0..3).map(|_| bench.disks[0].read(0, 4096))).await;
    assert!(
        reads
            .into_iter()
            .all(|read| read.err() == Some(FsError::PermissionDenied))
    );
    assert_eq!(bench.metric("stream_failed_reads_total"), 3);
    bench.check_whole(0).await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_reads_release_their_memory_and_their_get() {
    let bench = Setup::default().bench(&many(2, 100_000)).await;
    bench.faults.queue(Operation::Get, [Fault::Hang]);
    let limit = Duration::from_millis(5);
    let both = async { tokio::join!(bench.disks[0].read(0, 4096), bench.disks[0].read(0, 8192)) };
    let hanging = penstock_base::clock::deadline(limit, both).await;
    assert!(hanging.is_err());
    assert_eq!(bench.budget.used(), 0);
    bench.check_whole(0).await;
    assert_eq!(bench.gets(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_does_not_take_the_get_from_others() {
    let setup = Setup {
        latency: Duration::from_millis(50),
        ..Setup::default()
    };
    let bench = setup.bench(&many(1, 100_000)).await;
    let limit = Duration::from_millis(5);
    let impatient = penstock_base::clock::deadline(limit, bench.disks[0].read(0, 4096));
    let (given_up, ()) = tokio::join!(impatient, bench.check_whole(0));
    assert!(given_up.is_err());
    assert_eq!(bench.gets(), 1);
}

/// 256 readers with far more to read than fits into memory.
async fn squeeze(direct: bool) -> Bench {
    let setup = Setup {
        direct,
        budget: 24 * MIB,
        disks: 2,
        latency: Duration::from_millis(1),
        ..Setup::default()
    };
    let mut objects = many(600, 100_000);
    objects.extend((0..8).map(|index| (format!("large{index}"), 4 * MIB)));
    objects.extend((0..60).map(|index| (format!("medium{index:02}"), 600_000)));
    let bench = setup.bench(&objects).await;
    let bench = Arc::new(bench);
    let readers = (0..256usize).map(|reader| {
        let bench = Arc::clone(&bench);
        let count = objects.len();
        async move {
            for step in 0..12 {
                bench.check_whole((reader * 131 + step * 197) % count).await;
            }
        }
    });
    join_all(readers).await;
    Arc::into_inner(bench).expect("all readers are gone")
}

#[tokio::test]
async fn memory_is_bounded_under_many_readers() {
    for direct in [false, true] {
        let bench = squeeze(direct).await;
        let (peak, total) = (bench.budget.peak(), bench.budget.total());
        assert!(peak > total / 2 && peak <= total, "{peak} of {total}");
        let kept = bench.metric("stream_cache_bytes");
        assert!(kept <= total / 2, "{kept} bytes kept");
        assert_eq!(bench.metric("stream_failed_reads_total"), 0);
    }
}

#[tokio::test]
async fn the_cache_gives_way_to_those_who_wait_for_memory() {
    let setup = Setup {
        budget: 16 * MIB,
        cache: Some(15 * MIB),
        ..Setup::default()
    };
    let bench = setup.bench(&many(200, 100_000)).await;
    for index in 0..200 {
        bench.check_whole(index * 77 % 200).await;
    }
    let kept = bench.metric("stream_cache_bytes");
    assert!(kept > 13 * MIB, "{kept}");
    let all = bench.budget.reserve(14 * MIB).await.expect("given back");
    assert!(bench.metric("stream_cache_bytes") < 2 * MIB);
    drop(all);
}

#[tokio::test]
async fn the_least_recently_read_object_goes_first() {
    let setup = Setup {
        cache: Some(100 * 4096),
        ..Setup::default()
    };
    let bench = setup.bench(&many(1000, 4096)).await;
    let far_apart = |index: usize| index * 619 % 1000;
    for index in 0..200 {
        bench.check_whole(0).await;
        bench.check_whole(far_apart(index)).await;
    }
    assert_eq!(bench.gets(), 200, "the first one stays");
    bench.check_whole(far_apart(199)).await;
    bench.check_whole(far_apart(102)).await;
    assert_eq!(bench.gets(), 200, "and so do the last ones");
    bench.check_whole(far_apart(90)).await;
    assert_eq!(bench.gets(), 201);
}

/// The kernel's read-ahead sends many requests at once, and they overtake one another.
#[tokio::test(start_paused = true)]
async fn a_large_object_is_fetched_once_by_a_disorderly_read_ahead() {
    let setup = Setup {
        latency: Duration::from_millis(10),
        ..Setup::default()
    };
    let bench = setup.bench(&[("large".into(), 96 * MIB)]).await;
    let began = penstock_base::clock::now();
    for window in 0..6u64 {
        let order = (0..16u64).map(|index| index ^ 3);
        let reads = order.map(|index| bench.check(0, (window * 16 + index) * MIB, MIB as u32));
        join_all(reads).await;
    }
    let fetched = bench.metric("object_received_bytes_total");
    assert!(fetched <= 100 * MIB, "{fetched} bytes for 96 MiB");
    assert!(
        began.elapsed() < Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
}
