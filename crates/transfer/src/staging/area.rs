//! What the staged files of a mount share: the directory, its space, memory for saves.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use penstock_base::{FsError, FsResult, GIB, MIB, MemoryBudget, boot_id, run_blocking};

use crate::staging::{
    closed::{Closed, Left, Reopened},
    disk::on_worker,
    folder::{FileId, Folder, StagingError},
    memory::SaveMemory,
    names::NameLog,
    space::{Payment, Place, Space},
    sweep::{Remains, Sweeper},
    uploads::Uploads,
};

/// Bytes that a file may have unsaved before it is saved while it is still being written, unless
/// set otherwise: what ossfs 1.91 allows.
pub const MAX_DIRTY_DEFAULT: u64 = 5 * GIB;
/// Bytes up to which a file is saved in one request: from there on ossfs 1.91 sends parts, too.
pub const PUT_MAX_DEFAULT: u64 = 25 * MIB;

/// Disk calls that the threads which ask may make at once, unless fewer are set.
pub const AT_ONCE_DEFAULT: usize = 2;

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
    sweeper: Arc<Sweeper>,
    boot: String,
    memory: SaveMemory,
    /// Turns for disk calls on the thread that asks.
    at_once: tokio::sync::Semaphore,
    uploads: Arc<Uploads>,
    names: Mutex<NameLog>,
}

impl Staging {
    /// Takes the directory. Fails when another mount has it.
    pub fn open(
        settings: StagingSettings,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Arc<Self>, StagingError> {
        let folder = Folder::take(&settings.directory)?;
        let uploads = Uploads::new(&folder, &settings.volume);
        let space = Space::new(folder.clone(), settings.size);
        let closed = Closed::new(settings.size, budget.total());
        let memory = SaveMemory::new(budget);
        let at_once = tokio::sync::Semaphore::new(settings.at_once);
        let names = Mutex::new(NameLog::new(&folder, &settings.volume));
        Ok(Arc::new(Self {
            settings,
            folder,
            space,
            closed,
            sweeper: Arc::default(),
            boot: boot_id(),
            memory,
            at_once,
            uploads,
            names,
        }))
    }

    /// Where and how much is staged.
    pub fn settings(&self) -> &StagingSettings {
        &self.settings
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The account of what the directory may hold.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// What closed files left.
    pub fn closed(&self) -> &Closed {
        &self.closed
    }

    /// Removes what is not needed any more.
    pub(crate) fn sweeper(&self) -> &Arc<Sweeper> {
        &self.sweeper
    }

    /// What the files `id` are once their file is closed, which `payment` is for.
    pub(crate) fn remains(&self, id: FileId, payment: Option<Payment>) -> Remains {
        Remains::new(&self.sweeper, &self.folder, id, payment)
    }

    /// Opens what a closed file left. It is removed if the disk refuses. Blocks.
    pub fn reopen(&self, left: Left) -> Option<Reopened> {
        left.reopen(&self.folder)
    }

    /// Uploads that must not stay behind.
    pub fn uploads(&self) -> &Arc<Uploads> {
        &self.uploads
    }

    /// The log of names. The lock is held while the disk takes a record. Blocks.
    pub fn names(&self) -> MutexGuard<'_, NameLog> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for saves.
    pub(crate) fn memory(&self) -> &SaveMemory {
        &self.memory
    }

    /// Removes what is not needed after the end of the mount, as far as the disk does that in time.
    /// Blocks.
    pub fn end(&self) {
        self.closed.end();
        self.sweeper.finish();
    }

    /// Takes `bytes` of space if they are there without what closed files left, and beside what others
    /// wait for.
    pub async fn take(&self, bytes: u64) -> Option<Payment> {
        match self.space.try_take_known(bytes) {
            Some(payment) => Some(payment),
            None => on_worker(|| self.take_at(&self.space.line_up(bytes))).await,
        }
    }

    /// Takes what is waited for at `place` if it is there without what closed files left. Blocks.
    pub fn take_at(&self, place: &Place) -> Option<Payment> {
        loop {
            if let Some(payment) = place.try_take() {
                return Some(payment);
            }
            // What is given up counts until it is removed.
            let is_swept = self.sweeper.finish();
            let payment = place.try_take();
            if payment.is_some() || !is_swept || !self.closed.give_up_one() {
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
    pub fn put_max(&self) -> u64 {
        self.settings.put_max.min(self.memory.longest())
    }

    /// Makes a disk call, to its end, whether or not the caller stays.
    ///
    /// Most disk calls only copy to or from the page cache, and passing one to another thread costs
    /// several times more than making it. A busy disk however holds up the caller, which may be a thread that
    /// receives requests: so only a few are made at once, and the others by threads that may block; as is what
    /// is not `quick`.
    pub async fn on_disk<T: Send + 'static>(
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

    /// Bytes in the staging directory.
    pub fn used(&self) -> u64 {
        self.space.used()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.end();
    }
}
