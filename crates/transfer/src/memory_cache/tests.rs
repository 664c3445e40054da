use std::{ops::Range, sync::Arc, time::Duration};

use penstock_base::{
    KIB, MIB, MemoryBudget, Payload, Reclaim, clock,
    metrics::{Registry, table},
};
use penstock_object::{ErrorKind, GetOptions, Key, ObjectResult, Operation, PutOptions, Store};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use proptest::prelude::*;

use super::MemoryCache;

/// A cache around a store that can fail, with an object in it.
struct Bench {
    faults: Arc<Faults>,
    /// What goes wrong after these have had their time.
    later_faults: Arc<Faults>,
    budget: Arc<MemoryBudget>,
    cache: Arc<MemoryCache>,
    body: Vec<u8>,
    registry: Arc<Registry>,
}

impl Bench {
    async fn new(length: u64, memory: u64) -> Self {
        let (faults, later_faults) = (Faults::new(7), Faults::new(8));
        let budget = MemoryBudget::new(memory);
        let store = Faulty::new(Arc::new(MemoryStore::new()), Arc::clone(&later_faults));
        let store = Faulty::new(Arc::new(store), Arc::clone(&faults));
        let registry = Registry::new();
        let cache = MemoryCache::around(Arc::new(store), &budget, &registry);
        let body: Vec<u8> = (0..length).map(|at| (at * 31 / 8) as u8).collect();
        let payload = Payload::from(body.clone());
        let put = cache.put(&key(), payload, PutOptions::default()).await;
        put.expect("it is free");
        Self {
            faults,
            later_faults,
            budget,
            cache,
            body,
            registry,
        }
    }

    async fn get(&self, range: Range<u64>) -> ObjectResult<Vec<u8>> {
        let options = GetOptions {
            range: Some(range),
            ..GetOptions::default()
        };
        let mut bytes = Vec::new();
        self.cache.get(&key(), options, &mut bytes).await?;
        Ok(bytes)
    }

    async fn check(&self, range: Range<u64>) {
        let bytes = self.get(range.clone()).await.expect("it is there");
        assert!(
            bytes == self.body[range.start as usize..range.end as usize],
            "{range:?}"
        );
    }

    /// Hits, misses, bytes fetched ahead, and those of them that were dropped without any use.
    fn told(&self) -> [u64; 4] {
        let samples = self.registry.samples();
        let value = |name: &str, outcome: &str| {
            let mut samples = samples.iter();
            let sample = samples.find(|sample| {
                let labels = format!("{:?}", sample.labels);
                sample.name == name && labels.contains(outcome)
            });
            sample.expect("it is registered").value
        };
        [
            value(table::MEMORY_CACHE_READS.name, "hit"),
            value(table::MEMORY_CACHE_READS.name, "miss"),
            value(table::MEMORY_CACHE_AHEAD_BYTES.name, ""),
            value(table::MEMORY_CACHE_USELESS_BYTES.name, ""),
        ]
    }

    fn gets(&self) -> u64 {
        self.faults.calls(Operation::Get)
    }
}

fn key() -> Key {
    Key::new("object").expect("valid")
}

#[tokio::test]
async fn small_things_one_after_the_other_are_fetched_together() {
    let bench = Bench::new(4 * MIB, 64 * MIB).await;
    for file in 0..1024 {
        bench.check(file * 4 * KIB..(file + 1) * 4 * KIB).await;
    }
    // 4 KiB, 8 KiB and so on up to 1 MiB, and then each of these.
    assert!(bench.gets() <= 13, "{}", bench.gets());
}

#[tokio::test]
async fn several_who_read_in_turns_are_told_apart() {
    let bench = Bench::new(8 * MIB, 64 * MIB).await;
    for file in 0..128 {
        for reader in 0..8 {
            let start = reader * MIB + file * 4500;
            bench.check(start..start + 4500).await;
        }
    }
    assert!(bench.gets() <= 8 * 9, "{}", bench.gets());
}

#[tokio::test]
async fn what_is_read_here_and_there_is_fetched_alone_and_once() {
    let bench = Bench::new(4 * MIB, 64 * MIB).await;
    for _ in 0..3 {
        for place in 0..16 {
            let start = place * 7 % 16 * 256 * KIB;
            bench.check(start..start + 4 * KIB).await;
        }
    }
    assert_eq!((bench.gets(), bench.budget.used()), (16, 64 * KIB));
}

#[tokio::test]
async fn many_who_want_the_same_ask_once() {
    let bench = Arc::new(Bench::new(MIB, 64 * MIB).await);
    let wait = Fault::Delay(Duration::from_millis(50));
    bench.faults.queue(Operation::Get, [wait]);
    let readers = (0..16).map(|_| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.check(100..5000).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.await.expect("no panic");
    }
    assert_eq!(bench.gets(), 1);
}

#[tokio::test]
async fn who_waits_goes_on_when_the_first_who_asked_gives_up() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    bench.faults.queue(Operation::Get, [Fault::Hang]);
    let first = clock::deadline(Duration::from_millis(30), bench.get(0..10));
    let (first, ()) = tokio::join!(first, bench.check(0..10));
    assert!(first.is_err());
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_wait_and_forgotten() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    let wait = Fault::Delay(Duration::from_millis(50));
    bench.faults.queue(Operation::Get, [wait]);
    let failure = Fault::fail(ErrorKind::Unavailable);
    bench.later_faults.queue(Operation::Get, [failure]);
    let readers = (0..4).map(|_| bench.get(0..10));
    for read in futures_util::future::join_all(readers).await {
        assert_eq!(read.expect_err("it failed").kind, ErrorKind::Unavailable);
    }
    assert_eq!((bench.gets(), bench.budget.used()), (1, 0));
    bench.check(0..10).await;
}

/// Damage behind what is asked for is none of who asks.
#[tokio::test]
async fn what_cannot_be_had_with_more_is_had_alone() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    bench.check(0..4096).await;
    let damaged = Fault::fail(ErrorKind::ChecksumMismatch);
    bench.faults.queue(Operation::Get, [damaged]);
    bench.check(4096..8192).await;
}

/// Who found damage asks the store itself, and nobody gets the damaged bytes again.
#[tokio::test]
async fn what_was_damaged_on_its_way_is_forgotten() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    let damaged = Fault::Flip { at: 3 };
    bench.faults.queue(Operation::Get, [damaged]);
    assert!(bench.get(0..10).await.expect("nobody notices") != bench.body[..10]);
    let options = GetOptions {
        range: Some(0..10),
        fresh: true,
        ..GetOptions::default()
    };
    let mut bytes = Vec::new();
    let got = bench.cache.get(&key(), options, &mut bytes).await;
    got.expect("it is there");
    bench.check(0..10).await;
}

#[tokio::test]
async fn what_is_written_or_removed_is_forgotten() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    let other = Payload::from(vec![7; 100]);
    bench.check(0..10).await;
    let put = bench.cache.put(&key(), other, PutOptions::default()).await;
    put.expect("it is there");
    assert_eq!(bench.get(0..10).await.expect("it is there"), [7; 10]);
    for several in [false, true] {
        let payload = Payload::from(bench.body.clone());
        let put = bench
            .cache
            .put(&key(), payload, PutOptions::default())
            .await;
        put.expect("it is free");
        bench.check(0..10).await;
        match several {
            false => bench.cache.delete(&key()).await.expect("it goes"),
            true => {
                let left = bench.cache.delete_many(&[key()]).await;
                assert!(left.expect("it goes").is_empty());
            }
        }
        let gone = bench.get(0..10).await.expect_err("it is gone");
        assert_eq!(gone.kind, ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn half_of_the_memory_stays_free_and_all_is_given_back() {
    let bench = Bench::new(4 * MIB, MIB).await;
    for place in 0..200 {
        let start = place * 7919 % 4000 * KIB;
        bench.check(start..start + 10 * KIB).await;
        assert!(bench.budget.available() >= MIB / 2);
    }
    assert!(bench.budget.used() > MIB / 4);
    let freed = bench.cache.kept.reclaim(u64::MAX);
    assert!(freed > MIB / 4 && bench.budget.used() == 0);
    let _others = bench.budget.try_reserve(MIB);
    bench.check(0..10).await;
}

#[tokio::test]
async fn what_is_fetched_ahead_and_what_of_that_nobody_wanted_is_counted() {
    let bench = Bench::new(MIB, 64 * MIB).await;
    // Alone, then with as much behind it, and then 12 KiB behind it.
    for file in [0, 1, 2, 3, 5, 1] {
        bench.check(file * 4 * KIB..(file + 1) * 4 * KIB).await;
    }
    assert_eq!(bench.told(), [3, 3, 16 * KIB, 0]);
    bench.cache.kept.reclaim(u64::MAX);
    assert_eq!(bench.told(), [3, 3, 16 * KIB, 8 * KIB]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bytes_are_right_whatever_is_asked(
        asked in prop::collection::vec((0u64..60_000, 1u64..9_000), 1..60),
        memory in 1u64..64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let bench = Bench::new(60_000, memory * 4 * KIB).await;
            for (start, length) in asked {
                let end = (start + length).min(60_000);
                let bytes = bench.get(start..start + length).await.expect("it is there");
                assert!(bytes == bench.body[start as usize..end as usize]);
                assert!(bench.budget.available() >= bench.budget.total() / 2);
            }
        });
    }
}
