//! What makes operations durable, and what it shares with the engine.
//!
//! No timer makes groups: whatever was applied while the last group was under way is the next one, in one statement.
//! Groups go one after the other, so that a crash of this process takes away the last ones alone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{clock, random};
use tokio::sync::{Notify, watch};

use super::{
    known::{Want, behind},
    readers::Readers,
    session::{Batch, Connector, Owner, Writer},
    state::State,
};
use crate::engine::{EngineError, EngineResult};

/// Bytes that may wait to be made durable; with more, operations wait.
const WAITING_MAX: usize = 8 << 20;
/// How often a machine that writes nothing asks whether it still may.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the first pause behind a failure is, at most, and how long the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Keys that are read where one is wanted: what lies near it is often wanted next.
const NEAR: i64 = 8;
/// The same at most, for who goes on to want more.
const NEAR_MAX: i64 = 512;
/// Keys that are read where a range is wanted.
const PAGE: i64 = 128;
/// Keys in the largest page.
pub(super) const PAGE_MAX: i64 = 8192;

/// How far the worker is.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The last operation that is durable.
    committed: u64,
    /// Why it does not get on.
    trouble: Option<EngineError>,
    failed: Option<EngineError>,
    is_ended: bool,
}

/// What the engine and its worker share.
pub(super) struct Shared {
    pub(super) connector: Connector,
    pub(super) state: std::sync::RwLock<State>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) readers: Readers,
    pub(super) epoch: i64,
    /// How long an operation waits for a database that does not answer.
    pub(super) patience: Duration,
    bell: Notify,
    closing: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(
        connector: Connector,
        (state, readers): (State, Readers),
        (epoch, patience): (i64, Duration),
    ) -> Self {
        Self {
            connector,
            state: std::sync::RwLock::new(state),
            progress: watch::Sender::new(Progress::default()),
            readers,
            epoch,
            patience,
            bell: Notify::new(),
            closing: watch::Sender::new(false),
        }
    }

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        let locked = self.state.read();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        let locked = self.state.write();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// There is something to make durable.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Nothing more is done.
    fn fail(&self, error: &EngineError) {
        tracing::error!(%error, "the metadata of a file system can no longer be changed");
        self.write().fail(error.clone());
        self.progress
            .send_modify(|progress| progress.failed = Some(error.clone()));
    }

    /// Another machine has the file system, or the database is another one.
    fn shut_out(&self, found: Owner) -> EngineError {
        let text = match found.epoch == self.epoch {
            true => format!(
                "the database at {} was put back to what it was once",
                self.connector.place
            ),
            false => format!("another machine has it since (epoch {})", found.epoch),
        };
        EngineError::Fenced(text)
    }

    /// Returns when there is room for operations.
    pub(super) async fn room(&self) -> EngineResult<()> {
        loop {
            let before = self.progress.borrow().committed;
            if self.read().waiting_bytes() <= WAITING_MAX {
                break;
            }
            self.reached(|progress| progress.committed > before).await?;
        }
        self.read().check()
    }

    /// Returns when all up to operation `sequence` is durable.
    pub(super) async fn committed(&self, sequence: u64) -> EngineResult<()> {
        self.reached(|progress| progress.committed >= sequence)
            .await
    }

    async fn reached(&self, is_there: impl Fn(&Progress) -> bool) -> EngineResult<()> {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| {
            progress.failed.is_some() || progress.is_ended || is_there(progress)
        });
        let Ok(reached) = clock::deadline(self.patience, reached).await else {
            let trouble = self.progress.borrow().trouble.clone();
            return Err(trouble.unwrap_or_else(|| self.silent()));
        };
        let reached = reached.map_err(|_| closed())?;
        match is_there(&reached) {
            true => Ok(()),
            false => Err(reached.failed.clone().unwrap_or_else(closed)),
        }
    }

    fn silent(&self) -> EngineError {
        let (place, patience) = (&self.connector.place, self.patience);
        EngineError::Database(format!("{place}: no answer within {patience:?}"))
    }

    /// Reads what is wanted; `misses` of the same reader came before. Waits for a database that is away.
    pub(super) async fn fetch(&self, want: Want, misses: u32) -> EngineResult<()> {
        let (first, most) = match want.is_scan {
            true => (PAGE, PAGE_MAX),
            false => (NEAR, NEAR_MAX),
        };
        let count = first.saturating_mul(4_i64.saturating_pow(misses)).min(most);
        let mut trouble = None;
        let fetched = clock::deadline(self.patience, async {
            let mut pause = PAUSE;
            loop {
                match self.fetch_once(&want, count).await {
                    Err(error @ (EngineError::Database(_) | EngineError::Full(_))) => {
                        trouble = Some(error);
                        rest(&mut pause).await;
                        self.read().check()?;
                    }
                    fetched => return fetched,
                }
            }
        });
        match fetched.await {
            Ok(fetched) => fetched,
            Err(_) => Err(trouble.unwrap_or_else(|| self.silent())),
        }
    }

    async fn fetch_once(&self, want: &Want, count: i64) -> EngineResult<()> {
        let turns = self.read().known.turns();
        let (rows, owner) = self.readers.page(&want.start, &want.end, count).await?;
        if owner.epoch != self.epoch {
            let error = self.shut_out(owner);
            self.fail(&error);
            return Err(error);
        }
        let end: Bytes = match rows.last() {
            Some((last, _)) if rows.len() as i64 >= count => behind(last),
            _ => want.end.clone(),
        };
        let range = want.start.clone()..end;
        self.write().known.learn_range(range, rows, turns);
        Ok(())
    }

    /// Returns when all is durable and the worker has ended.
    pub(super) async fn close(&self) -> EngineResult<()> {
        let applied = {
            let mut state = self.write();
            let applied = state.applied();
            state.fail(closed());
            applied
        };
        self.closing.send_replace(true);
        self.committed(applied).await
    }
}

pub(super) fn closed() -> EngineError {
    EngineError::Io("the engine is closed".to_owned())
}

/// A pause, some part of which is chance, and the next one is longer.
async fn rest(pause: &mut Duration) {
    clock::sleep(pause.mul_f64(0.5 + random::fraction() / 2.0)).await;
    *pause = (*pause * 2).min(PAUSE_MAX);
}

/// The worker's own.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Option<Writer>,
    /// The number of the last statement that wrote.
    pub(super) sequence: i64,
}

impl Worker {
    /// Works until the engine is closed or shut out.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        if let Err(error) = self.work().await {
            shared.fail(&error);
        }
        shared
            .progress
            .send_modify(|progress| progress.is_ended = true);
    }

    async fn work(&mut self) -> EngineResult<()> {
        let shared = Arc::clone(&self.shared);
        let mut closing = shared.closing.subscribe();
        loop {
            let begun = shared.write().begin();
            if let Some((batch, last)) = begun {
                self.make_durable(&batch).await?;
                shared.write().finish();
                shared.progress.send_modify(|progress| {
                    progress.committed = last;
                    progress.trouble = None;
                });
                continue;
            }
            if *closing.borrow_and_update() {
                return Ok(());
            }
            tokio::select! {
                () = shared.bell.notified() => {}
                _ = closing.changed() => {}
                () = clock::sleep(HEARTBEAT) => self.ask().await?,
            }
        }
    }

    /// Sends changes until the database has them, or says that it will not take them from here.
    async fn make_durable(&mut self, batch: &Batch) -> EngineResult<()> {
        let mut pause = PAUSE;
        loop {
            match self.attempt(batch).await {
                Err(error @ (EngineError::Database(_) | EngineError::Full(_))) => {
                    self.in_trouble(error);
                    rest(&mut pause).await;
                }
                done => return done,
            }
        }
    }

    fn in_trouble(&self, error: EngineError) {
        if self.shared.progress.borrow().trouble.is_none() {
            tracing::warn!(%error, "what was changed is not in the database yet; it is tried again");
        }
        self.shared
            .progress
            .send_modify(|progress| progress.trouble = Some(error));
    }

    /// Sends changes. They may have been made by an attempt before this one whose answer was lost.
    async fn attempt(&mut self, batch: &Batch) -> EngineResult<()> {
        let before = Owner {
            epoch: self.shared.epoch,
            sequence: self.sequence,
        };
        let writer = self.writer().await?;
        if !writer.write(before, batch).await? {
            let found = writer.session.owner().await?;
            let expected = Owner {
                sequence: before.sequence + 1,
                ..before
            };
            if found != expected {
                return Err(self.shared.shut_out(found));
            }
        }
        self.sequence += 1;
        Ok(())
    }

    async fn writer(&mut self) -> EngineResult<&Writer> {
        let alive = self.writer.take_if(|writer| writer.session.is_alive());
        let writer = match alive {
            Some(writer) => writer,
            None => Writer::connect(&self.shared.connector).await?,
        };
        Ok(self.writer.insert(writer))
    }

    /// Asks whether this machine still may write.
    async fn ask(&mut self) -> EngineResult<()> {
        let Ok(writer) = self.writer().await else {
            return Ok(());
        };
        match writer.session.owner().await {
            Ok(found) if found.epoch != self.shared.epoch || found.sequence != self.sequence => {
                Err(self.shared.shut_out(found))
            }
            _ => Ok(()),
        }
    }
}
