//! What the engine says of those who have the keys at the same time.

use std::sync::Arc;

use async_trait::async_trait;

use super::{DatabaseEngine, DatabaseSettings, driver::Database, feed::moment};
use crate::engine::{Changed, EngineResult, Moment, Peers, SessionId, SessionRecord};

/// The sessions of a file system, for who has none of them.
#[derive(Debug)]
pub struct DatabaseSessions(Arc<dyn Database>);

impl DatabaseSessions {
    /// Those of the file system that the settings name, whose directory is left alone.
    pub fn of(settings: &dyn DatabaseSettings) -> EngineResult<Self> {
        Ok(Self(settings.database()?))
    }

    /// All that are not over, by number.
    pub async fn list(&self) -> EngineResult<Vec<SessionRecord>> {
        listed(&*self.0).await
    }

    /// Ends one, as if its lease were over. Returns whether there was one.
    pub async fn evict(&self, session: SessionId) -> EngineResult<bool> {
        self.0.end_other(session.0.cast_signed(), None).await
    }
}

async fn listed(database: &dyn Database) -> EngineResult<Vec<SessionRecord>> {
    let listed = database.sessions().await?.into_iter();
    Ok(listed.map(|(record, _)| record).collect())
}

#[async_trait]
impl Peers for DatabaseEngine {
    fn session(&self) -> SessionId {
        SessionId(self.shared.own.id.cast_unsigned())
    }

    async fn catch_up(&self) -> EngineResult<Moment> {
        self.shared.catch_up().await?;
        Ok(moment(self.shared.read().feed.seen().at))
    }

    fn changed_until(&self) -> Moment {
        moment(self.shared.read().feed.changed_until())
    }

    async fn changes(&self) -> EngineResult<Changed> {
        loop {
            let told = self.shared.told.notified();
            {
                let mut state = self.shared.write();
                state.check()?;
                if let Some(changed) = state.feed.told() {
                    return Ok(changed);
                }
            }
            told.await;
        }
    }

    fn took_in(&self, moment: Moment) {
        self.shared.write().feed.take_in(moment);
    }

    async fn taken_in_by_all(&self) -> EngineResult<Moment> {
        let own = self.shared.read().feed.taken_in();
        let others = self.sessions().await?.into_iter();
        let others = others.filter(|record| record.id != self.session());
        let all = others.map(|record| record.took_in);
        Ok(all.chain([moment(own)]).min().unwrap_or_default())
    }

    async fn sessions(&self) -> EngineResult<Vec<SessionRecord>> {
        listed(&*self.shared.database).await
    }

    async fn evict(&self, session: SessionId) -> EngineResult<bool> {
        let id = session.0.cast_signed();
        self.shared.database.end_other(id, None).await
    }
}
