//! Bytes that are on this disk and not in the bucket yet.
//!
//! ```text
//!  small runs ──► the open object, a file here ──► sealed ──► one PUT ──► the file goes
//!       │                                             └───── again while it fails ([`crate::uploads`])
//!       └──► an operation refers to the object, as if it were in the bucket
//! ```
//!
//! With `durability=local` the save of a small file makes no request. Its bytes are appended to the file of the open object
//! ([`super::unsent`]).
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

mod store;

use std::{
    collections::BTreeMap,
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
use penstock_base::{FsError, FsResult, Mutex, boot_id, make_private_directory, run_blocking};
use penstock_object::Store;

use super::{
    ObjectId, grains,
    pack::Packed,
    unsent::{self, Due, Limits, Unsent},
};
use crate::{
    engine::{Barrier, EmbeddedLock},
    schema::{Chunk, Stored, kind},
};

/// Bytes that wait for the bucket at most.
const SPOOL_MAX: u64 = 256 << 20;
const LIMITS: Limits = Limits {
    bytes: SPOOL_MAX,
    runs: usize::MAX,
};
/// How long an append waits for room.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(60);
/// The file that says in which start of the machine the spool was open.
const BOOT: &str = "boot";
/// The file that says that a sync failed. What is read is not on the disk for sure, until it is written again.
const SUSPECT: &str = "suspect";

/// See the module.
pub struct Spool {
    directory: PathBuf,
    below: Arc<dyn Store>,
    unsent: Unsent,
    files: Mutex<BTreeMap<ObjectId, Arc<SpooledFile>>>,
    /// Objects that the bucket has, with their lengths, which the metadata does not know.
    untold: Mutex<Untold>,
    /// The machine was not started anew since the spool was last open: what was written is there, synced or not.
    is_same_boot: bool,
    /// A sync failed, and the kernel says that once: the next one may succeed without bringing anything to the disk.
    has_failed: AtomicBool,
}

/// Objects with their lengths.
pub(crate) type Untold = Vec<(ObjectId, u32)>;

/// The bytes of an object.
#[derive(Debug)]
struct SpooledFile {
    file: fs::File,
    is_unsynced: AtomicBool,
}

impl SpooledFile {
    /// One that a killed process left may be in the page cache alone.
    fn new(file: fs::File) -> Arc<Self> {
        Arc::new(Self {
            file,
            is_unsynced: AtomicBool::new(true),
        })
    }
}

/// Room in a file for one run. The object is not uploaded before this is gone.
pub(super) struct Slot<'a> {
    place: unsent::Slot<'a>,
    file: Arc<SpooledFile>,
}

impl Slot<'_> {
    pub(super) fn object(&self) -> ObjectId {
        self.place.object
    }

    pub(super) fn offset(&self) -> u32 {
        self.place.offset
    }

    /// Writes the run. Blocks on the disk.
    pub(super) fn write(&mut self, run: &Packed) -> io::Result<()> {
        let written = self.try_to_write(run);
        self.file.is_unsynced.store(true, Ordering::SeqCst);
        self.place.written(written?);
        Ok(())
    }

    fn try_to_write(&self, run: &Packed) -> io::Result<u32> {
        let mut at = u64::from(self.offset());
        for bytes in run.slices() {
            self.file.file.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
        }
        Ok(at as u32)
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
        let mut files = BTreeMap::new();
        let mut lengths = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.ends_with(BOOT) || path.ends_with(SUSPECT) {
                continue;
            }
            let Some(object) = object_of(&path) else {
                tracing::warn!(path = %path.display(), "this is no file of a spool");
                continue;
            };
            let file = found(&path, is_suspect)?;
            lengths.push((object, length_of(object, &file)?));
            files.insert(object, SpooledFile::new(file));
        }
        Ok(Arc::new(Self {
            directory: directory.to_owned(),
            below,
            unsent: Unsent::new(LIMITS, lengths),
            files: Mutex::new(files),
            untold: Mutex::default(),
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
        self.unsent.waiting()
    }

    /// What is not in the bucket yet.
    pub(crate) fn unsent(&self) -> &Unsent {
        &self.unsent
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
            self.unsent.take(length, || {
                let object = new();
                let file = SpooledFile::new(self.create(object)?);
                self.files.lock().insert(object, file);
                Ok(object)
            })
        });
        let place = taken.map_err(|error: io::Error| FsError::Io(error.to_string()))?;
        let file = self.file(place.object);
        let file = file.map_err(|error| FsError::Io(error.to_string()))?;
        Ok(Slot { place, file })
    }

    /// The file of an object that is here.
    fn file(&self, object: ObjectId) -> io::Result<Arc<SpooledFile>> {
        let file = self.files.lock().get(&object).cloned();
        file.ok_or_else(|| io::Error::other(format!("{object} is not on this disk")))
    }

    /// Returns when there is room for so many bytes. Fails with `NoSpace` as [`Spool::take`] does.
    pub(super) async fn room(&self, length: u64, patience: Duration) -> FsResult<()> {
        if self.unsent.room(length, patience).await {
            return Ok(());
        }
        if !patience.is_zero() {
            tracing::warn!("the bucket takes nothing, and there is no room for more on this disk");
        }
        Err(FsError::NoSpace)
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
        let Ok(spooled) = self.file(stored.object) else {
            return true;
        };
        let mut bytes = vec![0; stored.stored_length() as usize];
        let read = spooled
            .file
            .read_exact_at(&mut bytes, u64::from(stored.offset));
        let all = 0..stored.checksums.len();
        read.is_ok() && grains::open(stored, all, &bytes.into(), &mut |_| ())
    }

    /// All bytes of an object, which are on the disk then: a power cut may bring its file back after the bucket has it, and
    /// what is found is sent once more.
    pub(crate) fn read(&self, due: &Due) -> io::Result<Bytes> {
        self.read_synced(due, fs::File::sync_data)
    }

    /// The same, synced so.
    fn read_synced(
        &self,
        due: &Due,
        sync: impl FnOnce(&fs::File) -> io::Result<()>,
    ) -> io::Result<Bytes> {
        let spooled = self.file(due.object)?;
        let mut bytes = vec![0; due.length as usize];
        run_blocking(|| {
            let synced = sync(&spooled.file);
            synced.inspect_err(|_| self.sync_failed())?;
            // Not before: a barrier that is passed meanwhile waits for the disk as well. Nobody adds to it any more.
            spooled.is_unsynced.store(false, Ordering::SeqCst);
            spooled.file.read_exact_at(&mut bytes, 0)
        })?;
        Ok(bytes.into())
    }

    /// Syncs a file that is written meanwhile or not: what was written before is on the disk then.
    fn sync(&self, spooled: &SpooledFile) -> io::Result<()> {
        spooled.is_unsynced.store(false, Ordering::SeqCst);
        spooled.file.sync_data().inspect_err(|_| {
            spooled.is_unsynced.store(true, Ordering::SeqCst);
            self.sync_failed();
        })
    }

    fn sync_failed(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.note_failure();
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
        self.untold.lock().push((due.object, due.length));
        self.gone(due.object);
    }

    /// The lengths of objects that the metadata is to be told.
    pub(crate) fn take_untold(&self) -> Untold {
        std::mem::take(&mut self.untold.lock())
    }

    /// They could not be told.
    pub(crate) fn still_untold(&self, lengths: Untold) {
        self.untold.lock().extend(lengths);
    }

    /// The bucket has it, or no file needs it.
    pub(crate) fn gone(&self, object: ObjectId) {
        self.unsent.gone(object);
        self.files.lock().remove(&object);
        let path = self.path(object);
        if let Err(error) = run_blocking(|| fs::remove_file(&path)) {
            // The next one to open the spool uploads it once more, or finds that nobody needs it.
            tracing::warn!(path = %path.display(), %error, "what the bucket has could not be removed here");
        }
    }
}

impl Barrier for Spool {
    fn pass(&self) -> io::Result<()> {
        let files: Vec<_> = self.files.lock().values().cloned().collect();
        let mut unsynced = files
            .iter()
            .filter(|spooled| spooled.is_unsynced.load(Ordering::SeqCst));
        unsynced.try_for_each(|spooled| self.sync(spooled))?;
        self.check_synced()
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

fn length_of(object: ObjectId, file: &fs::File) -> io::Result<u32> {
    let length = file.metadata()?.len();
    let too_long = |_| {
        let text = format!("{object}: {length} bytes are more than an object has");
        io::Error::other(text)
    };
    length.try_into().map_err(too_long)
}

/// The object whose file this is.
fn object_of(path: &Path) -> Option<ObjectId> {
    ObjectId::of_name(path.file_name()?.to_str()?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use penstock_base::{BufferPool, MemoryBudget, clock};
    use penstock_object_testing::MemoryStore;
    use penstock_transfer::Transfer;

    use super::*;

    use crate::{
        data::{
            Ahead, Objects, Packer, Piece,
            pack::runs,
            unsent::{OPEN_FOR, UNKNOWN_LENGTH},
        },
        schema::{BLOCK_SIZE, Compression},
    };

    fn spool(directory: &tempfile::TempDir) -> Arc<Spool> {
        Spool::open_unlocked(directory.path(), Arc::new(MemoryStore::new())).expect("it is new")
    }

    #[tokio::test(start_paused = true)]
    async fn a_save_of_many_runs_waits_for_room_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        let full = ObjectId {
            writer: 1,
            number: 1,
        };
        let filling = spool.take((SPOOL_MAX as u32, ROOM_WAIT), || full).await;
        let _filling = filling.expect("it is empty");
        let pool = BufferPool::new(MemoryBudget::new(16 << 20));
        let transfer = Transfer::new(spool.clone(), pool);
        let packer = Packer::new(Arc::new(Objects::with_ahead(
            transfer,
            Some(Ahead::Spool(Arc::clone(&spool))),
        )));
        let pieces = (0..10).map(|chunk| Piece {
            offset: chunk * BLOCK_SIZE,
            bytes: Bytes::from_static(b"bytes"),
        });
        let begun = clock::now();
        let placed = packer.store(pieces.collect(), Compression::None).await;
        assert_eq!(placed.expect("the bucket takes them").len(), 10);
        assert!(begun.elapsed() < 2 * ROOM_WAIT, "{:?}", begun.elapsed());
    }

    /// What fails to be synced.
    fn no_file() -> Arc<SpooledFile> {
        let (pipe, _) = io::pipe().expect("there are some left");
        SpooledFile::new(fs::File::from(std::os::fd::OwnedFd::from(pipe)))
    }

    fn due(spool: &Spool) -> Due {
        let due = spool.unsent.due(clock::now() + OPEN_FOR, HashSet::new);
        due.expect("it is old enough")
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
        let due = due(&spool);
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
        let due = due(&spool);
        spool.read(&due).expect("it is here");
        let spooled = spool.file(due.object).expect("it is here");
        assert!(!spooled.is_unsynced.load(Ordering::SeqCst));
    }

    /// A sync of the log that came meanwhile took for synced what the disk did not have: a power cut took it.
    #[tokio::test]
    async fn nothing_counts_as_synced_before_the_sync_of_an_upload_has_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        drop(taken(&spool, 6).await);
        let due = due(&spool);
        let spooled = spool.file(due.object).expect("it is here");
        let mut was_unsynced = false;
        let look = |file: &fs::File| {
            was_unsynced = spooled.is_unsynced.load(Ordering::SeqCst);
            file.sync_data()
        };
        spool.read_synced(&due, look).expect("it is here");
        assert!(was_unsynced, "who passes the barrier syncs it, too");
    }

    /// The kernel says once that a sync failed: to the upload, and the sync of the log that came next succeeded.
    #[tokio::test]
    async fn nothing_counts_as_synced_after_an_upload_whose_sync_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = spool(&directory);
        drop(taken(&spool, 6).await);
        let due = due(&spool);
        let file = spool.files.lock().insert(due.object, no_file());
        assert!(spool.read(&due).is_err(), "no pipe is synced");
        spool
            .files
            .lock()
            .extend(file.map(|file| (due.object, file)));
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
        let extent = run.extent((slot.object(), UNKNOWN_LENGTH), slot.offset());
        let path = first.path(slot.object());
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
        first.files.lock().insert(object, no_file());
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
