//! A log in the bucket after what goes wrong there and on the disk: requests that come late, deletions that do not
//! happen, objects that are too large, copies of a directory, attempts that were interrupted. What was acknowledged is
//! found, or it is said that it cannot be, and nobody who works is shut out for nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod keys;

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::clock;
use penstock_fileset::engine::{
    EmbeddedSettings, Engine, EngineError, ShippedEngine, ShippedSettings, query, transact,
};
use penstock_object::{ErrorKind, Key, ListOptions, Operation, Store};
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
