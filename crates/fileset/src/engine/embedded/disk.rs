//! The disk that the log and the tree are on, which may be full.
//!
//! A worker that finds no room waits until there is some. Meanwhile each attempt that fails is told to whoever waits
//! for the worker, and whoever asks anew begins the next attempt. So a full disk costs nothing of what the engine
//! knows: reads go on, changes are refused, and writing goes on as soon as there is room. An engine that is being
//! opened or closed does not wait.

use std::{
    io::{self, ErrorKind},
    sync::{Arc, Condvar},
    time::Duration,
};

use penstock_base::Mutex;
use redb::{StorageBackend, backends::FileBackend};
use tokio::sync::watch;

use crate::engine::{EngineError, EngineResult};

/// Between two attempts that nobody asks for.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Disk {
    worker: Mutex<Waiting>,
    bell: Condvar,
    fullness: watch::Sender<Fullness>,
}

/// How the worker waits.
#[derive(Debug, Default)]
struct Waiting {
    /// It does.
    is_patient: bool,
    /// Attempts to write that were begun.
    attempts: u64,
    /// Somebody wants another attempt.
    is_asked: bool,
}

#[derive(Debug, Clone, Default)]
struct Fullness {
    /// The last attempt that found no room.
    refused: u64,
    /// What it found, if the worker still waits.
    why: Option<EngineError>,
}

/// What becomes of attempts that begin after a moment.
pub(super) struct Refusals {
    fullness: watch::Receiver<Fullness>,
    before: u64,
}

impl Refusals {
    /// Returns when the disk has refused something, or has room though it had none.
    async fn settled(&mut self) -> EngineResult<()> {
        let before = self.before;
        let settled = self
            .fullness
            .wait_for(|fullness| fullness.refused > before || fullness.why.is_none());
        match settled.await.map(|fullness| fullness.why.clone()) {
            Ok(Some(error)) => Err(error),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Returns when the disk has refused something.
    pub(super) async fn next(&mut self) -> EngineError {
        let before = self.before;
        let is_refused = |fullness: &Fullness| fullness.refused > before && fullness.why.is_some();
        let refused = self.fullness.wait_for(is_refused).await;
        let why = refused.ok().and_then(|fullness| fullness.why.clone());
        why.unwrap_or(EngineError::NOT_RUN)
    }
}

impl TreeFile {
    pub(super) fn new(file: FileBackend, disk: Arc<Disk>) -> Self {
        Self { file, disk }
    }
}

impl Disk {
    /// Whether the worker waits for room from now on.
    pub(super) fn be_patient(&self, is_patient: bool) {
        self.worker.lock().is_patient = is_patient;
        self.bell.notify_all();
    }

    /// Somebody waits for the worker: it makes another attempt, if it waits for room.
    pub(super) fn ask(&self) {
        self.worker.lock().is_asked = true;
        self.bell.notify_all();
    }

    /// What is refused of attempts that begin from now on.
    pub(super) fn refusals(&self) -> Refusals {
        Refusals {
            fullness: self.fullness.subscribe(),
            before: self.worker.lock().attempts,
        }
    }

    /// Returns at once, or after another attempt if the worker waits for room. Fails if there still is none.
    pub(super) async fn has_room(&self) -> EngineResult<()> {
        let mut refusals = self.refusals();
        if self.fullness.borrow().why.is_none() {
            return Ok(());
        }
        self.ask();
        refusals.settled().await
    }

    /// Makes attempts to write until one finds room. Blocks.
    pub(super) fn write<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            self.begin();
            match attempt() {
                Err(error) if is_full(&error) && self.wait(&error) => {}
                ended => {
                    self.go_on();
                    return ended;
                }
            }
        }
    }

    fn begin(&self) {
        let mut worker = self.worker.lock();
        worker.attempts += 1;
        worker.is_asked = false;
    }

    /// Tells everybody that there is no room, and returns when it is time for another attempt; false if there is to
    /// be none.
    fn wait(&self, error: &io::Error) -> bool {
        let worker = self.worker.lock();
        if !worker.is_patient {
            return false;
        }
        self.fullness.send_modify(|fullness| {
            fullness.refused = worker.attempts;
            if fullness.why.is_none() {
                tracing::error!(%error, "the disk of the metadata is full: nothing is changed until it has room");
            }
            fullness.why = Some(EngineError::Full(error.to_string()));
        });
        let is_idle = |worker: &mut Waiting| worker.is_patient && !worker.is_asked;
        let woken = self
            .bell
            .wait_timeout_while(worker, RETRY_INTERVAL, is_idle);
        woken.is_ok_and(|(worker, _)| worker.is_patient)
    }

    /// The worker waits no more.
    pub(super) fn go_on(&self) {
        let went_on = self
            .fullness
            .send_if_modified(|fullness| fullness.why.take().is_some());
        if went_on {
            tracing::info!("the disk of the metadata has room again");
        }
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// The file of the tree. The tree takes a write that fails for its end, so none fails for want of room.
#[derive(Debug)]
pub(super) struct TreeFile {
    file: FileBackend,
    disk: Arc<Disk>,
}

impl StorageBackend for TreeFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.write(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
