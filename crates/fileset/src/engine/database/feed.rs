//! What other sessions changed, as far as it is known here.
//!
//! All changes have one order: each batch that was made has the next number. What is known of keys is known as of one
//! number, and goes on to a later one by forgetting what was changed in between. Pages that were read meanwhile can be
//! as of an earlier number: so the keys of the last changes are remembered.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use crate::engine::{Changed, Moment};

/// Keys of changes that are remembered, and that wait to be told.
const KEYS_MAX: usize = 1 << 16;

/// A point of the one history of all changes: two databases that went apart have different tips under one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Point {
    /// The number of the last change.
    pub at: i64,
    /// The random number of that change.
    pub tip: i64,
}

/// A key with the number under which it was changed.
#[derive(Debug, Clone)]
pub struct ChangedKey {
    /// The number.
    pub at: i64,
    /// The key.
    pub key: Bytes,
    /// This session changed it.
    pub is_own: bool,
}

/// What a trip brought.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// As of this point.
    pub point: Point,
    /// The tip that the change behind the number that was asked from found, if that is listed.
    pub before: Option<i64>,
    /// Changes up to this number are not listed any more.
    pub floor: i64,
    /// Somebody waits for the keys, which this session has alone.
    pub is_asked: bool,
    /// The last batch of this session that was made, and the number of that among all changes.
    pub made: (i64, i64),
    /// What was changed behind the number that was asked from. Own changes are among it whose answer has not come yet.
    pub changed: Vec<ChangedKey>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Feed {
    seen: Point,
    changed_until: i64,
    /// Of all changes behind `reaches`, others' and own, in their order.
    recent: VecDeque<(i64, Bytes)>,
    reaches: i64,
    /// Somebody follows.
    follows: bool,
    untold: Vec<Bytes>,
    /// There were more than can be told.
    untold_any: bool,
    told_until: i64,
    took_in: i64,
}

impl Feed {
    pub(super) fn new(seen: Point) -> Self {
        Self {
            seen,
            changed_until: 0,
            recent: VecDeque::new(),
            reaches: seen.at,
            follows: false,
            untold: Vec::new(),
            untold_any: false,
            told_until: seen.at,
            took_in: seen.at,
        }
    }

    /// The last change of others in what is known; 0 if there was none.
    pub(super) fn changed_until(&self) -> i64 {
        self.changed_until
    }

    /// What is known is as of this point.
    pub(super) fn seen(&self) -> Point {
        self.seen
    }

    /// Goes on with what a trip brought; returns the keys of which nothing is known any more, `None` if all.
    pub(super) fn go_on(&mut self, news: News) -> Option<Vec<Bytes>> {
        if news.point.at <= self.seen.at {
            return Some(Vec::new());
        }
        let is_whole = news.floor <= self.seen.at;
        let seen = std::mem::replace(&mut self.seen, news.point).at;
        if !is_whole {
            self.recent.clear();
            self.reaches = news.point.at;
            self.changed_until = news.point.at;
            self.tell_any();
            return None;
        }
        let mut keys = Vec::new();
        let changed = news.changed.into_iter();
        for ChangedKey { at, key, is_own } in changed.filter(|changed| changed.at > seen) {
            self.remember(at, key.clone());
            if !is_own {
                self.changed_until = self.changed_until.max(at);
                self.tell(key.clone());
            }
            keys.push(key);
        }
        Some(keys)
    }

    /// What this session changed.
    pub(super) fn changed(&mut self, at: i64, keys: impl Iterator<Item = Bytes>) {
        keys.for_each(|key| self.remember(at, key));
    }

    fn remember(&mut self, at: i64, key: Bytes) {
        if self.recent.len() >= KEYS_MAX
            && let Some((at, _)) = self.recent.pop_front()
        {
            self.reaches = self.reaches.max(at);
        }
        let later = self.recent.iter().rev();
        let later = later.take_while(|(when, _)| *when > at).count();
        let place = self.recent.len() - later;
        self.recent.insert(place, (at, key));
    }

    fn tell(&mut self, key: Bytes) {
        if !self.follows || self.untold_any {
            return;
        }
        match self.untold.len() < KEYS_MAX {
            true => self.untold.push(key),
            false => self.tell_any(),
        }
    }

    /// More was changed than can be told.
    fn tell_any(&mut self) {
        self.untold.clear();
        self.untold_any = true;
    }

    /// Keys that were changed behind `at`; `None` if that is not remembered.
    pub(super) fn behind(&self, at: i64) -> Option<HashSet<&Bytes>> {
        let later = self.recent.iter().rev();
        let later = later.take_while(|(when, _)| *when > at);
        (at >= self.reaches).then(|| later.map(|(_, key)| key).collect())
    }

    /// Whether others changed something that was not told.
    pub(super) fn has_untold(&self) -> bool {
        self.untold_any || !self.untold.is_empty()
    }

    /// Tells what others changed, if they did.
    pub(super) fn told(&mut self) -> Option<Changed> {
        if !self.follows {
            self.follows = true;
            self.told_until = self.seen.at;
            self.took_in = self.seen.at;
            self.untold_any = true;
        }
        if !self.has_untold() {
            return None;
        }
        self.told_until = self.seen.at;
        let keys = std::mem::take(&mut self.untold);
        let is_any = std::mem::take(&mut self.untold_any);
        Some(Changed {
            until: moment(self.seen.at),
            keys: (!is_any).then_some(keys),
        })
    }

    pub(super) fn take_in(&mut self, until: Moment) {
        let until = i64::try_from(until.0).unwrap_or(i64::MAX);
        self.took_in = self.took_in.max(until);
    }

    /// Up to where nothing older is kept by anybody of this session.
    pub(super) fn taken_in(&self) -> i64 {
        let has_all = !self.has_untold() && self.took_in >= self.told_until;
        match !self.follows || has_all {
            true => self.seen.at,
            false => self.took_in,
        }
    }
}

/// A number as others know it.
pub fn moment(at: i64) -> Moment {
    Moment(u64::try_from(at).unwrap_or_default())
}
