//! The log as it grows, and the commit worker: one thread that syncs it and brings it into the tree.
//!
//! Who ran an operation writes it to the log, with all that others ran before, so that a killed process loses nothing
//! that was answered. The log is locked for a write and for the change to the next segment, and not while it is synced
//! or brought into the tree. Where the disk has no room the worker writes what is left, as soon as it has.
//!
//! No timer makes groups: whatever was written while the last group was being synced is the next one. What nobody
//! waits for is synced within [`SYNC_INTERVAL`]. Who ships the log to elsewhere gets it as it is written, before it is
//! synced.

use std::{
    io,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use penstock_base::clock::{self, Instant};
use tokio::sync::watch;

use super::{Tap, disk::Disk, log::Log, state::State, table::Tree};
use crate::engine::{Barrier, EngineError, EngineResult, embedded::Chunk, record::Tip};

/// How long something that nobody waits for may be lost with the power.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What is asked of the worker.
#[derive(Debug, Default)]
struct Wanted {
    /// There are records.
    write: bool,
    /// Up to which operation somebody waits for the disk.
    sync: u64,
    /// Up to which operation somebody waits for the tree.
    merge: u64,
    /// All is brought into the tree, and the worker ends.
    close: bool,
}

/// How far the worker is.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The last operation that the log has.
    written: u64,
    /// The last operation that is durable.
    pub(super) synced: u64,
    /// The last operation that is in the tree.
    merged: u64,
    /// Checkpoints made so far.
    checkpoints: u64,
    pub(super) failed: Option<EngineError>,
    ended: bool,
}

/// The end of the log.
pub(super) struct LogEnd {
    log: Log,
    /// Who gets what is written.
    tap: Option<Arc<dyn Tap>>,
    /// Behind the last operation that the log has.
    written: Tip,
    /// Records that it had no room for.
    left: BytesMut,
    /// Since when it has one that is not synced.
    unsynced: Option<Instant>,
    /// The worker is gone, and with it soon the lock of the directory: nothing more is written.
    is_closed: bool,
}

impl LogEnd {
    pub(super) fn new((log, written): (Log, Tip), tap: Option<Arc<dyn Tap>>) -> Self {
        Self {
            log,
            tap,
            written,
            left: BytesMut::new(),
            unsynced: None,
            is_closed: false,
        }
    }

    /// Writes what was applied and is not in the log. What fails stays, for the next one who writes.
    fn write(&mut self, shared: &Shared) -> io::Result<()> {
        if self.is_closed {
            return Err(io::Error::other("the engine is closed"));
        }
        let (records, tip) = shared.write().take_records();
        self.left.unsplit(records);
        if self.left.is_empty() {
            return Ok(());
        }
        self.log.append(&self.left)?;
        let chunk = Chunk {
            before: self.written,
            last: tip.sequence,
            records: self.left.split().freeze(),
        };
        self.written = tip;
        self.unsynced.get_or_insert_with(clock::now);
        if let Some(tap) = &self.tap {
            tap.take(chunk);
        }
        shared
            .progress
            .send_modify(|progress| progress.written = tip.sequence);
        Ok(())
    }
}

/// What there is to do.
struct Next {
    sync: bool,
    merge: bool,
    close: bool,
}

/// What the engine and its worker share.
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// Locked before `state`.
    end: Mutex<LogEnd>,
    /// The end is locked for as long as a sync takes, and what is applied meanwhile is written behind that.
    rotates: AtomicBool,
    wanted: Mutex<Wanted>,
    bell: Condvar,
    pub(super) progress: watch::Sender<Progress>,
    disk: Arc<Disk>,
    /// Bytes of changes over the tree that begin a checkpoint; at twice as many operations wait.
    pub(super) recent_max: usize,
}

impl Shared {
    pub(super) fn new(
        (state, end): (State, LogEnd),
        (merged, recent_max): (u64, usize),
        disk: Arc<Disk>,
    ) -> Self {
        let progress = Progress {
            written: state.sequence(),
            synced: state.sequence(),
            merged,
            ..Progress::default()
        };
        Self {
            state: RwLock::new(state),
            end: Mutex::new(end),
            rotates: AtomicBool::new(false),
            wanted: Mutex::default(),
            bell: Condvar::new(),
            progress: watch::Sender::new(progress),
            disk,
            recent_max,
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_of_log(&self) -> MutexGuard<'_, LogEnd> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the log has what was applied, or the disk has no room for it: then it has that later.
    pub(super) async fn log(&self) -> EngineResult<()> {
        // The worker finds out whether what fails is for good. While it writes the tree nobody else says that the log is full.
        if !self.rotates.load(Ordering::SeqCst) && self.try_to_log().is_ok() {
            return Ok(());
        }
        let sequence = self.read().sequence();
        match self.written(sequence).await {
            // The worker waits for room, and has it.
            Err(EngineError::Full(_)) if self.is_at_work() => Ok(()),
            written => written,
        }
    }

    fn is_at_work(&self) -> bool {
        let progress = self.progress.borrow();
        progress.failed.is_none() && !progress.ended
    }

    fn try_to_log(&self) -> io::Result<()> {
        let (written, is_first) = {
            let mut end = self.end_of_log();
            let was_synced = end.unsynced.is_none();
            let written = end.write(self);
            (written, was_synced && end.unsynced.is_some())
        };
        if written.is_err() || is_first || self.read().has(self.recent_max) {
            self.ring();
        }
        written
    }

    fn ask(&self, ask: impl FnOnce(&mut Wanted)) {
        ask(&mut self.wanted());
        self.bell.notify_one();
    }

    /// Asks the worker for something and returns when it is done. Fails if the disk has no room for it, or if the
    /// worker ended.
    async fn wait_for(
        &self,
        ask: impl FnOnce(&mut Wanted),
        is_done: impl Fn(&Progress) -> bool,
    ) -> EngineResult<()> {
        let mut refusals = self.disk.refusals();
        self.ask(ask);
        self.disk.ask();
        tokio::select! {
            biased;
            reached = self.reached(is_done) => reached,
            error = refusals.next() => Err(error),
        }
    }

    /// There are records to write.
    pub(super) fn ring(&self) {
        self.ask(|wanted| wanted.write = true);
    }

    /// Returns when all up to operation `sequence` is durable.
    pub(super) async fn synced(&self, sequence: u64) -> EngineResult<()> {
        self.wait_for(
            |wanted| wanted.sync = wanted.sync.max(sequence),
            |progress| progress.synced >= sequence,
        )
        .await
    }

    /// Returns when the log has all up to operation `sequence`.
    pub(super) async fn written(&self, sequence: u64) -> EngineResult<()> {
        self.wait_for(
            |wanted| wanted.write = true,
            |progress| progress.written >= sequence,
        )
        .await
    }

    /// Returns when all up to operation `sequence` is in the tree.
    pub(super) async fn merged(&self, sequence: u64) -> EngineResult<()> {
        self.wait_for(
            |wanted| wanted.merge = wanted.merge.max(sequence),
            |progress| progress.merged >= sequence,
        )
        .await
    }

    /// Returns when there is room for changes, on the disk and over the tree.
    pub(super) async fn room(&self) -> EngineResult<()> {
        self.disk.has_room().await?;
        loop {
            let before = self.progress.borrow().checkpoints;
            if !self.read().has(2 * self.recent_max) {
                return Ok(());
            }
            self.wait_for(
                |wanted| wanted.write = true,
                |progress| progress.checkpoints > before,
            )
            .await?;
        }
    }

    /// Returns when all is in the tree and the worker has ended.
    pub(super) async fn closed(&self) -> EngineResult<()> {
        self.end();
        self.reached(|progress| progress.ended).await
    }

    /// Tells the worker to end, whether or not anybody waits.
    pub(super) fn end(&self) {
        self.ask(|wanted| wanted.close = true);
        self.disk.be_patient(false);
    }

    async fn reached(&self, is_there: impl Fn(&Progress) -> bool) -> EngineResult<()> {
        let mut progress = self.progress.subscribe();
        let reached = progress
            .wait_for(|progress| progress.failed.is_some() || progress.ended || is_there(progress))
            .await;
        let closed = || EngineError::Io("the engine is closed".to_owned());
        let progress = reached.map_err(|_| closed())?;
        match is_there(&progress) {
            true => Ok(()),
            false => Err(progress.failed.clone().unwrap_or_else(closed)),
        }
    }

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work. What is `unsynced` since then does not wait longer than [`SYNC_INTERVAL`], however much comes.
    fn next(&self, unsynced: Option<Instant>) -> Next {
        let mut wanted = self.wanted();
        let (synced, merged) = {
            let progress = self.progress.borrow();
            (progress.synced, progress.merged)
        };
        let is_idle = |wanted: &Wanted| {
            !wanted.write && wanted.sync <= synced && wanted.merge <= merged && !wanted.close
        };
        let left = || unsynced.map(|since| SYNC_INTERVAL.saturating_sub(since.elapsed()));
        while is_idle(&wanted) && left() != Some(Duration::ZERO) {
            wanted = match left() {
                None => self
                    .bell
                    .wait(wanted)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let woken = self.bell.wait_timeout(wanted, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        wanted.write = false;
        let is_late = left() == Some(Duration::ZERO);
        Next {
            sync: wanted.sync > synced || is_late,
            merge: wanted.merge > merged,
            close: wanted.close,
        }
    }
}

/// The worker's own.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) tree: Arc<Tree>,
    /// What must be durable first.
    pub(super) barrier: Option<Arc<dyn Barrier>>,
}

impl Worker {
    /// Works until the engine is closed or the disk fails.
    pub(super) fn run(mut self) {
        let ended = self.run_to_end();
        self.shared.end_of_log().is_closed = true;
        let Err(error) = ended else {
            return self.tell(|progress| progress.ended = true);
        };
        tracing::error!(%error, "the metadata of a file system can no longer be changed");
        self.shared.write().fail(error.clone());
        self.shared.disk.go_on();
        self.tell(|progress| progress.failed = Some(error));
    }

    fn tell(&self, news: impl FnOnce(&mut Progress)) {
        self.shared.progress.send_modify(news);
    }

    fn run_to_end(&mut self) -> EngineResult<()> {
        let worked = std::panic::catch_unwind(AssertUnwindSafe(|| self.work()));
        let panicked = |_| {
            let text = "the worker of the metadata ended unexpectedly: its files may be damaged";
            Err(EngineError::Corrupt(text.to_owned()))
        };
        worked.unwrap_or_else(panicked)
    }

    fn work(&mut self) -> EngineResult<()> {
        loop {
            let unsynced = self.shared.end_of_log().unsynced;
            let next = self.shared.next(unsynced);
            self.write()?;
            if next.sync || next.close {
                self.sync()?;
            }
            if next.close {
                return self.end();
            }
            if next.merge || self.shared.read().has(self.shared.recent_max) {
                self.checkpoint()?;
            }
        }
    }

    /// Does something with the end of the log that needs room on the disk, when there is some.
    fn at_end<T>(&self, attempt: impl Fn(&mut LogEnd) -> io::Result<T>) -> EngineResult<T> {
        let done = self.shared.disk.write(|| {
            // Who runs operations does not wait for room.
            attempt(&mut self.shared.end_of_log())
        });
        done.map_err(|error| self.shared.end_of_log().log.failure(&error))
    }

    /// Writes what nobody else had room for.
    fn write(&self) -> EngineResult<()> {
        self.at_end(|end| end.write(&self.shared))
    }

    fn pass_barrier(&self) -> EngineResult<()> {
        let passed = self
            .barrier
            .as_ref()
            .map_or(Ok(()), |barrier| barrier.pass());
        passed.map_err(|error| EngineError::Io(format!("data on this disk: {error}")))
    }

    fn sync(&self) -> EngineResult<()> {
        let (segment, synced) = {
            let mut end = self.shared.end_of_log();
            end.unsynced = None;
            (end.log.segment(), end.written.sequence)
        };
        self.pass_barrier()?;
        segment.sync()?;
        self.is_synced(&mut self.shared.end_of_log(), synced)
    }

    fn is_synced(&self, end: &mut LogEnd, synced: u64) -> EngineResult<()> {
        end.log.mark(synced)?;
        self.tell(|progress| progress.synced = synced);
        Ok(())
    }

    /// Begins the next segment. Who runs operations meanwhile waits without a thread.
    fn rotate(&self) -> EngineResult<()> {
        self.shared.rotates.store(true, Ordering::SeqCst);
        let rotated = self.try_to_rotate();
        self.shared.rotates.store(false, Ordering::SeqCst);
        rotated?;
        self.write()
    }

    /// The next segment begins behind all that is written by then, which is synced first: a log without a segment in
    /// its midst would be none. Most of it was synced before.
    fn try_to_rotate(&self) -> EngineResult<()> {
        self.at_end(|end| {
            end.write(&self.shared)?;
            end.unsynced = None;
            let synced = end.written.sequence;
            let settled = self
                .pass_barrier()
                .and_then(|()| end.log.sync())
                .and_then(|()| self.is_synced(end, synced));
            match settled {
                Ok(()) => end.log.rotate(end.written).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        })?
    }

    /// Brings what the tree lacks into it, in one commit, and drops the log of that. Operations go on meanwhile.
    fn checkpoint(&self) -> EngineResult<()> {
        let (tip, changes) = {
            let mut end = self.shared.end_of_log();
            let mut state = self.shared.write();
            let (records, tip) = state.take_records();
            end.left.unsplit(records);
            (tip, state.begin_merge())
        };
        self.write()?;
        self.sync()?;
        self.rotate()?;
        self.tree.merge(&changes, tip)?;
        let tree = self.tree.state()?;
        self.shared.write().end_merge(tree);
        let mut end = self.shared.end_of_log();
        let done = end.tap.as_ref().map_or(u64::MAX, |tap| tap.done());
        end.log.drop_older(done.min(tip.sequence))?;
        drop(end);
        self.tell(|progress| {
            progress.merged = tip.sequence;
            progress.checkpoints += 1;
        });
        Ok(())
    }

    /// Whether nothing is changed any more, since the log has everything.
    fn closes_unmerged(&self) -> bool {
        let end = self.shared.end_of_log();
        end.left.is_empty() && self.shared.write().close_unmerged()
    }

    fn end(&mut self) -> EngineResult<()> {
        while !self.shared.write().close() {
            match self.checkpoint() {
                // The log has it all, and is read when there is room.
                Err(EngineError::Full(_)) if self.closes_unmerged() => break,
                ended => ended?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt, fs, path::Path, sync::OnceLock};

    use bytes::Bytes;

    use super::*;
    use crate::engine::{
        EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, Operation, Verdict, transact,
    };

    fn settings(directory: &tempfile::TempDir) -> EmbeddedSettings {
        EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: 8 << 20,
        }
    }

    async fn put(engine: &EmbeddedEngine) -> EngineResult<()> {
        let put = transact(engine, |transaction| -> EngineResult<()> {
            transaction.put(b"key", Bytes::new());
            Ok(())
        });
        put.await
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_synced_in_time_however_much_comes() {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = EmbeddedEngine::open(&settings(&directory)).expect("it is new");
        let begun = clock::now();
        let is_synced = || engine.shared.progress.borrow().synced > 0;
        while !is_synced() && begun.elapsed() < 10 * SYNC_INTERVAL {
            put(&engine).await.expect("it works");
            clock::sleep(SYNC_INTERVAL / 20).await;
        }
        assert!(is_synced(), "operations that come wait for each other");
    }

    const VALUE: usize = 64 << 10;

    /// Puts values and deletes them, so many times the memory that a checkpoint is due for.
    async fn pass_through(engine: &EmbeddedEngine, times: usize) {
        for _ in 0..times * engine.shared.recent_max / VALUE {
            for value in [Some(Bytes::from(vec![7; VALUE])), None] {
                let changed = transact(engine, move |transaction| -> EngineResult<()> {
                    match value.clone() {
                        Some(value) => transaction.put(b"key", value),
                        None => transaction.delete(b"key"),
                    }
                    Ok(())
                });
                changed.await.expect("it works");
            }
        }
        engine.sync().await.expect("it works");
    }

    /// Checkpoints that were made, if there was none a while later.
    async fn checkpoints(engine: &EmbeddedEngine) -> u64 {
        let made = || engine.shared.progress.borrow().checkpoints;
        let begun = clock::now();
        while made() == 0 && begun.elapsed() < 10 * SYNC_INTERVAL {
            clock::sleep(SYNC_INTERVAL / 20).await;
        }
        made()
    }

    /// Each brought the next checkpoint nearer by all that went through it, though nothing was left.
    #[tokio::test]
    async fn what_is_put_and_goes_again_begins_a_checkpoint_only_for_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = EmbeddedEngine::open(&settings(&directory)).expect("it is new");
        pass_through(&engine, 9).await;
        let checkpoints = checkpoints(&engine).await;
        // Operations wait for one at twice as much.
        assert!((1..=2).contains(&checkpoints), "{checkpoints}");
    }

    /// What was put and went again was forgotten with a kill, so that the log grew by as much as it may have at each of them.
    #[tokio::test]
    async fn the_log_that_a_kill_left_counts_for_the_next_checkpoint() {
        let first = tempfile::tempdir().expect("a directory");
        let engine = EmbeddedEngine::open(&settings(&first)).expect("it is new");
        pass_through(&engine, 3).await;
        // As a kill leaves it.
        let left = tempfile::tempdir().expect("a directory");
        for entry in fs::read_dir(first.path()).expect("it is there") {
            let path = entry.expect("it is there").path();
            let name = path.file_name().expect("it has one");
            fs::copy(&path, left.path().join(name)).expect("there is room");
        }
        let next = EmbeddedEngine::open(&settings(&left)).expect("it is whole");
        pass_through(&next, 3).await;
        assert_eq!(checkpoints(&next).await, 1);
    }

    /// Fails once it has an engine, in which an operation is applied then that is not in the log yet.
    #[derive(Default)]
    struct Late(OnceLock<Arc<Shared>>);

    impl fmt::Debug for Late {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Late").finish_non_exhaustive()
        }
    }

    impl Barrier for Late {
        fn pass(&self) -> io::Result<()> {
            let Some(shared) = self.0.get() else {
                return Ok(());
            };
            let mut operation: Operation = Box::new(|transaction| {
                transaction.put(b"late", Bytes::new());
                Verdict::Keep
            });
            let applied = shared.write().run(&mut operation);
            assert_eq!(applied, Ok(()));
            Err(io::Error::other("as it was told"))
        }

        fn has(&self, _puts: &[(Bytes, Bytes)]) -> bool {
            true
        }
    }

    /// An engine that could not be closed, while an operation was between its change and the log.
    async fn closed_in_vain(directory: &tempfile::TempDir) -> EmbeddedEngine {
        let late = Arc::new(Late::default());
        let barrier: Arc<dyn Barrier> = Arc::<Late>::clone(&late);
        let lock = EmbeddedLock::take(&settings(directory)).expect("nobody has it");
        let opened = EmbeddedEngine::open_locked(lock, Some(barrier));
        let engine = opened.expect("it is new");
        put(&engine).await.expect("it works");
        assert!(late.0.set(Arc::clone(&engine.shared)).is_ok());
        assert!(engine.close().await.is_err());
        engine
    }

    fn log_in(directory: &Path) -> Vec<u8> {
        let entries = fs::read_dir(directory).expect("it is there");
        let paths = entries.map(|entry| entry.expect("it is there").path());
        let is_log = |path: &std::path::PathBuf| path.to_string_lossy().contains("/log.");
        let logs = paths.filter(is_log);
        logs.flat_map(|path| fs::read(path).expect("it is read"))
            .collect()
    }

    /// By then the directory may be somebody else's.
    #[tokio::test]
    async fn who_is_late_for_a_close_that_failed_writes_nothing_and_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = closed_in_vain(&directory).await;
        let before = log_in(directory.path());
        assert!(engine.shared.log().await.is_err());
        assert_eq!(log_in(directory.path()), before);
    }

    #[tokio::test]
    async fn what_a_worker_had_no_room_for_that_is_gone_is_not_answered() {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = closed_in_vain(&directory).await;
        let full = EngineError::Full("as it was told".to_owned());
        let failed = Some(full.clone());
        engine
            .shared
            .progress
            .send_modify(|progress| progress.failed = failed);
        // Nobody but the worker writes the log while it begins a segment.
        engine.shared.rotates.store(true, Ordering::SeqCst);
        assert_eq!(engine.shared.log().await, Err(full));
    }
}
