//! What every store must do, done by a store behind a cache in memory; and what that fetches for readers of different habits.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use penstock_base::{KIB, MIB, MemoryBudget, Payload, metrics::Registry};
use penstock_object::{Below, BodySink, GetOptions, Got, Key, ObjectResult, PutOptions, Store};
use penstock_object_testing::{MemoryStore, conformance_tests};
use penstock_transfer::MemoryCache;

async fn open() -> ((), Arc<dyn Store>) {
    let budget = MemoryBudget::new(64 * MIB);
    let store = MemoryCache::around(Arc::new(MemoryStore::new()), &budget, &Registry::new());
    ((), store)
}

conformance_tests!(open);

/// A store that counts what is fetched.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    gets: AtomicU64,
    bytes: AtomicU64,
}

#[async_trait]
impl Store for Counting {
    fn below(&self) -> Below<'_> {
        Below::Store(&self.inner)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let got = self.inner.get(key, options, sink).await?;
        self.gets.fetch_add(1, Ordering::Relaxed);
        let bytes = got.range.end - got.range.start;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(got)
    }
}

/// Files of the same length, side by side in an object behind a cache.
struct Bench {
    counting: Arc<Counting>,
    cache: Arc<MemoryCache>,
    body: Vec<u8>,
    length: u64,
}

impl Bench {
    async fn new(files: u64, length: u64) -> Self {
        let counting = Arc::new(Counting::default());
        let budget = MemoryBudget::new(128 * MIB);
        let cache = MemoryCache::around(counting.clone(), &budget, &Registry::new());
        let body: Vec<u8> = (0..files * length).map(|at| (at * 31 / 8) as u8).collect();
        let payload = Payload::from(body.clone());
        let put = cache.put(&key(), payload, PutOptions::default()).await;
        put.expect("it is free");
        Self {
            counting,
            cache,
            body,
            length,
        }
    }

    /// Reads files, and returns with how many requests and bytes.
    async fn read(&self, files: impl IntoIterator<Item = u64>) -> (u64, u64) {
        let before = self.fetched();
        for file in files {
            self.check(file * self.length..(file + 1) * self.length)
                .await;
        }
        let after = self.fetched();
        (after.0 - before.0, after.1 - before.1)
    }

    fn fetched(&self) -> (u64, u64) {
        let Counting { gets, bytes, .. } = &*self.counting;
        (gets.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    async fn check(&self, range: Range<u64>) {
        let options = GetOptions {
            range: Some(range.clone()),
            ..GetOptions::default()
        };
        let mut bytes = Vec::new();
        let got = self.cache.get(&key(), options, &mut bytes).await;
        got.expect("it is there");
        let expected = &self.body[range.start as usize..range.end as usize];
        assert!(bytes == expected, "{range:?}");
    }
}

fn key() -> Key {
    Key::new("object").expect("valid")
}

#[tokio::test]
async fn who_reads_each_file_in_order_fetches_all_once_in_few_requests() {
    for (length, most) in [(4 * KIB, 25), (48 * KIB, 22), (200 * KIB, 22)] {
        let files = 16 * MIB / length;
        let bench = Bench::new(files, length).await;
        let (gets, bytes) = bench.read(0..files).await;
        assert!(gets <= most, "{gets} for {length}");
        // A file that a run ends in is fetched whole again.
        assert!(bytes <= files * length * 5 / 4, "{bytes} for {length}");
    }
}

/// The bytes that are not used would take longer than the requests that are spared.
#[tokio::test]
async fn who_passes_over_most_files_that_are_not_small_fetches_little_else() {
    let bench = Bench::new(512, 48 * KIB).await;
    bench.read(0..32).await;
    let wanted = || (32..512).step_by(3);
    let used = wanted().count() as u64 * 48 * KIB;
    let (gets, bytes) = bench.read(wanted()).await;
    assert!(gets <= wanted().count() as u64, "{gets}");
    assert!(bytes <= used + 3 * MIB, "{bytes} for {used}");
}

/// A request for each would take longer than the bytes between them.
#[tokio::test]
async fn who_passes_over_most_small_files_fetches_them_in_few_requests() {
    let bench = Bench::new(1024, 4 * KIB).await;
    bench.read(0..32).await;
    let (gets, bytes) = bench.read((32..1024).step_by(3)).await;
    assert!(gets <= 8, "{gets}");
    assert!(bytes <= 4 * MIB, "{bytes}");
}

#[tokio::test]
async fn who_reads_here_and_there_fetches_little_else() {
    let bench = Bench::new(1024, 16 * KIB).await;
    let wanted = || (0..256).map(|number| number * 7919 % 1024);
    let used = 256 * 16 * KIB;
    let (gets, bytes) = bench.read(wanted()).await;
    assert!(gets <= 256, "{gets}");
    assert!(bytes <= 2 * used, "{bytes} for {used}");
}
