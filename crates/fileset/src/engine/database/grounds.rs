//! What operations built on: others must not have changed it when their changes are made.

use std::{cell::RefCell, collections::BTreeSet, ops::Range};

use bytes::Bytes;

use crate::engine::{
    EngineResult, Reads, behind,
    layers::{Layer, Layered, Said, in_order, next},
};

/// Keys and ranges that were looked at.
#[derive(Debug, Default)]
pub struct Grounds {
    /// Single keys.
    pub keys: BTreeSet<Bytes>,
    /// Of these all keys that there could be.
    pub ranges: Vec<Range<Bytes>>,
}

impl Grounds {
    pub(super) fn extend(&mut self, more: Self) {
        self.keys.extend(more.keys);
        self.ranges.extend(more.ranges);
    }

    /// Bytes in keys and ranges.
    pub(super) fn size(&self) -> usize {
        let keys = self.keys.iter().map(Bytes::len);
        let ranges = self.ranges.iter();
        keys.chain(ranges.map(|range| range.start.len() + range.end.len()))
            .sum()
    }

    /// Whether one of these keys is among them.
    pub fn have<'a>(&self, mut keys: impl Iterator<Item = &'a Bytes>) -> bool {
        keys.any(|key| {
            self.keys.contains(key) || self.ranges.iter().any(|range| range.contains(key))
        })
    }
}

/// Layers as one, which notes what is looked at.
pub(super) struct Noted<'a> {
    below: Layered<'a>,
    grounds: RefCell<Grounds>,
}

impl<'a> Noted<'a> {
    pub(super) fn new(below: Vec<&'a dyn Layer>) -> Self {
        Self {
            below: Layered(below),
            grounds: RefCell::default(),
        }
    }

    /// What was looked at.
    pub(super) fn into_grounds(self) -> Grounds {
        self.grounds.into_inner()
    }

    /// A range is looked at, nothing of it so far; returns its place.
    fn begin(&self, start: &[u8]) -> usize {
        let start = Bytes::copy_from_slice(start);
        let mut grounds = self.grounds.borrow_mut();
        grounds.ranges.push(start.clone()..start);
        grounds.ranges.len() - 1
    }

    /// It was looked at up to here.
    fn go_on(&self, place: usize, end: Bytes) {
        if let Some(range) = self.grounds.borrow_mut().ranges.get_mut(place) {
            range.end = end;
        }
    }
}

impl Layer for Noted<'_> {
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>> {
        let noted = Bytes::copy_from_slice(key);
        self.grounds.borrow_mut().keys.insert(noted);
        Ok(Some(self.below.get(key)?))
    }

    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>> {
        let range = in_order(range);
        let layers = self.below.0.iter();
        let layers = layers.map(|layer| Ok(layer.says_all(range.clone())?.peekable()));
        let mut layers = layers.collect::<EngineResult<Vec<_>>>()?;
        let (place, end) = (self.begin(range.start), Bytes::copy_from_slice(range.end));
        Ok(Box::new(std::iter::from_fn(move || {
            let said = next(&mut layers).transpose();
            let looked_at = match &said {
                Some(Ok((key, _))) => behind(key),
                _ => end.clone(),
            };
            self.go_on(place, looked_at);
            said
        })))
    }
}
