//! What waits in the spool is read by who has the lock of the engine: until then somebody else may have both, and add to
//! objects that the one who waits would take for sealed.

#![allow(clippy::unwrap_used)]

mod support;

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::{BufferPool, MemoryBudget, clock};
use penstock_fileset::{
    Ahead, FilesetVolume, Format, Opening, Spool,
    engine::{
        Barrier, EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, EngineError, EngineResult,
    },
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{Dentry, HandleId, Identity, Lookup, OpenOptions, Position, Volume, WritePlace};

use support::{ROOT, file, name};

/// What a mount opens: the metadata, which are locked before the spool is read.
fn opened_both(
    directory: &Path,
    bucket: &Arc<dyn Store>,
) -> EngineResult<(Arc<dyn Engine>, Arc<Spool>)> {
    let lock = EmbeddedLock::take(&EmbeddedSettings {
        directory: directory.join("metadata"),
        memory: 16 << 20,
    })?;
    let spool = Spool::open(&directory.join("spool"), Arc::clone(bucket), &lock).unwrap();
    let barrier: Arc<dyn Barrier> = spool.clone();
    let engine = EmbeddedEngine::open_locked(lock, Some(barrier))?;
    Ok((Arc::new(engine), spool))
}

async fn volume(engine: &Arc<dyn Engine>, spool: Arc<Spool>) -> Arc<FilesetVolume> {
    let pool = BufferPool::new(MemoryBudget::new(64 << 20));
    let transfer = Transfer::new(spool.clone(), pool);
    let how = Opening {
        ahead: Some(Ahead::Spool(spool)),
        ..Opening::default()
    };
    let opened = FilesetVolume::open_with(Arc::clone(engine), transfer, how);
    opened.await.unwrap()
}

async fn store(volume: &FilesetVolume, text: &str, bytes: Vec<u8>) {
    let (by, name) = (Identity::root(), name(text));
    let options = Some(OpenOptions::WRITE);
    let made = volume.make(&by, Dentry::new(ROOT, &name), file(0o644), options);
    let handle = made.await.unwrap().opened.unwrap().handle;
    let written = volume.write(&by, handle, WritePlace::At(0), bytes.into());
    written.await.unwrap();
    volume.sync(handle, 0..u64::MAX, false).await.unwrap();
    volume.flush(handle).await.unwrap();
    volume.release(handle).await;
}

async fn opened(volume: &FilesetVolume, text: &str) -> HandleId {
    let (by, name) = (Identity::root(), name(text));
    let found = volume.lookup(&by, Dentry::new(ROOT, &name)).await.unwrap();
    let Lookup::Found(entry) = found else {
        unreachable!("it was made");
    };
    let inode = entry.attributes.inode;
    volume
        .open(&by, inode, OpenOptions::READ)
        .await
        .unwrap()
        .handle
}

#[tokio::test]
async fn what_another_mount_synced_since_the_spool_was_read_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (metadata, first) = opened_both(here, &bucket).unwrap();
    FilesetVolume::format(&*metadata, &Identity::root(), Format::new(1))
        .await
        .unwrap();
    let mounted = volume(&metadata, first).await;
    store(&mounted, "before", vec![1; 1000]).await;
    // Another mount begins, and does not get the lock.
    let refused = opened_both(here, &bucket).map(drop);
    assert!(matches!(refused, Err(EngineError::InUse { .. })));
    store(&mounted, "after", vec![2; 1000]).await;
    // The first one is killed.
    metadata.close().await.unwrap();
    drop((mounted, metadata));
    let (metadata, second) = opened_both(here, &bucket).unwrap();
    let mounted = volume(&metadata, second.clone()).await;
    // Once the bucket has all, no other mount finds more.
    let sent = clock::deadline(Duration::from_secs(30), async {
        while second.waiting() != (0, 0) {
            clock::sleep(Duration::from_millis(5)).await;
        }
    });
    sent.await.unwrap();
    let handle = opened(&mounted, "after").await;
    let at = Position { handle, offset: 0 };
    let read = mounted.read(&Identity::root(), at, 1000).await;
    assert_eq!(read.map(|bytes| bytes.to_vec()), Ok(vec![2; 1000]));
}
