//! What a removal costs: without the trash what it did before, and with it nothing that others wait for.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::Mutex;
use penstock_fileset::engine::{
    Engine, EngineResult, Operation, Query, Reads, Transaction, Visitor,
};
use penstock_vfs::RemoveKind;

use crate::{
    bins::{remove, set},
    support::{Place, ROOT, directory},
};

/// An engine of which it is counted how many keys looks visit.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Engine>,
    visited: Arc<AtomicU64>,
}

struct Counting<'a> {
    inner: &'a dyn Reads,
    visited: &'a AtomicU64,
}

impl Reads for Counting<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.inner.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.inner.scan(range, &mut |key, value| {
            self.visited.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

#[async_trait]
impl Engine for Counted {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        let visited = &self.visited;
        let mut counted = |inner: &dyn Reads| query(&Counting { inner, visited });
        self.inner.run_query(&mut counted).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        self.inner.run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

/// What was done to keys, a line each.
type Deeds = Arc<Mutex<Vec<String>>>;

/// An engine whose operations are watched.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn Engine>,
    deeds: Deeds,
}

struct Watching<'a> {
    inner: &'a mut dyn Transaction,
    deeds: Deeds,
}

impl Watching<'_> {
    fn note(&self, what: &str, key: &[u8]) {
        let kind = char::from(key[0]);
        self.deeds.lock().push(format!("{what} {kind}"));
    }
}

impl Reads for Watching<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.note("get", key);
        self.inner.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.note("scan", range.start);
        self.inner.scan(range, visit)
    }
}

impl Transaction for Watching<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.note("put", key);
        self.inner.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.note("delete", key);
        self.inner.delete(key);
    }

    fn add(&mut self, key: &[u8], amount: i64) -> EngineResult<()> {
        self.note("add", key);
        self.inner.add(key, amount)
    }

    fn advance(&mut self, key: &[u8], to: u64) -> EngineResult<()> {
        self.note("advance", key);
        self.inner.advance(key, to)
    }
}

#[async_trait]
impl Engine for Watched {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.inner.run_query(query).await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        let deeds = Arc::clone(&self.deeds);
        let watched = move |inner: &mut dyn Transaction| {
            operation(&mut Watching {
                inner,
                deeds: Arc::clone(&deeds),
            })
        };
        self.inner.run(Box::new(watched)).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

async fn watched() -> (Place, Deeds) {
    let deeds = Deeds::default();
    let around = |inner| {
        let deeds = Arc::clone(&deeds);
        Arc::new(Watched { inner, deeds }) as Arc<dyn Engine>
    };
    (Place::around(around).await, deeds)
}

/// What the second removal does. The file is held, so nobody collects it meanwhile.
async fn of_a_removal(place: &Place, deeds: &Deeds) -> Vec<String> {
    for text in ["a", "b"] {
        place.store(ROOT, text, b"12345").await.unwrap();
    }
    remove(place, ROOT, "a").await;
    deeds.lock().clear();
    remove(place, ROOT, "b").await;
    std::mem::take(&mut *deeds.lock())
}

#[tokio::test]
async fn a_removal_without_the_trash_does_what_it_did() {
    let (place, deeds) = watched().await;
    let done = of_a_removal(&place, &deeds).await;
    let expected = [
        "get I",
        "get T",
        "get L",
        "get D",
        "get I",
        "delete D",
        "get I",
        "put I",
        "put O",
        "advance T",
        "get I",
        "get T",
        "get L",
    ];
    assert_eq!(done, expected);
}

#[tokio::test]
async fn removals_into_the_trash_wait_for_nothing_in_common() {
    let (place, deeds) = watched().await;
    set(&place, 7).await;
    let done = of_a_removal(&place, &deeds).await;
    // What is changed of the hour is a mark, and of the counts are counters: engines let others do the same meanwhile. The
    // inodes that are put are those of the file.
    let changed: Vec<_> = done
        .iter()
        .filter(|deed| !deed.starts_with("get"))
        .collect();
    let expected = [
        "delete D",
        "put D",
        "advance T",
        "add U",
        "add U",
        "put I",
        "advance T",
    ];
    assert_eq!(changed, expected);
}

/// A page of the listing looks through no directory once for each file that was in it or below.
#[tokio::test]
async fn a_listing_looks_through_each_directory_once() {
    const COUNT: u64 = 150;
    let visited = Arc::new(AtomicU64::new(0));
    let around = |inner| {
        let visited = Arc::clone(&visited);
        Arc::new(Counted { inner, visited }) as Arc<dyn Engine>
    };
    let place = Place::around(around).await;
    set(&place, 7).await;
    let mut expected = Vec::new();
    for number in 0..COUNT {
        let text = format!("directory-{number:03}");
        let above = place.make(ROOT, &text, directory(0o755)).await.unwrap();
        place.store(above, "a", b"12345").await.unwrap();
        remove(&place, above, "a").await;
        expected.push(format!("/{text}/a"));
    }
    visited.store(0, Ordering::Relaxed);
    let listed = place.volume.list_trash(None).await.unwrap();
    let visited = visited.load(Ordering::Relaxed);
    let mut paths: Vec<_> = listed.into_iter().filter_map(|item| item.path).collect();
    paths.sort();
    assert_eq!(paths, expected);
    // The files, their directories, and an hour or two.
    assert!(visited < 2 * COUNT + 10, "{visited}");
}
