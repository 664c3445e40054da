//! An engine for one process on one machine, without a server.
//!
//! ```text
//!   operation ──► recent changes, in memory ──► B-tree (`table`)      a checkpoint, every some thousand operations
//!        └──────► log (`log`), synced in groups                       before anything is acknowledged as durable
//! ```
//!
//! Operations run on the thread that asks, one at a time, against the changes that are in memory and the tree below
//! them, and none waits for the disk. One commit worker (`worker`) writes what they did to the log, syncs it for
//! those who wait, and now and then brings the changes into the tree in one commit. A durable create so costs its
//! bytes in the log, not the pages of a tree, and a crash leaves a log to read that is as long as what lies between
//! two checkpoints. Figures and the alternatives are in `docs/decisions/fileset.md`.

mod log;
mod state;
mod table;
mod worker;

use std::{fs, path::PathBuf, sync::Arc, thread};

use async_trait::async_trait;
use penstock_base::{DirectoryLock, DirectoryLockError, Mutex};

use self::{
    log::{Log, Replayed},
    state::State,
    table::Tree,
    worker::{Shared, Worker},
};
use super::{Engine, EngineError, EngineResult, Operation, Query};
use crate::engine::layers::Changes;

/// The tree's file.
const TREE: &str = "tree";
/// Changes over the tree that begin a checkpoint, as a part of the memory.
const RECENT_SHARE: u64 = 8;
/// The same at most: what lies between two checkpoints is read again after a crash.
const RECENT_MAX: u64 = 8 << 20;

/// Where an embedded engine keeps its files, and how much memory it may use.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// A directory of this user's, which is made.
    pub directory: PathBuf,
    /// Bytes of memory for changes that the tree lacks and for pages of the tree.
    pub memory: u64,
}

/// See the module.
pub struct EmbeddedEngine {
    shared: Arc<Shared>,
    /// Held until the worker ended.
    lock: Mutex<Option<Held>>,
}

/// What one process has.
struct Held {
    _lock: DirectoryLock,
    worker: thread::JoinHandle<()>,
}

impl EmbeddedEngine {
    /// Opens what is in the directory, or begins. Blocks on the disk. Fails with `InUse` while another process, or
    /// another part of this one, has it open.
    pub fn open(settings: &EmbeddedSettings) -> EngineResult<Self> {
        let directory = &settings.directory;
        fs::create_dir_all(directory).map_err(|error| log::failure(directory, &error))?;
        let lock = DirectoryLock::take(directory).map_err(|error| match error {
            DirectoryLockError::InUse { pid } => EngineError::InUse { pid },
            DirectoryLockError::Io(error) => log::failure(directory, &error),
        })?;
        let recent_max = (settings.memory / RECENT_SHARE).min(RECENT_MAX) as usize;
        let cache = settings.memory as usize / 2;
        let tree = Arc::new(Tree::open(&directory.join(TREE), cache)?);
        let sequence = tree.sequence()?;
        if sequence == 0 {
            // The table is there from the beginning on.
            tree.merge(&Changes::new(), 0)?;
        }
        let replayed = Replayed::read(directory, sequence)?;
        let log = Log::go_on(directory, &replayed)?;
        let state = State::new(tree.state()?, replayed);
        let shared = Arc::new(Shared::new(state, recent_max));
        let worker = Worker {
            shared: Arc::clone(&shared),
            log,
            tree,
        };
        let worker = thread::Builder::new()
            .name("fileset-commit".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| log::failure(directory, &error))?;
        let held = Held {
            _lock: lock,
            worker,
        };
        Ok(Self {
            shared,
            lock: Mutex::new(Some(held)),
        })
    }
}

impl std::fmt::Debug for EmbeddedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedEngine").finish_non_exhaustive()
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(held) = self.lock.lock().take() {
            // The lock of the directory goes after the worker.
            let _ = held.worker.join();
        }
    }
}

#[async_trait]
impl Engine for EmbeddedEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        query(&self.shared.read().reads());
        Ok(())
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        self.shared.room().await?;
        let ran = self.shared.write().run(&mut operation);
        self.shared.ring();
        ran
    }

    async fn sync(&self) -> EngineResult<()> {
        let sequence = {
            let state = self.shared.read();
            if let Some(error) = state.failed() {
                return Err(error.clone());
            }
            state.sequence()
        };
        if self.shared.progress.borrow().synced >= sequence {
            return Ok(());
        }
        self.shared.synced(sequence).await
    }

    async fn close(&self) -> EngineResult<()> {
        let closed = self.shared.closed().await;
        let held = self.lock.lock().take();
        if let Some(held) = held {
            let _ = penstock_base::run_blocking(|| held.worker.join());
        }
        closed
    }
}
