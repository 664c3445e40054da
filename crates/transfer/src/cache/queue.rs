//! What is to be written to the disk.
//!
//! Received memory waits here by reference. When enough waits, no request is sent to the store before
//! the disk has caught up: a reader that outruns the disk is slowed down to it, and all that it reads
//! is cached. What is on its way at that moment is taken too, its memory was reserved before.
//!
//! Unless the disk is slow: when what waits first has waited for [`SLOW`], or so long a time of writing
//! went on at less than [`SLOW_RATE`], nobody waits for the disk, and what is too much is not cached. The
//! memory belongs to the budget that everybody shares; when that is short and the disk slow, what waits
//! is dropped, the newest first.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{
    KIB, MIB, Reclaim,
    clock::{self, Instant},
    metrics::{Counter, Gauge},
};
use tokio::sync::Notify;

use super::{header::Header, name::VersionName};
use crate::lock::lock;

/// How long a piece waits at most for a disk that keeps up.
const SLOW: Duration = Duration::from_secs(5);

/// Bytes that a disk writes in a second at least when it is worth waiting for. A disk that other
/// programs keep busy does more; from a store that sends no more there is nothing to be gained.
const SLOW_RATE: u64 = 32 * MIB;

/// Bytes that a piece counts for at least: of a small file making its files costs more than the bytes.
const PIECE_MIN: u64 = 256 * KIB;

/// How often who waits for the disk looks whether it is slow.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Whole blocks of one version.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) name: VersionName,
    pub(super) header: Arc<Header>,
    /// Where they lie in the object.
    pub(super) start: u64,
    pub(super) slices: Vec<Bytes>,
}

impl Piece {
    pub(super) fn length(&self) -> u64 {
        self.slices.iter().map(|slice| slice.len() as u64).sum()
    }
}

/// Pieces in the order in which they came.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Told to those who wait until the disk has caught up.
    shorter: Notify,
    bytes_max: u64,
    skipped: Arc<Counter>,
    /// Shows how much waits.
    waiting: Arc<Gauge>,
}

#[derive(Debug, Default)]
struct State {
    /// With when they came.
    pieces: VecDeque<(Instant, Piece)>,
    bytes: u64,
    /// Whose piece is being written.
    current: Option<VersionName>,
    pace: Pace,
    /// The version of the current piece is not wanted any more.
    unwanted: bool,
    closed: bool,
}

/// How fast pieces are written.
#[derive(Debug, Default)]
struct Pace {
    /// What the last ones took, over a time that is between [`SLOW`] and twice that once there was as
    /// much.
    bytes: u64,
    time: Duration,
    /// Since when a piece is being written, and how large that is.
    current: Option<(Instant, u64)>,
}

/// What the one who writes is to do.
#[derive(Debug)]
pub(super) enum Order {
    Write(Piece),
    /// Nothing came for a while.
    Idle,
    /// Nothing will come any more.
    End,
}

impl Queue {
    /// Takes about `bytes_max`; counts in `skipped` what it does not take or drops, and shows in
    /// `waiting` what it has.
    pub(super) fn new(bytes_max: u64, skipped: Arc<Counter>, waiting: Arc<Gauge>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            shorter: Notify::new(),
            bytes_max,
            skipped,
            waiting,
        })
    }

    /// Waits until less than enough waits, or the disk is found to be slow.
    pub(super) async fn caught_up(&self) {
        loop {
            let shorter = self.shorter.notified();
            tokio::pin!(shorter);
            shorter.as_mut().enable();
            if self.takes_more() {
                return;
            }
            // When this is late the disk may be slow.
            let _ = clock::deadline(LOOK_INTERVAL, shorter).await;
        }
    }

    fn takes_more(&self) -> bool {
        let state = lock(&self.state);
        state.bytes < self.bytes_max || state.is_slow() || state.closed
    }

    /// Adds a piece unless that is too much for a slow disk.
    pub(super) fn push(&self, piece: Piece) {
        let length = piece.length();
        let mut state = lock(&self.state);
        let too_much = state.bytes + length > self.bytes_max && state.is_slow();
        if state.closed || too_much {
            drop(state);
            self.skipped.add(length);
            return;
        }
        state.bytes += length;
        self.waiting.set(state.bytes);
        state.pieces.push_back((clock::now(), piece));
        drop(state);
        self.changed.notify_all();
    }

    /// The next order, after at most `patience`. The order before is carried out by now.
    pub(super) fn next(&self, patience: Duration) -> Order {
        let mut state = lock(&self.state);
        state.current = None;
        state.unwanted = false;
        state.pace.end();
        self.changed.notify_all();
        if state.pieces.is_empty() && !state.closed {
            let waited = self.changed.wait_timeout(state, patience);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        match state.pieces.pop_front() {
            Some((_, piece)) => {
                state.bytes -= piece.length();
                self.show(&state);
                state.current = Some(piece.name);
                state.pace.begin(piece.length());
                Order::Write(piece)
            }
            None if state.closed => Order::End,
            None => {
                state.pace = Pace::default();
                Order::Idle
            }
        }
    }

    /// Whether the version of the piece that is being written is still wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !lock(&self.state).unwanted
    }

    /// Drops what waits for versions with these names.
    pub(super) fn forget(&self, names: &RangeInclusive<VersionName>) {
        let mut state = lock(&self.state);
        state.unwanted |= state.current.is_some_and(|name| names.contains(&name));
        let before = std::mem::take(&mut state.pieces);
        let (dropped, kept) = before
            .into_iter()
            .partition(|(_, piece): &(Instant, Piece)| names.contains(&piece.name));
        state.pieces = kept;
        state.bytes = state.pieces.iter().map(|(_, piece)| piece.length()).sum();
        self.show(&state);
        drop(state);
        drop::<VecDeque<(Instant, Piece)>>(dropped);
    }

    /// Less waits than before.
    fn show(&self, state: &State) {
        self.waiting.set(state.bytes);
        if state.bytes < self.bytes_max {
            self.shorter.notify_waiters();
        }
    }

    /// Takes nothing more; what waits is still written.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits until everything that came is written, at most `patience`. Says whether it is.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let state = lock(&self.state);
        let busy = |state: &mut State| !state.pieces.is_empty() || state.current.is_some();
        let waited = self.changed.wait_timeout_while(state, patience, busy);
        waited.is_ok_and(|(_, timeout)| !timeout.timed_out())
    }
}

impl State {
    /// Whether the disk does not keep up.
    fn is_slow(&self) -> bool {
        let waited = |since: Instant| clock::now().saturating_duration_since(since);
        let first = self.pieces.front();
        first.is_some_and(|(since, _)| waited(*since) >= SLOW) || self.pace.is_slow()
    }
}

impl Pace {
    fn begin(&mut self, bytes: u64) {
        self.current = Some((clock::now(), bytes.max(PIECE_MIN)));
    }

    fn end(&mut self) {
        let Some((since, bytes)) = self.current.take() else {
            return;
        };
        self.time += clock::now().saturating_duration_since(since);
        self.bytes += bytes;
        if self.time >= 2 * SLOW {
            self.time /= 2;
            self.bytes /= 2;
        }
    }

    fn is_slow(&self) -> bool {
        self.time >= SLOW && (self.bytes as f64) < self.time.as_secs_f64() * SLOW_RATE as f64
    }
}

impl Reclaim for Queue {
    /// A disk that keeps up gives the memory back by itself, and soon.
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut dropped = Vec::new();
        let mut freed = 0;
        let mut state = lock(&self.state);
        while freed < bytes
            && state.is_slow()
            && let Some((_, piece)) = state.pieces.pop_back()
        {
            freed += piece.length();
            dropped.push(piece);
        }
        state.bytes -= freed;
        self.show(&state);
        drop(state);
        self.changed.notify_all();
        self.skipped.add(freed);
        freed
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use penstock_object::{ETag, ObjectInfo, ObjectKind};

    use super::*;

    fn piece(key: &str, length: usize) -> Piece {
        let info = ObjectInfo {
            size: length as u64,
            etag: ETag::new("1"),
            modified: UNIX_EPOCH,
            kind: ObjectKind::Normal,
            storage_class: String::new(),
            content_type: String::new(),
            metadata: Default::default(),
            checksum: None,
        };
        Piece {
            name: VersionName::of("s", key, "1"),
            header: Arc::new(Header {
                identity: "s".to_owned(),
                key: key.to_owned(),
                info,
            }),
            start: 0,
            slices: vec![vec![0; length].into()],
        }
    }

    fn written(queue: &Queue) -> Option<u64> {
        match queue.next(Duration::from_millis(1)) {
            Order::Write(piece) => Some(piece.length()),
            Order::Idle | Order::End => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_slow_disk_has_no_room_for_is_counted_and_not_taken() {
        let skipped = Arc::<Counter>::default();
        let queue = Queue::new(10, Arc::clone(&skipped), Arc::default());
        queue.push(piece("a", 6));
        queue.push(piece("a", 5));
        clock::sleep(SLOW).await;
        queue.push(piece("a", 4));
        assert_eq!(
            (written(&queue), written(&queue), written(&queue)),
            (Some(6), Some(5), None)
        );
        assert_eq!(skipped.value(), 4);
        assert!(queue.settle(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn who_outruns_the_disk_waits_until_it_has_caught_up() {
        let queue = Queue::new(10, Arc::default(), Arc::default());
        queue.push(piece("a", 9));
        queue.caught_up().await;
        queue.push(piece("a", 9));
        let started = clock::now();
        let writes = async {
            clock::sleep(SLOW / 2).await;
            written(&queue);
        };
        tokio::join!(queue.caught_up(), writes);
        assert_eq!(started.elapsed(), SLOW / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_slow_disk() {
        let queue = Queue::new(10, Arc::default(), Arc::default());
        queue.push(piece("a", 10));
        let started = clock::now();
        queue.caught_up().await;
        assert!((SLOW..SLOW + 2 * LOOK_INTERVAL).contains(&started.elapsed()));
        queue.caught_up().await;
        assert!(started.elapsed() < SLOW + 2 * LOOK_INTERVAL);
    }

    /// Lets a disk write pieces of `length` bytes, one in a second, for `seconds`.
    async fn write_for(queue: &Queue, seconds: u32, length: usize) {
        for _ in 0..seconds {
            queue.push(piece("a", length));
            written(queue);
            clock::sleep(Duration::from_secs(1)).await;
        }
        queue.push(piece("a", 1));
        written(queue);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_disk_that_goes_on_at_a_crawl_until_it_is_faster() {
        let queue = Queue::new(10, Arc::default(), Arc::default());
        write_for(&queue, 5, 16 << 20).await;
        queue.push(piece("a", 11));
        assert!(queue.takes_more());
        written(&queue);
        write_for(&queue, 10, 64 << 20).await;
        queue.push(piece("a", 11));
        assert!(!queue.takes_more());
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stood_still_for_a_moment_is_waited_for() {
        let queue = Queue::new(10, Arc::default(), Arc::default());
        write_for(&queue, 4, 0).await;
        queue.push(piece("a", 11));
        assert!(!queue.takes_more());
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_go_when_memory_is_short_and_the_disk_slow_and_those_that_nobody_wants() {
        let skipped = Arc::<Counter>::default();
        let queue = Queue::new(100, Arc::clone(&skipped), Arc::default());
        for (key, length) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            queue.push(piece(key, length));
        }
        assert_eq!(queue.reclaim(1), 0, "the disk keeps up");
        clock::sleep(SLOW).await;
        assert_eq!(queue.reclaim(1), 4);
        let (first, last) = VersionName::all_of("s", "a");
        queue.forget(&(first..=last));
        assert_eq!(written(&queue), Some(2));
        assert!(!queue.settle(Duration::ZERO), "it is being written");
        let (first, last) = VersionName::all_of("s", "b");
        queue.forget(&(first..=last));
        assert!(!queue.is_wanted());
        queue.close();
        assert!(matches!(queue.next(Duration::ZERO), Order::End));
        assert_eq!(skipped.value(), 4);
    }
}
