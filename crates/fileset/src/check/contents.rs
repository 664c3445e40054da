//! Bytes that are with the metadata, since no object in the bucket has them yet: of which objects there are which, and what
//! files refer to that is not among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use bytes::Bytes;

use crate::{
    data::ObjectId,
    schema::{self, Stored},
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Which bytes there are, in their order. Those that touch are one range.
    there: BTreeMap<ObjectId, Vec<Range<u32>>>,
    /// Keys that do not say which bytes they have.
    unreadable: Vec<Bytes>,
    /// Objects of which such a key is.
    damaged: BTreeSet<ObjectId>,
}

impl Contents {
    pub(super) fn look(&mut self, key: &[u8], bytes: &Bytes) {
        match schema::content_in(key, bytes) {
            Ok((object, range)) => self.add(object, range),
            Err(_) => {
                self.unreadable.push(Bytes::copy_from_slice(key));
                self.damaged.extend(schema::object_in(key));
            }
        }
    }

    /// Keys come in their order.
    fn add(&mut self, object: ObjectId, range: Range<u32>) {
        let there = self.there.entry(object).or_default();
        match there.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => there.push(range),
        }
    }

    /// Whether there are bytes of an object.
    pub(super) fn has(&self, object: &ObjectId) -> bool {
        self.there.contains_key(object)
    }

    /// Keys that do not say which bytes they have.
    pub(super) fn unreadable(&self) -> &[Bytes] {
        &self.unreadable
    }

    /// Whether bytes of a run, of which object some should be here, are not.
    pub(super) fn lack(&self, run: &Stored) -> bool {
        let Some(there) = self.there.get(&run.object) else {
            return self.damaged.contains(&run.object);
        };
        let end = run.offset.saturating_add(run.stored_length());
        let before = there.partition_point(|range| range.start <= run.offset);
        let reaching = there[..before].last();
        reaching.is_none_or(|range| range.end < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId {
        writer: 1,
        number: 2,
    };

    fn run(offset: u32, length: u32) -> Stored {
        Stored {
            object: OBJECT,
            object_length: u32::MAX,
            offset,
            length,
            checksums: Vec::new(),
            frames: None,
        }
    }

    #[test]
    fn a_run_lacks_what_no_key_has() {
        let mut contents = Contents::default();
        assert!(!contents.lack(&run(0, 1)), "it should not be here");
        for (offset, length) in [(10, 10), (20, 5), (40, 10)] {
            let key = schema::content(OBJECT, offset);
            contents.look(&key, &vec![0; length].into());
        }
        for (offset, length) in [(10, 10), (10, 15), (12, 13), (40, 10), (49, 1)] {
            assert!(!contents.lack(&run(offset, length)), "{offset}");
        }
        for (offset, length) in [(0, 1), (9, 2), (10, 16), (25, 1), (30, 15), (49, 2)] {
            assert!(contents.lack(&run(offset, length)), "{offset}");
        }
    }

    #[test]
    fn what_a_damaged_key_may_have_had_is_missed() {
        let mut contents = Contents::default();
        let key = schema::content(OBJECT, 10);
        contents.look(&key[..20], &Bytes::from_static(b"bytes"));
        assert!(!contents.has(&OBJECT) && contents.lack(&run(10, 5)));
        assert_eq!(contents.unreadable(), [&key[..20]]);
    }
}
