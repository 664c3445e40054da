//! When files are closed, and what becomes of those that cannot be.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{Payload, clock};
use penstock_vfs::{
    Dentry, DirectorySink, Entry, Features, FileKind, HandleId, ListFrom, Lookup, Opened, Position,
};

use super::*;
use crate::limits::WRITER_IDLE;

/// A volume that only opens and closes.
#[derive(Default)]
struct Doors {
    opened: AtomicU64,
    closed: AtomicU64,
    flushed: AtomicU64,
    synced: AtomicU64,
    fails: AtomicBool,
}

impl Doors {
    fn outcome(&self, count: &AtomicU64) -> FsResult<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(FsError::Io("the store is gone".to_owned()));
        }
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Handles that are open.
    fn open_now(&self) -> u64 {
        self.opened.load(Ordering::SeqCst) - self.closed.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Volume for Doors {
    fn features(&self) -> Features {
        Features {
            random_writes: true,
            ..Features::READ_ONLY
        }
    }

    async fn lookup(&self, _by: &Identity, _dentry: Dentry<'_>) -> FsResult<Lookup> {
        Err(FsError::NotFound)
    }

    async fn parent(&self, _by: &Identity, _directory: Inode) -> FsResult<Entry> {
        Err(FsError::NotFound)
    }

    async fn attributes(&self, _by: &Identity, _inode: Inode) -> FsResult<Entry> {
        Err(FsError::NotFound)
    }

    async fn open(&self, _by: &Identity, _inode: Inode, _how: OpenOptions) -> FsResult<Opened> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Opened::new(HandleId(number)))
    }

    async fn read(&self, _by: &Identity, _at: Position, _length: u32) -> FsResult<Payload> {
        Err(FsError::BadHandle)
    }

    async fn read_directory(
        &self,
        _handle: HandleId,
        _from: ListFrom<'_>,
        _sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        Err(FsError::NotADirectory)
    }

    async fn flush(&self, _handle: HandleId) -> FsResult<()> {
        self.outcome(&self.flushed)
    }

    async fn sync(&self, _handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        self.outcome(&self.synced)
    }

    async fn release(&self, _handle: HandleId) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn file(number: u64) -> Attributes {
    Attributes::new(Inode(number), FileKind::Regular, clock::wall_time())
}

fn doors() -> (Arc<Doors>, OpenFiles) {
    let doors = Arc::new(Doors::default());
    let files = OpenFiles::new(Arc::clone(&doors) as _);
    (doors, files)
}

async fn later(files: &OpenFiles, duration: Duration) {
    tokio::time::advance(duration).await;
    files.sweep().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_saved_stays_open_and_is_tried_again() {
    let (doors, files) = doors();
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    writer.file.note_write();
    later(&files, WRITER_IDLE).await;
    assert_eq!(doors.flushed.load(Ordering::SeqCst), 0, "it is in use");
    drop(writer);
    doors.fails.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        later(&files, WRITER_IDLE).await;
        assert_eq!(doors.open_now(), 1);
        assert!(files.sync(Inode(1), 0..u64::MAX).await.is_err());
    }
    doors.fails.store(false, Ordering::SeqCst);
    later(&files, WRITER_IDLE).await;
    assert_eq!(
        (doors.flushed.load(Ordering::SeqCst), doors.open_now()),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_written_to_a_file_is_durable_when_it_is_closed_before_its_commit() {
    let (doors, files) = doors();
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    writer.file.note_write();
    drop(writer);
    later(&files, WRITER_IDLE).await;
    assert_eq!(doors.open_now(), 0);
    files.sync(Inode(1), 0..u64::MAX).await.unwrap();
    assert_eq!(doors.synced.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn only_as_many_files_are_open_as_may_be() {
    let (doors, files) = doors();
    let mut held = Vec::new();
    for number in 0..OPEN_FILES_MAX as u64 {
        held.push(files.open(&file(number), Access::Read).await.unwrap());
    }
    let refused = files.open(&file(u64::MAX), Access::Read).await;
    assert!(matches!(refused, Err(FsError::LimitReached(_))));
    held.remove(0);
    drop(files.open(&file(u64::MAX), Access::Read).await.unwrap());
    assert_eq!(doors.open_now(), OPEN_FILES_MAX as u64);
    drop(held);
    later(&files, WRITER_IDLE).await;
    assert_eq!(doors.open_now(), 0);
    assert!(files.files.lock().is_empty());
}

#[tokio::test]
async fn a_sync_of_what_is_synced_asks_nobody_and_one_that_failed_is_done_again() {
    let (doors, files) = doors();
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    let all = 0..u64::MAX;
    files.sync(Inode(1), all.clone()).await.unwrap();
    assert_eq!(
        doors.synced.load(Ordering::SeqCst),
        0,
        "nothing was written"
    );
    writer.file.note_write();
    doors.fails.store(true, Ordering::SeqCst);
    assert!(files.sync(Inode(1), all.clone()).await.is_err());
    doors.fails.store(false, Ordering::SeqCst);
    for synced in [1, 1] {
        files.sync(Inode(1), all.clone()).await.unwrap();
        assert_eq!(doors.synced.load(Ordering::SeqCst), synced);
    }
    assert_eq!(files.close_all().await.len(), 0);
    assert_eq!(doors.open_now(), 0);
}
