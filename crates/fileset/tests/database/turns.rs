//! Sessions that take turns.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use penstock_fileset::engine::{DatabaseEngine, Engine, EngineResult, Operation, Peers, Query};

/// Sessions on the same keys, of which each does what comes next in turn. Queries see what was done by any of them.
#[derive(Debug)]
pub struct Turns {
    sessions: [Arc<DatabaseEngine>; 2],
    turn: AtomicUsize,
}

impl Turns {
    pub fn new(sessions: [Arc<DatabaseEngine>; 2]) -> Self {
        let turn = AtomicUsize::new(0);
        Self { sessions, turn }
    }

    fn next(&self) -> &DatabaseEngine {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.sessions[turn % self.sessions.len()]
    }
}

#[async_trait]
impl Engine for Turns {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        let session = self.next();
        session.catch_up().await?;
        session.run_query(query).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        self.next().run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        for session in &self.sessions {
            session.sync().await?;
        }
        Ok(())
    }

    async fn close(&self) -> EngineResult<()> {
        for session in &self.sessions {
            session.close().await?;
        }
        Ok(())
    }
}
