//! Which runs share an object: a group commit of PUTs.
//!
//! ```text
//!  save of a file ──► runs ──┬─ large: an object each, at once
//!                            ├─ small: wait in a queue ──► a pack, when it is full,
//!                            │                             or no other pack is under way,
//!                            │                             or its first run waited for GATHER
//!                            ├─ small, and there is a spool: on this disk, and later in the bucket
//!                            └─ few and small, and the log is in the bucket: with what refers to them, and later in a pack
//! ```
//!
//! So a file that is saved alone is not delayed; what many save at about the same time goes out with whoever comes
//! when the last pack is stored, in as few requests as 4 MiB each allow. Waiting longer than [`GATHER`] would cost
//! more than a request does: then more packs go out beside the first. Each save is told of its own runs, and makes
//! its own operation: one that fails there takes no other along. A pack that cannot be stored fails all that is in it.
//! Runs are counted with their plain bytes: they are compressed when their turn has come (`compressor.rs`).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use penstock_base::{
    FsError, FsResult, Mutex,
    clock::{self, Instant},
};
use tokio::sync::oneshot;

use super::{
    Ahead, Objects, Piece, Placed,
    pack::{Run, runs},
    spool::ROOM_WAIT,
};
use crate::schema::{BLOCK_SIZE, Compression};

/// PUTs of one file system under way at once.
const PUTS_MAX: usize = 16;
/// Of these, large runs: small ones do not wait for other people's uploads.
const LARGE_PUTS_MAX: usize = 14;
/// Runs of at least so many bytes have an object of their own.
const LARGE: u64 = 1 << 20;
/// How long a small run waits for company while another pack is under way: less than a request to a distant region.
const GATHER: Duration = Duration::from_millis(20);

/// A run that waits, and who wants to know where it went.
#[derive(Debug)]
struct Waiting {
    run: Run,
    since: Instant,
    told: oneshot::Sender<FsResult<Placed>>,
}

/// What a PUT is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Large,
    /// Small runs, as many as fit.
    Full,
    /// Those that there were.
    Partial,
}

/// What is to be done now.
#[derive(Debug)]
enum Next {
    Put(Vec<Waiting>, Size),
    /// Nothing before then.
    Wait(Instant),
    Nothing,
}

#[derive(Debug, Default)]
struct Queue {
    large: VecDeque<Waiting>,
    small: VecDeque<Waiting>,
    small_bytes: u64,
    /// PUTs under way, all, those of large runs and those of packs that are not full.
    puts: usize,
    large_puts: usize,
    partial_puts: usize,
    has_timer: bool,
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        if waiting.run.length() >= LARGE {
            self.large.push_back(waiting);
        } else {
            self.small_bytes += waiting.run.length();
            self.small.push_back(waiting);
        }
    }

    /// Takes what is to be put now.
    fn next(&mut self, now: Instant) -> Next {
        if self.puts == PUTS_MAX {
            return Next::Nothing;
        }
        let due = self.small.front().map(|first| first.since + GATHER);
        let next = if self.small_bytes >= BLOCK_SIZE {
            Next::Put(self.pack(), Size::Full)
        } else if due.is_some_and(|due| self.partial_puts == 0 || due <= now) {
            Next::Put(self.pack(), Size::Partial)
        } else if self.large_puts < LARGE_PUTS_MAX
            && let Some(large) = self.large.pop_front()
        {
            Next::Put(vec![large], Size::Large)
        } else {
            return due.map_or(Next::Nothing, Next::Wait);
        };
        if let Next::Put(_, size) = &next {
            self.begun(*size);
        }
        next
    }

    /// As many small runs as fit an object.
    fn pack(&mut self) -> Vec<Waiting> {
        let (mut pack, mut bytes) = (Vec::new(), 0);
        while let Some(first) = self.small.pop_front() {
            bytes += first.run.length();
            if bytes > BLOCK_SIZE {
                self.small.push_front(first);
                break;
            }
            self.small_bytes -= first.run.length();
            pack.push(first);
        }
        pack
    }

    fn begun(&mut self, size: Size) {
        self.puts += 1;
        self.large_puts += usize::from(size == Size::Large);
        self.partial_puts += usize::from(size == Size::Partial);
    }

    fn ended(&mut self, size: Size) {
        self.puts -= 1;
        self.large_puts -= usize::from(size == Size::Large);
        self.partial_puts -= usize::from(size == Size::Partial);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Packer {
    objects: Arc<Objects>,
    queue: Mutex<Queue>,
}

/// A PUT under way: however it ends, what waits goes on.
struct UnderWay {
    packer: Arc<Packer>,
    size: Size,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.packer.queue.lock().ended(self.size);
        self.packer.go_on();
    }
}

impl Packer {
    pub(crate) fn new(objects: Arc<Objects>) -> Arc<Self> {
        Arc::new(Self {
            objects,
            queue: Mutex::default(),
        })
    }

    /// Stores pieces as [`Packer::store`] does, or leaves it to the operation that refers to them to put their content, see
    /// [`Placed::content`].
    pub(crate) async fn store_or_inline(
        self: &Arc<Self>,
        pieces: Vec<Piece>,
        compression: Compression,
    ) -> FsResult<Vec<Placed>> {
        let runs = runs(pieces, compression);
        if let Some(Ahead::Inlined(inlined)) = self.objects.ahead()
            && inlined.takes(runs.iter().map(Run::length).sum())
            && let Some(placed) = self.objects.inline(inlined, &runs).await
        {
            return Ok(placed);
        }
        self.store_runs(runs).await
    }

    /// Stores pieces, which are in order and do not overlap, compressed so, and returns where they are.
    pub(crate) async fn store(
        self: &Arc<Self>,
        pieces: Vec<Piece>,
        compression: Compression,
    ) -> FsResult<Vec<Placed>> {
        self.store_runs(runs(pieces, compression)).await
    }

    async fn store_runs(self: &Arc<Self>, runs: Vec<Run>) -> FsResult<Vec<Placed>> {
        let (mut placed, runs) = self.spooled(runs).await;
        placed.extend(self.put(runs).await?);
        Ok(placed)
    }

    /// Puts small runs into the spool, if there is one. Returns where they are, and what the bucket gets at once: large
    /// runs, and those for which this disk has no room.
    async fn spooled(&self, runs: Vec<Run>) -> (Vec<Placed>, Vec<Run>) {
        let Some(Ahead::Spool(spool)) = self.objects.ahead() else {
            return (Vec::new(), runs);
        };
        let (mut placed, mut others) = (Vec::new(), Vec::new());
        let mut patience = ROOM_WAIT;
        for run in runs {
            if run.length() >= LARGE {
                others.push(run);
                continue;
            }
            match self.objects.spool(spool, (&run, patience)).await {
                Ok(one) => placed.push(one),
                Err(error) => {
                    tracing::debug!(%error, "what this disk has no room for goes to the bucket at once");
                    others.push(run);
                    // It has waited for those behind it as well.
                    patience = Duration::ZERO;
                }
            }
        }
        (placed, others)
    }

    async fn put(self: &Arc<Self>, runs: Vec<Run>) -> FsResult<Vec<Placed>> {
        let since = clock::now();
        let mut told = Vec::new();
        {
            let mut queue = self.queue.lock();
            for run in runs {
                let (sender, receiver) = oneshot::channel();
                queue.push(Waiting {
                    run,
                    since,
                    told: sender,
                });
                told.push(receiver);
            }
        }
        self.go_on();
        let ended = || FsError::Io("an upload ended unexpectedly".to_owned());
        let placed = told
            .into_iter()
            .map(async |told| told.await.unwrap_or_else(|_| Err(ended())));
        try_join_all(placed).await
    }

    /// Begins all PUTs that may begin now.
    fn go_on(self: &Arc<Self>) {
        loop {
            let next = self.queue.lock().next(clock::now());
            match next {
                Next::Put(runs, size) => {
                    let packer = Arc::clone(self);
                    let under_way = UnderWay { packer, size };
                    tokio::spawn(put(under_way, runs));
                }
                Next::Wait(due) => return self.wait(due),
                Next::Nothing => return,
            }
        }
    }

    fn wait(self: &Arc<Self>, due: Instant) {
        let had_timer = std::mem::replace(&mut self.queue.lock().has_timer, true);
        if had_timer {
            return;
        }
        let packer = Arc::clone(self);
        tokio::spawn(async move {
            clock::sleep(due.saturating_duration_since(clock::now())).await;
            packer.queue.lock().has_timer = false;
            packer.go_on();
        });
    }
}

/// Stores runs in one object and tells who waits for them.
async fn put(under_way: UnderWay, waiting: Vec<Waiting>) {
    let waiting = waiting.into_iter().map(|one| (one.run, one.told));
    let (runs, told): (Vec<_>, Vec<_>) = waiting.unzip();
    // Who does not wait any more has no use for the answer.
    match under_way.packer.objects.put(&runs).await {
        Ok(placed) => {
            let answers = told.into_iter().zip(placed);
            answers.for_each(|(told, placed)| drop(told.send(Ok(placed))));
        }
        Err(error) => {
            let answers = told.into_iter();
            answers.for_each(|told| drop(told.send(Err(error.clone()))));
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::{BufferPool, MemoryBudget};
    use penstock_object_testing::MemoryStore;
    use penstock_transfer::Transfer;

    use super::*;
    use crate::{
        data::Inlined,
        engine::{Engine, MemoryEngine},
    };

    fn waiting(length: usize, since: Instant) -> Waiting {
        let bytes = vec![0; length].into();
        let mut run = runs(vec![Piece { offset: 0, bytes }], Compression::None);
        Waiting {
            run: run.remove(0),
            since,
            told: oneshot::channel().0,
        }
    }

    fn taken(next: Next) -> (usize, Size) {
        match next {
            Next::Put(runs, size) => (runs.len(), size),
            other => panic!("{other:?}"),
        }
    }

    /// All that waited for memory for frames had been told before that there is room.
    #[tokio::test]
    async fn no_more_than_there_is_room_for_is_with_the_metadata_however_many_are_saved_at_once() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let inlined = Inlined::open(engine, Arc::new(MemoryStore::new())).await;
        let inlined = inlined.expect("it is empty");
        let pool = BufferPool::new(MemoryBudget::new(64 << 20));
        let objects = Objects::with_ahead(
            Transfer::new(Arc::<Inlined>::clone(&inlined), pool),
            Some(Ahead::Inlined(Arc::clone(&inlined))),
        );
        let packer = Packer::new(Arc::new(objects));
        let saves = (0..400_u64).map(|seed| {
            let mut bytes = vec![0; 60 << 10];
            fastrand::Rng::with_seed(seed).fill(&mut bytes);
            let bytes = bytes.into();
            packer.store_or_inline(vec![Piece { offset: 0, bytes }], Compression::Lz4)
        });
        let placed = try_join_all(saves).await;
        assert_eq!(placed.expect("the bucket takes the rest").len(), 400);
        let (bytes, _) = inlined.unsent().waiting();
        assert!((7 << 20..=8 << 20).contains(&bytes), "{bytes}");
    }

    #[tokio::test]
    async fn who_comes_alone_goes_at_once_and_who_comes_later_goes_together() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.push(waiting(10, now));
        assert_eq!(taken(queue.next(now)), (1, Size::Partial));
        (0..100).for_each(|_| queue.push(waiting(10, now)));
        assert!(matches!(queue.next(now), Next::Wait(due) if due == now + GATHER));
        queue.ended(Size::Partial);
        assert_eq!(taken(queue.next(now)), (100, Size::Partial));
        assert!(matches!(queue.next(now), Next::Nothing));
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_it_takes_to_gather() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.push(waiting(10, now));
        queue.next(now);
        queue.push(waiting(10, now));
        queue.push(waiting(10, now + GATHER));
        assert_eq!(taken(queue.next(now + GATHER)), (2, Size::Partial));
    }

    #[tokio::test]
    async fn a_full_pack_goes_at_once_and_is_no_longer_than_a_block() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.push(waiting(10, now));
        queue.next(now);
        (0..9).for_each(|_| queue.push(waiting(600_000, now)));
        assert_eq!(taken(queue.next(now)), (6, Size::Full));
        assert!(matches!(queue.next(now), Next::Wait(_)), "3 remain");
    }

    #[tokio::test]
    async fn small_runs_have_room_beside_all_large_ones() {
        let (mut queue, now) = (Queue::default(), clock::now());
        (0..20).for_each(|_| queue.push(waiting(LARGE as usize, now)));
        for _ in 0..LARGE_PUTS_MAX {
            assert_eq!(taken(queue.next(now)), (1, Size::Large));
        }
        assert!(matches!(queue.next(now), Next::Nothing));
        queue.push(waiting(10, now));
        assert_eq!(taken(queue.next(now)), (1, Size::Partial));
        queue.ended(Size::Large);
        assert_eq!(taken(queue.next(now)), (1, Size::Large));
    }
}
