//! Bytes that are on this disk and not in the bucket yet.
//!
//! ```text
//!  small runs ──► the open object, a file here ──► sealed ──► one PUT ──► the file goes
//!       │                                             └───── again while it fails ([`crate::uploads`])
//!       └──► an operation refers to the object, as if it were in the bucket
//! ```
//!
//! With `durability=local` the save of a small file makes no request. Its bytes are appended to the open object, which
//! many saves share, one after the other; it is sealed when it is full or [`OPEN_FOR`] old, and only a sealed object
//! is put into the bucket. So how long it becomes is not known when the metadata first refers to it
//! ([`UNKNOWN_LENGTH`]).
//!
//! | what | rule |
//! |---|---|
//! | order | the spool is a [`Barrier`] of the engine: its files are synced before the log is, so what is durable refers to bytes that are |
//! | reading | it is the [`Store`] that the volume reads through, and answers for what it has |
//! | sending | what is sent is synced before: a power cut may bring a file back that was removed |
//! | removal | an object that no file needs any more is dropped without a request |
//! | a crash | the next one who opens the spool finds all files sealed; what no metadata refers to is dropped |
//! | a sync that failed | is noted, and nothing counts as synced any more; who opens the spool writes what is here again, since the kernel may take for clean what the disk does not have, until a log was compared with it |
//! | a power cut | operations that were not synced and refer to bytes that are not here are undone ([`Barrier::has`]) |
//! | room | [`SPOOL_MAX`] bytes; a save waits for uploads, [`ROOM_WAIT`] at most, and then goes to the bucket |
//! | a full disk | the append fails, and the run goes to the bucket at once |

mod state;
mod store;

use std::{
    collections::HashSet,
    fmt, fs,
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{
    FsError, FsResult, Mutex, boot_id,
    clock::{self, Instant},
    make_private_directory, run_blocking,
};
use penstock_object::Store;
use tokio::sync::{Notify, watch};

use self::state::State;
pub(crate) use self::state::Untold;
use super::{ObjectId, grains, pack::Packed};
use crate::{
    engine::{Barrier, EmbeddedLock},
    schema::{Chunk, Stored, kind},
};

/// The length of an object that was still open when something first referred to it.
pub(crate) const UNKNOWN_LENGTH: u32 = u32::MAX;
/// Bytes that wait for the bucket at most.
const SPOOL_MAX: u64 = 256 << 20;
/// How long an object is open at most: as long as comparable tools let a file rest before they store it.
const OPEN_FOR: Duration = Duration::from_secs(5);
/// How long an append waits for room.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(60);
/// The file that says in which start of the machine the spool was open.
const BOOT: &str = "boot";
/// The file that says that a sync failed. What is read is not on the disk for sure, until it is written again.
const SUSPECT: &str = "suspect";
/// Between two attempts to store an object, each of which has the store's own retries.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Objects that are put into the bucket at once.
const UPLOADS_MAX: usize = 4;

/// See the module.
pub struct Spool {
    directory: PathBuf,
    below: Arc<dyn Store>,
    state: Mutex<State>,
    /// Bytes that wait for the bucket.
    bytes: watch::Sender<u64>,
    /// Rings when there may be something to upload.
    bell: Notify,
    /// The machine was not started anew since the spool was last open: what was written is there, synced or not.
    is_same_boot: bool,
    /// A sync failed, and the kernel says that once: the next one may succeed without bringing anything to the disk.
    has_failed: AtomicBool,
}

/// A sealed object whose upload was begun. Ends with [`Spool::gone`] or [`Spool::failed`].
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) object: ObjectId,
    /// Bytes in it, without those at its end that could not be written.
    pub(crate) length: u32,
    file: Arc<fs::File>,
}

/// Room in an object for one run. The object is not uploaded before this is gone.
pub(super) struct Slot<'a> {
    spool: &'a Spool,
    pub(super) object: ObjectId,
    pub(super) offset: u32,
    /// Where the run ends, once it is written.
    end: u32,
    file: Arc<fs::File>,
}

impl Slot<'_> {
    /// Writes the run. Blocks on the disk.
    pub(super) fn write(&mut self, run: &Packed) -> io::Result<()> {
        let mut at = u64::from(self.offset);
        for bytes in run.slices() {
            self.file.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
        }
        self.end = at as u32;
        Ok(())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.spool.state.lock().slot_ended(self.object, self.end);
        self.spool.bell.notify_one();
    }
}

impl Spool {
    /// The spool in `directory`, which is made, before the bucket `below`. What an earlier one left is uploaded by
    /// the volume that is opened with it. Blocks on the disk. One process at a time may have it: who has the lock of
    /// the engine whose barrier it will be. Until then another one may add to what is here.
    pub fn open(
        directory: &Path,
        below: Arc<dyn Store>,
        _lock: &EmbeddedLock,
    ) -> io::Result<Arc<Self>> {
        Self::open_unlocked(directory, below)
    }

    fn open_unlocked(directory: &Path, below: Arc<dyn Store>) -> io::Result<Arc<Self>> {
        make_private_directory(directory)?;
        let is_suspect = directory.join(SUSPECT).exists();
        let is_same_boot = !is_suspect && is_noted(&directory.join(BOOT));
        let mut state = State::default();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.ends_with(BOOT) || path.ends_with(SUSPECT) {
                continue;
            }
            match object_of(&path) {
                Some(object) => state.found(object, found(&path, is_suspect)?)?,
                None => tracing::warn!(path = %path.display(), "this is no file of a spool"),
            }
        }
        Ok(Arc::new(Self {
            directory: directory.to_owned(),
            below,
            bytes: watch::Sender::new(state.bytes()),
            state: Mutex::new(state),
            bell: Notify::new(),
            is_same_boot,
            has_failed: AtomicBool::new(false),
        }))
    }

    /// Notes that what refers to bytes of this start of the machine is to be trusted: what refers to bytes that an
    /// earlier one lost, or a sync that failed, is undone. Blocks on the disk.
    pub(crate) fn note_boot(&self) {
        if self.is_same_boot {
            return;
        }
        let noted = note_boot(&self.directory.join(BOOT));
        if let Err(error) = noted.and_then(|()| self.trust()) {
            // The next one to open it compares more than it must.
            tracing::warn!(%error, "the start of the machine could not be noted in the spool");
        }
    }

    /// Takes back that a sync failed, unless one did since.
    fn trust(&self) -> io::Result<()> {
        match fs::remove_file(self.directory.join(SUSPECT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if self.has_failed.load(Ordering::SeqCst) {
            self.note_failure();
        }
        Ok(())
    }

    fn note_failure(&self) {
        if let Err(error) = fs::File::create(self.directory.join(SUSPECT)) {
            tracing::warn!(%error, "that a sync failed could not be noted in the spool");
        }
    }

    /// Bytes and objects that are not in the bucket yet.
    pub fn waiting(&self) -> (u64, u64) {
        let objects = self.state.lock().count() as u64;
        (*self.bytes.borrow(), objects)
    }

    /// What is not in the bucket yet.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        self.state.lock().names()
    }

    /// Whether this object is here.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.state.lock().file(object).is_some()
    }

    /// Room for `length` bytes in the open object, for which `new` makes up a name if there is none. Fails with
    /// `NoSpace` when there was none for as long as `patience`.
    pub(super) async fn take(
        &self,
        (length, patience): (u32, Duration),
        new: impl FnOnce() -> ObjectId,
    ) -> FsResult<Slot<'_>> {
        self.room(u64::from(length), patience).await?;
        let taken = run_blocking(|| {
            let mut state = self.state.lock();
            if !state.has_room(length) {
                let object = new();
                state.begin(object, self.create(object)?);
            }
            Ok(state.take(length))
        });
        let (object, offset, file) =
            taken.map_err(|error: io::Error| FsError::Io(error.to_string()))?;
        self.bytes.send_modify(|bytes| *bytes += u64::from(length));
        Ok(Slot {
            spool: self,
            object,
            offset,
            end: 0,
            file,
        })
    }

    /// Returns when there is room for so many bytes. Fails with `NoSpace` as [`Spool::take`] does.
    pub(super) async fn room(&self, length: u64, patience: Duration) -> FsResult<()> {
        let mut bytes = self.bytes.subscribe();
        let room = bytes.wait_for(|bytes| bytes + length <= SPOOL_MAX);
        let found = clock::deadline(patience, room).await;
        found.map(drop).map_err(|_| {
            if !patience.is_zero() {
                tracing::warn!(
                    "the bucket takes nothing, and there is no room for more on this disk"
                );
            }
            FsError::NoSpace
        })
    }

    fn path(&self, object: ObjectId) -> PathBuf {
        self.directory.join(object.name())
    }

    fn create(&self, object: ObjectId) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.mode(0o600).open(self.path(object))?;
        // One that is not here is in the bucket, or nobody needs it: no power cut may take it.
        fs::File::open(&self.directory)?.sync_all()?;
        Ok(file)
    }

    /// Whether the bytes that an extent needs are here, or in the bucket.
    fn has_bytes(&self, stored: &Stored) -> bool {
        let Some((file, _)) = self.state.lock().file(stored.object) else {
            return true;
        };
        let mut bytes = vec![0; stored.stored_length() as usize];
        let read = file.read_exact_at(&mut bytes, u64::from(stored.offset));
        let all = 0..stored.checksums.len();
        read.is_ok() && grains::open(stored, all, &bytes.into(), &mut |_| ())
    }

    /// Begins an upload, if one is due at `now` and there is room for it. Objects that are `held` are not due: see
    /// [`super::Objects::held`], which is asked when no run can be added any more to what is sealed.
    pub(crate) fn due(
        &self,
        now: Instant,
        held: impl FnOnce() -> HashSet<ObjectId>,
    ) -> Option<Due> {
        let (object, length, file) = self.state.lock().due(now, held)?;
        Some(Due {
            object,
            length,
            file,
        })
    }

    /// When to ask for [`Spool::due`] again, unless the bell rings before.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.state.lock().next_due()
    }

    /// Returns when [`Spool::due`] may have something new.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// All bytes of an object, which are on the disk then: a power cut may bring its file back after the bucket has it, and
    /// what is found is sent once more.
    pub(crate) fn read(&self, due: &Due) -> io::Result<Bytes> {
        let mut bytes = vec![0; due.length as usize];
        run_blocking(|| {
            self.sync(&due.file)?;
            due.file.read_exact_at(&mut bytes, 0)
        })?;
        self.state.lock().synced(due.object);
        Ok(bytes.into())
    }

    fn sync(&self, file: &fs::File) -> io::Result<()> {
        file.sync_data().inspect_err(|_| {
            self.has_failed.store(true, Ordering::SeqCst);
            self.note_failure();
        })
    }

    /// Fails once a sync failed, also one that the upload of an object made.
    fn check_synced(&self) -> io::Result<()> {
        match self.has_failed.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(io::Error::other(
                "a sync failed; check the disk and mount it again",
            )),
        }
    }

    /// The bucket has it: there is room for more here, whether or not the metadata can be told now how long it became.
    pub(crate) fn arrived(&self, due: &Due) {
        let told = (due.object, due.length);
        self.state.lock().untold.push(told);
        self.gone(due.object);
    }

    /// The lengths of objects that the metadata is to be told.
    pub(crate) fn take_untold(&self) -> Untold {
        std::mem::take(&mut self.state.lock().untold)
    }

    /// They could not be told.
    pub(crate) fn still_untold(&self, lengths: Untold) {
        self.state.lock().untold.extend(lengths);
    }

    /// The bucket did not take it: it is tried again.
    pub(crate) fn failed(&self, due: &Due) {
        let again = clock::now() + RETRY_INTERVAL;
        self.state.lock().upload_failed(due.object, again);
        self.bell.notify_one();
    }

    /// All that is here is to be uploaded by who says so, and by nobody else from then on.
    pub(crate) fn drain(&self) {
        self.state.lock().drain();
    }

    /// Whether somebody said so.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.lock().is_draining()
    }

    /// The bucket has it, or no file needs it.
    pub(crate) fn gone(&self, object: ObjectId) {
        let length = self.state.lock().remove(object);
        self.bytes
            .send_modify(|bytes| *bytes -= u64::from(length.unwrap_or(0)));
        let path = self.path(object);
        if let Err(error) = run_blocking(|| fs::remove_file(&path)) {
            // The next one to open the spool uploads it once more, or finds that nobody needs it.
            tracing::warn!(path = %path.display(), %error, "what the bucket has could not be removed here");
        }
        self.bell.notify_one();
    }

    /// Somebody found that no file needs an object. If it is here it is left to whoever uploads: what is saved just
    /// now may go into it until it is sealed, so only who looks afterwards knows. Returns whether it is here.
    pub(crate) fn takes_care_of(&self, object: ObjectId) -> bool {
        let is_here = self.state.lock().hasten(object);
        if is_here {
            self.bell.notify_one();
        }
        is_here
    }
}

impl Barrier for Spool {
    fn pass(&self) -> io::Result<()> {
        let files = self.state.lock().unsynced();
        let synced = files.iter().try_for_each(|(_, file)| self.sync(file));
        let synced = synced.and_then(|()| self.check_synced());
        synced.inspect_err(|_| self.state.lock().still_unsynced(&files))
    }

    fn has(&self, puts: &[(Bytes, Bytes)]) -> bool {
        if self.is_same_boot {
            return true;
        }
        let chunks = puts
            .iter()
            .filter(|(key, _)| key.first() == Some(&kind::CHUNK));
        let mut chunks = chunks.filter_map(|(_, value)| Chunk::decode(value).ok());
        chunks.all(|chunk| {
            let mut extents = chunk.extents.iter();
            extents.all(|extent| self.has_bytes(&extent.stored))
        })
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Spool");
        debug.field("directory", &self.directory);
        debug.finish_non_exhaustive()
    }
}

/// Whether it was noted that the machine was not started anew since.
fn is_noted(path: &Path) -> bool {
    let boot = boot_id();
    !boot.is_empty() && fs::read_to_string(path).is_ok_and(|noted| noted == boot)
}

/// Notes which start of the machine this is.
fn note_boot(path: &Path) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(boot_id().as_bytes())?;
    file.sync_all()
}

/// A file that an earlier spool left, which is written again if it `is_suspect`.
fn found(path: &Path, is_suspect: bool) -> io::Result<fs::File> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    if is_suspect {
        file.write_all_at(&fs::read(path)?, 0)?;
        file.sync_data()?;
    }
    Ok(file)
}

/// The object whose file this is.
fn object_of(path: &Path) -> Option<ObjectId> {
    ObjectId::of_name(path.file_name()?.to_str()?)
}

#[cfg(test)]
mod tests {
    use penstock_base::{BufferPool, MemoryBudget};
    use penstock_object_testing::MemoryStore;
    use penstock_transfer::Transfer;

    use super::*;
    use crate::{
        data::{Objects, Packer, Piece, pack::runs},
        schema::{BLOCK_SIZE, Compression},
    };

    fn spool(directory: &tempfile::TempDir) -> Arc<Spool> {
        Spool::open_unlocked(directory.path(), Arc::new(MemoryStore::new())).expect("it is new")
    }

    #[tokio::test]
    async fn nothing_is_due_while_as_many_are_uploaded_as_may_be() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        for number in 0..=UPLOADS_MAX as u64 {
            let object = ObjectId { writer: 1, number };
            drop(spool.take((BLOCK_SIZE as u32, ROOM_WAIT), || object).await);
        }
        let later = clock::now() + OPEN_FOR;
        let begun = std::iter::from_fn(|| spool.due(later, HashSet::new));
        assert_eq!(begun.count(), UPLOADS_MAX);
        assert_eq!(spool.next_due(), None, "the bell rings when one has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_save_of_many_runs_waits_for_room_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        spool.bytes.send_replace(SPOOL_MAX);
        let pool = BufferPool::new(MemoryBudget::new(16 << 20));
        let transfer = Transfer::new(spool.clone(), pool);
        let packer = Packer::new(Arc::new(Objects::with_spool(transfer, Some(spool))));
        let pieces = (0..10).map(|chunk| Piece {
            offset: chunk * BLOCK_SIZE,
            bytes: Bytes::from_static(b"bytes"),
        });
        let begun = clock::now();
        let placed = packer.store(pieces.collect(), Compression::None).await;
        assert_eq!(placed.expect("the bucket takes them").len(), 10);
        assert!(begun.elapsed() < 2 * ROOM_WAIT, "{:?}", begun.elapsed());
    }

    fn packed(bytes: Bytes) -> Packed {
        let runs = runs(vec![Piece { offset: 0, bytes }], Compression::None);
        Packed::plain(&runs[0])
    }

    async fn taken(spool: &Spool, length: u32) -> Slot<'_> {
        let new = || ObjectId {
            writer: 1,
            number: 1,
        };
        let taken = spool.take((length, ROOM_WAIT), new).await;
        taken.expect("there is room")
    }

    #[tokio::test]
    async fn what_a_full_disk_did_not_take_keeps_nothing_from_the_bucket() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        let bytes = Bytes::from_static(b"synced");
        let mut slot = taken(&spool, 6).await;
        slot.write(&packed(bytes.clone())).expect("there is room");
        drop(slot);
        // The write of this one fails.
        drop(taken(&spool, 1000).await);
        let due = spool.due(clock::now() + OPEN_FOR, HashSet::new);
        let due = due.expect("it is old enough");
        assert_eq!(spool.read(&due).expect("it is here"), bytes);
        assert_eq!(due.length, 6);
    }

    /// The file of an object was removed that nobody had synced: a power cut brought it back empty, and it was put over
    /// what the bucket had.
    #[tokio::test]
    async fn what_is_sent_is_on_the_disk_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        drop(taken(&spool, 6).await);
        let due = spool.due(clock::now() + OPEN_FOR, HashSet::new);
        spool
            .read(&due.expect("it is old enough"))
            .expect("it is here");
        assert!(spool.state.lock().unsynced().is_empty());
    }

    /// The kernel says once that a sync failed: to the upload, and the sync of the log that came next succeeded.
    #[tokio::test]
    async fn nothing_counts_as_synced_after_an_upload_whose_sync_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        drop(taken(&spool, 6).await);
        let due = spool.due(clock::now() + OPEN_FOR, HashSet::new);
        let (pipe, _) = io::pipe().expect("there are some left");
        let no_file = fs::File::from(std::os::fd::OwnedFd::from(pipe));
        let failing = Due {
            file: Arc::new(no_file),
            ..due.expect("it is old enough")
        };
        assert!(spool.read(&failing).is_err(), "no pipe is synced");
        assert!(spool.pass().is_err());
    }

    /// Whoever opened the spool after a sync had failed, and ended before the log was compared with it, left nothing behind
    /// that said so: the next one took what was lost for what had been written.
    #[tokio::test]
    async fn what_is_suspect_is_compared_until_that_was_done() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = spool(&directory);
        first.note_boot();
        let run = packed(Bytes::from_static(b"closed"));
        let mut slot = taken(&first, 6).await;
        slot.write(&run).expect("there is room");
        let extent = run.extent((slot.object, UNKNOWN_LENGTH), slot.offset);
        let path = first.path(slot.object);
        drop(slot);
        let chunk = Chunk {
            extents: vec![extent],
        };
        let key = crate::schema::chunk(penstock_vfs::Inode(2), 0).freeze();
        let puts = [(key, chunk.encode())];
        // A sync failed, and the page cache has the bytes no more.
        fs::write(directory.path().join(SUSPECT), "").expect("it is made");
        fs::write(path, "\0\0\0\0\0\0").expect("it is there");
        drop(first);
        // As `fileset info` does while it is mounted, or a mount that is killed before it has read its log.
        drop(spool(&directory));
        assert!(!Barrier::has(&*spool(&directory), &puts));
    }

    /// The kernel takes the pages of a sync that failed for clean: no sync that comes later brings them to the disk.
    #[tokio::test]
    async fn what_is_here_is_written_again_after_a_sync_that_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = spool(&directory);
        let run = packed(Bytes::from_static(b"synced"));
        let written = taken(&first, 6).await.write(&run);
        written.expect("there is room");
        let object = ObjectId {
            writer: 1,
            number: 2,
        };
        let (pipe, _) = io::pipe().expect("there are some left");
        let no_file = fs::File::from(std::os::fd::OwnedFd::from(pipe));
        let added = first.state.lock().found(object, no_file);
        added.expect("it is empty");
        let path = first.path(ObjectId {
            writer: 1,
            number: 1,
        });
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        let begin_again = |before: &Spool, is_failed: bool| {
            assert_eq!(before.pass().is_err(), is_failed, "no pipe is synced");
            let file = fs::File::options().write(true).open(&path);
            let aged = file.and_then(|file| file.set_modified(long_ago));
            aged.expect("it is here");
            drop(spool(&directory));
            let modified = fs::metadata(&path).and_then(|found| found.modified());
            modified.expect("it is here") != long_ago
        };
        assert!(begin_again(&first, true));
        assert!(
            begin_again(&spool(&directory), false),
            "nothing was compared"
        );
        let compared = spool(&directory);
        compared.note_boot();
        assert!(!begin_again(&compared, false));
        // One that fails meanwhile stays noted.
        first.note_boot();
        assert!(begin_again(&first, true));
    }
}
