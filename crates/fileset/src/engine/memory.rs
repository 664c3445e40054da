//! Engines that keep everything in memory, for tests.

mod sessions;

use std::sync::{PoisonError, RwLock};

use async_trait::async_trait;

pub use self::sessions::MemorySession;
use super::{
    Engine, EngineResult, Operation, Query, Verdict,
    draft::Draft,
    layers::{Changes, Layered},
};

/// Keys and values in memory. Nothing outlives the process, so nothing is ever waited for.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    keys: RwLock<Changes>,
}

#[async_trait]
impl Engine for MemoryEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        query(&Layered(vec![&*keys]));
        Ok(())
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let mut draft = Draft::new(vec![&*keys]);
        let verdict = operation(&mut draft);
        let changes = draft.into_changes();
        if verdict == Verdict::Keep {
            make(&mut keys, changes);
        }
        Ok(())
    }

    async fn sync(&self) -> EngineResult<()> {
        Ok(())
    }

    async fn close(&self) -> EngineResult<()> {
        Ok(())
    }
}

/// Makes changes.
fn make(keys: &mut Changes, changes: Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => keys.insert(key, Some(value)),
            None => keys.remove(&key),
        };
    }
}
