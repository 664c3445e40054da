//! What fails while nobody waits for it, and what is not in the bucket yet, is seen by who exports metrics.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{
    FsError,
    metrics::{Definition, Registry, table},
};
use penstock_fileset::{
    FilesetVolume, Format,
    engine::{EmbeddedSettings, EngineError, ShippedEngine, ShippedSettings, transact},
};
use penstock_object::{ErrorKind, Key, ListOptions, Store};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use penstock_vfs::{Identity, OpenOptions, RemoveKind, WritePlace};

use support::{Place, ROOT, file};

/// The metrics of a volume.
struct Shown(Arc<Registry>);

impl Shown {
    fn of(place: &Place) -> Self {
        let registry = Registry::new();
        place.volume.show_in(&registry);
        Self(registry)
    }

    fn value(&self, metric: &Definition) -> u64 {
        let samples = self.0.samples();
        let sample = samples.iter().find(|sample| sample.name == metric.name);
        sample.unwrap().value
    }
}

fn fails(faults: &Faults) {
    faults.rate(None, 1.0, Fault::fail(ErrorKind::Unavailable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_fails_is_counted_and_its_bytes_show_as_unsaved() {
    let place = Place::new().await;
    let shown = Shown::of(&place);
    let made = place.make(ROOT, "one", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), b"bytes").await;
    written.unwrap();
    fails(&place.faults);
    place.sync(handle).await.unwrap_err();
    assert_eq!(shown.value(&table::FILESET_FAILED_SAVES), 1);
    assert_eq!(shown.value(&table::FILESET_UNSAVED_FILES), 1);
    assert_eq!(shown.value(&table::FILESET_UNSAVED_BYTES), 5);
    assert_eq!(shown.value(&table::FILESET_OPEN_HANDLES), 1);
    assert_eq!(shown.value(&table::FILESET_INODES), 1);
    place.faults.clear();
    place.sync(handle).await.unwrap();
    assert_eq!(shown.value(&table::FILESET_FAILED_SAVES), 1);
    assert_eq!(shown.value(&table::FILESET_UNSAVED_FILES), 0);
    assert_eq!(shown.value(&table::FILESET_UNSAVED_BYTES), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_on_the_disk_shows_until_the_bucket_has_it() {
    let place = Place::spooled().await;
    let shown = Shown::of(&place);
    fails(&place.faults);
    place.store(ROOT, "one", &[7; 5000]).await.unwrap();
    place
        .until(|| async { shown.value(&table::FILESET_FAILED_UPLOADS) > 0 })
        .await;
    assert_eq!(shown.value(&table::FILESET_SPOOL_OBJECTS), 1);
    assert!(shown.value(&table::FILESET_SPOOL_BYTES) >= 5000);
    place.faults.clear();
    place
        .until(|| async { shown.value(&table::FILESET_SPOOL_OBJECTS) == 0 })
        .await;
    assert_eq!(shown.value(&table::FILESET_SPOOL_BYTES), 0);
}

/// What removed files left cannot be deleted, which nobody waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_fails_behind_the_callers_is_counted() {
    let place = Place::new().await;
    let shown = Shown::of(&place);
    place.store(ROOT, "one", &[7; 5000]).await.unwrap();
    let inode = place.find(ROOT, "one").await.unwrap().inode;
    assert_eq!(shown.value(&table::FILESET_FAILED_TASKS), 0);
    fails(&place.faults);
    place.remove(ROOT, "one", RemoveKind::File).await.unwrap();
    place.forget_all(inode);
    let is_counted = || async { shown.value(&table::FILESET_FAILED_TASKS) > 0 };
    place.until(is_counted).await;
    assert_eq!(place.objects().await.len(), 1);
    place.faults.clear();
    // Whatever is removed next has it tried again.
    place.store(ROOT, "two", &[]).await.unwrap();
    let next = place.find(ROOT, "two").await.unwrap().inode;
    place.remove(ROOT, "two", RemoveKind::File).await.unwrap();
    place.forget_all(next);
    place
        .until(|| async { place.objects().await.is_empty() })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_bytes_that_are_gone_is_counted() {
    let place = Place::new().await;
    let shown = Shown::of(&place);
    place.store(ROOT, "one", &[7; 5000]).await.unwrap();
    let listed = place.bucket.list(ListOptions::default()).await.unwrap();
    for object in listed.objects {
        let key = Key::new(&object.key).unwrap();
        place.bucket.delete(&key).await.unwrap();
    }
    assert_eq!(shown.value(&table::FILESET_DAMAGED_READS), 0);
    let read = place.content(ROOT, "one").await;
    assert!(matches!(read, Err(FsError::Corrupt(_))), "{read:?}");
    assert!(shown.value(&table::FILESET_DAMAGED_READS) > 0);
}

/// Changes metadata, and waits for nobody who makes that durable.
async fn change(place: &Place, key: &'static [u8]) {
    let changed = transact(&*place.engine, move |transaction| {
        transaction.put(key, Bytes::from_static(b"value"));
        Ok::<_, EngineError>(())
    });
    changed.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_far_the_log_in_the_bucket_is_behind_shows() {
    let directory = tempfile::tempdir().unwrap();
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let settings = ShippedSettings {
        local: EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: 8 << 20,
        },
        store: Arc::new(Faulty::new(Arc::clone(&bucket), Arc::clone(&faults))),
        identity: 1,
    };
    let engine = Arc::new(ShippedEngine::create(&settings).await.unwrap());
    let root = Identity::root();
    let formatted = FilesetVolume::format(&*engine, &root, Format::new(1));
    formatted.await.unwrap();
    let place = Place::sharing(engine, bucket).await;
    place.engine.sync().await.unwrap();
    let shown = Shown::of(&place);
    let lag = || {
        let bytes = shown.value(&table::FILESET_LOG_LAG_BYTES);
        let age = shown.value(&table::FILESET_LOG_LAG_MICROSECONDS);
        (bytes, Duration::from_micros(age))
    };
    assert_eq!(lag(), (0, Duration::ZERO));
    fails(&faults);
    change(&place, b"\x7fone").await;
    place
        .until(|| async { shown.value(&table::FILESET_FAILED_LOG_PARTS) > 1 })
        .await;
    let (bytes, age) = lag();
    assert!(bytes > 0);
    // Nothing waits for it, so it was sent a second later, and once more a moment after that.
    assert!(age >= Duration::from_secs(1), "{age:?}");
    change(&place, b"\x7ftwo").await;
    assert!(lag().0 > bytes && lag().1 >= age);
    faults.clear();
    place.until(|| async { lag() == (0, Duration::ZERO) }).await;
}
