//! The task that ships the log.
//!
//! Each chunk of records is handed over when it is written, before the commit worker syncs it: disk and bucket are
//! waited for at once. Chunks gather while groups are on their way, so that all who wait meanwhile share the next
//! one. What nobody waits for is shipped within [`SHIP_INTERVAL`]. Groups are acknowledged in their order, also where
//! a later one arrived first.
//!
//! A group that the store did not take is sent again as it is, until it does: whoever waited meanwhile is told, and
//! whoever asks anew waits anew. Past [`UNSHIPPED_MAX`] bytes operations wait.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesOrdered};
use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use tokio::sync::{Notify, watch};

use super::{
    bucket::{Bucket, Created},
    chain::{IN_FLIGHT_MAX, Link},
    format::Group,
    names::LogName,
};
use crate::engine::{
    EngineError, EngineResult,
    embedded::{Chunk, Tap},
};

/// How long something that nobody waits for may be lost with the machine.
const SHIP_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes after which a group gets no further chunk.
pub(super) const GROUP_MAX: usize = 4 << 20;
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

/// What is to be sent.
#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// Bytes of chunks, of which each operation brings one.
    waiting: usize,
    /// Bytes of chunks, and of groups on their way.
    bytes: usize,
    /// When the first of the chunks came.
    since: Option<Instant>,
    /// Up to which operation somebody waits.
    wanted: u64,
    /// The last group that was sent.
    number: u64,
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
    pub(super) epoch: u64,
    queue: Mutex<Queue>,
    bell: Notify,
    pub(super) progress: watch::Sender<Shipped>,
    /// Groups in the bucket of which no checkpoint was made, in order.
    pub(super) log: Mutex<Vec<Link>>,
    /// Rung when there are enough of them.
    pub(super) foldable: Notify,
}

impl Shipping {
    /// Goes on in `epoch` behind operation `last`, which `log` leads to.
    pub(super) fn new(bucket: Bucket, epoch: u64, last: u64, log: Vec<Link>) -> Self {
        let shipped = Shipped {
            last,
            ..Shipped::default()
        };
        Self {
            bucket,
            epoch,
            queue: Mutex::default(),
            bell: Notify::new(),
            progress: watch::Sender::new(shipped),
            log: Mutex::new(log),
            foldable: Notify::new(),
        }
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
        queue.chunks.push_back(chunk);
        queue.since.get_or_insert_with(clock::now);
        drop(queue);
        self.bell.notify_one();
    }

    /// The next group, if it is time for it.
    fn next_group(&self) -> Option<Group> {
        let mut queue = self.queue.lock();
        let before = queue.chunks.front()?.before;
        let is_late = queue
            .since
            .is_some_and(|since| since.elapsed() >= SHIP_INTERVAL);
        if queue.wanted <= before.sequence && queue.waiting < GROUP_MAX && !is_late {
            return None;
        }
        queue.number += 1;
        let mut group = Group {
            name: LogName {
                epoch: self.epoch,
                number: queue.number,
            },
            before,
            last: before.sequence,
            records: Vec::new(),
        };
        let mut bytes = 0;
        while bytes < GROUP_MAX
            && let Some(chunk) = queue.chunks.pop_front()
        {
            bytes += chunk.records.len();
            group.last = chunk.last;
            group.records.push(chunk.records);
        }
        queue.waiting -= bytes;
        queue.since = queue.chunks.front().map(|_| clock::now());
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

    /// Sends a group until the bucket has it. Fails if somebody else has its place.
    async fn send(&self, group: Group) -> EngineResult<Sent> {
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
                        records: group.records.iter().map(Bytes::len).sum(),
                    });
                }
                Ok(Created::Taken(_)) => return Err(taken_over()),
                Err(error) => self.failed(&error),
            }
            clock::sleep(pause).await;
            pause = RETRY_MAX.min(pause * 2);
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

    fn arrived(&self, sent: &Sent) {
        let is_foldable = {
            let mut log = self.log.lock();
            log.push(sent.link);
            is_foldable(&log)
        };
        self.queue.lock().bytes -= sent.records;
        self.progress
            .send_modify(|shipped| shipped.last = sent.link.last);
        if is_foldable {
            self.foldable.notify_one();
        }
    }

    /// Ships until somebody else has the log.
    pub(super) async fn run(&self) {
        let mut flights = FuturesOrdered::new();
        loop {
            while flights.len() < IN_FLIGHT_MAX
                && let Some(group) = self.next_group()
            {
                flights.push_back(self.send(group));
            }
            let sent = tokio::select! {
                Some(sent) = flights.next() => sent,
                () = self.woken(), if flights.len() < IN_FLIGHT_MAX => continue,
            };
            match sent {
                Ok(sent) => self.arrived(&sent),
                Err(error) => {
                    tracing::error!(%error, "nothing more is changed here");
                    return self
                        .progress
                        .send_modify(|shipped| shipped.ended = Some(error));
                }
            }
        }
    }
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
