//! The task that ships the log.
//!
//! Each chunk of records is handed over when it is written, before the commit worker syncs it: disk and bucket are
//! waited for at once. Chunks gather while groups are on their way, so that all who wait meanwhile share the next
//! one. What nobody waits for is shipped within [`SHIP_INTERVAL`]. Groups are acknowledged in their order, also where
//! a later one arrived first.
//!
//! A group that finds its place taken by a claim was sent by a writer that is shut out. One that finds a stop there goes on in
//! the next epoch, with all behind it, if nobody else began that; see [`chain`].
//!
//! A group that the store did not take is sent again as it is, until it does: whoever waited meanwhile is told, and
//! whoever asks anew waits anew. Past [`UNSHIPPED_MAX`] bytes operations wait.

use std::{collections::VecDeque, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::FuturesOrdered};
use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use tokio::sync::{Notify, watch};

use super::{
    bucket::{Bucket, Created},
    chain::{self, Chain, Claimed, From, IN_FLIGHT_MAX, Link, STOPPED},
    format::{Group, LogObject},
    names::LogName,
};
use crate::engine::{
    EngineError, EngineResult, Lag,
    embedded::{Chunk, Tap},
    record::Tip,
};

/// How long something that nobody waits for may be lost with the machine.
const SHIP_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes after which a group gets no further chunk.
pub(super) const GROUP_MAX: usize = 4 << 20;
/// Bytes up to which chunks are put together: each operation brings one, which costs memory of its own and a slice of a
/// request.
const TOGETHER_MAX: usize = 64 << 10;
/// Bytes that the bucket may lack before operations wait.
const UNSHIPPED_MAX: usize = 32 << 20;
/// How long an operation waits for that.
const ROOM_WAIT: Duration = Duration::from_secs(60);
/// How long a group waits before it is sent again: at first, and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Bytes and groups of log after which a checkpoint is made of it.
pub(super) const FOLD_BYTES: u64 = 8 << 20;
pub(super) const FOLD_GROUPS: usize = 512;

/// Chunks that were put together.
#[derive(Debug)]
struct Stretch {
    before: Tip,
    last: u64,
    records: BytesMut,
}

impl Stretch {
    fn of_chunk(chunk: Chunk) -> Self {
        Self {
            before: chunk.before,
            last: chunk.last,
            records: chunk.records.into(),
        }
    }

    fn of_group(group: &Group) -> Self {
        Self {
            before: group.before,
            last: group.last,
            records: Bytes::from(group.records.concat()).into(),
        }
    }
}

/// What is to be sent.
#[derive(Debug, Default)]
struct Queue {
    stretches: VecDeque<Stretch>,
    /// Bytes of stretches.
    waiting: usize,
    /// Bytes of stretches, and of groups on their way.
    bytes: usize,
    /// When the first of the chunks came.
    since: Option<Instant>,
    /// When the first chunk of each group that is on its way came.
    sent_since: VecDeque<Instant>,
    /// Up to which operation somebody waits.
    wanted: u64,
    /// The place of the last group that was sent.
    place: LogName,
}

/// How far the bucket is.
#[derive(Debug, Clone, Default)]
pub(super) struct Shipped {
    /// The last operation that it has.
    pub(super) last: u64,
    /// Groups that it did not take, counted, and why it did not take the last of them.
    failures: u64,
    failure: String,
    /// Why nothing more is shipped.
    pub(super) ended: Option<EngineError>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shipping {
    pub(super) bucket: Bucket,
    /// The number of the directory.
    holder: u64,
    queue: Mutex<Queue>,
    bell: Notify,
    pub(super) progress: watch::Sender<Shipped>,
    /// Groups in the bucket of which no checkpoint was made, in order.
    pub(super) log: Mutex<Vec<Link>>,
    kept: Mutex<Kept>,
    /// Rung when there are enough of them.
    pub(super) foldable: Notify,
}

/// Groups that the bucket took, the first behind the last checkpoint, so that the next one need not read them back.
#[derive(Debug)]
struct Kept {
    groups: VecDeque<Group>,
    bytes: usize,
    limit: usize,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    fn add(&mut self, group: Group) {
        let bytes = group.bytes();
        if self.bytes + bytes <= self.limit {
            self.bytes += bytes;
            self.groups.push_back(group);
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.groups.pop_front() {
            self.bytes -= first.bytes();
        }
    }
}

impl Shipping {
    /// Goes on in an epoch that `holder` claimed. Of what the bucket took at most `kept_max` bytes are kept in memory.
    pub(super) fn new(bucket: Bucket, (holder, kept_max): (u64, usize), claimed: Claimed) -> Self {
        let shipped = Shipped {
            last: claimed.tip.sequence,
            ..Shipped::default()
        };
        let queue = Queue {
            place: claimed.place(),
            ..Queue::default()
        };
        Self {
            bucket,
            holder,
            queue: Mutex::new(queue),
            bell: Notify::new(),
            progress: watch::Sender::new(shipped),
            log: Mutex::new(claimed.chain.groups),
            kept: Mutex::new(Kept::new(kept_max)),
            foldable: Notify::new(),
        }
    }

    /// The epoch that goes on.
    pub(super) fn epoch(&self) -> u64 {
        self.queue.lock().place.epoch
    }

    /// Returns when the bucket has all up to operation `sequence`. Fails if it refuses a group meanwhile.
    pub(super) async fn shipped(&self, sequence: u64) -> EngineResult<()> {
        let mut progress = self.progress.subscribe();
        let failures = progress.borrow().failures;
        self.want(sequence);
        let reached = progress
            .wait_for(|shipped| {
                shipped.last >= sequence || shipped.failures > failures || shipped.ended.is_some()
            })
            .await;
        match reached.map(|shipped| shipped.clone()) {
            Ok(shipped) if shipped.last >= sequence => Ok(()),
            Ok(shipped) => Err(shipped.ended.unwrap_or(EngineError::Store(shipped.failure))),
            Err(_) => Err(EngineError::Store("nothing is shipped any more".to_owned())),
        }
    }

    fn want(&self, sequence: u64) {
        let mut queue = self.queue.lock();
        queue.wanted = queue.wanted.max(sequence);
        drop(queue);
        self.bell.notify_one();
    }

    /// How far the bucket is behind.
    pub(super) fn lag(&self) -> Lag {
        let failures = self.progress.borrow().failures;
        let queue = self.queue.lock();
        let oldest = queue.sent_since.front().copied().or(queue.since);
        Lag {
            bytes: queue.bytes as u64,
            age: oldest.map_or(Duration::ZERO, |since| since.elapsed()),
            failures,
        }
    }

    /// Whether nobody else has the log, as far as is known.
    pub(super) fn is_going_on(&self) -> bool {
        self.progress.borrow().ended.is_none()
    }

    /// Returns when an operation may add to what is to be sent.
    pub(super) async fn room(&self) -> EngineResult<()> {
        if let Some(error) = &self.progress.borrow().ended {
            return Err(error.clone());
        }
        if self.has_room() {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let waited = clock::deadline(
            ROOM_WAIT,
            progress.wait_for(|shipped| self.has_room() || shipped.ended.is_some()),
        );
        match waited.await {
            Ok(Ok(shipped)) => shipped.ended.clone().map_or(Ok(()), Err),
            _ => Err(EngineError::Store(self.progress.borrow().failure.clone())),
        }
    }

    fn has_room(&self) -> bool {
        self.queue.lock().bytes < UNSHIPPED_MAX
    }

    /// Adds records that are to be sent.
    pub(super) fn add(&self, chunk: Chunk) {
        let mut queue = self.queue.lock();
        queue.bytes += chunk.records.len();
        queue.waiting += chunk.records.len();
        match queue.stretches.back_mut() {
            Some(back) if back.records.len() + chunk.records.len() <= TOGETHER_MAX => {
                back.records.extend_from_slice(&chunk.records);
                back.last = chunk.last;
            }
            _ => queue.stretches.push_back(Stretch::of_chunk(chunk)),
        }
        queue.since.get_or_insert_with(clock::now);
        drop(queue);
        self.bell.notify_one();
    }

    /// The next group, if it is time for it.
    fn next_group(&self) -> Option<Group> {
        let mut queue = self.queue.lock();
        let before = queue.stretches.front()?.before;
        let is_late = queue
            .since
            .is_some_and(|since| since.elapsed() >= SHIP_INTERVAL);
        if queue.wanted <= before.sequence && queue.waiting < GROUP_MAX && !is_late {
            return None;
        }
        queue.place = queue.place.next();
        let mut group = Group {
            name: queue.place,
            before,
            last: before.sequence,
            records: Vec::new(),
        };
        let mut bytes = 0;
        while bytes < GROUP_MAX
            && let Some(stretch) = queue.stretches.pop_front()
        {
            bytes += stretch.records.len();
            group.last = stretch.last;
            group.records.push(stretch.records.freeze());
        }
        queue.waiting -= bytes;
        let came = queue.since.unwrap_or_else(clock::now);
        queue.sent_since.push_back(came);
        queue.since = queue.stretches.front().map(|_| clock::now());
        Some(group)
    }

    /// Waits until there may be a group to send.
    async fn woken(&self) {
        let since = self.queue.lock().since;
        let Some(since) = since else {
            return self.bell.notified().await;
        };
        let left = SHIP_INTERVAL.saturating_sub(since.elapsed());
        let _ = clock::deadline(left, self.bell.notified()).await;
    }

    /// Sends a group until the bucket has it. Fails if something else has its place.
    async fn send(&self, group: Group) -> Result<Sent, Ended> {
        let name = group.name;
        let body = group.encode(self.bucket.identity);
        let mut pause = RETRY_MIN;
        loop {
            match self.bucket.create(&name.to_string(), body.clone()).await {
                Ok(Created::Done) => {
                    return Ok(Sent {
                        link: Link {
                            name,
                            bytes: body.len() as u64,
                            last: group.last,
                        },
                        records: group.bytes(),
                    });
                }
                Ok(Created::Taken(there)) => return Err(self.ended_by(&there, name)),
                Err(error) => self.failed(&error),
            }
            clock::sleep(pause).await;
            pause = RETRY_MAX.min(pause * 2);
        }
    }

    fn ended_by(&self, there: &Bytes, name: LogName) -> Ended {
        match LogObject::decode(there, self.bucket.identity, name) {
            Ok(LogObject::Claim(claim)) if claim.is_stop() => Ended::Stopped,
            _ => Ended::TakenOver,
        }
    }

    fn failed(&self, error: &EngineError) {
        let text = match error {
            EngineError::Store(text) => text.clone(),
            error => error.to_string(),
        };
        tracing::warn!(
            error = text,
            "the bucket did not take a part of the log; it is sent again"
        );
        self.progress.send_modify(|shipped| {
            shipped.failures += 1;
            shipped.failure = text;
        });
    }

    /// A group that the bucket took, if it is kept.
    pub(super) fn kept(&self, name: LogName) -> Option<Group> {
        let kept = self.kept.lock();
        let found = kept.groups.iter().find(|group| group.name == name);
        found.cloned()
    }

    /// Nothing before `place` is needed any more.
    pub(super) fn forget_before(&self, place: LogName) {
        self.log.lock().retain(|link| link.name >= place);
        let mut kept = self.kept.lock();
        while kept.groups.front().is_some_and(|group| group.name < place) {
            kept.forget_first();
        }
    }

    fn arrived(&self, sent: &Sent, group: Option<Group>) {
        if let Some(group) = group {
            self.kept.lock().add(group);
        }
        let is_foldable = {
            let mut log = self.log.lock();
            log.push(sent.link);
            is_foldable(&log)
        };
        {
            let mut queue = self.queue.lock();
            queue.bytes -= sent.records;
            queue.sent_since.pop_front();
        }
        self.progress
            .send_modify(|shipped| shipped.last = sent.link.last);
        if is_foldable {
            self.foldable.notify_one();
        }
    }

    /// Ships until somebody else has the log.
    pub(super) async fn run(&self) {
        let error = loop {
            let (ended, unsent) = self.run_epoch().await;
            self.take_back(unsent);
            let went_on = match ended {
                Ended::Stopped => self.go_on().await,
                Ended::TakenOver => Err(taken_over()),
            };
            if let Err(error) = went_on {
                break error;
            }
        };
        tracing::error!(%error, "nothing more is changed here");
        self.progress
            .send_modify(|shipped| shipped.ended = Some(error));
    }

    /// Ships until the epoch has ended. Returns what was sent and did not arrive before that.
    async fn run_epoch(&self) -> (Ended, VecDeque<Group>) {
        let mut flights = FuturesOrdered::new();
        let mut groups = VecDeque::new();
        loop {
            while flights.len() < IN_FLIGHT_MAX
                && let Some(group) = self.next_group()
            {
                groups.push_back(group.clone());
                flights.push_back(self.send(group));
            }
            let sent = tokio::select! {
                Some(sent) = flights.next() => sent,
                () = self.woken(), if flights.len() < IN_FLIGHT_MAX => continue,
            };
            match sent {
                Ok(sent) => self.arrived(&sent, groups.pop_front()),
                Err(ended) => return (ended, groups),
            }
        }
    }

    /// Puts groups that did not arrive back to what is to be sent.
    fn take_back(&self, groups: VecDeque<Group>) {
        let mut queue = self.queue.lock();
        let oldest = queue.sent_since.front().copied();
        queue.sent_since.clear();
        for group in groups.into_iter().rev() {
            let stretch = Stretch::of_group(&group);
            queue.waiting += stretch.records.len();
            queue.stretches.push_front(stretch);
        }
        queue.since = oldest.or(queue.since).or_else(|| Some(clock::now()));
    }

    /// Begins the next epoch, if nobody else did since this one was stopped.
    async fn go_on(&self) -> EngineResult<()> {
        tracing::warn!("an attach on another machine stopped the log and may go on with it");
        clock::sleep(STOPPED).await;
        let front = self
            .queue
            .lock()
            .stretches
            .front()
            .map(|front| front.before);
        let own = front.ok_or_else(taken_over)?;
        let mut pause = RETRY_MIN;
        loop {
            match self.claim_behind(own).await {
                Ok(place) => {
                    self.queue.lock().place = place;
                    return Ok(());
                }
                Err(error @ EngineError::Store(_)) => self.failed(&error),
                Err(EngineError::Fenced(_)) => return Err(taken_over()),
                Err(error) => return Err(error),
            }
            clock::sleep(pause).await;
            pause = RETRY_MAX.min(pause * 2);
        }
    }

    /// Claims the next epoch, if the log ends at `own`. Where a copy of this directory has gone on with it that is not
    /// shut out.
    async fn claim_behind(&self, own: Tip) -> EngineResult<LogName> {
        let chain = Chain::read(&self.bucket).await?;
        if chain.tip(&self.bucket).await? != own {
            return Err(taken_over());
        }
        let claimed = chain::claim(&self.bucket, self.holder, From::Oneself).await?;
        match claimed.tip == own {
            true => Ok(claimed.place()),
            false => Err(taken_over()),
        }
    }
}

/// Why an epoch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Somebody was about to take the log over.
    Stopped,
    /// Somebody has the log.
    TakenOver,
}

/// A group that the bucket has.
struct Sent {
    link: Link,
    /// Bytes of its records.
    records: usize,
}

/// Whether so much log is a reason to make a checkpoint of it.
pub(super) fn is_foldable(log: &[Link]) -> bool {
    let bytes: u64 = log.iter().map(|link| link.bytes).sum();
    log.len() >= FOLD_GROUPS || bytes >= FOLD_BYTES
}

fn taken_over() -> EngineError {
    EngineError::Fenced(
        "another machine has attached it: unmount it here, and what was not synced is lost"
            .to_owned(),
    )
}

impl Tap for Shipping {
    fn take(&self, chunk: Chunk) {
        self.add(chunk);
    }

    fn done(&self) -> u64 {
        self.progress.borrow().last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_object_testing::MemoryStore;

    use super::*;

    /// A checkpoint is made of the first ones, and those were the ones that went.
    #[test]
    fn the_groups_that_a_checkpoint_needs_first_are_kept() {
        let group = |number| Group {
            name: LogName { epoch: 1, number },
            before: Tip::default(),
            last: number,
            records: vec![Bytes::from(vec![0; 40])],
        };
        let mut kept = Kept::new(100);
        (1..4).for_each(|number| kept.add(group(number)));
        let numbers = |kept: &Kept| -> Vec<_> {
            let groups = kept.groups.iter();
            groups.map(|group| group.name.number).collect()
        };
        assert_eq!(numbers(&kept), [1, 2]);
        kept.forget_first();
        kept.add(group(4));
        assert_eq!((numbers(&kept), kept.bytes), (vec![2, 4], 80));
    }

    /// Each of them in an allocation of its own, they would hold a multiple of what they are counted as.
    #[test]
    fn small_operations_that_wait_are_put_together() {
        const COUNT: u64 = 10_000;
        let bucket = Bucket::new(Arc::new(MemoryStore::new()), 7);
        let claimed = Claimed {
            epoch: 1,
            ..Claimed::default()
        };
        let shipping = Shipping::new(bucket, (1, 0), claimed);
        for sequence in 0..COUNT {
            shipping.add(Chunk {
                before: Tip {
                    sequence,
                    history: 0,
                },
                last: sequence + 1,
                records: sequence.to_le_bytes().to_vec().into(),
            });
        }
        let count = shipping.queue.lock().stretches.len();
        assert!(count <= 2, "{count}");
        shipping.want(COUNT);
        let group = shipping.next_group().expect("somebody waits");
        assert_eq!((group.before.sequence, group.last), (0, COUNT));
        let expected: Vec<_> = (0..COUNT).flat_map(u64::to_le_bytes).collect();
        assert!(group.records.concat() == expected);
    }
}
