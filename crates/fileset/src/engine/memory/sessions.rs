//! Sessions on the same keys in memory. The keys that a session's queries see lag behind until it catches up, or
//! somebody takes its changes.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockWriteGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Mutex, clock};
use tokio::sync::watch;

use super::make;
use crate::engine::{
    Changed, Engine, EngineError, EngineResult, Moment, Operation, Peers, Query, SessionId,
    SessionRecord, Verdict,
    draft::Draft,
    layers::{Changes, Layered},
};

/// What all sessions share.
#[derive(Debug, Default)]
struct Common {
    keys: Changes,
    /// All changes, with whose they are.
    log: Vec<(SessionId, Changes)>,
    sessions: Vec<SessionRecord>,
    last_session: u64,
}

impl Common {
    fn record(&mut self, session: SessionId) -> EngineResult<&mut SessionRecord> {
        let found = self.sessions.iter_mut().find(|record| record.id == session);
        found.ok_or_else(|| EngineError::Fenced("the session is over".to_owned()))
    }
}

/// What a session sees.
#[derive(Debug, Default)]
struct Seen {
    keys: Changes,
    /// Entries of the log in it.
    until: usize,
    /// Entries whose keys were told.
    told: usize,
    /// Where the last telling ended that was of somebody else's keys.
    last_told: Moment,
}

fn see(seen: &mut Seen, common: &Common) {
    for (_, changes) in &common.log[seen.until..] {
        make(&mut seen.keys, changes.clone());
    }
    seen.until = common.log.len();
}

/// A session.
pub struct MemorySession {
    common: Arc<Mutex<Common>>,
    /// The length of the log.
    applied: Arc<watch::Sender<usize>>,
    id: SessionId,
    /// The length of the log when it began.
    begun: usize,
    seen: RwLock<Seen>,
}

impl MemorySession {
    /// The first session on new keys.
    pub fn first() -> Self {
        let applied = Arc::new(watch::Sender::new(0));
        Self::begin(Arc::default(), applied)
    }

    /// Another session on the same keys.
    pub fn another(&self) -> Self {
        Self::begin(Arc::clone(&self.common), Arc::clone(&self.applied))
    }

    fn begin(common: Arc<Mutex<Common>>, applied: Arc<watch::Sender<usize>>) -> Self {
        let (id, begun, seen) = {
            let mut common = common.lock();
            common.last_session += 1;
            let (id, until) = (SessionId(common.last_session), common.log.len());
            let now = clock::wall_time();
            common.sessions.push(SessionRecord {
                id,
                name: format!("session {}", id.0),
                begun: now,
                heard: now,
                took_in: Moment(until as u64),
            });
            let keys = common.keys.clone();
            let seen = Seen {
                keys,
                until,
                told: until,
                last_told: Moment(until as u64),
            };
            (id, until, seen)
        };
        Self {
            common,
            applied,
            id,
            begun,
            seen: RwLock::new(seen),
        }
    }

    fn seen(&self) -> RwLockWriteGuard<'_, Seen> {
        self.seen.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What others changed and nobody was told of.
    fn untold(&self) -> Option<Changed> {
        let mut seen = self.seen();
        let mut common = self.common.lock();
        see(&mut seen, &common);
        let others = common.log[seen.told..].iter();
        let others = others.filter(|(session, _)| *session != self.id);
        let keys: Vec<Bytes> = others.flat_map(|(_, made)| made.keys().cloned()).collect();
        seen.told = seen.until;
        let until = Moment(seen.until as u64);
        if !keys.is_empty() {
            seen.last_told = until;
            let keys = Some(keys);
            return Some(Changed { until, keys });
        }
        // Of its own changes a session keeps nothing older.
        if let Ok(record) = common.record(self.id)
            && record.took_in >= seen.last_told
        {
            record.took_in = until;
        }
        None
    }
}

impl fmt::Debug for MemorySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemorySession").field(&self.id.0).finish()
    }
}

#[async_trait]
impl Engine for MemorySession {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        let seen = self.seen.read();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        query(&Layered(vec![&seen.keys]));
        Ok(())
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        let mut seen = self.seen();
        let mut common = self.common.lock();
        common.record(self.id)?;
        see(&mut seen, &common);
        let mut draft = Draft::new(vec![&seen.keys]);
        let verdict = operation(&mut draft);
        let changes = draft.into_changes();
        if verdict == Verdict::Keep && !changes.is_empty() {
            make(&mut common.keys, changes.clone());
            common.log.push((self.id, changes));
            see(&mut seen, &common);
            self.applied.send_replace(common.log.len());
        }
        Ok(())
    }

    async fn sync(&self) -> EngineResult<()> {
        Ok(())
    }

    async fn close(&self) -> EngineResult<()> {
        self.common.lock().sessions.retain(|one| one.id != self.id);
        Ok(())
    }

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }
}

#[async_trait]
impl Peers for MemorySession {
    fn session(&self) -> SessionId {
        self.id
    }

    async fn catch_up(&self) -> EngineResult<Moment> {
        let mut seen = self.seen();
        let mut common = self.common.lock();
        common.record(self.id)?;
        see(&mut seen, &common);
        Ok(Moment(seen.until as u64))
    }

    fn changed_until(&self) -> Moment {
        let seen = self.seen.read();
        let until = seen.unwrap_or_else(PoisonError::into_inner).until;
        let common = self.common.lock();
        let mut last = common.log[self.begun..until].iter();
        let last = last.rposition(|(session, _)| *session != self.id);
        last.map_or_else(Moment::default, |at| Moment((self.begun + at + 1) as u64))
    }

    async fn changes(&self) -> EngineResult<Changed> {
        let mut applied = self.applied.subscribe();
        loop {
            applied.borrow_and_update();
            self.common.lock().record(self.id)?;
            if let Some(changed) = self.untold() {
                return Ok(changed);
            }
            let gone = |_| EngineError::Io("the keys are gone".to_owned());
            applied.changed().await.map_err(gone)?;
        }
    }

    fn took_in(&self, moment: Moment) {
        if let Ok(record) = self.common.lock().record(self.id) {
            record.took_in = record.took_in.max(moment);
        }
    }

    async fn taken_in_by_all(&self) -> EngineResult<Moment> {
        let common = self.common.lock();
        let all = common.sessions.iter().map(|record| record.took_in);
        Ok(all.min().unwrap_or_default())
    }

    async fn sessions(&self) -> EngineResult<Vec<SessionRecord>> {
        Ok(self.common.lock().sessions.clone())
    }

    async fn evict(&self, session: SessionId) -> EngineResult<bool> {
        let mut common = self.common.lock();
        let before = common.sessions.len();
        common.sessions.retain(|record| record.id != session);
        // Who waits for changes learns that it is over.
        self.applied.send_modify(|_| ());
        Ok(common.sessions.len() < before)
    }
}
