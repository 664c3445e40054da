//! Several processes that have the same keys at once, each through an engine of its own.
//!
//! Each process has a **session**. All changes have one order, and a [`Moment`] is a place in it. What a query sees is
//! one moment, and never an earlier one than the query before it saw; operations always build on the latest. How far
//! queries lag behind others is for the engine to say, and [`Peers::catch_up`] ends it.
//!
//! Whoever keeps something that it read from the keys follows [`Peers::changes`], and says with [`Peers::took_in`] how
//! far it is. What all sessions took in ([`Peers::taken_in_by_all`]) nobody keeps as it was before.
//!
//! A session that was not heard of for its lease is over: it changes nothing any more, and learns it at its next
//! change.

use std::{fmt::Debug, time::SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use super::EngineResult;

/// A place in the order of all changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A session's number: later ones have greater numbers, and none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What the other sessions changed up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Queries see it, and all before it.
    pub until: Moment,
    /// The keys that were changed since the last time; `None` if it can be any.
    pub keys: Option<Vec<Bytes>>,
}

/// One of those who have the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub id: SessionId,
    /// The host and process that has it, as it says itself.
    pub name: String,
    /// When it began.
    pub begun: SystemTime,
    /// When it was last heard of.
    pub heard: SystemTime,
    /// How far it is.
    pub took_in: Moment,
}

/// See the module.
#[async_trait]
pub trait Peers: Debug + Send + Sync {
    /// This session.
    fn session(&self) -> SessionId;

    /// Returns when queries see all that was applied anywhere before the call, with how far that is.
    async fn catch_up(&self) -> EngineResult<Moment>;

    /// Where the last change of another session lies that queries here see; the first moment if none was made since
    /// this session began.
    fn changed_until(&self) -> Moment;

    /// Waits until other sessions changed something that was not returned yet. For one caller at a time; dropping the
    /// future loses nothing.
    async fn changes(&self) -> EngineResult<Changed>;

    /// Nothing is kept here any more of what was before.
    fn took_in(&self, moment: Moment);

    /// What all sessions took in that are not over.
    async fn taken_in_by_all(&self) -> EngineResult<Moment>;

    /// All sessions that are not over, by number.
    async fn sessions(&self) -> EngineResult<Vec<SessionRecord>>;

    /// Ends another session, as if its lease were over. Returns whether there was one.
    async fn evict(&self, session: SessionId) -> EngineResult<bool>;
}
