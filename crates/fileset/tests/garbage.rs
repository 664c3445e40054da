//! What a crash leaves in the bucket is found and goes; what somebody needs stays.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join;
use penstock_base::{BufferPool, FsError, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Format,
    check::check,
    engine::{
        EmbeddedSettings, Engine, EngineError, EngineResult, Operation, Query, ShippedEngine,
        ShippedSettings,
    },
    garbage::{Count, Garbage, LEAK_GRACE, Sweep, collect_garbage},
};
use penstock_object::{Below, ErrorKind, Key, ListOptions, ListPage, ObjectResult, Store};
use penstock_object_testing::{Fault, MemoryStore};
use penstock_transfer::Transfer;
use penstock_vfs::{Dentry, Identity, OpenOptions, RemoveKind, Volume, WritePlace};

use tokio::sync::Notify;

use support::{Place, ROOT, file, name};

const NOW: Sweep = Sweep {
    grace: Duration::ZERO,
    dry_run: false,
};

async fn collected(place: &Place, sweep: Sweep) -> Garbage {
    let found = collect_garbage(place.engine.clone(), place.transfer(), sweep).await;
    found.unwrap()
}

/// A file system that was killed between the PUT of a file and the operation that was to refer to it.
async fn killed() -> Place {
    let (mut place, gate) = Place::gated().await;
    place.store(ROOT, "kept", &[1; 1000]).await.unwrap();
    let made = place.make(ROOT, "lost", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), &[2; 500]).await;
    written.unwrap();
    gate.hold(1);
    let survivor = place.clone();
    tokio::spawn(async move { survivor.sync(handle).await });
    gate.reached.notified().await;
    place.crash().await;
    place
}

/// An engine of whose keys some are not found.
#[derive(Debug)]
struct Damaged(Arc<dyn Engine>);

#[async_trait::async_trait]
impl Engine for Damaged {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.0.run_query(query).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        self.0.run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.0.sync().await
    }

    async fn verify(&self) -> EngineResult<()> {
        Err(EngineError::Corrupt("as it was told".to_owned()))
    }

    async fn close(&self) -> EngineResult<()> {
        self.0.close().await
    }
}

#[tokio::test]
async fn damaged_metadata_takes_nothing_for_leaked() {
    let place = killed().await;
    let before = place.objects().await;
    let damaged = Damaged(Arc::clone(&place.engine));
    let refused = collect_garbage(Arc::new(damaged), place.transfer(), NOW).await;
    assert!(matches!(refused, Err(FsError::Corrupt(_))), "{refused:?}");
    assert_eq!(place.objects().await, before);
}

#[tokio::test]
async fn what_a_crash_left_in_the_bucket_goes_once_it_is_old() {
    let place = killed().await;
    let live = Count {
        objects: 1,
        bytes: 1000,
    };
    let left = Count {
        objects: 1,
        bytes: 500,
    };
    let young = Sweep {
        grace: LEAK_GRACE,
        ..NOW
    };
    let found = collected(&place, young).await;
    assert_eq!((found.live, found.pending, found.deleted), (live, left, 0));
    let dry = Sweep {
        dry_run: true,
        ..NOW
    };
    let found = collected(&place, dry).await;
    assert_eq!((found.live, found.leaked, found.deleted), (live, left, 0));
    assert_eq!(place.objects().await.len(), 2);
    let found = collected(&place, NOW).await;
    assert_eq!((found.live, found.leaked, found.deleted), (live, left, 1));
    let found = collected(&place, NOW).await;
    let none = Count::default();
    assert_eq!(
        (found.live, found.leaked, found.pending),
        (live, none, none)
    );
    assert_eq!(place.content(ROOT, "kept").await.unwrap(), [1; 1000]);
    place.is_whole().await;
}

#[tokio::test]
async fn what_is_being_saved_is_not_leaked_however_old_it_is() {
    let (mut place, gate) = Place::gated().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), &[2; 500]).await;
    written.unwrap();
    gate.hold(1);
    let meanwhile = async {
        gate.reached.notified().await;
        let found = place.volume.sweep(NOW).await.unwrap();
        gate.go_on();
        found
    };
    let (synced, found) = join(place.sync(handle), meanwhile).await;
    synced.unwrap();
    assert_eq!((found.pending.objects, found.deleted), (1, 0));
    place.crash().await;
    assert_eq!(place.content(ROOT, "file").await.unwrap(), [2; 500]);
    place.is_whole().await;
}

#[tokio::test]
async fn bytes_that_were_written_over_are_told_as_unused() {
    let place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(0), &[2; 300])
        .await
        .unwrap();
    place.close(handle).await.unwrap();
    let found = place.volume.sweep(NOW).await.unwrap();
    assert_eq!((found.live.objects, found.live.bytes), (2, 1300));
    assert_eq!(found.unused_bytes, 300);
}

/// Each attempt to save what it holds left objects of which nobody knew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_was_shut_out_stores_nothing_more() {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let machines = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [old, new] = machines.each_ref().map(|machine| ShippedSettings {
        local: EmbeddedSettings {
            directory: machine.path().to_owned(),
            memory: 16 << 20,
        },
        store: Arc::clone(&bucket),
        identity: 1,
    });
    let engine = Arc::new(ShippedEngine::create(&old).await.unwrap());
    let root = Identity::root();
    let formatted = FilesetVolume::format(&*engine, &root, Format::new(1));
    formatted.await.unwrap();
    let transfer = Transfer::new(bucket.clone(), BufferPool::new(MemoryBudget::new(64 << 20)));
    let volume = FilesetVolume::open(engine, transfer).await.unwrap();
    let file_name = name("file");
    let dentry = Dentry::new(ROOT, &file_name);
    let made = volume.make(&root, dentry, file(0o644), Some(OpenOptions::WRITE));
    let handle = made.await.unwrap().opened.unwrap().handle;
    let write = async || {
        let place = WritePlace::At(0);
        let bytes = bytes::Bytes::from_static(&[1; 1000]);
        volume.write(&root, handle, place, bytes).await.unwrap();
        volume.sync(handle, 0..u64::MAX, false).await
    };
    write().await.unwrap();
    let _new = ShippedEngine::attach(&new, &|_| ()).await.unwrap();
    while write().await.is_ok() {}
    let objects = async || {
        let options = ListOptions {
            prefix: "data/".to_owned(),
            ..ListOptions::default()
        };
        bucket.list(options).await.unwrap().objects.len()
    };
    let before = objects().await;
    for _ in 0..3 {
        assert!(write().await.is_err());
    }
    assert_eq!(objects().await, before);
}

/// Its metadata lacks what the writer stored that took the file system over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_shut_out_takes_nothing_for_leaked() {
    let place = Place::new().await;
    let machines = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [old, new] = machines.each_ref().map(|machine| ShippedSettings {
        local: EmbeddedSettings {
            directory: machine.path().to_owned(),
            memory: 16 << 20,
        },
        store: place.bucket.clone(),
        identity: 1,
    });
    let old = ShippedEngine::create(&old).await.unwrap();
    let _new = ShippedEngine::attach(&new, &|_| ()).await.unwrap();
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let swept = collect_garbage(Arc::new(old), place.transfer(), NOW).await;
    assert!(swept.is_err(), "{swept:?}");
    assert_eq!(place.content(ROOT, "file").await.unwrap(), [1; 1000]);
    place.is_whole().await;
}

/// A bucket whose listing waits until it is told to go on.
#[derive(Debug)]
struct Paused {
    inner: Arc<dyn Store>,
    /// Whether it says what there was before.
    is_old: bool,
    asked: Notify,
    go_on: Notify,
}

impl Paused {
    fn new(inner: &Arc<dyn Store>, is_old: bool) -> Self {
        Self {
            inner: Arc::clone(inner),
            is_old,
            asked: Notify::new(),
            go_on: Notify::new(),
        }
    }
}

#[async_trait::async_trait]
impl Store for Paused {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let before = self.inner.list(options.clone()).await;
        self.asked.notify_one();
        self.go_on.notified().await;
        match self.is_old {
            true => before,
            false => self.inner.list(options).await,
        }
    }
}

#[tokio::test]
async fn what_is_deleted_beside_a_check_is_not_missed() {
    let place = Place::new().await;
    place.store(ROOT, "name", &[1; 1000]).await.unwrap();
    let inode = place.find(ROOT, "name").await.unwrap().inode;
    let bucket = Paused::new(&place.bucket, false);
    let removed = async {
        bucket.asked.notified().await;
        let removed = place.remove(ROOT, "name", RemoveKind::File).await;
        removed.unwrap();
        place.forget_all(inode);
        place
            .until(|| async { place.objects().await.is_empty() })
            .await;
        bucket.go_on.notify_one();
    };
    let (report, ()) = join(check(&*place.engine, &bucket, None), removed).await;
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.files, 2, "{report:#?}");
}

#[tokio::test]
async fn what_is_uploaded_beside_a_check_is_not_missed() {
    let place = Place::spooled().await;
    let away = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(None, 1.0, away);
    place.store(ROOT, "name", &[1; 1000]).await.unwrap();
    let bucket = Paused::new(&place.bucket, true);
    let ahead = place.ahead.as_ref();
    assert_eq!(place.waiting(), (1000, 1));
    let uploaded = async {
        bucket.asked.notified().await;
        place.faults.clear();
        place.until(|| async { place.waiting() == (0, 0) }).await;
        bucket.go_on.notify_one();
    };
    let (report, ()) = join(check(&*place.engine, &bucket, ahead), uploaded).await;
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let keys = place.objects().await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    let key = Key::new(&keys[0]).unwrap();
    place.bucket.delete(&key).await.unwrap();
    let report = check(&*place.engine, &*place.bucket, ahead);
    let report = report.await.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:#?}");
}
