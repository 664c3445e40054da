//! The tree as it was when a snapshot was taken: what was kept of it over what has not changed since.

use std::{collections::BTreeMap, ops::ControlFlow, ops::Range};

use bytes::Bytes;

use super::preserve::damaged;
use crate::{
    engine::{EngineResult, Reads, Visitor},
    schema,
};

/// Keys that are merged at once, at first and at most: many looks want few.
const PAGE_MIN: usize = 8;
const PAGE_MAX: usize = 512;

/// See the module.
pub(super) struct View<'a> {
    live: &'a dyn Reads,
    snapshot: u64,
    last_file: u64,
}

/// Merged keys, and where the next ones begin.
struct Page {
    keys: BTreeMap<Bytes, Option<Bytes>>,
    next: Option<Bytes>,
}

/// What a key said when `snapshot` was taken, if it changed since: the inner `None` if it was not there.
pub(super) fn kept_since(
    reads: &dyn Reads,
    key: &[u8],
    snapshot: u64,
) -> EngineResult<Option<Option<Bytes>>> {
    let all = schema::of_kept(key);
    let mut found = None;
    let range = &schema::kept(key, snapshot)[..]..&schema::behind(&all)[..];
    reads.scan(range, &mut |kept, value| {
        if kept.len() != all.len() + 8 {
            return ControlFlow::Continue(());
        }
        found = Some(schema::decode_kept(value).map_err(|error| damaged(&error)));
        ControlFlow::Break(())
    })?;
    found.transpose()
}

impl<'a> View<'a> {
    pub(super) fn new(live: &'a dyn Reads, snapshot: u64, last_file: u64) -> Self {
        Self {
            live,
            snapshot,
            last_file,
        }
    }

    /// Whether a key is of a file that was made later.
    fn is_younger(&self, key: &[u8]) -> bool {
        schema::inode_in(key).is_ok_and(|file| file.0 > self.last_file)
    }

    /// The first keys of a range, about as many as `length`. Those that are not there are passed over.
    fn page(&self, range: Range<&[u8]>, length: usize) -> EngineResult<Page> {
        let (mut keys, live_end) = self.live_page(range.clone(), length)?;
        let (kept, kept_end) = self.kept_page(range, length)?;
        keys.extend(kept);
        // Behind the last key of a page that is full something may be missing.
        let last = match (live_end, kept_end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let next = last.map(|last| Bytes::from([&last[..], &[0]].concat()));
        if let Some(next) = &next {
            keys.split_off(next);
        }
        Ok(Page { keys, next })
    }

    /// Live keys, and the last of them if there may be more.
    fn live_page(&self, range: Range<&[u8]>, length: usize) -> EngineResult<Filled> {
        let (mut keys, mut last) = (Changes::new(), None);
        self.live.scan(range, &mut |key, value| {
            let key = Bytes::copy_from_slice(key);
            keys.insert(key.clone(), Some(value.clone()));
            if keys.len() < length {
                return ControlFlow::Continue(());
            }
            last = Some(key);
            ControlFlow::Break(())
        })?;
        Ok((keys, last))
    }

    /// The same of what was kept.
    fn kept_page(&self, range: Range<&[u8]>, length: usize) -> EngineResult<Filled> {
        let (mut keys, mut last, mut outcome) = (Changes::new(), None, Ok(()));
        let of = |key: &[u8]| [&[schema::kind::KEPT], key].concat();
        let mut visit = |kept: &[u8], value: &Bytes| {
            let (key, snapshot) = schema::kept_in(kept)?;
            // The first of those that are late enough says what was.
            if key < range.start || snapshot < self.snapshot || keys.contains_key(key) {
                return Ok(true);
            }
            let key = Bytes::copy_from_slice(key);
            keys.insert(key.clone(), schema::decode_kept(value)?);
            last = (keys.len() == length).then_some(key);
            Ok(last.is_none())
        };
        self.live.scan(
            &of(range.start)..&of(range.end),
            &mut |kept, value| match visit(kept, value) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    outcome = Err(damaged(&error));
                    ControlFlow::Break(())
                }
            },
        )?;
        outcome.map(|()| (keys, last))
    }
}

type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// Keys, and the last of them if there may be more.
type Filled = (Changes, Option<Bytes>);

impl Reads for View<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        if self.is_younger(key) {
            return Ok(None);
        }
        match kept_since(self.live, key, self.snapshot)? {
            Some(value) => Ok(value),
            None => self.live.get(key),
        }
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        let (mut start, mut length) = (Bytes::copy_from_slice(range.start), PAGE_MIN);
        loop {
            let page = self.page(&start..range.end, length)?;
            length = PAGE_MAX.min(length * 2);
            let keys = page.keys.iter().filter(|(key, _)| !self.is_younger(key));
            for (key, value) in keys {
                if let Some(value) = value
                    && visit(key, value).is_break()
                {
                    return Ok(());
                }
            }
            match page.next {
                Some(next) => start = next,
                None => return Ok(()),
            }
        }
    }
}
