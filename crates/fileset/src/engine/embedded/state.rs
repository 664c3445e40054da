//! What the embedded engine knows: the tree, and over it what the tree does not have yet.

use std::{collections::btree_map::Entry, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{log::Replayed, table::TreeState};
use crate::engine::{
    EngineError, Operation, Verdict,
    draft::Draft,
    layers::{Changes, Layer, Layered},
    record::{self, Tip},
};

/// Bytes of keys and values that one operation changes at most. A record's length is a number of 32 bits, and a record is
/// written, sent and read back whole: this is a small part of the one and of a machine's memory, and 64 times what the
/// steps are held to in which long operations run.
const RECORD_MAX: usize = 64 << 20;
/// A checkpoint is due when the log has so many times what may be in memory, and operations wait for it at twice as much: what
/// is read again after a crash is no more than that, and as much again if it comes in the midst of a checkpoint.
const LOG_FACTOR: usize = 4;
/// What a key costs in memory beside its bytes.
const KEY_OVERHEAD: usize = 96;

/// One state of all keys, in three layers, and the records that the log does not have yet.
pub(super) struct State {
    /// Since the last checkpoint began.
    recent: Changes,
    /// What a checkpoint is bringing into the tree.
    merging: Arc<Changes>,
    tree: TreeState,
    /// Records that nobody wrote yet.
    records: BytesMut,
    /// Behind the last operation.
    tip: Tip,
    /// Memory that `recent` occupies, about.
    recent_bytes: usize,
    /// Bytes of all changes that led to `recent`, of which the log has each.
    logged_bytes: usize,
    /// Why nothing is changed any more.
    failed: Option<EngineError>,
}

impl State {
    /// Over a tree that has all up to operation `merged`.
    pub(super) fn new((tree, merged): (TreeState, u64), replayed: Replayed) -> Self {
        let recent_bytes = replayed.changes.iter().map(cost).sum();
        let records = replayed.records.iter();
        let unmerged = records.filter(|record| record.sequence > merged);
        let logged_bytes = unmerged.map(|record| record.whole.len()).sum();
        Self {
            recent: replayed.changes,
            merging: Arc::default(),
            tree,
            records: BytesMut::new(),
            tip: replayed.tip,
            recent_bytes,
            logged_bytes,
            failed: None,
        }
    }

    fn layers(&self) -> Vec<&dyn Layer> {
        let mut layers: Vec<&dyn Layer> = vec![&self.recent];
        if !self.merging.is_empty() {
            layers.push(&*self.merging);
        }
        layers.push(&self.tree);
        layers
    }

    pub(super) fn reads(&self) -> Layered<'_> {
        Layered(self.layers())
    }

    /// Runs an operation and makes its changes.
    pub(super) fn run(&mut self, operation: &mut Operation) -> Result<(), EngineError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut draft = Draft::new(self.layers());
        if operation(&mut draft) == Verdict::Discard {
            return Ok(());
        }
        let changes = draft.into_changes();
        if changes.is_empty() {
            return Ok(());
        }
        let bytes = changes.iter().map(cost).sum::<usize>();
        if bytes > RECORD_MAX {
            return Err(EngineError::TooLarge(bytes));
        }
        record::append(&mut self.records, &mut self.tip, &changes);
        self.logged_bytes += bytes;
        for (key, value) in changes {
            self.change(key, value);
        }
        Ok(())
    }

    fn change(&mut self, key: Bytes, value: Option<Bytes>) {
        self.recent_bytes += cost((&key, &value));
        match self.recent.entry(key) {
            Entry::Vacant(vacant) => drop(vacant.insert(value)),
            Entry::Occupied(mut occupied) => {
                let before = occupied.insert(value);
                self.recent_bytes -= cost((occupied.key(), &before));
            }
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.tip.sequence
    }

    /// Whether there are `recent_max` bytes of changes, or a log of several times as many: what is put and goes again
    /// leaves nothing else.
    pub(super) fn has(&self, recent_max: usize) -> bool {
        self.recent_bytes >= recent_max || self.logged_bytes >= LOG_FACTOR * recent_max
    }

    pub(super) fn failed(&self) -> Option<&EngineError> {
        self.failed.as_ref()
    }

    pub(super) fn fail(&mut self, error: EngineError) {
        self.failed.get_or_insert(error);
    }

    /// Changes nothing any more, if the tree has everything; returns whether it does.
    pub(super) fn close(&mut self) -> bool {
        self.recent.is_empty() && self.close_unmerged()
    }

    /// Changes nothing any more, if the log has everything; returns whether it does.
    pub(super) fn close_unmerged(&mut self) -> bool {
        let is_done = self.records.is_empty();
        if is_done {
            self.fail(EngineError::Io("the engine is closed".to_owned()));
        }
        is_done
    }

    /// The records that nobody wrote yet, with the place behind them.
    pub(super) fn take_records(&mut self) -> (BytesMut, Tip) {
        (self.records.split(), self.tip)
    }

    /// Begins a checkpoint: returns what the tree lacks. Records were taken before.
    pub(super) fn begin_merge(&mut self) -> Arc<Changes> {
        self.merging = Arc::new(std::mem::take(&mut self.recent));
        (self.recent_bytes, self.logged_bytes) = (0, 0);
        Arc::clone(&self.merging)
    }

    /// The tree has what the checkpoint brought.
    pub(super) fn end_merge(&mut self, tree: TreeState) {
        self.tree = tree;
        self.merging = Arc::default();
    }
}

fn cost((key, value): (&Bytes, &Option<Bytes>)) -> usize {
    key.len() + value.as_ref().map_or(0, Bytes::len) + KEY_OVERHEAD
}
