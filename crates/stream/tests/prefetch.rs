//! Reading many small objects in order, and in no order.

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use penstock_base::{MIB, clock};
use penstock_object::Operation;
use penstock_object_testing::Fault;
use support::{Bench, Setup, many};

const LATENCY: Duration = Duration::from_millis(10);

/// Seconds, of a clock that only waiting moves, that a scan of all objects takes.
async fn scan(bench: &Bench, count: usize) -> f64 {
    let began = clock::now();
    for number in 0..count {
        bench.check_whole(number).await;
    }
    clock::now().duration_since(began).as_secs_f64()
}

fn setup(disks: u16) -> Setup {
    Setup {
        latency: LATENCY,
        disks,
        ..Setup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_small_objects_hides_the_latency() {
    let objects = many(10_000, 3000);
    let with = setup(2).bench(&objects).await;
    let seconds = scan(&with, objects.len()).await;
    assert_eq!(with.gets(), 10_000, "each object once");
    assert_eq!(with.metric("stream_prefetch_wasted_objects_total"), 0);
    let without = Setup {
        cache: Some(0),
        ..setup(2)
    };
    let without = without.bench(&objects[..1000]).await;
    let seconds_without = scan(&without, 1000).await * 10.0;
    assert!(seconds_without >= 100.0);
    assert!(seconds * 50.0 < seconds_without, "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn threads_that_take_turns_are_served_ahead_too() {
    let objects = many(4000, 3000);
    let bench = Arc::new(setup(4).bench(&objects).await);
    let began = clock::now();
    let threads = (0..8).map(|thread| {
        let bench = Arc::clone(&bench);
        async move {
            for number in (thread..4000).step_by(8) {
                bench.check_whole(number).await;
                clock::sleep(Duration::from_micros(200)).await;
            }
        }
    });
    join_all(threads).await;
    let seconds = clock::now().duration_since(began).as_secs_f64();
    assert_eq!(bench.gets(), 4000);
    let without = 4000.0 / 8.0 * 0.0102;
    assert!(seconds * 4.0 < without, "{seconds} s, {without} s without");
}

#[tokio::test(start_paused = true)]
async fn random_reads_fetch_nothing_ahead() {
    let objects = many(5000, 3000);
    let bench = setup(1).bench(&objects).await;
    for index in 0..2000usize {
        bench.check_whole(index * 2_654_435_761 % 5000).await;
    }
    let ahead = bench.metric("stream_prefetched_objects_total");
    assert!(ahead <= 20, "{ahead} of 2000");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_cancelled_when_the_pattern_breaks() {
    let objects = many(5000, 3000);
    let bench = setup(1).bench(&objects).await;
    for number in 0..100 {
        bench.check_whole(number).await;
    }
    clock::sleep(Duration::from_secs(1)).await;
    bench.faults.clear();
    bench.faults.rate(Some(Operation::Get), 1.0, Fault::Hang);
    let limit = Duration::from_millis(1);
    let next = clock::deadline(limit, bench.check_whole(100)).await;
    assert!(next.is_ok(), "it was fetched ahead");
    let (window, used) = (
        bench.metric("stream_prefetched_objects_total"),
        bench.budget.used(),
    );
    assert!(window > 101);
    bench.faults.clear();
    for index in 0..60usize {
        bench.check_whole(1000 + index * 997 % 4000).await;
    }
    tokio::task::yield_now().await;
    assert!(bench.metric("stream_prefetch_wasted_objects_total") > 0);
    assert!(bench.budget.used() < used + 60 * 4096, "its memory is free");
}

#[tokio::test(start_paused = true)]
async fn fetching_ahead_stays_within_its_share_of_the_cache() {
    let objects = many(2000, 100_000);
    let bench = Setup {
        cache: Some(8 * MIB),
        budget: 64 * MIB,
        ..setup(1)
    };
    let bench = bench.bench(&objects).await;
    let seconds = scan(&bench, 2000).await;
    assert_eq!(bench.gets(), 2000);
    assert_eq!(bench.metric("stream_prefetch_wasted_objects_total"), 0);
    assert!(bench.budget.peak() <= 8 * MIB + 2 * MIB + 6 * MIB);
    assert!(seconds < 2.0, "{seconds} s instead of 20");
}
