//! What the staged files of a mount share: the directory, its space, memory for saves.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult, GIB, MIB, MemoryBudget, Reservation, run_blocking};

use crate::{
    open_file::OpenFile,
    staged::{
        closed::Closed,
        folder::{FileId, Folder, StagingError},
        gather::Turns,
        lock,
        room::unsaved,
        space::{Payment, Space},
        uploads::Uploads,
    },
};

/// Bytes that a file may have unsaved before it is saved while it is still being written, unless
/// set otherwise: what ossfs 1.91 allows.
pub const MAX_DIRTY_DEFAULT: u64 = 5 * GIB;
/// Bytes up to which a file is saved in one request: from there on ossfs 1.91 sends parts, too.
pub const PUT_MAX_DEFAULT: u64 = 25 * MIB;

/// The share of the memory budget that is kept for saves, so that writes which wait for space
/// cannot keep the memory from the save that would make it.
const SAVE_SHARE: u64 = 8;
/// The most that is kept for saves.
const SAVE_MEMORY_MAX: u64 = 32 * MIB;

/// Disk calls that the threads which ask may make at once, unless fewer are set.
pub const AT_ONCE_DEFAULT: usize = 2;

/// Files that are tried at the same time of those that an earlier mount left or that could not be
/// saved when they were closed.
const KEPT_AT_ONCE: usize = 8;

/// The system names the time since which it runs here.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where and how much is staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingSettings {
    /// The directory, of this mount alone.
    pub directory: PathBuf,
    /// Bytes that it may hold. Whatever this says, some of the file system is left to others.
    pub size: u64,
    /// Bytes of one file that may be unsaved before it is saved in the background.
    pub max_dirty: u64,
    /// Bytes up to which a file is saved in one request.
    pub put_max: u64,
    /// Disk calls that the threads which ask may make at once; the others are passed to threads that
    /// may block. Fewer than the door has threads that receive requests, or a disk that stands still
    /// holds up everything.
    pub at_once: usize,
    /// What tells the store and its bucket from every other, without credentials: what an earlier
    /// mount left in the directory is saved only if it was of the same.
    pub volume: String,
}

impl StagingSettings {
    /// The defaults for a mount of `volume` that stages in `directory`.
    pub fn new(directory: impl Into<PathBuf>, volume: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            size: u64::MAX,
            max_dirty: MAX_DIRTY_DEFAULT,
            put_max: PUT_MAX_DEFAULT,
            at_once: AT_ONCE_DEFAULT,
            volume: volume.into(),
        }
    }
}

/// A staging directory in use.
#[derive(Debug)]
pub struct Staging {
    settings: StagingSettings,
    folder: Folder,
    space: Arc<Space>,
    closed: Closed,
    boot: String,
    /// Memory for saves, when nobody else gives any.
    memory: Option<(Arc<MemoryBudget>, Reservation)>,
    /// Who gathers bytes for saves.
    pub(crate) gathering: Turns,
    /// One write at a time makes room.
    pub(crate) making_room: tokio::sync::Mutex<()>,
    /// Turns for disk calls on the thread that asks.
    at_once: tokio::sync::Semaphore,
    engaged: Mutex<HashMap<FileId, Weak<OpenFile>>>,
    /// Turns to save what was not saved when it was closed.
    pub(crate) keeping: tokio::sync::Semaphore,
    /// Files that an earlier mount left and that are not saved yet.
    left: Mutex<HashMap<FileId, Weak<OpenFile>>>,
    /// Files of an earlier mount that were saved.
    pub(crate) recovered: AtomicU64,
    pub(crate) uploads: Uploads,
}

impl Staging {
    /// Takes the directory. Fails when another mount has it.
    pub fn open(
        settings: StagingSettings,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Arc<Self>, StagingError> {
        let folder = Folder::take(&settings.directory)?;
        let space = Space::new(folder.clone(), settings.size);
        let closed = Closed::new(settings.size);
        let share = (budget.total() / SAVE_SHARE).min(SAVE_MEMORY_MAX);
        let memory = budget.try_reserve(share);
        let at_once = tokio::sync::Semaphore::new(settings.at_once);
        let boot = fs::read_to_string(Path::new(BOOT_ID)).unwrap_or_default();
        Ok(Arc::new(Self {
            settings,
            folder,
            space,
            closed,
            boot: boot.trim().to_owned(),
            memory: memory.map(|backing| (MemoryBudget::new(backing.bytes()), backing)),
            gathering: Turns::default(),
            making_room: tokio::sync::Mutex::default(),
            at_once,
            engaged: Mutex::default(),
            keeping: tokio::sync::Semaphore::new(KEPT_AT_ONCE),
            left: Mutex::default(),
            recovered: AtomicU64::new(0),
            uploads: Uploads::default(),
        }))
    }

    /// Where and how much is staged.
    pub fn settings(&self) -> &StagingSettings {
        &self.settings
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// What closed files left.
    pub(crate) fn closed(&self) -> &Closed {
        &self.closed
    }

    /// Takes `bytes` of space if they are there without what closed files left.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Payment> {
        loop {
            let payment = self.space.try_take(bytes);
            if payment.is_some() || !self.closed.give_up_one() {
                return payment;
            }
        }
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    pub(crate) fn volume(&self) -> &str {
        &self.settings.volume
    }

    /// Bytes up to which a file is saved in one request: one save's memory holds it.
    pub(crate) fn put_max(&self) -> u64 {
        let kept = self
            .memory
            .as_ref()
            .map_or(MIB, |(memory, _)| memory.total());
        self.settings.put_max.min(kept)
    }

    /// Memory for a save: from `budget`, or from what is kept for saves.
    pub(crate) async fn save_memory(
        &self,
        budget: &MemoryBudget,
        bytes: u64,
    ) -> FsResult<Reservation> {
        let Some((kept, _)) = &self.memory else {
            return budget.reserve(bytes).await;
        };
        if let Some(memory) = budget.try_reserve(bytes) {
            return Ok(memory);
        }
        tokio::select! {
            memory = kept.reserve(bytes) => memory,
            memory = budget.reserve(bytes) => memory,
        }
    }

    /// Makes a disk call, to its end, whether or not the caller stays.
    ///
    /// Most disk calls only copy to or from the page cache, and passing one to another thread costs
    /// several times more than making it. A busy disk however holds up whoever calls, and the
    /// caller may be a thread that receives requests: so only a few are made at once, and the
    /// others by threads that may block; as is what is not `quick`.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        quick: bool,
        call: impl FnOnce() -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        if quick && let Ok(_turn) = self.at_once.try_acquire() {
            return run_blocking(call);
        }
        let made = tokio::task::spawn_blocking(call).await;
        made.unwrap_or_else(|error| Err(FsError::Io(format!("a disk call broke off: {error}"))))
    }

    /// Notes a file that holds staging space.
    pub(crate) fn note_engaged(&self, id: &FileId, file: &Arc<OpenFile>) {
        lock(&self.engaged).insert(id.clone(), Arc::downgrade(file));
    }

    /// Forgets a file that is closed.
    pub(crate) fn forget(&self, id: &FileId) {
        lock(&self.engaged).remove(id);
    }

    /// Files that hold staging space.
    pub(crate) fn engaged(&self) -> Vec<Arc<OpenFile>> {
        let engaged = lock(&self.engaged);
        engaged.values().filter_map(Weak::upgrade).collect()
    }

    /// Bytes in the staging directory.
    pub(crate) fn used(&self) -> u64 {
        self.space.used()
    }

    /// Files of an earlier mount that were saved.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    /// Notes a file that an earlier mount left.
    pub(crate) fn note_left(&self, id: &FileId, file: &Arc<OpenFile>) {
        lock(&self.left).insert(id.clone(), Arc::downgrade(file));
    }

    /// Notes that nothing is left to do for a file that an earlier mount left.
    pub(crate) fn settle_left(&self, id: &FileId) {
        lock(&self.left).remove(id);
    }

    /// Files that an earlier mount left and that are not saved yet, and the bytes of them that the
    /// store lacks.
    pub(crate) fn left(&self) -> (usize, u64) {
        let files: Vec<_> = lock(&self.left)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        (files.len(), files.iter().map(|file| unsaved(file)).sum())
    }
}
