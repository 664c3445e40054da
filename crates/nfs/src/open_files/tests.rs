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
use tokio::sync::watch;

use super::*;
use crate::limits::{BUSY_DEADLINE, LOST_KEPT, WRITER_IDLE};

/// A volume that only opens and closes.
#[derive(Default)]
struct Doors {
    opened: AtomicU64,
    closed: AtomicU64,
    flushed: AtomicU64,
    synced: AtomicU64,
    fails: AtomicBool,
    is_busy: AtomicBool,
    writes_in_order: bool,
    /// Syncs wait while this is true.
    is_held: watch::Sender<bool>,
    /// Syncs that were begun.
    begun: watch::Sender<u64>,
}

impl Doors {
    fn outcome(&self, count: &AtomicU64) -> FsResult<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(FsError::Io("the store is gone".to_owned()));
        }
        if self.is_busy.load(Ordering::SeqCst) {
            return Err(FsError::Busy("another client changed it"));
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
            random_writes: !self.writes_in_order,
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
        self.begun.send_modify(|begun| *begun += 1);
        let _ = self.is_held.subscribe().wait_for(|is_held| !is_held).await;
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
    files_of(Doors::default())
}

fn files_of(doors: Doors) -> (Arc<Doors>, OpenFiles) {
    let doors = Arc::new(doors);
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

/// A file that was written to is closed, which takes long and fails. Returns what a COMMIT says that comes meanwhile.
async fn committed_while<C>(close: impl FnOnce(Arc<OpenFiles>) -> C) -> FsResult<()>
where
    C: Future<Output: Send> + Send + 'static,
{
    let (doors, files) = doors();
    let files = Arc::new(files);
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    writer.file.note_write();
    drop(writer);
    tokio::time::advance(WRITER_IDLE).await;
    doors.is_held.send_replace(true);
    let closing = tokio::spawn(close(Arc::clone(&files)));
    let mut begun = doors.begun.subscribe();
    begun.wait_for(|begun| *begun == 1).await.unwrap();
    let committing = {
        let files = Arc::clone(&files);
        tokio::spawn(async move { files.sync(Inode(1), 0..u64::MAX).await })
    };
    // Far more than it needs to answer without waiting.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!committing.is_finished(), "nobody knows yet");
    doors.fails.store(true, Ordering::SeqCst);
    doors.is_held.send_replace(false);
    closing.await.unwrap();
    committing.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_commit_says_what_becomes_of_a_file_that_is_being_closed() {
    let idle = committed_while(|files| async move { files.sweep().await });
    assert!(idle.await.is_err(), "it could not be saved");
    let ending = committed_while(|files| async move { files.close_all().await.len() });
    assert!(ending.await.is_err(), "it could not be saved");
}

#[tokio::test(start_paused = true)]
async fn who_is_in_the_way_of_a_save_for_long_is_taken_to_stay() {
    let (doors, files) = doors();
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    writer.file.note_write();
    doors.is_busy.store(true, Ordering::SeqCst);
    let committed = async || files.sync(Inode(1), 0..u64::MAX).await;
    let begun = clock::now();
    // As a client asks again.
    let pause = Duration::from_secs(15);
    while begun.elapsed() < BUSY_DEADLINE {
        assert!(matches!(committed().await, Err(FsError::Busy(_))));
        tokio::time::advance(pause).await;
    }
    assert!(matches!(committed().await, Err(FsError::Io(_))));
    doors.is_busy.store(false, Ordering::SeqCst);
    committed().await.unwrap();
    writer.file.note_write();
    doors.is_busy.store(true, Ordering::SeqCst);
    assert!(matches!(committed().await, Err(FsError::Busy(_))));
    // Nobody asked meanwhile, and it is another one by now.
    tokio::time::advance(BUSY_DEADLINE).await;
    assert!(matches!(committed().await, Err(FsError::Busy(_))));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_a_volume_cannot_take_any_more_is_given_up_and_can_be_written_anew() {
    let (doors, files) = files_of(Doors {
        writes_in_order: true,
        ..Doors::default()
    });
    let all = 0..u64::MAX;
    let write = async || {
        let writer = files.open(&file(1), Access::Write).await.unwrap();
        writer.file.note_write();
    };
    write().await;
    doors.fails.store(true, Ordering::SeqCst);
    let begun = clock::now();
    while doors.open_now() > 0 {
        later(&files, WRITER_IDLE).await;
        assert!(files.sync(Inode(1), all.clone()).await.is_err());
    }
    assert!(begun.elapsed() >= LOST_AFTER);
    doors.fails.store(false, Ordering::SeqCst);
    let committed = files.sync(Inode(1), all.clone()).await;
    assert!(committed.is_err(), "who wrote it is told, also later");
    write().await;
    files.sync(Inode(1), all.clone()).await.unwrap();
    later(&files, WRITER_IDLE).await;
    assert!(files.files.lock().is_empty());
    // Who cuts it to nothing need not wait.
    write().await;
    doors.fails.store(true, Ordering::SeqCst);
    files.give_up_failed(Inode(1)).await;
    assert_eq!(doors.open_now(), 1, "nothing failed yet");
    assert!(files.sync(Inode(1), all.clone()).await.is_err());
    files.give_up_failed(Inode(1)).await;
    assert_eq!(doors.open_now(), 0);
    assert!(files.sync(Inode(1), all).await.is_err());
    later(&files, LOST_KEPT).await;
    assert!(files.files.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_cut_while_it_was_only_read_is_written_from_where_it_ends_now() {
    let (_doors, files) = files_of(Doors {
        writes_in_order: true,
        ..Doors::default()
    });
    let long = Attributes {
        size: 100,
        ..file(1)
    };
    let _reader = files.open(&long, Access::Read).await.unwrap();
    let writer = files.open(&file(1), Access::Write).await.unwrap();
    let second = Duration::from_secs(1);
    let early = clock::deadline(second, writer.file.in_order(50)).await;
    assert!(early.is_err(), "what belongs in front of it is missing");
    writer.file.grows_to(50);
    let next = clock::deadline(second, writer.file.in_order(50)).await;
    assert!(next.is_ok());
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
