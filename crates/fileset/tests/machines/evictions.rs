//! Machines that have the file system no more.

use std::sync::Arc;

use penstock_base::{BufferPool, FsError, MemoryBudget};
use penstock_fileset::{
    Ahead, FilesetVolume, Format, Opening, Spool,
    engine::{EmbeddedLock, EmbeddedSettings, MemorySession},
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{Identity, OpenOptions, RemoveKind, Volume, WritePlace};

use crate::{
    contents::{content, found},
    ground::{Ground, Told, on_each_engine},
    support::ROOT,
};

on_each_engine!(a_machine_that_was_evicted_shows_nothing_and_changes_nothing);

async fn a_machine_that_was_evicted_shows_nothing_and_changes_nothing(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"before").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = one.place.open(inode, OpenOptions::READ_WRITE).await;
    let handle = handle.unwrap();
    assert_eq!(one.place.read(handle, 0, 100).await.unwrap(), b"before");
    let written = one.place.write(handle, WritePlace::At(0), b"in the midst");
    written.await.unwrap();
    one.is_evicted_by(other).await;
    one.place
        .until(|| async { one.place.read(handle, 0, 1).await.is_err() })
        .await;
    assert!(matches!(
        one.place.read(handle, 0, 100).await,
        Err(FsError::Io(_))
    ));
    // What a kernel keeps of it is shown no more either.
    one.hears(Told::Content(inode)).await;
    assert!(matches!(one.place.sync(handle).await, Err(FsError::Io(_))));
    assert!(one.place.find(ROOT, "file").await.is_err());
    assert!(one.place.content(ROOT, "file").await.is_err());
    let written = one.place.write(handle, WritePlace::At(0), b"x");
    assert!(written.await.is_err());
    assert!(!one.place.volume.shut_down().await.is_empty());
    assert_eq!(content(other, inode).await.1, b"before");
    other.place.is_whole().await;
}

#[tokio::test]
async fn a_machine_that_is_evicted_while_it_takes_something_in_shows_nothing() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"before").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    assert_eq!(other.place.read(handle, 0, 100).await.unwrap(), b"before");
    // It cannot say that it holds the file.
    other.session.operate(false);
    let removed = one.place.remove(ROOT, "file", RemoveKind::File);
    removed.await.unwrap();
    other.hears(Told::Name(ROOT, "file".to_owned())).await;
    other.is_evicted_by(one).await;
    other.session.operate(true);
    let by = Identity::root();
    let asked = || async { other.place.volume.attributes(&by, ROOT).await };
    other.place.until(|| async { asked().await.is_err() }).await;
    assert!(matches!(asked().await, Err(FsError::Io(_))));
    let read = other.place.read(handle, 0, 1).await;
    assert!(matches!(read, Err(FsError::Io(_))));
}

#[tokio::test]
async fn no_machine_keeps_bytes_on_its_disk_that_others_want() {
    let engine = Arc::new(MemorySession::first());
    let by = Identity::root();
    FilesetVolume::format(&*engine, &by, Format::new(1))
        .await
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let settings = EmbeddedSettings {
        directory: directory.path().join("metadata"),
        memory: 16 << 20,
    };
    let lock = EmbeddedLock::take(&settings).unwrap();
    let spool = Spool::open(&directory.path().join("spool"), store, &lock).unwrap();
    let pool = BufferPool::new(MemoryBudget::new(16 << 20));
    let transfer = Transfer::new(spool.clone(), pool);
    let how = Opening {
        ahead: Some(Ahead::Spool(spool)),
        ..Opening::default()
    };
    let opened = FilesetVolume::open_with(engine, transfer, how).await;
    assert!(matches!(opened, Err(FsError::InvalidArgument(_))));
}
