//! One state of all keys, and how it becomes the next one. The head of the crate says why so.

use std::{future::Future, ops::Range, pin::Pin, time::Duration};

use bytes::Bytes;
use penstock_base::{Mutex, clock, random};
use penstock_fileset::engine::{EngineError, EngineResult};
use tikv_client::{KvPair, Timestamp, Transaction};

use crate::{
    client::{Client, Committed, milliseconds},
    records::{Changes, Head, Space, size, unwrapped, wrapped},
};

/// Bytes of pending changes, above which they are folded into their keys.
const PENDING_MAX: usize = 16 << 10;
/// Bytes of keys and values in one transaction that folds.
const FOLD_MAX: usize = 512 << 10;
/// Keys that are read at once.
const KEYS_MAX: usize = 1024;
/// Keys of a range that are read at once: an answer has at most 10 MB.
const SCAN_MAX: u32 = 512;
/// Steps that others were faster than, until somebody else is to try.
const ATTEMPTS: u32 = 12;
/// How long the first pause is behind one who was faster, at most, and how long the longest.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// Bytes of a range that is read as a whole.
const WHOLE_MAX: usize = 64 << 20;

/// The work of a step: looks at a state, and says what changes.
pub(crate) trait Step: Sync {
    /// What it answers.
    type Answer: Send;

    /// Runs it, again where others were faster or nobody knows what came of it.
    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, Self::Answer>;
}

/// A step at work.
pub(crate) type Running<'a, T> = Pin<Box<dyn Future<Output = EngineResult<T>> + Send + 'a>>;

/// The keys of one file system in a cluster.
pub(crate) struct Keys {
    pub(crate) client: Client,
    pub(crate) space: Space,
    /// The stamp of the head whose pending changes are known to be in their keys.
    pub(crate) folded: Mutex<Option<u64>>,
}

/// Why nothing is to be had.
pub(crate) const NOT_THERE: &str = "there is no such file system in it";

impl Keys {
    /// The same for another runtime.
    pub(crate) fn another(&self) -> Self {
        Self {
            client: self.client.another(),
            space: self.space.clone(),
            folded: Mutex::default(),
        }
    }

    /// Does a step at the latest state.
    pub(crate) async fn step<S: Step>(&self, step: &S) -> EngineResult<S::Answer> {
        let mut pause = PAUSE;
        for _ in 0..ATTEMPTS {
            let mut state = self.latest().await?;
            let answer = step.run(&mut state).await?;
            if state.make().await? {
                return Ok(answer);
            }
            clock::sleep(pause.mul_f64(random::fraction())).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Err(self.client.failure("others change it all the time"))
    }

    /// Looks at the latest state, to change it.
    pub(crate) async fn latest(&self) -> EngineResult<State<'_>> {
        let mut transaction = self.client.begin().await?;
        let get = transaction.get(Vec::from(self.space.head()));
        let head = self.client.trip(get).await?;
        let head = head.ok_or_else(|| self.client.failure(NOT_THERE))?;
        Ok(State {
            keys: self,
            transaction,
            found: head.clone(),
            head: Head::decoded(head)?,
            changes: Changes::new(),
        })
    }

    /// Puts the first head. Fails with `Fenced` where there is one.
    pub(crate) async fn create(&self) -> EngineResult<()> {
        let first = Head {
            stamp: random::number(),
            ..Head::default()
        };
        for _ in 0..ATTEMPTS {
            let mut transaction = self.client.begin().await?;
            let key = Vec::from(self.space.head());
            let there = self.client.trip(transaction.get(key.clone())).await?;
            match there.map(Head::decoded).transpose()? {
                Some(head) if head.stamp == first.stamp => return Ok(()),
                Some(_) => {
                    let place = &self.client.place;
                    let told = format!("{place}: there is one in it already");
                    return Err(EngineError::Fenced(told));
                }
                None => {
                    self.client
                        .trip(transaction.put(key, first.encoded()))
                        .await?;
                    self.client.commit(&mut transaction).await;
                }
            }
        }
        Err(self.client.failure("the first key was not written"))
    }

    /// Removes the head, from when on there is no state, and then all keys.
    pub(crate) async fn remove(&self) -> EngineResult<()> {
        loop {
            let mut transaction = self.client.begin().await?;
            let key = Vec::from(self.space.head());
            if self
                .client
                .trip(transaction.get(key.clone()))
                .await?
                .is_none()
            {
                break;
            }
            self.client.trip(transaction.delete(key)).await?;
            if let Committed::Unknown(error) = self.client.commit(&mut transaction).await {
                return Err(error);
            }
        }
        let range = vectors(self.space.all());
        let client = self.client.get().await?;
        self.client.trip(client.unsafe_destroy_range(range)).await
    }

    /// Keys of a range, at most `count`, as they are at a moment, without what is pending.
    pub(crate) async fn scan(
        &self,
        moment: &Timestamp,
        range: Range<Bytes>,
        count: usize,
    ) -> EngineResult<Vec<(Bytes, Bytes)>> {
        let mut found = Vec::new();
        let (mut start, end) = (range.start, range.end);
        while start < end && found.len() < count {
            let wanted = SCAN_MAX.min((count - found.len()) as u32);
            let mut snapshot = self.client.at(moment).await?;
            let part = vectors(start.clone()..end.clone());
            let scan = async { Ok(snapshot.scan(part, wanted).await?.collect::<Vec<_>>()) };
            let pairs: Vec<KvPair> = self.client.trip(scan).await?;
            let got = pairs.len();
            let rows = pairs.into_iter().map(row);
            found.extend(rows);
            match found.last() {
                Some((last, _)) if got >= wanted as usize => start = behind(last),
                _ => break,
            }
        }
        found.truncate(count);
        Ok(found)
    }

    /// The values of keys at a moment, without what is pending.
    async fn get_all(&self, moment: &Timestamp, keys: Vec<Bytes>) -> EngineResult<Changes> {
        let mut found: Changes = keys.iter().map(|key| (key.clone(), None)).collect();
        for part in keys.chunks(KEYS_MAX) {
            let mut snapshot = self.client.at(moment).await?;
            let part: Vec<Vec<u8>> = part.iter().map(|key| key.to_vec()).collect();
            let get = async { Ok(snapshot.batch_get(part).await?.collect::<Vec<_>>()) };
            let pairs: Vec<KvPair> = self.client.trip(get).await?;
            let rows = pairs.into_iter().map(row);
            found.extend(rows.map(|(key, value)| (key, Some(value))));
        }
        Ok(found)
    }

    /// The state at a moment, to look at; `None` where there is none.
    pub(crate) async fn head_at(&self, moment: &Timestamp) -> EngineResult<Option<Head>> {
        let mut snapshot = self.client.at(moment).await?;
        let get = snapshot.get(Vec::from(self.space.head()));
        let head = self.client.trip(get).await?;
        head.map(Head::decoded).transpose()
    }

    /// Writes what is pending in the state of this stamp to its keys, unless there is another state by now, and looks
    /// whether it is there.
    async fn fold(&self, stamp: u64, pending: &Changes) -> EngineResult<()> {
        let mut part = Vec::new();
        let mut bytes = 0;
        for (key, value) in pending {
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            part.push((key, value));
            if bytes >= FOLD_MAX {
                self.fold_part(stamp, std::mem::take(&mut part)).await?;
                bytes = 0;
            }
        }
        self.fold_part(stamp, part).await?;
        let now = self.client.now().await?;
        let found = self
            .get_all(&now, pending.keys().cloned().collect())
            .await?;
        let is_there = found == *pending;
        *self.folded.lock() = is_there.then_some(stamp);
        Ok(())
    }

    /// The head is locked by it, and comes first: so it is refused as a whole when the head was put since, be that an hour
    /// ago, and what it puts is never older than what others put.
    async fn fold_part(&self, stamp: u64, part: Vec<(&Bytes, &Option<Bytes>)>) -> EngineResult<()> {
        let mut state = self.latest().await?;
        if state.head.stamp != stamp {
            return Ok(());
        }
        let transaction = &mut state.transaction;
        let head = [Vec::from(self.space.head())];
        self.client.trip(transaction.lock_keys(head)).await?;
        for (key, value) in part {
            let put = async {
                match value {
                    Some(value) => transaction.put(key.to_vec(), wrapped(value)).await,
                    None => transaction.delete(key.to_vec()).await,
                }
            };
            self.client.trip(put).await?;
        }
        match self.client.commit(transaction).await {
            Committed::Perhaps => Ok(()),
            // Somebody else folds the same, or was faster.
            Committed::Conflict => {
                self.client.roll_back(transaction).await;
                Ok(())
            }
            Committed::Unknown(error) => Err(error),
        }
    }
}

/// One state of all keys, and what a step changes of it.
pub(crate) struct State<'a> {
    keys: &'a Keys,
    transaction: Transaction,
    /// The head as it was found.
    found: Vec<u8>,
    pub(crate) head: Head,
    changes: Changes,
}

impl<'a> State<'a> {
    pub(crate) fn space(&self) -> &'a Space {
        &self.keys.space
    }

    /// When the state was looked at, in milliseconds.
    pub(crate) fn now(&self) -> i64 {
        milliseconds(&self.transaction.start_timestamp())
    }

    pub(crate) fn put(&mut self, key: Bytes, value: Bytes) {
        self.changes.insert(key, Some(value));
    }

    pub(crate) fn delete(&mut self, key: Bytes) {
        self.changes.insert(key, None);
    }

    fn says(&self, key: &Bytes) -> Option<Option<Bytes>> {
        let said = self.changes.get(key);
        said.or_else(|| self.head.pending.get(key)).cloned()
    }

    pub(crate) async fn get(&self, key: &Bytes) -> EngineResult<Option<Bytes>> {
        let found = self.get_all(vec![key.clone()]).await?;
        Ok(found.into_values().next().flatten())
    }

    /// The values of keys.
    pub(crate) async fn get_all(&self, keys: Vec<Bytes>) -> EngineResult<Changes> {
        let (mut known, mut wanted) = (Changes::new(), Vec::new());
        for key in keys {
            match self.says(&key) {
                Some(said) => drop(known.insert(key, said)),
                None => wanted.push(key),
            }
        }
        let moment = self.transaction.start_timestamp();
        known.extend(self.keys.get_all(&moment, wanted).await?);
        Ok(known)
    }

    /// All keys of a range, which are few. `None` if they are too many.
    pub(crate) async fn scan(
        &self,
        range: Range<Bytes>,
    ) -> EngineResult<Option<Vec<(Bytes, Bytes)>>> {
        let moment = self.transaction.start_timestamp();
        let found = self.keys.whole(&moment, range.clone()).await?;
        Ok(found.map(|found| {
            let found = overlaid(found, (&self.head.pending, range.clone()));
            overlaid(found, (&self.changes, range))
        }))
    }

    /// Makes the changes, if nobody else made some since. Returns `false` if they were not made, or may not have been.
    async fn make(mut self) -> EngineResult<bool> {
        if self.changes.is_empty() && self.head.encoded() == self.found {
            return Ok(true);
        }
        let head = std::mem::take(&mut self.head);
        let (stamp, next) = (head.stamp, random::number());
        let mut pending = head.pending;
        let is_much = size(&pending) + size(&self.changes) > PENDING_MAX;
        if is_much && !pending.is_empty() {
            if *self.keys.folded.lock() != Some(stamp) {
                // It is as if the head was put since: the step is done again.
                self.keys.fold(stamp, &pending).await?;
                return Ok(false);
            }
            pending.clear();
        }
        pending.extend(self.changes);
        let head = Head {
            stamp: next,
            pending,
            ..head
        };
        let (keys, key) = (self.keys, Vec::from(self.keys.space.head()));
        let put = self.transaction.put(key, head.encoded());
        keys.client.trip(put).await?;
        // Nothing of it is believed. What is looked at at its moment of commit, which may lie ahead of PD's clock, would drive
        // the next commits of the region ahead, too: who asks PD for the time would not see them.
        let unknown = match keys.client.commit(&mut self.transaction).await {
            Committed::Conflict => return Ok(false),
            Committed::Perhaps => None,
            Committed::Unknown(error) => Some(error),
        };
        let now = keys.client.now().await?;
        let found = keys.head_at(&now).await?;
        let is_made = found.is_some_and(|found| found.stamp == next);
        match unknown {
            Some(error) if !is_made => Err(error),
            _ => Ok(is_made),
        }
    }
}

impl Keys {
    /// All keys of a range at a moment, without what is pending. `None` if they are too many.
    pub(crate) async fn whole(
        &self,
        moment: &Timestamp,
        range: Range<Bytes>,
    ) -> EngineResult<Option<Vec<(Bytes, Bytes)>>> {
        let (mut found, mut start, mut bytes) = (Vec::new(), range.start, 0);
        loop {
            let part = start..range.end.clone();
            let part = self.scan(moment, part, SCAN_MAX as usize).await?;
            let count = part.len();
            bytes += part
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>();
            if bytes > WHOLE_MAX {
                return Ok(None);
            }
            found.extend(part);
            match found.last() {
                Some((last, _)) if count >= SCAN_MAX as usize => start = behind(last),
                _ => return Ok(Some(found)),
            }
        }
    }
}

/// Rows of a range as they are with what is pending.
pub(crate) fn overlaid(
    rows: Vec<(Bytes, Bytes)>,
    (pending, range): (&Changes, Range<Bytes>),
) -> Vec<(Bytes, Bytes)> {
    if range.start >= range.end {
        return rows;
    }
    let mut pending = pending.range(range).peekable();
    if pending.peek().is_none() {
        return rows;
    }
    let mut all: Changes = rows
        .into_iter()
        .map(|(key, value)| (key, Some(value)))
        .collect();
    all.extend(pending.map(|(key, value)| (key.clone(), value.clone())));
    let there = all.into_iter();
    there
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

fn row(pair: KvPair) -> (Bytes, Bytes) {
    let KvPair(key, value) = pair;
    (Bytes::from(Vec::from(key)), unwrapped(value))
}

/// The next key of all that could be.
pub(crate) fn behind(key: &[u8]) -> Bytes {
    Bytes::from([key, &[0]].concat())
}

fn vectors(range: Range<Bytes>) -> Range<Vec<u8>> {
    range.start.to_vec()..range.end.to_vec()
}
