//! Staged mode: files that can be written anywhere.
//!
//! What is written lies in the staging area ([`penstock_transfer::staging`]) until it is saved, and is read from
//! there; what only the store has is read from the store. All handles of a file share that, so a read sees what
//! any program of this mount wrote. Saving is described in [`crate::open_file::save`].
//!
//! A save replaces the very version that the changes are relative to. When another client wrote one
//! meanwhile, theirs stays, and ours is put aside with a line in the log that says where.
//!
//! Nothing that was accepted is lost: a save that fails leaves everything here, and is retried when the file is
//! closed ([`retry`]), or saved behind the close from the beginning ([`behind`]). What a process that dies leaves is shown by the next mount as it was, and saved
//! ([`recover`]). When space is short, what the store has is given up ([`room`]).
//!
//! - [`StagedMode`]: what the staged files of a volume share.
//! - [`StagedBody`]: what a staged file has beyond what every open file has.

pub(crate) mod behind;
pub(crate) mod describe;
pub(crate) mod engage;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod resize;
pub(crate) mod retry;
pub(crate) mod room;
pub(crate) mod save;
pub(crate) mod sync;
mod unsaved;
pub(crate) mod write;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult, clock::Instant};
use penstock_object::Key;
use penstock_transfer::staging::{Content, FileId, Reopened, StagedFile, Staging};
use penstock_vfs::Unsaved;
use tokio::sync::Semaphore;

use crate::open_file::OpenFile;

/// Files that are tried at the same time of those that an earlier mount left or that could not be
/// saved when they were closed.
const RETRIED_AT_ONCE: usize = 8;

/// What the staged files of a volume share.
#[derive(Debug)]
pub(crate) struct StagedMode {
    staging: Arc<Staging>,
    /// One write at a time makes room. When that came to nothing last.
    making_room: tokio::sync::Mutex<Option<Instant>>,
    /// Turns to save what was not saved when it was closed.
    retrying: Semaphore,
    /// Files that hold staging space.
    engaged: OpenFiles,
    /// Files that an earlier mount left and that are not saved yet.
    left: OpenFiles,
    /// Files of an earlier mount that were saved.
    recovered: AtomicU64,
}

/// Open files by the names of their staging files.
#[derive(Debug, Default)]
struct OpenFiles(Mutex<HashMap<FileId, Weak<OpenFile>>>);

impl OpenFiles {
    fn add(&self, id: &FileId, file: &Arc<OpenFile>) {
        lock(&self.0).insert(id.clone(), Arc::downgrade(file));
    }

    fn remove(&self, id: &FileId) {
        lock(&self.0).remove(id);
    }

    fn all(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.0).values().filter_map(Weak::upgrade).collect()
    }
}

/// What an open file has in staged mode.
#[derive(Debug)]
pub(crate) struct StagedBody {
    pub(crate) mode: Arc<StagedMode>,
    /// What was written and not saved, and what of the rest is here.
    pub(crate) content: Arc<StagedFile>,
    /// Held by a save, an engagement, a removal or a rename of the file.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// See [`write::Pieces`].
    pieces: Mutex<write::Pieces>,
    /// Whether a save in the background is under way.
    saving_back: AtomicBool,
    /// Whether the file is retried after it was closed and could not be saved.
    retried: AtomicBool,
    /// Why the last save behind the close failed, until a program was told.
    failed_behind: Mutex<Option<FsError>>,
    /// Why the last attempt to save it failed; nothing after one that succeeded.
    failure: Mutex<Option<FsError>>,
}

impl StagedMode {
    /// A volume whose files are staged in `staging`.
    pub(crate) fn new(staging: Arc<Staging>) -> Arc<Self> {
        Arc::new(Self {
            staging,
            making_room: tokio::sync::Mutex::default(),
            retrying: Semaphore::new(RETRIED_AT_ONCE),
            engaged: OpenFiles::default(),
            left: OpenFiles::default(),
            recovered: AtomicU64::new(0),
        })
    }

    /// The staging area.
    pub(crate) fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    /// Files that are not saved, and their bytes. Those that no handle has open any more are among them.
    pub(crate) fn unsaved(&self) -> Unsaved {
        let files = self.engaged.all();
        let views = files.iter().map(|file| file.view());
        let sizes: Vec<u64> = views
            .filter(|view| view.dirty && !view.removed)
            .map(|view| view.size)
            .collect();
        Unsaved {
            files: sizes.len() as u64,
            bytes: sizes.iter().sum(),
            ..Unsaved::default()
        }
    }

    /// Files of an earlier mount that were saved.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    /// Files that an earlier mount left and that are not saved yet, and the bytes of them that the
    /// store lacks.
    pub(crate) fn left(&self) -> Unsaved {
        let files = self.left.all();
        Unsaved {
            files: files.len() as u64,
            bytes: files.iter().map(|file| room::dirty_bytes(file)).sum(),
            ..Unsaved::default()
        }
    }
}

impl StagedBody {
    /// Of a file of which nothing is staged.
    pub(crate) fn new(mode: &Arc<StagedMode>) -> Self {
        Self::of(mode, StagedFile::new(&mode.staging))
    }

    /// Of a file that is closed, and opened again as it was `left`, with the content to engage it with.
    pub(crate) fn going_on(mode: &Arc<StagedMode>, left: Reopened) -> (Self, Content) {
        let (content, held) = StagedFile::going_on(&mode.staging, left);
        (Self::of(mode, content), held)
    }

    /// Of a file that an earlier mount left: it is being retried from the beginning.
    pub(crate) fn recovered(mode: &Arc<StagedMode>, content: StagedFile) -> Self {
        let body = Self::of(mode, content);
        body.retried.store(true, Ordering::Relaxed);
        body
    }

    fn of(mode: &Arc<StagedMode>, content: StagedFile) -> Self {
        Self {
            mode: Arc::clone(mode),
            content: Arc::new(content),
            turn: tokio::sync::Mutex::default(),
            pieces: Mutex::default(),
            saving_back: AtomicBool::new(false),
            retried: AtomicBool::new(false),
            failed_behind: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Fails with what a save behind the close failed with, once.
    pub(crate) fn failed_behind(&self) -> FsResult<()> {
        lock(&self.failed_behind).take().map_or(Ok(()), Err)
    }

    /// The staging area.
    pub(crate) fn staging(&self) -> &Arc<Staging> {
        &self.mode.staging
    }

    /// Makes `content` what `file`, whose body this is, holds. `show` makes that seen.
    pub(crate) fn engage(
        &self,
        file: &Arc<OpenFile>,
        content: Content,
        key: Key,
        show: impl FnOnce(&Content),
    ) {
        self.content.engage(content, key, show);
        self.mode.engaged.add(self.content.id(), file);
    }
}

impl Drop for StagedBody {
    fn drop(&mut self) {
        self.mode.engaged.remove(self.content.id());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
