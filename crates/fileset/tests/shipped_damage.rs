//! A log in the bucket after what goes wrong there and on the disk: requests that come late, deletions that do not
//! happen, objects that are too large, copies of a directory, attempts that were interrupted. What was acknowledged is
//! found, or it is said that it cannot be, and nobody who works is shut out for nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod keys;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{Payload, clock};
use penstock_fileset::engine::{
    EmbeddedEngine, EmbeddedSettings, Engine, EngineError, ShippedEngine, ShippedSettings,
    position, query, transact,
};
use penstock_object::{
    Below, ErrorKind, Key, ListOptions, ObjectError, ObjectResult, Operation, PutOptions, Store,
    Stored,
};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use tempfile::TempDir;

use keys::{Outcome, model as all, put_value as put};

/// Groups of log after which a checkpoint is made of it.
const FOLD_GROUPS: usize = 512;

/// A bucket in memory and the faults on the way to it.
struct Place {
    bucket: Arc<dyn Store>,
    store: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl Place {
    fn new() -> Self {
        let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let faults = Faults::new(1);
        let store = Arc::new(Faulty::new(Arc::clone(&bucket), Arc::clone(&faults)));
        Self {
            bucket,
            store,
            faults,
        }
    }

    fn settings(&self, directory: &Path) -> ShippedSettings {
        ShippedSettings {
            local: EmbeddedSettings {
                directory: directory.to_owned(),
                memory: 8 << 20,
            },
            store: Arc::clone(&self.store),
            identity: 7,
        }
    }

    async fn create(&self, directory: &TempDir) -> ShippedEngine {
        let created = ShippedEngine::create(&self.settings(directory.path())).await;
        created.unwrap()
    }

    async fn open(&self, directory: &TempDir) -> Outcome<ShippedEngine> {
        ShippedEngine::open(&self.settings(directory.path())).await
    }

    async fn attach(&self, directory: &TempDir) -> Outcome<ShippedEngine> {
        ShippedEngine::attach(&self.settings(directory.path()), &|_| ()).await
    }

    async fn keys(&self, prefix: &str) -> Vec<String> {
        let options = ListOptions {
            prefix: prefix.to_owned(),
            ..ListOptions::default()
        };
        let page = self.bucket.list(options).await.unwrap();
        page.objects.into_iter().map(|object| object.key).collect()
    }

    async fn read(&self, key: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let key = Key::new(key).unwrap();
        let got = self.bucket.get(&key, Default::default(), &mut bytes);
        got.await.unwrap();
        bytes
    }

    async fn write(&self, key: &str, bytes: Vec<u8>) {
        let key = Key::new(key).unwrap();
        let written = self.bucket.put(&key, bytes.into(), Default::default());
        written.await.unwrap();
    }

    /// Returns when a checkpoint has all but the last groups of the log.
    async fn folded(&self) {
        let folded = clock::deadline(Duration::from_secs(60), async {
            while self.keys("checkpoint/").await.is_empty()
                || self.keys("log/").await.len() > FOLD_GROUPS / 2
            {
                clock::sleep(Duration::from_millis(10)).await;
            }
        });
        folded.await.unwrap();
    }
}

/// Makes operations, each in a group of its own.
async fn put_each(engine: &dyn Engine, name: &str, count: usize) {
    for number in 0..count {
        put(engine, &format!("{name}-{number}"), vec![1])
            .await
            .unwrap();
        engine.sync().await.unwrap();
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The files of a directory as they are now: as after a kill.
fn copy_of(from: &TempDir) -> TempDir {
    let copy = directory();
    keys::copy_files(from.path(), copy.path());
    copy
}

/// The key of the `number`th group of the first epoch.
fn group(number: u64) -> String {
    format!("log/{:016x}-{number:016x}", 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_of_the_log_that_arrives_after_its_deletion_hides_nothing() {
    let (place, first) = (Place::new(), directory());
    let engine = place.create(&first).await;
    put_each(&engine, "a", 1).await;
    let late = place.read(&group(1)).await;
    put_each(&engine, "b", FOLD_GROUPS + 5).await;
    place.folded().await;
    assert!(!place.keys("log/").await.contains(&group(1)));
    place.write(&group(1), late).await;
    put_each(&engine, "c", 5).await;
    let expected = all(&engine).await;
    engine.close().await.unwrap();
    drop(engine);
    let opened = place.open(&first).await.unwrap();
    assert!(all(&opened).await == expected);
    let attached = place.attach(&directory()).await.unwrap();
    assert!(all(&attached).await == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_the_log_that_could_not_be_deleted_hides_nothing() {
    let (place, first) = (Place::new(), directory());
    let engine = place.create(&first).await;
    let spare = Fault::Spare(ErrorKind::PermissionDenied);
    place.faults.queue(Operation::DeleteMany, [spare]);
    put_each(&engine, "a", FOLD_GROUPS + 5).await;
    place.folded().await;
    put_each(&engine, "b", 5).await;
    let expected = all(&engine).await;
    let attached = place.attach(&directory()).await.unwrap();
    assert!(all(&attached).await == expected);
    assert!(put(&engine, "late", vec![1]).await.is_err() || engine.sync().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attach_that_fails_shuts_nobody_out() {
    let (place, first) = (Place::new(), directory());
    let engine = place.create(&first).await;
    put_each(&engine, "a", 3).await;
    let sound = place.read(&group(2)).await;
    let mut damaged = sound.clone();
    damaged[30] ^= 1;
    place.write(&group(2), damaged).await;
    let second = directory();
    let attached = place.attach(&second).await;
    assert!(
        matches!(attached, Err(EngineError::Corrupt(_))),
        "{attached:?}"
    );
    put_each(&engine, "b", 3).await;
    place.write(&group(2), sound).await;
    let attached = place.attach(&second).await.unwrap();
    assert_eq!(all(&attached).await.len(), 6);
}

/// A copy of its directory took the log over while it made a checkpoint: both have that checkpoint, and parts that the
/// one no longer needs the other may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_shut_out_while_it_made_a_checkpoint_deletes_nothing() {
    let (place, first, copy) = (Place::new(), directory(), directory());
    let engine = place.create(&first).await;
    let later = Fault::Delay(Duration::from_secs(2));
    let at_once = Fault::Delay(Duration::ZERO);
    // It looks for a checkpoint, and then for what is useless.
    place.faults.queue(Operation::List, [at_once, later]);
    put_each(&engine, "a", FOLD_GROUPS - 1).await;
    keys::copy_files(first.path(), copy.path());
    // What is deleted was deleted by the first.
    let faults = Faults::new(1);
    let denied = Fault::fail(ErrorKind::PermissionDenied);
    faults.rate(Some(Operation::DeleteMany), 1.0, denied);
    let settings = ShippedSettings {
        store: Arc::new(Faulty::new(Arc::clone(&place.bucket), faults)),
        ..place.settings(copy.path())
    };
    put_each(&engine, "b", 1).await;
    while place.keys("checkpoint/").await.is_empty() {
        clock::sleep(Duration::from_millis(1)).await;
    }
    let before = place.keys("").await;
    let opened = ShippedEngine::open(&settings).await.unwrap();
    clock::sleep(Duration::from_secs(3)).await;
    let after = place.keys("").await;
    assert!(before.iter().all(|key| after.contains(key)));
    assert!(put(&engine, "late", vec![1]).await.is_err() || engine.sync().await.is_err());
    assert_eq!(all(&opened).await.len(), FOLD_GROUPS);
}

/// The largest takes 64 MiB, and one that is larger is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_of_any_size_that_was_acknowledged_is_found_elsewhere() {
    let (place, first, second) = (Place::new(), directory(), directory());
    let engine = place.create(&first).await;
    let large = Bytes::from(vec![7; 63 << 20]);
    let value = large.clone();
    let put = transact(&engine, move |transaction| -> Outcome<()> {
        transaction.put(b"large", value.clone());
        Ok(())
    });
    put.await.unwrap();
    engine.sync().await.unwrap();
    drop(engine);
    let attached = place.attach(&second).await.unwrap();
    let found = query(&attached, |reads| -> Outcome<_> { reads.get(b"large") });
    assert!(found.await.unwrap() == Some(large));
}

/// The old tree with or without its log, and the new one beside it, are what a kill in the last moment leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attach_that_was_killed_when_it_had_all_shows_nothing_older() {
    let (place, first, second) = (Place::new(), directory(), directory());
    put_each(&place.create(&first).await, "a", 1).await;
    let engine = place.attach(&second).await.unwrap();
    put_each(&engine, "b", 1).await;
    engine.close().await.unwrap();
    let engine = place.attach(&first).await.unwrap();
    put_each(&engine, "c", 1).await;
    engine.close().await.unwrap();
    let before = copy_of(&second);
    let engine = place.attach(&second).await.unwrap();
    let expected = all(&engine).await;
    engine.close().await.unwrap();
    for is_log_gone in [false, true] {
        let killed = copy_of(&before);
        for entry in std::fs::read_dir(killed.path()).unwrap() {
            let path = entry.unwrap().path();
            if is_log_gone && path.to_string_lossy().contains("/log.") {
                std::fs::remove_file(path).unwrap();
            }
        }
        let replacement = killed.path().join("tree.new");
        std::fs::copy(second.path().join("tree"), replacement).unwrap();
        let settings = place.settings(killed.path());
        let look = EmbeddedEngine::open(&settings.local).unwrap();
        assert_eq!(all(&look).await, expected, "without its log: {is_log_gone}");
        look.close().await.unwrap();
        assert!(position(&settings).await.unwrap().is_own);
        let engine = place.open(&killed).await.unwrap();
        assert_eq!(all(&engine).await, expected);
        engine.close().await.unwrap();
    }
}

/// The store of a machine whose attach dies when it has stopped a busy writer, and before it could take its place.
#[derive(Debug)]
struct Dying {
    below: Arc<dyn Store>,
    writer: Arc<ShippedEngine>,
    puts: AtomicU64,
}

#[async_trait::async_trait]
impl Store for Dying {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.below)
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let number = self.puts.fetch_add(1, Ordering::SeqCst);
        if number == 0 {
            put_each(&*self.writer, "faster", 1).await;
        }
        match number {
            0 | 1 => self.below.put(key, body, options).await,
            _ => {
                let kind = ErrorKind::Unavailable;
                Err(ObjectError::new(kind, Operation::Put, "it died"))
            }
        }
    }
}

/// A writer that was stopped for nobody, which it does not know yet, in a directory of its own.
async fn stopped_in_vain(place: &Place) -> (Arc<ShippedEngine>, TempDir) {
    let (first, second) = (directory(), directory());
    let writer = Arc::new(place.create(&first).await);
    put_each(&*writer, "a", 1).await;
    let dying = Dying {
        below: Arc::clone(&place.bucket),
        writer: Arc::clone(&writer),
        puts: AtomicU64::new(0),
    };
    let settings = ShippedSettings {
        store: Arc::new(dying),
        ..place.settings(second.path())
    };
    let attached = ShippedEngine::attach(&settings, &|_| ()).await;
    assert!(
        matches!(attached, Err(EngineError::Store(_))),
        "{attached:?}"
    );
    (writer, first)
}

/// Groups that reach beyond a stop.
const BEYOND: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attach_that_died_before_its_claim_shuts_nobody_out() {
    let place = Place::new();
    let (writer, first) = stopped_in_vain(&place).await;
    put_each(&*writer, "b", BEYOND).await;
    let expected = all(&*writer).await;
    writer.close().await.unwrap();
    drop(writer);
    let opened = place.open(&first).await.unwrap();
    assert!(all(&opened).await == expected);
    let attached = place.attach(&directory()).await.unwrap();
    assert!(all(&attached).await == expected);
    put(&opened, "late", vec![1]).await.unwrap();
    let refused = opened.sync().await;
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
}

/// It was killed, and opened again before that: the writer that waits is the one that is too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_whose_writer_was_stopped_is_opened_again() {
    let place = Place::new();
    let (writer, first) = stopped_in_vain(&place).await;
    let beyond = put_each(&*writer, "b", BEYOND);
    let waited = clock::deadline(Duration::from_millis(1_500), beyond).await;
    assert!(waited.is_err(), "it was not stopped");
    let expected = all(&*writer).await;
    let copy = copy_of(&first);
    let opened = place.open(&copy).await.unwrap();
    opened.sync().await.unwrap();
    assert!(all(&opened).await == expected);
    // Where the machine is slow it may have gone on before that, and has nothing else to be refused.
    let late = async {
        put(&*writer, "late", vec![1]).await?;
        writer.sync().await
    };
    let refused = clock::deadline(Duration::from_secs(20), late).await;
    let refused = refused.expect("it is told in time");
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
    put_each(&opened, "c", 5).await;
    assert_eq!(all(&opened).await.len(), expected.len() + 5);
}
