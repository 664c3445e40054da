//! What a database does for the engine: the seam behind which each kind of them is driven.
//!
//! A database keeps, for one file system:
//!
//! | kept | what it says |
//! |---|---|
//! | keys | with their values; a counter's value is that of [`counter`](crate::engine::counter) |
//! | head | how many changes there were and the tip of the last one, how many sessions began, and which has the keys alone |
//! | sessions | who has the keys, a token, how often it was heard of, and its last batch |
//! | feed | the last changes: whose, which tip was before it, and of which keys |
//!
//! Each method is one atomic step, or one look at one state. All steps have one order, and a look that begins when a step
//! was answered sees it.
//!
//! - **Errors.** `Database` and `Full` are tried again by the engine, for as long as its patience lasts: a driver makes no
//!   attempt of its own that takes longer than a minute. `Fenced` says that the session is over, or that the database was put back.
//!   Whether a step was made that failed with `Database` is unknown, and the engine does it again: a batch has a number
//!   among those of its session, and one whose number is taken is not made twice; the other steps are the same done twice.
//! - **Cancellation.** A future that is dropped leaves its step done or not done, never half.

use std::{collections::BTreeMap, fmt::Debug, ops::Range};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    edits::Edits,
    feed::{News, Point},
    grounds::Grounds,
};
use crate::engine::{EngineError, EngineResult, SessionRecord};

/// A session, and what tells it from another one that has its number in a history which went another way.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Its number, which is above 0.
    pub id: i64,
    /// A random number.
    pub token: i64,
}

/// From which number on news are wanted, and for which session.
#[derive(Debug, Clone, Copy)]
pub struct Since {
    /// What is known is as of this point.
    pub seen: Point,
    /// The last batch of the session that is known to be made.
    pub made: i64,
    /// The session.
    pub own: Own,
}

impl Since {
    /// What a database told. Fails if the session is over, or the database knows less than it did, or something else.
    pub fn checked(self, news: Option<News>) -> EngineResult<News> {
        let news = news.ok_or_else(over)?;
        let is_earlier = news.point.at < self.seen.at || news.made.0 < self.made;
        let is_other = match news.point.at == self.seen.at {
            true => news.point.tip != self.seen.tip,
            // Changes of one who has the keys alone are not listed.
            false => news.before.is_some_and(|before| before != self.seen.tip),
        };
        match is_earlier || is_other {
            true => Err(put_back()),
            false => Ok(news),
        }
    }
}

/// Some keys with their values, and what others changed since, as of the same moment.
#[derive(Debug)]
pub struct Page {
    /// In the order of the keys.
    pub rows: Vec<(Bytes, Bytes)>,
    /// All keys of the range are among them up to here, without this one.
    pub end: Bytes,
    /// As of the same moment.
    pub news: News,
}

/// Changes that are made at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// Among those of the session.
    pub number: i64,
    /// What they build on is as of this point.
    pub seen: Point,
    /// What they build on.
    pub grounds: Grounds,
    /// What they change.
    pub edits: Edits,
    /// Whether others are there to be told.
    pub is_told: bool,
    /// Up to where nothing older is kept by anybody of the session.
    pub took_in: i64,
}

/// What became of a batch.
#[derive(Debug)]
pub enum Outcome {
    /// It was made.
    Made {
        /// Its number among all changes.
        at: i64,
        /// Where counters stand then; those that are not told are asked for.
        stand: BTreeMap<Bytes, i64>,
    },
    /// Others changed what it builds on: nothing was made.
    Outdated,
}

/// How much a database takes at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that one operation may change and build on.
    pub operation: usize,
    /// Bytes that may wait for the batch before them; with more, operations wait. A batch has at most this and one
    /// operation.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            operation: 64 << 20,
            waiting: 8 << 20,
        }
    }
}

/// One state of all keys, read page by page.
#[async_trait]
pub trait Pages: Send {
    /// The first keys of a range, at most `count`. News are as of the one state.
    async fn page(&mut self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page>;
}

/// See the module.
#[async_trait]
pub trait Database: Debug + Send + Sync + 'static {
    /// Where it is, as errors tell it.
    fn place(&self) -> &str;

    /// How much it takes at once.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Begins what it keeps for the file system. Fails with `Fenced` where there is some already.
    async fn create(&self) -> EngineResult<()>;

    /// Whether it keeps something for the file system.
    async fn is_there(&self) -> EngineResult<bool>;

    /// Removes all that it keeps for the file system.
    async fn remove(&self) -> EngineResult<()>;

    /// Begins a session of a machine, whose earlier ones are over.
    async fn begin(&self, machine: i64, name: &str) -> EngineResult<Own>;

    /// A session gets the keys alone if nobody else has them; else it asks for them. Returns who has them alone, and the
    /// latest change.
    async fn ask(&self, own: Own) -> EngineResult<(Option<i64>, Point)>;

    /// A session does not want to have the keys alone any more.
    async fn share(&self, own: Own) -> EngineResult<()>;

    /// Says that a session is alive and what it took in, and whether it was. Not kept from being heard by a change.
    async fn beat(&self, own: Own, took_in: i64) -> EngineResult<bool>;

    /// All sessions by number, with how often they were heard of.
    async fn sessions(&self) -> EngineResult<Vec<(SessionRecord, i64)>>;

    /// A session ends.
    async fn end(&self, own: Own) -> EngineResult<()>;

    /// Ends a session, if it was heard of so often; returns whether there was one.
    async fn end_other(&self, id: i64, beat: Option<i64>) -> EngineResult<bool>;

    /// Removes what nobody needs. Called every minute or so by each session, while it is alive.
    async fn trim(&self, own: Own) -> EngineResult<()>;

    /// The first keys of a range, at most `count`, and what others changed, as of one moment.
    async fn page(&self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page>;

    /// What others changed.
    async fn news(&self, since: Since) -> EngineResult<News>;

    /// Makes changes if others did not change what they build on; returns what became of it, and what others changed.
    async fn change(&self, since: Since, batch: &Batch) -> EngineResult<(Outcome, News)>;

    /// One state of all keys, which is that of the first page. It is read within the runtime that calls this.
    async fn freeze(&self) -> EngineResult<Box<dyn Pages>>;
}

/// Why nothing is gone on with that the database had once.
pub fn put_back() -> EngineError {
    EngineError::Fenced("the database was put back to what it was once".to_owned())
}

/// A session that was ended, or was not heard of for too long.
pub fn over() -> EngineError {
    EngineError::Fenced("this session was ended, or was not heard of for too long".to_owned())
}
