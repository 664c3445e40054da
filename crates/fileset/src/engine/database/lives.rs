//! Which sessions are alive.
//!
//! A session says every few seconds that it is: a count in its row goes up. One whose count stood still for its lease,
//! as others saw it by their own clocks, is over. No clock of the database is believed, and a database that was away
//! ends nobody: who looked at nothing for a while begins to watch anew.

use std::{collections::HashMap, time::Duration};

use penstock_base::clock::{self, Instant};

use super::driver::Database;
use crate::engine::EngineResult;

/// What was found of the others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    pub(super) count: usize,
    /// One of them that began earlier was heard of since the last look.
    pub(super) is_earlier_alive: bool,
}

/// What one session saw of the others.
#[derive(Debug)]
pub(super) struct Lives {
    own: i64,
    /// How long a session lives without a word.
    lease: Duration,
    /// How often a session was heard of, and since when it is so.
    seen: HashMap<i64, (i64, Instant)>,
    last_look: Instant,
}

impl Lives {
    pub(super) fn of(own: i64, lease: Duration) -> Self {
        Self {
            own,
            lease,
            seen: HashMap::new(),
            last_look: clock::now(),
        }
    }

    /// Looks at all sessions and ends those that are over. Returns how many others there are.
    pub(super) async fn look(&mut self, database: &dyn Database) -> EngineResult<Others> {
        let rows = database.sessions().await?;
        let now = clock::now();
        let was_away = now.duration_since(self.last_look) > self.lease / 2;
        self.last_look = now;
        let before = std::mem::take(&mut self.seen);
        let mut others = Others::default();
        for (record, beat) in rows {
            let id = record.id.0.cast_signed();
            if id == self.own {
                continue;
            }
            let known = before
                .get(&id)
                .filter(|(count, _)| *count == beat && !was_away);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) >= self.lease {
                tracing::warn!(
                    session = id,
                    name = record.name,
                    "was not heard of, and is over"
                );
                database.end_other(id, Some(beat)).await?;
                continue;
            }
            self.seen.insert(id, (beat, since));
            others.count += 1;
            let is_alive = before.get(&id).is_some_and(|(count, _)| *count != beat);
            others.is_earlier_alive |= is_alive && id < self.own;
        }
        Ok(others)
    }
}
