//! What makes operations durable, and what it shares with the engine.
//!
//! No timer makes groups: whatever was applied while the last group was under way is the next one, in one trip. Groups
//! go one after the other, so that a crash of this process takes away the last ones alone. In between the worker asks
//! what others changed.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{
    clock::{self, Instant},
    random,
};
use tokio::sync::{Notify, watch};

use super::{
    known::Want,
    paging::Paging,
    pulse::{Life, Pulse},
    readers::Readers,
    session::{Batch, Connector, Outcome, Own, Since, Writer},
    state::{Fate, Mode, OPERATION_MAX, Ran, State},
    together::Together,
};
use crate::engine::{EngineError, EngineResult, Operation, Query, behind};

/// Bytes that may wait to be made durable; with more, operations wait.
const WAITING_MAX: usize = 8 << 20;
/// How often in its lease a session says that it is alive.
pub(super) const BEATS: u32 = 6;
/// How often a session asks what others changed, and one that has the keys alone whether somebody asks for them.
const POLL: Duration = Duration::from_millis(40);
const POLL_ALONE: Duration = Duration::from_millis(250);
/// Beats between two looks at what of the feed nobody needs.
const TRIM_BEATS: u32 = 12;
/// How long the end of a session is tried to be told.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first pause behind a failure is, at most, and how long the longest.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Misses of one operation, after which all stays known that is fetched for it.
const MISSES_BEFORE_PIN: u32 = 12;

/// How far the worker is.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The last operation that is durable, or was taken back.
    committed: u64,
    /// Why it does not get on.
    trouble: Option<EngineError>,
    failed: Option<EngineError>,
    is_ended: bool,
}

/// Keeps what is fetched for an operation.
struct Pin<'a> {
    shared: &'a Shared,
    bytes: usize,
}

impl<'a> Pin<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.write().known.pin();
        Self { shared, bytes: 0 }
    }

    /// So much more was fetched.
    fn extend(&mut self, bytes: usize) -> EngineResult<()> {
        self.bytes += bytes;
        match self.bytes > OPERATION_MAX {
            true => Err(EngineError::TooLarge(self.bytes)),
            false => Ok(()),
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.shared.write().known.unpin();
    }
}

/// What the engine and its worker share.
pub(super) struct Shared {
    pub(super) connector: Connector,
    pub(super) state: std::sync::RwLock<State>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) readers: Readers,
    news: Together,
    pub(super) own: Own,
    pub(super) life: Life,
    /// Nobody else has the keys, as it seems.
    is_only_one: AtomicBool,
    /// How long an operation waits for a database that does not answer.
    pub(super) patience: Duration,
    /// Rings when others changed something.
    pub(super) told: Notify,
    bell: Notify,
    closing: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(
        connector: Connector,
        (state, readers): (State, Readers),
        (own, life, patience): (Own, Life, Duration),
    ) -> Self {
        Self {
            connector,
            state: std::sync::RwLock::new(state),
            progress: watch::Sender::new(Progress::default()),
            readers,
            news: Together::new(),
            own,
            life,
            is_only_one: AtomicBool::new(false),
            patience,
            told: Notify::new(),
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

    /// From where news are wanted.
    pub(super) fn since(&self) -> Since {
        self.read().since(self.own)
    }

    /// Whether others have the keys, too.
    pub(super) fn sees_others(&self, sees: bool) {
        self.is_only_one.store(!sees, Ordering::Relaxed);
    }

    /// Changes what is known, and tells of it.
    pub(super) fn learn(&self, learn: impl FnOnce(&mut State)) {
        let (has_untold, is_to_share) = {
            let mut state = self.write();
            learn(&mut state);
            (state.feed.has_untold(), state.is_to_share())
        };
        if has_untold {
            self.told.notify_one();
        }
        if is_to_share {
            self.bell.notify_one();
        }
    }

    /// Nothing more is done.
    fn fail(&self, error: &EngineError) {
        if self.write().fail(error.clone()) {
            tracing::error!(%error, "the metadata of a file system can no longer be changed");
        }
        self.progress
            .send_modify(|progress| progress.failed = Some(error.clone()));
        self.told.notify_one();
    }

    /// What a trip brought; nothing more is done if this session is over.
    fn brought<T>(&self, brought: EngineResult<T>) -> EngineResult<T> {
        brought.inspect_err(|error| {
            if matches!(error, EngineError::Fenced(_)) {
                self.fail(error);
            }
        })
    }

    /// Runs a look at what is known.
    pub(super) fn look(&self, query: Query<'_>) -> EngineResult<Ran> {
        let state = self.read();
        state.check()?;
        match self.life.is_certain() {
            true => state.look(query),
            false => Ok(Ran::Uncertain),
        }
    }

    fn attempt(&self, operation: &mut Operation) -> EngineResult<Ran> {
        let mut state = self.write();
        state.check()?;
        match self.life.is_certain() {
            true => state.run(operation),
            false => Ok(Ran::Uncertain),
        }
    }

    /// Returns when it is certain that this session lives; fails if it is over.
    pub(super) async fn certain(&self) -> EngineResult<()> {
        if self.life.is_certain() {
            return Ok(());
        }
        self.life.doubt();
        self.reached(|_| self.life.is_certain()).await
    }

    /// Runs an operation, again if others changed what it builds on, for as long as operations wait.
    pub(super) async fn run(&self, operation: &mut Operation) -> EngineResult<()> {
        let done = clock::deadline(self.patience, self.run_until_done(operation)).await;
        done.unwrap_or_else(|_| Err(self.trouble()))
    }

    async fn run_until_done(&self, operation: &mut Operation) -> EngineResult<()> {
        let (mut paging, mut pin) = (Paging::new(), None);
        loop {
            self.room().await?;
            let ran = self.attempt(operation)?;
            match ran {
                Ran::Done => {
                    self.bell.notify_one();
                    // A caller that never waits would keep the worker from its thread.
                    tokio::task::consume_budget().await;
                    return Ok(());
                }
                Ran::Waits(fate) => {
                    self.bell.notify_one();
                    match self.fate(fate).await? {
                        Fate::Made => return Ok(()),
                        Fate::Open | Fate::Outdated => paging.begin_again(),
                    }
                }
                Ran::Missed(want) => {
                    if paging.pages() >= MISSES_BEFORE_PIN {
                        pin.get_or_insert_with(|| Pin::new(self));
                    }
                    let fetched = Box::pin(self.fetch(want, &mut paging)).await?;
                    pin.as_mut().map_or(Ok(()), |pin| pin.extend(fetched))?;
                }
                Ran::Yielding => {
                    let others_are_in = |_: &Progress| self.read().mode() != Mode::Yielding;
                    self.reached(others_are_in).await?;
                }
                Ran::Uncertain => self.certain().await?,
            }
        }
    }

    /// Returns what became of a group.
    async fn fate(&self, mut fate: watch::Receiver<Fate>) -> EngineResult<Fate> {
        let decided = fate.wait_for(|fate| *fate != Fate::Open);
        let failed = self.reached(|_| false);
        tokio::select! {
            decided = decided => Ok(decided.map_or(Fate::Outdated, |fate| *fate)),
            failed = failed => failed.map(|()| Fate::Outdated),
        }
    }

    /// Returns when there is room for operations.
    pub(super) async fn room(&self) -> EngineResult<()> {
        self.certain().await?;
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
            return Err(self.trouble());
        };
        let reached = reached.map_err(|_| closed())?;
        match is_there(&reached) {
            true => Ok(()),
            false => Err(reached.failed.clone().unwrap_or_else(closed)),
        }
    }

    /// Why nothing came of it in time.
    fn trouble(&self) -> EngineError {
        let trouble = self.progress.borrow().trouble.clone();
        trouble.unwrap_or_else(|| self.silent())
    }

    fn silent(&self) -> EngineError {
        let (place, patience) = (&self.connector.place, self.patience);
        EngineError::Database(format!("{place}: not done within {patience:?}"))
    }

    /// Reads what is wanted; `paging` is of the same reader. Waits for a database that is away. Returns how many bytes
    /// were read.
    pub(super) async fn fetch(&self, want: Want, paging: &mut Paging) -> EngineResult<usize> {
        let count = paging.count(want.is_scan);
        let (keys, bytes) = self
            .until_answered(|| self.fetch_once(&want, count))
            .await?;
        paging.read(keys, bytes);
        Ok(bytes)
    }

    /// Asks the database, and waits for one that is away.
    async fn until_answered<T, F>(&self, ask: impl Fn() -> F) -> EngineResult<T>
    where
        F: Future<Output = EngineResult<T>>,
    {
        let mut trouble = None;
        let done = clock::deadline(self.patience, async {
            let mut pause = PAUSE;
            loop {
                match ask().await {
                    Err(error @ (EngineError::Database(_) | EngineError::Full(_))) => {
                        trouble = Some(error);
                        rest(&mut pause).await;
                        self.read().check()?;
                    }
                    answered => return answered,
                }
            }
        });
        match done.await {
            Ok(done) => done,
            Err(_) => Err(trouble.unwrap_or_else(|| self.silent())),
        }
    }

    /// Reads a page, and returns how many keys and bytes that were.
    async fn fetch_once(&self, want: &Want, count: i64) -> EngineResult<(usize, usize)> {
        let range = want.start.clone()..want.end.clone();
        let page = self.readers.page(self.since(), &range, count).await;
        let page = self.brought(page)?;
        let end: Bytes = match page.rows.last() {
            Some((last, _)) if page.rows.len() as i64 >= count => behind(last),
            _ => range.end,
        };
        let read: Range<Bytes> = range.start..end;
        let found = size_of_rows(&page.rows);
        self.learn(|state| state.learn(read, page));
        Ok(found)
    }

    /// Returns when queries see all that was applied anywhere before the call.
    pub(super) async fn catch_up(self: &Arc<Self>) -> EngineResult<()> {
        if self.read().mode() != Mode::Shared {
            self.read().check()?;
            return self.certain().await;
        }
        self.until_answered(|| {
            let shared = Arc::clone(self);
            self.news.join(async move { shared.ask_for_news().await })
        })
        .await
    }

    async fn ask_for_news(&self) -> EngineResult<()> {
        let news = self.readers.news(self.since()).await;
        let news = self.brought(news)?;
        self.learn(|state| state.go_on(news));
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
        self.committed(applied).await?;
        // The session's end is told the database, if that answers: others would find out.
        let mut progress = self.progress.subscribe();
        let ended = progress.wait_for(|progress| progress.is_ended);
        let _ = clock::deadline(END_TIMEOUT, ended).await;
        Ok(())
    }
}

/// How many keys there are, and how many bytes in them and in their values.
pub(super) fn size_of_rows(rows: &[(Bytes, Bytes)]) -> (usize, usize) {
    let bytes = rows.iter().map(|(key, value)| key.len() + value.len());
    (rows.len(), bytes.sum())
}

pub(super) fn closed() -> EngineError {
    EngineError::Io("the engine is closed".to_owned())
}

/// A pause, some part of which is chance, and the next one is longer.
pub(super) async fn rest(pause: &mut Duration) {
    clock::sleep(pause.mul_f64(0.5 + random::fraction() / 2.0)).await;
    *pause = (*pause * 2).min(PAUSE_MAX);
}

/// The worker's own.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Option<Writer>,
    next_trim: Instant,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, writer: Writer) -> Self {
        Self {
            next_trim: clock::now() + shared.life.lease / BEATS * TRIM_BEATS,
            shared,
            writer: Some(writer),
        }
    }

    /// Works until the engine is closed, or the session is over, as its pulse may find out.
    pub(super) async fn run(mut self, pulse: Pulse) {
        let shared = Arc::clone(&self.shared);
        let ended = tokio::select! {
            worked = self.work() => worked,
            over = pulse.run() => Err(over),
        };
        if let Err(error) = ended {
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
            let (batch, last) = shared.write().begin();
            let has_batch = batch.is_some();
            if let Some(batch) = batch {
                self.make_durable(batch).await?;
            }
            shared.progress.send_if_modified(|progress| {
                let is_new = progress.committed < last;
                progress.committed = last;
                progress.trouble = None;
                is_new
            });
            if has_batch {
                // What was applied meanwhile is next.
            } else if shared.read().is_to_share() {
                self.share().await?;
            } else if *closing.borrow_and_update() {
                self.end().await;
                return Ok(());
            } else {
                let poll = match shared.read().mode() {
                    Mode::Shared => POLL,
                    Mode::Alone | Mode::Yielding => POLL_ALONE,
                };
                tokio::select! {
                    () = shared.bell.notified() => {}
                    _ = closing.changed() => {}
                    () = clock::sleep(poll) => drop(passed_over(shared.ask_for_news().await)?),
                }
            }
            let is_shared = shared.read().mode() == Mode::Shared;
            if is_shared && shared.is_only_one.swap(false, Ordering::Relaxed) {
                passed_over(self.be_alone().await)?;
            }
            passed_over(self.trim().await)?;
        }
    }

    /// Sends changes until the database has them, or says that it will not take them.
    async fn make_durable(&mut self, batch: Batch) -> EngineResult<()> {
        let mut pause = PAUSE;
        loop {
            match self.attempt(&batch).await {
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
        let (shared, since) = (Arc::clone(&self.shared), self.shared.since());
        if batch.edits.is_empty() {
            let news = shared.readers.news(since).await?;
            shared.learn(|state| state.finish_unchanged(&batch.grounds, news));
            return Ok(());
        }
        let (outcome, news) = self.writer().await?.change(since, batch).await?;
        match outcome {
            Outcome::Made { at, stand } => {
                shared.learn(|state| state.finish(at, &stand, news));
                Ok(())
            }
            Outcome::Outdated if batch.is_told => {
                shared.learn(|state| state.take_back(news));
                Ok(())
            }
            Outcome::Outdated => Err(EngineError::Fenced(
                "somebody else changed the keys that this session had alone".to_owned(),
            )),
        }
    }

    async fn writer(&mut self) -> EngineResult<&Writer> {
        let writer = self.take_writer().await?;
        Ok(self.writer.insert(writer))
    }

    async fn take_writer(&mut self) -> EngineResult<Writer> {
        let writer = self.writer.take();
        match writer.filter(|writer| writer.session.is_alive()) {
            Some(writer) => Ok(writer),
            None => Writer::connect(&self.shared.connector).await,
        }
    }

    /// Lets others have the keys, too: all that was answered is in the database.
    async fn share(&mut self) -> EngineResult<()> {
        let own = self.shared.own;
        let shared = match self.writer().await {
            Ok(writer) => writer.session.share(own).await,
            Err(error) => Err(error),
        };
        match shared {
            Ok(()) => {
                self.shared.write().share();
                // Operations wait for it.
                self.shared.progress.send_modify(|_| ());
                Ok(())
            }
            Err(error @ (EngineError::Database(_) | EngineError::Full(_))) => {
                self.in_trouble(error);
                clock::sleep(PAUSE_MAX).await;
                Ok(())
            }
            failed => failed,
        }
    }

    /// Removes what nobody needs, now and then.
    async fn trim(&mut self) -> EngineResult<()> {
        if clock::now() < self.next_trim {
            return Ok(());
        }
        self.next_trim = clock::now() + self.shared.life.lease / BEATS * TRIM_BEATS;
        self.writer().await?.session.trim().await
    }

    /// Has the keys alone, if nobody else came meanwhile.
    async fn be_alone(&mut self) -> EngineResult<()> {
        let own = self.shared.own;
        let (alone, _) = self.writer().await?.session.ask(own).await?;
        if alone != Some(own.id) {
            return Ok(());
        }
        let news = self.shared.readers.news(self.shared.since()).await;
        match news {
            Ok(news) => self.shared.learn(|state| state.be_alone(news)),
            // It keeps to the ways of those who share.
            Err(_) => self.writer().await?.session.share(own).await?,
        }
        Ok(())
    }

    /// The session ends. One that does not is ended by others.
    async fn end(&mut self) {
        let own = self.shared.own;
        if let Ok(writer) = self.writer().await {
            let _ = writer.session.end(own).await;
        }
    }
}

/// What was found; `None` if the database does not answer, which is no reason to give up.
fn passed_over<T>(found: EngineResult<T>) -> EngineResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error @ EngineError::Fenced(_)) => Err(error),
        Err(_) => Ok(None),
    }
}
