//! What the engine says of those who have the keys at the same time.

use async_trait::async_trait;

use super::{PostgresEngine, feed::moment};
use crate::engine::{Changed, EngineResult, Moment, Peers, SessionId, SessionRecord};

#[async_trait]
impl Peers for PostgresEngine {
    fn session(&self) -> SessionId {
        SessionId(self.shared.session.cast_unsigned())
    }

    async fn catch_up(&self) -> EngineResult<Moment> {
        self.shared.catch_up().await?;
        Ok(moment(self.shared.read().feed.seen()))
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
        self.shared.readers.sessions().await
    }

    async fn evict(&self, session: SessionId) -> EngineResult<bool> {
        let connection = self.shared.connector.connect().await?;
        connection.end(session.0.cast_signed(), None).await
    }
}
