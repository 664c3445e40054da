//! Pages of keys and what others changed, out of one state.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future;
use penstock_fileset::engine::{
    EngineError, EngineResult,
    database::{ChangedKey, News, Own, Page, Pages, Point, Since},
};
use tikv_client::Timestamp;

use crate::{
    client::milliseconds,
    database::GARBAGE_AGE,
    records::{Head, Listed, Session, Space},
    state::{Keys, NOT_THERE, behind, overlaid},
};

/// Bytes of a key within which keys are looked for first, and then: all of a key's inode, and of those near it. A range over many
/// regions would be read in all of them at once.
const NEAR: [usize; 2] = [9, 7];
/// The part of the keys that are wanted with which a look among those that are near is content.
const CONTENT: usize = 8;

/// What was changed, in its order.
#[derive(Debug, Default)]
pub(crate) struct Listing(Vec<(i64, Listed)>);

impl Listing {
    pub(crate) fn read(space: &Space, rows: Vec<(Bytes, Bytes)>) -> EngineResult<Self> {
        let rows = rows.into_iter();
        let rows = rows.filter_map(|(key, value)| Some((space.number(&key)?, value)));
        let listed = rows.map(|(at, value)| Ok((at, Listed::decoded(value)?)));
        Ok(Self(listed.collect::<EngineResult<_>>()?))
    }

    /// One more, behind those that there are.
    pub(crate) fn add(&mut self, at: i64, listed: Listed) {
        self.0.push((at, listed));
    }

    /// Those behind a number.
    pub(crate) fn behind(mut self, seen: i64) -> Self {
        self.0.retain(|(at, _)| *at > seen);
        self
    }

    /// The tip that the change behind a number found, if that is listed.
    pub(crate) fn before(&self, seen: i64) -> Option<i64> {
        let next = self.0.iter().find(|(at, _)| *at == seen + 1);
        next.map(|(_, listed)| listed.before)
    }

    /// Keys that others than this session changed behind a number.
    pub(crate) fn of_others(&self, own: i64, seen: i64) -> impl Iterator<Item = &Bytes> {
        let is_others = move |(at, listed): &&(i64, Listed)| *at > seen && listed.session != own;
        let others = self.0.iter().filter(is_others);
        others.flat_map(|(_, listed)| &listed.keys)
    }
}

/// What a session is told; `None` if it is over. What was changed is `None` if it is too much to be told.
pub(crate) fn news(
    head: &Head,
    (own, session): (Own, Option<Session>),
    (since, listing): (Since, Option<Listing>),
) -> Option<News> {
    let session = session.filter(|session| session.token == own.token)?;
    // Who cannot be told all begins anew.
    let floor = listing.as_ref().map_or(head.sequence, |_| head.floor);
    let listing = listing.unwrap_or_default();
    let before = listing.before(since.seen.at);
    let mut changed = Vec::new();
    for (at, listed) in listing.0 {
        let is_own = listed.session == own.id;
        let keys = listed.keys.into_iter();
        changed.extend(keys.map(|key| ChangedKey { at, key, is_own }));
    }
    Some(News {
        point: Point {
            at: head.sequence,
            tip: head.tip,
        },
        before,
        floor,
        is_asked: head.is_wanted && head.alone == own.id,
        made: (session.batch, session.at),
        changed,
    })
}

/// All keys at a moment.
pub(crate) struct Look<'a> {
    keys: &'a Keys,
    moment: Timestamp,
    head: Head,
}

impl<'a> Look<'a> {
    pub(crate) async fn at(keys: &'a Keys, moment: Timestamp) -> EngineResult<Self> {
        let head = keys.head_at(&moment).await?;
        let head = head.ok_or_else(|| keys.client.failure(NOT_THERE))?;
        Ok(Self { keys, moment, head })
    }

    async fn get(&self, key: Bytes) -> EngineResult<Option<Bytes>> {
        let range = key.clone()..behind(&key);
        let found = match self.head.pending.get(&key) {
            Some(said) => return Ok(said.clone()),
            None => self.keys.scan(&self.moment, range, 1).await?,
        };
        Ok(found.into_iter().next().map(|(_, value)| value))
    }

    /// What a session is told that knows what was before.
    pub(crate) async fn news(&self, since: Since) -> EngineResult<News> {
        let own = since.own;
        let session = self.get(self.keys.space.session(own.id));
        let found = future::join(session, self.listing(since.seen.at)).await;
        let (session, listing) = (found.0?, found.1?);
        let session = session.map(Session::decoded).transpose()?;
        since.checked(news(&self.head, (own, session), (since, listing)))
    }

    /// All sessions, by number.
    pub(crate) async fn sessions(&self) -> EngineResult<Vec<(i64, Session)>> {
        let space = &self.keys.space;
        let range = space.sessions();
        let rows = self.keys.whole(&self.moment, range.clone()).await?;
        let rows = overlaid(rows.unwrap_or_default(), (&self.head.pending, range));
        let mut sessions = Vec::new();
        for (key, value) in rows {
            if let Some(id) = space.number(&key) {
                sessions.push((id, Session::decoded(value)?));
            }
        }
        Ok(sessions)
    }

    async fn listing(&self, seen: i64) -> EngineResult<Option<Listing>> {
        let (space, head) = (&self.keys.space, &self.head);
        if seen >= head.sequence || seen < head.floor {
            return Ok(Some(Listing::default()));
        }
        let range = space.change(seen + 1)..space.change(head.sequence + 1);
        let rows = self.keys.whole(&self.moment, range.clone()).await?;
        let rows = rows.map(|rows| overlaid(rows, (&self.head.pending, range)));
        rows.map(|rows| Listing::read(space, rows)).transpose()
    }

    /// The first keys of a range, and up to where they are all that there are.
    pub(crate) async fn rows(
        &self,
        range: &Range<Bytes>,
        count: usize,
    ) -> EngineResult<(Vec<(Bytes, Bytes)>, Bytes)> {
        let space = &self.keys.space;
        let mut start = range.start.clone();
        let mut found = Vec::new();
        for end in windows(range) {
            let part = space.data(&start)..space.data(&end);
            let wanted = count - found.len();
            let rows = self.keys.scan(&self.moment, part.clone(), wanted).await?;
            let read_until = match rows.last() {
                Some((last, _)) if rows.len() >= wanted => behind(last),
                _ => part.end,
            };
            let part = part.start..read_until.clone();
            let rows = overlaid(rows, (&self.head.pending, part)).into_iter();
            found.extend(rows.map(|(key, value)| (space.inner(&key), value)));
            start = space.inner(&read_until);
            if found.len() >= count || start < end || found.len() * CONTENT >= count {
                break;
            }
        }
        Ok((found, start))
    }

    pub(crate) async fn page(
        &self,
        since: Since,
        range: &Range<Bytes>,
        count: i64,
    ) -> EngineResult<Page> {
        let count = usize::try_from(count).unwrap_or(1).max(1);
        let (rows, news) =
            futures_util::future::join(self.rows(range, count), self.news(since)).await;
        let ((rows, end), news) = (rows?, news?);
        Ok(Page { rows, end, news })
    }
}

/// Where a range is looked at up to, first and then, if there is little.
fn windows(range: &Range<Bytes>) -> Vec<Bytes> {
    let near = NEAR
        .iter()
        .filter_map(|length| next_prefix(&range.start, *length));
    let mut ends: Vec<Bytes> = near.filter(|end| *end < range.end).collect();
    ends.push(range.end.clone());
    ends
}

/// The first key that does not begin as this one does.
fn next_prefix(key: &[u8], length: usize) -> Option<Bytes> {
    let mut prefix = key.get(..length)?.to_vec();
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(Bytes::from(prefix))
}

/// One state that is read page by page.
pub(crate) struct FrozenPages {
    pub(crate) keys: Keys,
    pub(crate) moment: Option<Timestamp>,
}

#[async_trait]
impl Pages for FrozenPages {
    async fn page(&mut self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page> {
        let now = self.keys.client.now().await?;
        let moment = self.moment.get_or_insert_with(|| now.clone()).clone();
        let age = milliseconds(&now) - milliseconds(&moment);
        if age as u128 > GARBAGE_AGE.as_millis() / 2 {
            return Err(EngineError::Io(format!(
                "{}: a look at one state took longer than {} minutes, and TiKV keeps no state for longer",
                self.keys.client.place,
                GARBAGE_AGE.as_secs() / 120
            )));
        }
        let look = Look::at(&self.keys, moment).await?;
        look.page(since, range, count).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_looked_at_first() {
        let start = Bytes::from_static(b"i\0\0\0\0\0\0\xff\xffname");
        let windows = windows(&(start..Bytes::from_static(b"j")));
        let expected: [&[u8]; 3] = [b"i\0\0\0\0\0\x01", b"i\0\0\0\0\0\x01", b"j"];
        assert_eq!(windows, expected);
    }
}
