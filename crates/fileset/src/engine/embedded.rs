//! An engine for one process on one machine, without a server.
//!
//! ```text
//!   operation ──► recent changes, in memory ──► B-tree (`table`)      a checkpoint, every some thousand operations
//!        └──────► log (`log`), synced in groups                       before anything is acknowledged as durable
//! ```
//!
//! Operations run on the thread that asks, one at a time, against the changes that are in memory and the tree below
//! them, are written to the log by that thread, and none waits for the disk. One commit worker (`worker`) syncs the log
//! for those who wait, and now and then brings the changes into the tree in one commit. A durable create so costs its
//! bytes in the log, not the pages of a tree, and a crash leaves a log to read that is as long as what lies between
//! two checkpoints. Figures and the alternatives are in `docs/decisions/fileset.md`.

mod disk;
mod log;
mod state;
mod table;
mod worker;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{DirectoryLock, DirectoryLockError, Mutex, run_blocking};

pub(super) use self::table::{Fact, Tree, TreeState};
use self::{
    disk::Disk,
    log::{Log, Replayed},
    state::State,
    worker::{LogEnd, Shared, Worker},
};
use super::{Barrier, Engine, EngineError, EngineResult, Frozen, Operation, Query};
use crate::engine::{
    layers::{Changes, Whole},
    record::{Record, Tip},
};

/// The fact that says who ships the log of this directory, if anybody does.
pub(super) const HOLDER: &str = "holder";
/// The tree's file.
const TREE: &str = "tree";
/// The file of the tree that will be in its place.
const REPLACEMENT: &str = "tree.new";
/// Changes over the tree that begin a checkpoint, as a part of the memory.
const RECENT_SHARE: u64 = 8;
/// The same at most.
const RECENT_MAX: u64 = 8 << 20;

/// Where an embedded engine keeps its files, and how much memory it may use.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// A directory of this user's, which is made.
    pub directory: PathBuf,
    /// Bytes of memory for changes that the tree lacks and for pages of the tree.
    pub memory: u64,
}

/// The directory of an engine, which nobody else opens as long as this lives. What belongs to the metadata and lies
/// elsewhere is looked at under it, and then the engine is opened with it.
#[derive(Debug)]
pub struct EmbeddedLock {
    settings: EmbeddedSettings,
    lock: DirectoryLock,
}

impl EmbeddedLock {
    /// Makes the directory and locks it. Nothing in it is read. Fails with `InUse` while another process, or another
    /// part of this one, has it.
    pub fn take(settings: &EmbeddedSettings) -> EngineResult<Self> {
        let directory = &settings.directory;
        fs::create_dir_all(directory).map_err(|error| log::failure(directory, &error))?;
        let lock = DirectoryLock::take(directory).map_err(|error| match error {
            DirectoryLockError::InUse { pid } => EngineError::InUse { pid },
            DirectoryLockError::Io(error) => log::failure(directory, &error),
        })?;
        Ok(Self {
            settings: settings.clone(),
            lock,
        })
    }
}

/// See the module.
pub struct EmbeddedEngine {
    shared: Arc<Shared>,
    tree: Arc<Tree>,
    /// Until it is closed.
    held: Mutex<Option<Held>>,
}

/// What one process has.
struct Held {
    lock: DirectoryLock,
    worker: thread::JoinHandle<()>,
}

/// Records that the log got at once.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    /// What they go on behind.
    pub(super) before: Tip,
    /// The number of the last operation.
    pub(super) last: u64,
    pub(super) records: Bytes,
}

/// Somebody who gets the log as it is written, on the worker's thread, and does not keep it waiting.
pub(super) trait Tap: Send + Sync {
    /// The log goes on with this.
    fn take(&self, chunk: Chunk);

    /// The last operation that need not be kept for it.
    fn done(&self) -> u64;
}

/// One who wants all of the log, later.
#[derive(Debug)]
struct Absent;

impl Tap for Absent {
    fn take(&self, _chunk: Chunk) {}

    fn done(&self) -> u64 {
        0
    }
}

/// What is on the disk, locked and read, before the engine begins to work.
pub(super) struct Prepared {
    disk: Arc<Disk>,
    pub(super) tree: Arc<Tree>,
    pub(super) replayed: Replayed,
    /// The last operation that is in the tree.
    merged: u64,
    /// Behind the last operation that was on the disk.
    found: Tip,
    /// Records that were found elsewhere, which go on there.
    added: Vec<Record>,
    /// The last field: it is given back once the tree is closed.
    lock: EmbeddedLock,
}

impl Prepared {
    /// Reads what is in the directory, or begins. Blocks on the disk. Fails with `InUse` while another process, or
    /// another part of this one, has it open.
    pub(super) fn open(settings: &EmbeddedSettings) -> EngineResult<Self> {
        Self::open_locked(EmbeddedLock::take(settings)?, None)
    }

    fn open_locked(lock: EmbeddedLock, barrier: Option<&dyn Barrier>) -> EngineResult<Self> {
        let settings = &lock.settings;
        let directory = &settings.directory;
        Replacement::go_on(settings)?;
        let disk = Arc::new(Disk::default());
        let tree = Arc::new(opened(settings, TREE, &disk)?);
        if tree.fact(HOLDER)?.is_none() && directory.join(REPLACEMENT).exists() {
            return Err(EngineError::Corrupt(
                "it was not brought here to its end: `penstock fileset attach` goes on".to_owned(),
            ));
        }
        let merged = tree.tip()?;
        if merged == Tip::default() {
            // The table is there from the beginning on.
            tree.merge(&Changes::new(), merged)?;
        }
        let replayed = Replayed::read(directory, merged, barrier)?;
        Ok(Self {
            disk,
            tree,
            merged: merged.sequence,
            found: replayed.tip,
            replayed,
            added: Vec::new(),
            lock,
        })
    }

    /// Behind the last operation.
    pub(super) fn tip(&self) -> Tip {
        self.replayed.tip
    }

    /// Goes on with a record that was found elsewhere.
    pub(super) fn add(&mut self, record: Record) -> EngineResult<()> {
        self.replayed.go_on_with(&record)?;
        self.added.push(record);
        Ok(())
    }

    /// Begins to work.
    pub(super) fn start(
        self,
        tap: Option<Arc<dyn Tap>>,
        barrier: Option<Arc<dyn Barrier>>,
    ) -> EngineResult<EmbeddedEngine> {
        let settings = &self.lock.settings;
        let directory = &settings.directory;
        let written = self.replayed.tip;
        if let Some(barrier) = &barrier {
            let passed = barrier.pass();
            passed.map_err(|error| log::failure(directory, &error))?;
        }
        let disk = Arc::clone(&self.disk);
        let mut log = Log::go_on((directory, disk), &self.replayed, self.found)?;
        for record in &self.added {
            log.write(&record.whole)?;
        }
        log.sync()?;
        let recent_max = (settings.memory / RECENT_SHARE).min(RECENT_MAX) as usize;
        let state = State::new((self.tree.state()?, self.merged), self.replayed);
        self.disk.be_patient(true);
        let end = LogEnd::new((log, written), tap);
        let shared = Shared::new((state, end), (self.merged, recent_max), self.disk);
        let shared = Arc::new(shared);
        let worker = Worker {
            shared: Arc::clone(&shared),
            tree: Arc::clone(&self.tree),
            barrier,
        };
        // There may be enough for a checkpoint.
        shared.ring();
        let worker = thread::Builder::new()
            .name("fileset-commit".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| log::failure(directory, &error))?;
        let held = Held {
            lock: self.lock.lock,
            worker,
        };
        Ok(EmbeddedEngine {
            shared,
            tree: self.tree,
            held: Mutex::new(Some(held)),
        })
    }
}

/// A tree that is filled from elsewhere, in a directory that is locked. What is in the directory stays until it is whole,
/// as [`HOLDER`] in it says; from then on it counts, also for who opens the directory after a crash.
pub(super) struct Replacement {
    pub(super) tree: Tree,
    /// The last field: it is given back once the tree is closed.
    lock: EmbeddedLock,
}

impl Replacement {
    /// Begins, or goes on with what was begun and not ended, if that is sound. Nothing else in the directory is read.
    /// Blocks on the disk.
    pub(super) fn open(settings: &EmbeddedSettings) -> EngineResult<Self> {
        let lock = EmbeddedLock::take(settings)?;
        Self::go_on(settings)?;
        let path = settings.directory.join(REPLACEMENT);
        let tree = match opened(settings, REPLACEMENT, &Arc::default()) {
            Err(EngineError::Corrupt(_)) => {
                fs::remove_file(&path).map_err(|error| log::failure(&path, &error))?;
                opened(settings, REPLACEMENT, &Arc::default())?
            }
            opened => opened?,
        };
        Ok(Self { tree, lock })
    }

    /// Puts it in the place of all that was in the directory. Blocks on the disk.
    pub(super) fn finish(self) -> EngineResult<Prepared> {
        let Self { tree, lock } = self;
        drop(tree);
        Self::put_in_place(&lock.settings.directory)?;
        Prepared::open_locked(lock, None)
    }

    /// Goes on with putting one in its place that is whole.
    fn go_on(settings: &EmbeddedSettings) -> EngineResult<()> {
        if !settings.directory.join(REPLACEMENT).exists() {
            return Ok(());
        }
        let tree = opened(settings, REPLACEMENT, &Arc::default());
        match tree.and_then(|tree| tree.fact(HOLDER)) {
            Ok(Some(_)) => Self::put_in_place(&settings.directory),
            Ok(None) | Err(EngineError::Corrupt(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The log of the tree that was there goes before that: it is none of the new one. Each step is durable before the next.
    fn put_in_place(directory: &Path) -> EngineResult<()> {
        let sync = || fs::File::open(directory)?.sync_all();
        let failure = |error: io::Error| log::failure(directory, &error);
        sync().map_err(failure)?;
        Replayed::remove(directory)?;
        sync().map_err(failure)?;
        let renamed = fs::rename(directory.join(REPLACEMENT), directory.join(TREE));
        renamed.and_then(|()| sync()).map_err(failure)
    }
}

/// The tree in a file of the directory.
fn opened(settings: &EmbeddedSettings, file: &str, disk: &Arc<Disk>) -> EngineResult<Tree> {
    let (path, cache) = (settings.directory.join(file), settings.memory as usize / 2);
    // A log goes with a tree that was whole once.
    let may_be_new = file == REPLACEMENT || !Replayed::is_there(&settings.directory)?;
    if may_be_new && Tree::was_never_made(&path)? {
        fs::remove_file(&path).map_err(|error| log::failure(&path, &error))?;
    }
    Tree::open(&path, cache, Arc::clone(disk))
}

impl EmbeddedEngine {
    /// Opens what is in the directory, or begins. Blocks on the disk. Fails with `InUse` while another process, or
    /// another part of this one, has it open. Of a log that is shipped to elsewhere nothing is dropped.
    pub fn open(settings: &EmbeddedSettings) -> EngineResult<Self> {
        Self::open_locked(EmbeddedLock::take(settings)?, None)
    }

    /// The same in a directory that was locked before, with what must be durable before operations are.
    pub fn open_locked(
        lock: EmbeddedLock,
        barrier: Option<Arc<dyn Barrier>>,
    ) -> EngineResult<Self> {
        let prepared = Prepared::open_locked(lock, barrier.as_deref())?;
        let is_shipped = prepared.tree.fact(HOLDER)?.is_some();
        let tap: Option<Arc<dyn Tap>> = match is_shipped {
            true => Some(Arc::new(Absent)),
            false => None,
        };
        prepared.start(tap, barrier)
    }

    /// The number of the last operation that was applied.
    pub(super) fn sequence(&self) -> EngineResult<u64> {
        let state = self.shared.read();
        match state.failed() {
            Some(error) => Err(error.clone()),
            None => Ok(state.sequence()),
        }
    }

    /// Returns when all up to operation `sequence` is on the disk.
    pub(super) async fn synced(&self, sequence: u64) -> EngineResult<()> {
        if self.shared.progress.borrow().synced >= sequence {
            return Ok(());
        }
        self.shared.synced(sequence).await
    }

    /// The tree with all that is applied by now, and the place behind the last operation in it.
    pub(super) async fn snapshot(&self) -> EngineResult<(TreeState, Tip)> {
        self.shared.merged(self.sequence()?).await?;
        self.tree_state()
    }

    /// The tree as it is, and the place behind the last operation in it.
    fn tree_state(&self) -> EngineResult<(TreeState, Tip)> {
        run_blocking(|| self.tree.snapshot())
    }

    /// Lets go of what one process has, once the worker has ended. Nothing of the directory is in use then.
    fn let_go(&self) {
        let Some(Held { lock, worker }) = self.held.lock().take() else {
            return;
        };
        let _ = worker.join();
        self.tree.close();
        drop(lock);
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
        self.let_go();
    }
}

#[async_trait]
impl Engine for EmbeddedEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        query(&self.shared.read().reads());
        Ok(())
    }

    async fn ready(&self) -> EngineResult<()> {
        self.shared.room().await?;
        self.sequence().map(drop)
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        self.shared.room().await?;
        self.shared.write().run(&mut operation)?;
        self.shared.log().await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.synced(self.sequence()?).await
    }

    async fn hand_over(&self) -> EngineResult<()> {
        self.shared.written(self.sequence()?).await
    }

    async fn freeze(&self) -> EngineResult<Frozen> {
        self.sync().await?;
        let (state, _) = self.snapshot().await?;
        Ok(Box::new(Whole(state)))
    }

    async fn verify(&self) -> EngineResult<()> {
        let (state, _) = self.tree_state()?;
        run_blocking(|| state.verify())
    }

    async fn close(&self) -> EngineResult<()> {
        let closed = self.shared.closed().await;
        run_blocking(|| self.let_go());
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kill leaves of a tree that is being made: a file of its length, before it has its name.
    #[test]
    fn a_tree_that_a_kill_kept_from_being_made_is_made_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: 8 << 20,
        };
        let leave = |file: &str| {
            let left = fs::write(directory.path().join(file), [0; 8192]);
            left.expect("there is room");
        };
        leave(TREE);
        drop(EmbeddedEngine::open(&settings).expect("it is empty"));
        leave(REPLACEMENT);
        let brought = Replacement::open(&settings).expect("it is begun anew");
        drop(brought);
        fs::remove_file(directory.path().join(REPLACEMENT)).expect("it was made");
        // One that was there once is damaged.
        leave(TREE);
        assert!(EmbeddedEngine::open(&settings).is_err());
    }

    /// Who comes at the first moment finds nothing of it in use.
    #[test]
    fn the_lock_of_a_directory_is_given_back_after_its_tree() {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: 8 << 20,
        };
        for _ in 0..20 {
            let prepared = Prepared::open(&settings).expect("nobody has it");
            let settings = settings.clone();
            let next = thread::spawn(move || {
                loop {
                    match Prepared::open(&settings) {
                        Err(EngineError::InUse { .. }) => thread::yield_now(),
                        opened => return opened.map(drop),
                    }
                }
            });
            drop(prepared);
            assert_eq!(next.join().expect("it comes to its end"), Ok(()));
        }
    }
}
