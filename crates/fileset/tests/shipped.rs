//! A log that is in the bucket: what was synced survives the loss of its machine, whoever had it before writes nothing
//! more, and a store that fails is never taken for one that did not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod keys;

use std::{
    future::Future,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::{Payload, clock};
use penstock_fileset::engine::{
    EmbeddedEngine, EmbeddedSettings, Engine, EngineError, Restoring, ShippedEngine,
    ShippedSettings, position,
};
use penstock_object::{
    Below, Capabilities, ErrorKind, Key, ListOptions, LocalSettings, LocalStore, ObjectResult,
    Operation, PutOptions, Store, Stored,
};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use proptest::prelude::*;
use tempfile::TempDir;

use keys::{Model, Outcome, model as all, put_value as put};

fn settings(directory: &Path, store: &Arc<dyn Store>) -> ShippedSettings {
    ShippedSettings {
        local: EmbeddedSettings {
            directory: directory.to_owned(),
            memory: 8 << 20,
        },
        store: Arc::clone(store),
        identity: 7,
    }
}

/// A bucket in memory and the faults on the way to it.
struct Place {
    bucket: Arc<dyn Store>,
    store: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl Place {
    fn new(seed: u64) -> Self {
        let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let faults = Faults::new(seed);
        let store = Arc::new(Faulty::new(Arc::clone(&bucket), Arc::clone(&faults)));
        Self {
            bucket,
            store,
            faults,
        }
    }

    async fn create(&self, directory: &TempDir) -> ShippedEngine {
        let settings = settings(directory.path(), &self.store);
        ShippedEngine::create(&settings).await.unwrap()
    }

    async fn open(&self, directory: &TempDir) -> Outcome<ShippedEngine> {
        ShippedEngine::open(&settings(directory.path(), &self.store)).await
    }

    async fn attach(&self, directory: &TempDir) -> Outcome<ShippedEngine> {
        let settings = settings(directory.path(), &self.bucket);
        ShippedEngine::attach(&settings, &|_| ()).await
    }

    async fn keys(&self, prefix: &str) -> Vec<String> {
        let options = ListOptions {
            prefix: prefix.to_owned(),
            ..ListOptions::default()
        };
        let page = self.bucket.list(options).await.unwrap();
        page.objects.into_iter().map(|object| object.key).collect()
    }

    fn puts(&self) -> u64 {
        self.faults.calls(Operation::Put)
    }
}

/// A store that is not seen to refuse a write before so many were made.
#[derive(Debug)]
struct Unproven {
    below: Arc<dyn Store>,
    unseen: Capabilities,
    writes_left: AtomicU64,
}

impl Unproven {
    fn settings(directory: &TempDir, writes: u64) -> ShippedSettings {
        let below: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let unseen = Capabilities {
            write_if_absent: false,
            ..below.capabilities().clone()
        };
        let store: Arc<dyn Store> = Arc::new(Self {
            below,
            unseen,
            writes_left: AtomicU64::new(writes),
        });
        settings(directory.path(), &store)
    }
}

#[async_trait::async_trait]
impl Store for Unproven {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.below)
    }

    fn capabilities(&self) -> &Capabilities {
        match self.writes_left.load(Ordering::SeqCst) {
            0 => self.below.capabilities(),
            _ => &self.unseen,
        }
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let less = |left: u64| left.checked_sub(1);
        let _ = self
            .writes_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.below.put(key, body, options).await
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The files of a directory as they are now: as after a kill.
fn copy_of(from: &TempDir) -> TempDir {
    let copy = directory();
    for entry in std::fs::read_dir(from.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_is_there_on_another_machine() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    for number in 0..20 {
        put(&engine, &format!("key-{number}"), vec![number; 100])
            .await
            .unwrap();
    }
    engine.sync().await.unwrap();
    let expected = all(&engine).await;
    drop(engine);
    drop(first);
    let attached = place.attach(&second).await.unwrap();
    assert_eq!(all(&attached).await, expected);
    put(&attached, "more", vec![1]).await.unwrap();
    attached.close().await.unwrap();
    let again = place.open(&second).await.unwrap();
    assert_eq!(all(&again).await.len(), expected.len() + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_shut_out_acknowledges_nothing() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let old = place.create(&first).await;
    put(&old, "a", vec![1]).await.unwrap();
    old.sync().await.unwrap();
    let new = place.attach(&second).await.unwrap();
    put(&old, "b", vec![2]).await.unwrap();
    let refused = old.sync().await;
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
    let refused = put(&old, "c", vec![3]).await;
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
    put(&new, "d", vec![4]).await.unwrap();
    new.sync().await.unwrap();
    let keys: Vec<_> = all(&new).await.into_keys().collect();
    assert_eq!(keys, [b"a", b"d"]);
    drop(old);
    // Nor does a mount take it back by itself.
    let opened = place.open(&first).await;
    assert!(matches!(opened, Err(EngineError::Fenced(_))), "{opened:?}");
    let back = place.attach(&first).await.unwrap();
    assert_eq!(all(&back).await.len(), 2);
    put(&new, "e", vec![5]).await.unwrap();
    assert!(new.sync().await.is_err());
}

/// One answer that was lost made it a store on which nothing can be kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_seen_to_refuse_with_the_second_write_will_do() {
    let machine = directory();
    let engine = ShippedEngine::create(&Unproven::settings(&machine, 2)).await;
    let engine = engine.unwrap();
    put(&engine, "key", vec![1]).await.unwrap();
    engine.sync().await.unwrap();
    engine.close().await.unwrap();
    let never = ShippedEngine::create(&Unproven::settings(&directory(), 1000)).await;
    assert!(matches!(never, Err(EngineError::Store(_))), "{never:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn syncs_at_once_share_a_put() {
    let (place, first) = (Place::new(1), directory());
    let engine: Arc<dyn Engine> = Arc::new(place.create(&first).await);
    let before = place.puts();
    let slow = Fault::Delay(Duration::from_millis(100));
    place.faults.rate(Some(Operation::Put), 1.0, slow);
    let syncs = (0..64).map(|number| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            put(&*engine, &format!("key-{number}"), vec![1])
                .await
                .unwrap();
            engine.sync().await.unwrap();
        })
    });
    for sync in syncs.collect::<Vec<_>>() {
        sync.await.unwrap();
    }
    let puts = place.puts() - before;
    assert!(puts <= 16, "{puts} PUTs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_is_told_and_tried_again() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    put(&engine, "a", vec![1]).await.unwrap();
    let fail = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(Some(Operation::Put), 1.0, fail);
    let failed = engine.sync().await;
    assert!(matches!(failed, Err(EngineError::Store(_))), "{failed:?}");
    assert!(place.attach(&second).await.is_ok_and(|_| true));
    // Somebody took it over while the store was away, from whose view nothing was acknowledged.
    place.faults.clear();
    let refused = engine.sync().await;
    assert!(
        matches!(refused, Err(EngineError::Store(_) | EngineError::Fenced(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_has_all() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    let lost = Fault::LoseAnswer(ErrorKind::Timeout);
    place.faults.queue(Operation::Put, [lost]);
    put(&engine, "a", vec![1]).await.unwrap();
    let first_try = engine.sync().await;
    assert!(first_try.is_err(), "its answer was lost");
    engine.sync().await.unwrap();
    let fail = Fault::fail(ErrorKind::Throttled);
    place.faults.queue(Operation::Put, [fail, fail]);
    put(&engine, "b", vec![2]).await.unwrap();
    assert!(engine.sync().await.is_err());
    while engine.sync().await.is_err() {}
    assert_eq!(all(&place.attach(&second).await.unwrap()).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_in_the_bucket_is_sent_when_it_is_opened_again() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    let fail = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(Some(Operation::Put), 1.0, fail);
    for number in 0..2_000 {
        put(&engine, &format!("key-{number}"), vec![7; 2_000])
            .await
            .unwrap();
    }
    assert!(engine.close().await.is_err(), "the bucket does not have it");
    drop(engine);
    place.faults.clear();
    // A command that looks at it drops nothing of the log.
    let look = EmbeddedEngine::open(&settings(first.path(), &place.store).local).unwrap();
    assert_eq!(all(&look).await.len(), 2_000);
    look.close().await.unwrap();
    drop(look);
    let behind = position(&settings(first.path(), &place.store))
        .await
        .unwrap();
    assert_eq!((behind.behind, behind.is_own), (2_000, true));
    let engine = place.open(&first).await.unwrap();
    engine.sync().await.unwrap();
    assert_eq!(
        all(&place.attach(&second).await.unwrap()).await.len(),
        2_000
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_disk_lost_with_the_power_the_bucket_gives_back() {
    let (place, first) = (Place::new(1), directory());
    let engine = place.create(&first).await;
    put(&engine, "a", vec![1]).await.unwrap();
    engine.sync().await.unwrap();
    let older = copy_of(&first);
    for number in 0..10 {
        put(&engine, &format!("b-{number}"), vec![2]).await.unwrap();
        engine.sync().await.unwrap();
    }
    let expected = all(&engine).await;
    let opened = place.open(&older).await.unwrap();
    assert_eq!(all(&opened).await, expected);
    put(&opened, "c", vec![3]).await.unwrap();
    opened.close().await.unwrap();
    let opened = place.open(&older).await.unwrap();
    assert_eq!(all(&opened).await.len(), expected.len() + 1);
    put(&engine, "late", vec![4]).await.unwrap();
    assert!(engine.sync().await.is_err(), "the copy has the log now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_went_on_by_itself_is_refused() {
    let (place, first) = (Place::new(1), directory());
    let engine = place.create(&first).await;
    put(&engine, "a", vec![1]).await.unwrap();
    engine.sync().await.unwrap();
    let fail = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(Some(Operation::Put), 1.0, fail);
    put(&engine, "b", vec![2]).await.unwrap();
    assert!(engine.sync().await.is_err());
    let copy = copy_of(&first);
    drop(engine);
    place.faults.clear();
    // The one writes `c` where the other has `b`.
    std::fs::remove_dir_all(first.path()).unwrap();
    let other = directory();
    let attached = place.attach(&other).await.unwrap();
    put(&attached, "c", vec![3]).await.unwrap();
    attached.sync().await.unwrap();
    drop(attached);
    let opened = place.open(&copy).await;
    assert!(matches!(opened, Err(EngineError::Fenced(_))), "{opened:?}");
}

/// Of two that went on from one state, one without the bucket, with `alone` operations, the other with it, with
/// `together`, the first is refused and can be brought back.
async fn put_back(alone: u8, together: u8) {
    let (place, first) = (Place::new(1), directory());
    let engine = place.create(&first).await;
    put(&engine, "a", vec![1]).await.unwrap();
    engine.sync().await.unwrap();
    let snapshot = copy_of(&first);
    drop(engine);
    let engine = place.open(&snapshot).await.unwrap();
    let fail = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(Some(Operation::Put), 1.0, fail);
    for number in 0..alone {
        put(&engine, &format!("alone-{number}"), vec![1])
            .await
            .unwrap();
    }
    assert!(engine.sync().await.is_err(), "the bucket does not have it");
    let reverted = copy_of(&snapshot);
    drop(engine);
    place.faults.clear();
    let engine = place.open(&first).await.unwrap();
    for number in 0..together {
        put(&engine, &format!("together-{number}"), vec![1])
            .await
            .unwrap();
        engine.sync().await.unwrap();
    }
    let opened = place.open(&reverted).await;
    assert!(matches!(opened, Err(EngineError::Fenced(_))), "{opened:?}");
    // Who is refused shuts nobody out.
    put(&engine, "after", vec![1]).await.unwrap();
    engine.sync().await.unwrap();
    let expected = all(&engine).await;
    engine.close().await.unwrap();
    let position = position(&settings(reverted.path(), &place.store)).await;
    assert!(position.is_ok_and(|position| position.is_own && !position.agrees));
    let attached = place.attach(&reverted).await.unwrap();
    assert_eq!(all(&attached).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_put_back_behind_the_bucket_does_not_go_on_upon_another_history() {
    put_back(2, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_put_back_before_the_bucket_does_not_go_on_upon_another_history() {
    put_back(5, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_another_time_than_its_tree_is_refused() {
    let (place, first) = (Place::new(1), directory());
    place.create(&first).await.close().await.unwrap();
    let snapshot = copy_of(&first);
    for (machine, value) in [(&first, 1), (&snapshot, 2)] {
        let local = settings(machine.path(), &place.store).local;
        let engine = EmbeddedEngine::open(&local).unwrap();
        for number in 0..5 {
            put(&engine, &format!("key-{number}"), vec![value])
                .await
                .unwrap();
        }
        engine.close().await.unwrap();
    }
    std::fs::copy(snapshot.path().join("tree"), first.path().join("tree")).unwrap();
    let local = settings(first.path(), &place.store).local;
    let opened = EmbeddedEngine::open(&local);
    assert!(matches!(opened, Err(EngineError::Corrupt(_))), "{opened:?}");
}

/// Many small syncs: more groups than a log in the bucket may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_becomes_a_checkpoint() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    for round in 0..2 {
        for number in 0..350 {
            put(&engine, &format!("key-{number}"), vec![round; 50])
                .await
                .unwrap();
            engine.sync().await.unwrap();
        }
    }
    let folded = clock::deadline(Duration::from_secs(30), async {
        while place.keys("log/").await.len() > 300 {
            clock::sleep(Duration::from_millis(10)).await;
        }
    });
    folded.await.unwrap();
    assert_eq!(place.keys("checkpoint/").await.len(), 1);
    let expected = all(&engine).await;
    drop(engine);
    let told = Mutex::new(Vec::new());
    let settings = settings(second.path(), &place.bucket);
    let tell = |at: Restoring| told.lock().unwrap().push(at);
    let attached = ShippedEngine::attach(&settings, &tell).await.unwrap();
    assert_eq!(all(&attached).await, expected);
    let told = told.into_inner().unwrap();
    assert!(
        told.len() > 1 && told.last().is_some_and(|last| last.bytes == last.total),
        "{told:?}"
    );
}

/// Megabytes: checkpoints of several parts, written anew and gone on with, by two machines in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_go_on_across_machines() {
    let place = Place::new(1);
    let mut machine = directory();
    let mut engine = place.create(&machine).await;
    let mut model = Model::new();
    for round in 0..6_u8 {
        for number in 0..120_u8 {
            let key = format!("key-{}", (u32::from(number) * 7 + u32::from(round)) % 300);
            model.insert(key.clone().into_bytes(), vec![round; 100_000]);
            put(&engine, &key, vec![round; 100_000]).await.unwrap();
        }
        engine.sync().await.unwrap();
        drop(engine);
        engine = match round % 2 {
            0 => {
                machine = directory();
                place.attach(&machine).await.unwrap()
            }
            _ => {
                machine = copy_of(&machine);
                place.open(&machine).await.unwrap()
            }
        };
        assert!(all(&engine).await == model, "round {round}");
    }
    assert!(
        !place.keys("part/").await.is_empty(),
        "no checkpoint was made"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_damaged_in_the_bucket_is_refused() {
    let (place, first) = (Place::new(1), directory());
    let engine = place.create(&first).await;
    put(&engine, "a", vec![1; 100]).await.unwrap();
    engine.sync().await.unwrap();
    drop(engine);
    let key = place.keys("log/").await.pop().unwrap();
    let key = Key::new(&key).unwrap();
    let mut bytes = Vec::new();
    let got = place.bucket.get(&key, Default::default(), &mut bytes);
    got.await.unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let written = place.bucket.put(&key, bytes.into(), Default::default());
    written.await.unwrap();
    let attached = place.attach(&directory()).await;
    assert!(
        matches!(attached, Err(EngineError::Corrupt(_))),
        "{attached:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attach_that_was_interrupted_goes_on() {
    let (place, first, second) = (Place::new(1), directory(), directory());
    let engine = place.create(&first).await;
    for number in 0..150 {
        put(&engine, &format!("key-{number}"), vec![number; 100_000])
            .await
            .unwrap();
    }
    engine.sync().await.unwrap();
    let folded = clock::deadline(Duration::from_secs(30), async {
        while place.keys("checkpoint/").await.is_empty() {
            clock::sleep(Duration::from_millis(10)).await;
        }
    });
    folded.await.unwrap();
    let expected = all(&engine).await;
    drop(engine);
    let settings = settings(second.path(), &place.store);
    for wanted in [3, 2, 2] {
        // Listings, the manifest, then parts, until the store is away.
        place.faults.clear();
        let fail = Fault::fail(ErrorKind::Unavailable);
        let fine = (0..wanted).map(|_| Fault::Delay(Duration::ZERO));
        place
            .faults
            .queue(Operation::Get, fine.chain((0..50).map(|_| fail)));
        assert!(ShippedEngine::attach(&settings, &|_| ()).await.is_err());
        assert!(place.open(&second).await.is_err(), "it is not whole");
    }
    place.faults.clear();
    let attached = ShippedEngine::attach(&settings, &|_| ()).await.unwrap();
    assert_eq!(all(&attached).await, expected);
}

/// Keys as they were after each operation since the last opening, and up to which of them a sync promised.
struct History {
    states: Vec<Model>,
    synced: usize,
}

impl History {
    /// Somebody opened it and found this.
    fn found(&mut self, found: &Model) {
        let at = self.states.iter().rposition(|state| state == found);
        let at = at.expect("a state that was there once");
        assert!(
            at >= self.synced,
            "{at}, although {} was synced",
            self.synced
        );
        // What a disk alone had may be lost with it still.
        self.states.truncate(at + 1);
        self.states.drain(..self.synced);
        self.synced = 0;
    }
}

/// Tries until no fault comes in between.
async fn opened<F: Future<Output = Outcome<ShippedEngine>>>(open: impl Fn() -> F) -> ShippedEngine {
    for _ in 0..50 {
        match open().await {
            Err(EngineError::Store(_)) => {}
            opened => return opened.unwrap(),
        }
    }
    panic!("it is never opened");
}

async fn random_life(seed: u64, steps: Vec<(u8, u8, u8)>) {
    let (place, mut machine) = (Place::new(seed), directory());
    let mut engine = place.create(&machine).await;
    let mut history = History {
        states: vec![Model::new()],
        synced: 0,
    };
    for fault in [
        Fault::LoseAnswer(ErrorKind::Timeout),
        Fault::fail(ErrorKind::Unavailable),
        Fault::Delay(Duration::from_millis(2)),
    ] {
        place.faults.rate(Some(Operation::Put), 0.04, fault);
    }
    for (kind, key, value) in steps {
        match kind {
            0..=11 => {
                let mut state = history.states.last().unwrap().clone();
                state.insert(format!("key-{key}").into_bytes(), vec![value; 10]);
                history.states.push(state);
                put(&engine, &format!("key-{key}"), vec![value; 10])
                    .await
                    .unwrap();
            }
            12..=15 => {
                let applied = history.states.len() - 1;
                if engine.sync().await.is_ok() {
                    history.synced = applied;
                }
            }
            16 | 17 => {
                // Killed, and opened again.
                let copy = copy_of(&machine);
                drop(engine);
                machine = copy;
                engine = opened(|| place.open(&machine)).await;
                history.found(&all(&engine).await);
            }
            _ => {
                // Lost or cut off, and attached elsewhere.
                machine = directory();
                let settings = settings(machine.path(), &place.store);
                let attached = opened(|| ShippedEngine::attach(&settings, &|_| ())).await;
                let old = std::mem::replace(&mut engine, attached);
                let late = put(&old, "late", vec![value]).await;
                assert!(
                    late.is_err() || old.sync().await.is_err(),
                    "it was shut out"
                );
                history.found(&all(&engine).await);
            }
        }
    }
    drop(engine);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens, who opens it finds a state that was there, with all that was synced.
    #[test]
    fn a_random_life_keeps_what_was_synced(
        seed in any::<u64>(),
        steps in prop::collection::vec((0_u8..19, 0_u8..20, any::<u8>()), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(random_life(seed, steps));
    }
}

/// Set for the process that is killed: where its engine is, and where its bucket.
const VICTIM: &str = "PENSTOCK_TEST_SHIPPED_VICTIM";
const BUCKET: &str = "PENSTOCK_TEST_SHIPPED_BUCKET";

/// Rounds of kills; `PENSTOCK_ENGINE_KILLS` for more.
fn kills() -> u64 {
    let given = std::env::var("PENSTOCK_ENGINE_KILLS").ok();
    given.and_then(|given| given.parse().ok()).unwrap_or(5)
}

fn local(directory: &str) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(directory.as_ref(), LocalSettings::default()).unwrap())
}

/// Not a test of its own: the process that [`a_killed_machine_loses_nothing_that_was_synced`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_of_kills() {
    let Ok(directory) = std::env::var(VICTIM) else {
        return;
    };
    let store = local(&std::env::var(BUCKET).unwrap());
    let settings = settings(directory.as_ref(), &store);
    let engine = ShippedEngine::open(&settings).await.unwrap();
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let process = std::process::id();
    let tasks = (0..4).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let key = format!("{process:08}-{task}-{number:08}");
                let written = async {
                    put(&*engine, &key, vec![9; 2_000]).await?;
                    engine.sync().await
                };
                match written.await {
                    // Another machine has it, before this one is killed.
                    Err(EngineError::Fenced(_)) => return,
                    written => written.unwrap(),
                }
                let line = format!("durable {key}\n");
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_machine_loses_nothing_that_was_synced() {
    let (mut machine, bucket) = (directory(), directory());
    let bucket = bucket.path().to_str().unwrap();
    let store = local(bucket);
    let created = ShippedEngine::create(&settings(machine.path(), &store)).await;
    created.unwrap().close().await.unwrap();
    let mut durable = Vec::new();
    for round in 0..kills() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_of_kills", "--nocapture"])
            .env(VICTIM, machine.path())
            .env(BUCKET, bucket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 50 + (round * 977) % 400;
        let mut count = 0;
        while count < wanted {
            let line = lines.next().unwrap().unwrap();
            if let Some(key) = line.strip_prefix("durable ") {
                durable.push(key.to_owned());
                count += 1;
            }
        }
        let is_taken_over = round % 3 == 1;
        let (mut attached, mut old) = (None, None);
        if is_taken_over {
            // The old writer is alive, and writing.
            old = Some(std::mem::replace(&mut machine, directory()));
            let settings = settings(machine.path(), &store);
            attached = Some(ShippedEngine::attach(&settings, &|_| ()).await.unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drop(old);
        let whole = |line: &String| line.len() == "durable 00000000-0-00000000".len();
        let rest = lines.map_while(Result::ok).filter(whole);
        durable.extend(rest.filter_map(|line| Some(line.strip_prefix("durable ")?.to_owned())));
        if round % 3 == 2 {
            machine = directory();
            let settings = settings(machine.path(), &store);
            attached = Some(ShippedEngine::attach(&settings, &|_| ()).await.unwrap());
        }
        let engine = match attached {
            Some(engine) => engine,
            None => ShippedEngine::open(&settings(machine.path(), &store))
                .await
                .unwrap(),
        };
        let there = all(&engine).await;
        let missing = durable
            .iter()
            .filter(|key| !there.contains_key(key.as_bytes()));
        let missing: Vec<_> = missing.collect();
        assert!(
            missing.is_empty(),
            "round {round}: {missing:?} of {}",
            durable.len()
        );
        println!(
            "round {round}: {} durable, {} there",
            durable.len(),
            there.len()
        );
        engine.close().await.unwrap();
    }
}
