//! What is known of the keys in the database, until somebody else changes them.
//!
//! Single keys are known, with their values or as absent, and ranges of which all keys are known. The memory is
//! bounded by two generations: when the younger one has its share, it takes the place of the older one, unless an
//! operation needs more at once, which pins what it fetches.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    ops::{Bound, Range},
};

use bytes::Bytes;

use crate::engine::{
    EngineError, EngineResult, behind,
    layers::{Changes, Layer, Said, in_order, next},
};

/// What a key costs besides its bytes.
const OVERHEAD: usize = 96;

/// Keys that somebody wants to know: as many from `start` on as are read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
    /// More than the first one is wanted.
    pub(super) is_scan: bool,
}

#[derive(Debug, Default)]
struct Generation {
    keys: Changes,
    /// Ranges of which all keys are in a generation, by their first key.
    ranges: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

impl Generation {
    fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        let size = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        self.bytes += size(&value);
        let length = key.len();
        match self.keys.insert(key, value) {
            Some(before) => self.bytes -= size(&before),
            None => self.bytes += length + OVERHEAD,
        }
    }

    /// The end of the range that has `key`.
    fn end_at(&self, key: &[u8]) -> Option<&Bytes> {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let (_, end) = self.ranges.range::<[u8], _>(bounds).next_back()?;
        (**end > *key).then_some(end)
    }

    /// Adds a range, as one with those that it touches.
    fn cover(&mut self, mut range: Range<Bytes>) {
        let bounds = (Bound::Unbounded, Bound::Included(&range.end));
        let touching = self.ranges.range::<Bytes, _>(bounds).rev();
        let touching = touching.take_while(|(_, end)| **end >= range.start);
        let touching: Vec<_> = touching.map(|(start, _)| start.clone()).collect();
        for start in touching {
            let end = self.ranges.remove(&start).unwrap_or_default();
            self.bytes -= OVERHEAD;
            range.start = range.start.min(start);
            range.end = range.end.max(end);
        }
        self.ranges.insert(range.start, range.end);
        self.bytes += OVERHEAD;
    }

    /// Nothing is known of a key any more.
    fn forget(&mut self, key: &[u8]) {
        let size = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        if let Some(value) = self.keys.remove(key) {
            self.bytes -= key.len() + OVERHEAD + size(&value);
        }
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let range = self.ranges.range::<[u8], _>(bounds).next_back();
        let range = range.filter(|(_, end)| ***end > *key);
        let Some((start, end)) = range.map(|(start, end)| (start.clone(), end.clone())) else {
            return;
        };
        self.ranges.remove(&start);
        self.bytes -= OVERHEAD;
        let parts = [(start, Bytes::copy_from_slice(key)), (behind(key), end)];
        for (start, end) in parts {
            if start < end {
                self.ranges.insert(start, end);
                self.bytes += OVERHEAD;
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Known {
    young: Generation,
    old: Generation,
    /// Bytes of a generation.
    share: usize,
    pins: usize,
}

impl Known {
    /// Nothing is known yet, and so many bytes may be.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            share: bytes / 2,
            pins: 0,
        }
    }

    /// What was written.
    pub(super) fn learn_changes(&mut self, changes: Changes) {
        for (key, value) in changes {
            self.young.put(key, value);
        }
        self.turn();
    }

    /// What was read of a range. Keys that were changed `since` it was read are known better, or not at all.
    pub(super) fn learn_range(
        &mut self,
        range: Range<Bytes>,
        rows: Vec<(Bytes, Bytes)>,
        since: &HashSet<&Bytes>,
    ) {
        if range.start >= range.end {
            return;
        }
        for (key, value) in rows {
            if !since.contains(&key) {
                self.young.put(key, Some(value));
            }
        }
        let changed = since.iter().filter(|key| range.contains(**key));
        let changed: Vec<&Bytes> = changed.copied().collect();
        self.young.cover(range);
        for key in changed {
            let older = self.old.keys.get(key).cloned();
            match (self.young.keys.contains_key(key), older) {
                (true, _) => {}
                (false, Some(value)) => self.young.put(key.clone(), value),
                (false, None) => self.young.forget(key),
            }
        }
        self.turn();
    }

    /// Others changed these keys; `None` if it can be any.
    pub(super) fn forget(&mut self, keys: Option<&[Bytes]>) {
        match keys {
            Some(keys) => {
                for key in keys {
                    self.young.forget(key);
                    self.old.forget(key);
                }
            }
            None => {
                self.young = Generation::default();
                self.old = Generation::default();
            }
        }
    }

    /// From now on all that is learned stays known, until as many call [`unpin`](Self::unpin).
    pub(super) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(super) fn unpin(&mut self) {
        self.pins -= 1;
        self.turn();
    }

    fn turn(&mut self) {
        if self.pins == 0 && self.young.bytes > self.share {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn single(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.young.keys.get(key).or_else(|| self.old.keys.get(key))
    }

    /// Where what is known from `key` on ends, if it is known.
    fn end_at(&self, key: &[u8]) -> Option<Bytes> {
        let ends = [self.young.end_at(key), self.old.end_at(key)];
        match ends.into_iter().flatten().max() {
            Some(end) => Some(end.clone()),
            None => self.single(key).map(|_| behind(key)),
        }
    }

    /// The part of a range, from its beginning on, that is known.
    fn known_part(&self, range: &Range<&[u8]>) -> Bytes {
        let mut end = Bytes::copy_from_slice(range.start);
        while *end < *range.end {
            match self.end_at(&end) {
                Some(further) => end = further,
                None => return end,
            }
        }
        Bytes::copy_from_slice(range.end)
    }
}

/// Where what may lie near a key ends: all that begins with the same byte.
fn neighbourhood(key: &[u8]) -> Bytes {
    match key.first() {
        Some(first) if *first < u8::MAX => Bytes::copy_from_slice(&[first + 1]),
        _ => behind(key),
    }
}

/// A look at what is known, which remembers what it missed.
pub(super) struct Look<'a> {
    known: &'a Known,
    missed: RefCell<Option<Want>>,
}

impl<'a> Look<'a> {
    pub(super) fn new(known: &'a Known) -> Self {
        Self {
            known,
            missed: RefCell::new(None),
        }
    }

    /// The first that was asked for and is not known.
    pub(super) fn into_missed(self) -> Option<Want> {
        self.missed.into_inner()
    }

    fn miss(&self, want: Want) -> EngineError {
        self.missed.borrow_mut().get_or_insert(want);
        EngineError::NOT_KNOWN
    }
}

impl Layer for Look<'_> {
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>> {
        let known = self.known;
        match known.single(key) {
            Some(value) => Ok(Some(value.clone())),
            None if known.end_at(key).is_some() => Ok(Some(None)),
            None => Err(self.miss(Want {
                start: Bytes::copy_from_slice(key),
                end: neighbourhood(key),
                is_scan: false,
            })),
        }
    }

    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>> {
        let range = in_order(range);
        let end = self.known.known_part(&range);
        let mut layers = Vec::with_capacity(2);
        for generation in [&self.known.young, &self.known.old] {
            layers.push(generation.keys.says_all(range.start..&end)?.peekable());
        }
        let found = std::iter::from_fn(move || next(&mut layers).transpose());
        let want = (*end < *range.end).then(|| Want {
            // Who looks at what belongs to one often looks at the next one.
            end: neighbourhood(&end).max(Bytes::copy_from_slice(range.end)),
            start: end,
            is_scan: true,
        });
        let missing = std::iter::once_with(move || want.map(|want| Err(self.miss(want))));
        Ok(Box::new(found.chain(missing.flatten())))
    }
}
