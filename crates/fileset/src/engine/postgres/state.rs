//! All keys as operations see them: what waits to be made durable above what is known of the database.

use bytes::Bytes;

use super::{
    known::{Known, Look, Want},
    session::Batch,
};
use crate::engine::{
    EngineError, EngineResult, Operation, Query, Verdict,
    draft::Draft,
    layers::{Changes, Layered},
};

/// Bytes that one operation may change.
const OPERATION_MAX: usize = 64 << 20;

/// What became of a run.
pub(super) enum Ran {
    /// It is done, with all that it said.
    Done,
    /// It did nothing: it needs to know this first.
    Missed(Want),
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    failed: Option<EngineError>,
    pub(super) known: Known,
    /// What is on its way to the database.
    sending: Changes,
    /// What goes there next.
    waiting: Changes,
    waiting_bytes: usize,
    /// Operations that changed something.
    applied: u64,
}

impl State {
    pub(super) fn new(known: Known) -> Self {
        Self {
            failed: None,
            known,
            sending: Changes::new(),
            waiting: Changes::new(),
            waiting_bytes: 0,
            applied: 0,
        }
    }

    /// From now on nothing more is done.
    pub(super) fn fail(&mut self, error: EngineError) {
        self.failed.get_or_insert(error);
    }

    /// Fails with what the engine failed with.
    pub(super) fn check(&self) -> EngineResult<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Runs a look.
    pub(super) fn look(&self, query: Query<'_>) -> EngineResult<Ran> {
        self.check()?;
        let look = Look::new(&self.known);
        query(&Layered(vec![&self.waiting, &self.sending, &look]));
        Ok(look.into_missed().map_or(Ran::Done, Ran::Missed))
    }

    /// Runs an operation.
    pub(super) fn run(&mut self, operation: &mut Operation) -> EngineResult<Ran> {
        self.check()?;
        let look = Look::new(&self.known);
        let mut draft = Draft::new(vec![&self.waiting, &self.sending, &look]);
        let verdict = operation(&mut draft);
        let changes = draft.into_changes();
        if let Some(missed) = look.into_missed() {
            return Ok(Ran::Missed(missed));
        }
        if verdict == Verdict::Keep && !changes.is_empty() {
            self.apply(changes)?;
        }
        Ok(Ran::Done)
    }

    fn apply(&mut self, changes: Changes) -> EngineResult<()> {
        let size = |(key, value): (&Bytes, &Option<Bytes>)| {
            key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let bytes = changes.iter().map(size).sum();
        if bytes > OPERATION_MAX {
            return Err(EngineError::TooLarge(bytes));
        }
        self.waiting.extend(changes);
        self.waiting_bytes += bytes;
        self.applied += 1;
        Ok(())
    }

    /// What goes to the database now, and the last operation in it.
    pub(super) fn begin(&mut self) -> Option<(Batch, u64)> {
        if self.waiting.is_empty() {
            return None;
        }
        self.sending = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut batch = Batch::default();
        for (key, value) in &self.sending {
            match value {
                Some(value) => {
                    batch.keys.push(key.clone());
                    batch.values.push(value.clone());
                }
                None => batch.deletes.push(key.clone()),
            }
        }
        Some((batch, self.applied))
    }

    /// The database has it.
    pub(super) fn finish(&mut self) {
        let sent = std::mem::take(&mut self.sending);
        self.known.learn_changes(&sent);
    }
}
