//! What an operation changed so far.

use std::ops::Range;

use bytes::Bytes;

use super::{
    EngineResult, Reads, Transaction, Visitor,
    layers::{Changes, Layer, Layered},
};

/// An operation at work on a state that others do not change meanwhile.
pub(super) struct Draft<'a> {
    changes: Changes,
    below: Vec<&'a dyn Layer>,
}

impl<'a> Draft<'a> {
    /// Nothing is changed yet of what `below` says, the uppermost layer first.
    pub(super) fn new(below: Vec<&'a dyn Layer>) -> Self {
        Self {
            changes: Changes::new(),
            below,
        }
    }

    /// What was changed.
    pub(super) fn into_changes(self) -> Changes {
        self.changes
    }

    fn layered(&self) -> Layered<'_> {
        let own: &dyn Layer = &self.changes;
        Layered(
            [own]
                .into_iter()
                .chain(self.below.iter().copied())
                .collect(),
        )
    }
}

impl Reads for Draft<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.layered().get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.layered().scan(range, visit)
    }
}

impl Transaction for Draft<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.changes
            .insert(Bytes::copy_from_slice(key), Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.insert(Bytes::copy_from_slice(key), None);
    }
}
