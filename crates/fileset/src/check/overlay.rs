//! Keys as they will be when planned changes are made.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, Range},
};

use bytes::Bytes;

use crate::engine::{EngineResult, Reads, Visitor};

/// Changes by key; `None` for keys that go.
pub(super) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// One state of all keys with changes over it.
pub(super) struct Overlay<'a> {
    below: &'a dyn Reads,
    changes: Changes,
}

impl<'a> Overlay<'a> {
    pub(super) fn new(below: &'a dyn Reads) -> Self {
        Self {
            below,
            changes: Changes::new(),
        }
    }

    pub(super) fn make(&mut self, changes: &Changes) {
        let changes = changes.iter();
        self.changes
            .extend(changes.map(|(key, value)| (key.clone(), value.clone())));
    }
}

impl Reads for Overlay<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        let bounds = (Bound::Included(range.start), Bound::Excluded(range.end));
        let mut changed = self.changes.range::<[u8], _>(bounds).peekable();
        let mut flow = ControlFlow::Continue(());
        self.below.scan(range, &mut |key, value| {
            while let Some((other, new)) = changed.next_if(|(other, _)| &other[..] < key) {
                if let Some(new) = new {
                    flow = visit(other, new);
                }
                if flow.is_break() {
                    return flow;
                }
            }
            flow = match changed.next_if(|(other, _)| &other[..] == key) {
                Some((_, None)) => ControlFlow::Continue(()),
                Some((_, Some(new))) => visit(key, new),
                None => visit(key, value),
            };
            flow
        })?;
        for (key, value) in changed {
            if flow.is_break() {
                break;
            }
            if let Some(value) = value {
                flow = visit(key, value);
            }
        }
        Ok(())
    }
}
