//! The commit worker: one thread that writes the log and brings it into the tree.
//!
//! No timer makes groups: whatever was applied while the last group was being synced is the next one. What nobody
//! waits for is written at once, so that a killed process loses nothing of it, and synced within
//! [`SYNC_INTERVAL`]. Who ships the log to elsewhere gets it as it is written, before it is synced.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use bytes::BytesMut;
use tokio::sync::watch;

use super::{Tap, log::Log, state::State, table::Tree};
use crate::engine::{EngineError, EngineResult, embedded::Chunk};

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
    /// The last operation that is durable.
    pub(super) synced: u64,
    /// The last operation that is in the tree.
    merged: u64,
    /// Checkpoints made so far.
    checkpoints: u64,
    pub(super) failed: Option<EngineError>,
    ended: bool,
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
    wanted: Mutex<Wanted>,
    bell: Condvar,
    pub(super) progress: watch::Sender<Progress>,
    /// Bytes of changes over the tree that begin a checkpoint; at twice as many operations wait.
    pub(super) recent_max: usize,
}

impl Shared {
    pub(super) fn new(state: State, merged: u64, recent_max: usize) -> Self {
        let progress = Progress {
            synced: state.sequence(),
            merged,
            ..Progress::default()
        };
        Self {
            state: RwLock::new(state),
            wanted: Mutex::default(),
            bell: Condvar::new(),
            progress: watch::Sender::new(progress),
            recent_max,
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, ask: impl FnOnce(&mut Wanted)) {
        ask(&mut self.wanted());
        self.bell.notify_one();
    }

    /// There are records to write.
    pub(super) fn ring(&self) {
        self.ask(|wanted| wanted.write = true);
    }

    /// Returns when all up to operation `sequence` is durable.
    pub(super) async fn synced(&self, sequence: u64) -> EngineResult<()> {
        self.ask(|wanted| wanted.sync = wanted.sync.max(sequence));
        self.reached(|progress| progress.synced >= sequence).await
    }

    /// Returns when all up to operation `sequence` is in the tree.
    pub(super) async fn merged(&self, sequence: u64) -> EngineResult<()> {
        self.ask(|wanted| wanted.merge = wanted.merge.max(sequence));
        self.reached(|progress| progress.merged >= sequence).await
    }

    /// Returns when there is room over the tree.
    pub(super) async fn room(&self) -> EngineResult<()> {
        loop {
            let before = self.progress.borrow().checkpoints;
            if self.read().recent_bytes() < 2 * self.recent_max {
                return Ok(());
            }
            self.ring();
            self.reached(|progress| progress.checkpoints > before)
                .await?;
        }
    }

    /// Returns when all is in the tree and the worker has ended.
    pub(super) async fn closed(&self) -> EngineResult<()> {
        self.ask(|wanted| wanted.close = true);
        self.reached(|progress| progress.ended).await
    }

    /// Tells the worker to end, whether or not anybody waits.
    pub(super) fn end(&self) {
        self.ask(|wanted| wanted.close = true);
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

    /// Waits for work; for what is `unsynced` not longer than [`SYNC_INTERVAL`].
    fn next(&self, unsynced: bool) -> Next {
        let mut wanted = self.wanted();
        let (synced, merged) = {
            let progress = self.progress.borrow();
            (progress.synced, progress.merged)
        };
        let is_idle = |wanted: &Wanted| {
            !wanted.write && wanted.sync <= synced && wanted.merge <= merged && !wanted.close
        };
        let mut is_late = false;
        while is_idle(&wanted) && !is_late {
            if !unsynced {
                let woken = self.bell.wait(wanted);
                wanted = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let woken = self.bell.wait_timeout(wanted, SYNC_INTERVAL);
            let (guard, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            wanted = guard;
            is_late = timeout.timed_out();
        }
        wanted.write = false;
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
    pub(super) log: Log,
    pub(super) tree: Arc<Tree>,
    pub(super) tap: Option<Arc<dyn Tap>>,
    /// The last operation that the log has.
    pub(super) written: u64,
}

impl Worker {
    /// Works until the engine is closed or the disk fails.
    pub(super) fn run(mut self) {
        if let Err(error) = self.work() {
            tracing::error!(%error, "the metadata of a file system can no longer be changed");
            self.shared.write().fail(error.clone());
            self.shared
                .progress
                .send_modify(|progress| progress.failed = Some(error));
        }
    }

    fn work(&mut self) -> EngineResult<()> {
        loop {
            let unsynced = self.shared.progress.borrow().synced < self.written;
            let next = self.shared.next(unsynced);
            let (records, last) = self.shared.write().take_records();
            self.write(records, last)?;
            if next.sync || next.close {
                self.sync()?;
            }
            if next.close {
                return self.end();
            }
            if next.merge || self.shared.read().recent_bytes() >= self.shared.recent_max {
                self.checkpoint()?;
            }
        }
    }

    fn write(&mut self, records: BytesMut, last: u64) -> EngineResult<()> {
        if records.is_empty() {
            return Ok(());
        }
        let chunk = Chunk {
            first: self.written + 1,
            last,
            records: records.freeze(),
        };
        self.log.write(&chunk.records)?;
        self.written = last;
        if let Some(tap) = &self.tap {
            tap.take(chunk);
        }
        Ok(())
    }

    fn sync(&self) -> EngineResult<()> {
        self.log.sync()?;
        self.shared
            .progress
            .send_modify(|progress| progress.synced = self.written);
        Ok(())
    }

    /// Brings what the tree lacks into it, in one commit, and drops the log of that. Operations go on meanwhile.
    fn checkpoint(&mut self) -> EngineResult<()> {
        let (records, last, changes) = {
            let mut state = self.shared.write();
            let (records, last) = state.take_records();
            (records, last, state.begin_merge())
        };
        self.write(records, last)?;
        self.log.rotate(last + 1)?;
        self.sync()?;
        self.tree.merge(&changes, last)?;
        let tree = self.tree.state()?;
        self.shared.write().end_merge(tree);
        let done = self.tap.as_ref().map_or(u64::MAX, |tap| tap.done());
        self.log.drop_older(done.min(last))?;
        self.shared.progress.send_modify(|progress| {
            progress.merged = last;
            progress.checkpoints += 1;
        });
        Ok(())
    }

    fn end(&mut self) -> EngineResult<()> {
        while !self.shared.write().close() {
            self.checkpoint()?;
        }
        self.shared
            .progress
            .send_modify(|progress| progress.ended = true);
        Ok(())
    }
}
