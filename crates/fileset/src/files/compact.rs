//! Folding: the many extents that random writes left in a chunk become one run.
//!
//! ```text
//!  a save leaves a chunk of many extents ──► queue ──► its short runs are read and compared with their checksums
//!                                                   ──► stored as a save stores them
//!                                                   ──► one operation shows them wherever the chunk is as it was read
//! ```
//!
//! It takes nobody's turn: what was written, cut or punched meanwhile stays as it is, and a fold that came too late for
//! all of it changes nothing. Only a chunk of very many extents is folded by the save itself, before it adds more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{
    FsError, FsResult, Mutex, Payload,
    clock::{self, Instant},
    run_blocking,
};
use penstock_vfs::Inode;
use tokio::task::JoinHandle;

use super::Files;
use crate::{
    compression,
    data::{ObjectId, Piece, Placed, UNKNOWN_LENGTH, Uncommitted, open},
    engine::{Engine, Reads, query, transact},
    operations,
    schema::{self, BLOCK_SIZE, Chunk, Extent, FOLD_FIRST_AT, GRAIN, damaged},
};

/// Chunks that are folded at once.
const FOLDS_MAX: usize = 2;
/// Chunks that wait; another one is found again by its next save.
const WAITING_MAX: usize = 4096;
/// How long a fold may take, which keeps what it reads from being deleted, and from the bucket if it is in a spool.
const FOLD_MAX: Duration = Duration::from_secs(60);
/// How long a chunk is left alone that could not be folded.
const REST: Duration = Duration::from_secs(60);
/// How long a save waits for folds: with a spool it can do without the bucket. If that was not enough, no save waits for
/// as long as chunks rest.
const SAVE_WAIT: Duration = Duration::from_secs(10);
/// Requests of one fold at once.
const FETCHES_MAX: usize = 4;
/// Bytes of an object that are fetched at once, about.
const SPAN_MAX: u32 = 1 << 20;
/// Bytes that nobody wants which are fetched rather than asked around.
const GAP_MAX: u32 = 2 * GRAIN;

/// A chunk of a file.
type At = (Inode, u64);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<At>,
    /// Those that wait.
    known: HashSet<At>,
    /// One that is saved meanwhile waits again: what is being folded is how it was before that.
    folding: HashSet<At>,
    resting: HashMap<At, Instant>,
    /// Until when no save waits for a fold.
    unwaited_until: Option<Instant>,
    workers: usize,
    tasks: Vec<JoinHandle<()>>,
    is_ended: bool,
}

impl Queue {
    fn push(&mut self, at: At) {
        let is_wanted = !self.is_ended && self.waiting.len() < WAITING_MAX;
        if is_wanted && !self.rests(at) && self.known.insert(at) {
            self.waiting.push_back(at);
        }
    }

    fn rests(&self, at: At) -> bool {
        let until = self.resting.get(&at);
        until.is_some_and(|until| *until > clock::now())
    }

    /// Whether a save waits until a chunk is folded.
    fn is_waited_for(&self, at: At) -> bool {
        let is_over = |until: Instant| until <= clock::now();
        self.unwaited_until.is_none_or(is_over) && !self.rests(at)
    }

    fn rest(&mut self, at: At) {
        let now = clock::now();
        self.resting.retain(|_, until| *until > now);
        if self.resting.len() < WAITING_MAX {
            self.resting.insert(at, now + REST);
        }
    }

    /// The next chunk for a worker, which ends if there is none. One that another worker folds is left for that one.
    fn next(&mut self) -> Option<At> {
        let is_free = |at: &At| !self.folding.contains(at);
        let place = self.waiting.iter().position(is_free);
        let next = place.and_then(|place| self.waiting.remove(place));
        match next {
            Some(at) => {
                self.known.remove(&at);
                self.folding.insert(at);
            }
            None => self.workers -= 1,
        }
        next
    }
}

/// What is to be folded. See the module.
#[derive(Debug, Default)]
pub(super) struct Compactor {
    queue: Mutex<Queue>,
}

/// Bytes move: readers of the file learn that, whatever comes of it, before anything is deleted that they may look for.
struct Moving<'a> {
    files: &'a Files,
    inode: Inode,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.files.find(self.inode) {
            file.pending.lock().moved();
        }
    }
}

impl Files {
    /// Folds chunks some time.
    pub(super) fn fold_behind(self: &Arc<Self>, inode: Inode, chunks: &[u64]) {
        if chunks.is_empty() {
            return;
        }
        let mut queue = self.compactor.queue.lock();
        chunks.iter().for_each(|chunk| queue.push((inode, *chunk)));
        queue.tasks.retain(|task| !task.is_finished());
        while queue.workers < FOLDS_MAX.min(queue.waiting.len()) {
            queue.workers += 1;
            let files = Arc::clone(self);
            queue.tasks.push(tokio::spawn(files.fold_waiting()));
        }
    }

    async fn fold_waiting(self: Arc<Self>) {
        loop {
            let next = self.compactor.queue.lock().next();
            let Some(at) = next else { return };
            self.try_to_fold(at).await;
            self.compactor.queue.lock().folding.remove(&at);
        }
    }

    /// Gives up what is being folded, and folds no more behind.
    pub(crate) async fn end_folding(&self) {
        let tasks = {
            let mut queue = self.compactor.queue.lock();
            queue.is_ended = true;
            queue.waiting.clear();
            queue.known.clear();
            std::mem::take(&mut queue.tasks)
        };
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            // It was told to end.
            let _ = task.await;
        }
    }

    /// Folds chunks that something is about to add to, and that have very many extents. One that cannot be folded stays.
    pub(super) async fn fold_first(&self, inode: Inode, chunks: BTreeSet<u64>) {
        let look = |reads: &dyn Reads| overcrowded(reads, inode, &chunks);
        let mut found = query(&*self.engine, look).await.unwrap_or_default();
        found.retain(|chunk| self.compactor.queue.lock().is_waited_for((inode, *chunk)));
        let folds = async {
            for chunk in found {
                self.try_to_fold((inode, chunk)).await;
            }
        };
        if clock::deadline(SAVE_WAIT, folds).await.is_err() {
            self.compactor.queue.lock().unwaited_until = Some(clock::now() + REST);
        }
    }

    async fn try_to_fold(&self, at: At) {
        let late = |_| Err(FsError::TimedOut("it took too long".to_owned()));
        let folded = clock::deadline(FOLD_MAX, self.fold(at)).await;
        match folded.unwrap_or_else(late) {
            Ok(()) | Err(FsError::Stale) => {}
            Err(error) => {
                let (inode, chunk) = (at.0.0, at.1);
                tracing::warn!(inode, chunk, %error, "the many parts of a chunk could not be joined; it is tried again when it is saved");
                self.compactor.queue.lock().rest(at);
            }
        }
    }

    /// Folds a chunk, if there is something to fold and memory for it.
    async fn fold(&self, at: At) -> FsResult<()> {
        let (before, _held) = self.hold_chunk(at).await?;
        let ranges = before.foldable();
        let lengths = ranges
            .iter()
            .map(|range| u64::from(range.end - range.start));
        let budget = self.objects.transfer().pool().budget();
        let memory = budget.try_reserve(lengths.sum());
        let Some(_memory) = memory.filter(|_| !ranges.is_empty()) else {
            return Ok(());
        };
        let pieces = self.read_ranges(at.1, &before, &ranges).await?;
        self.engine.ready().await?;
        let compression = compression::get(&*self.engine).await?;
        let placed = self.packer.store(pieces, compression).await?;
        match self.replace(at, before, &placed).await {
            Ok(true) => Ok(()),
            late => {
                self.abandon(&placed).await?;
                late.map(drop)
            }
        }
    }

    /// What is written of a chunk, with all objects that it shows: nobody deletes these meanwhile. Fails with `Stale` if it
    /// changes just now.
    async fn hold_chunk(&self, at: At) -> FsResult<(Chunk, Vec<Uncommitted>)> {
        let look = async || query(&*self.engine, |reads| operations::chunk(reads, at)).await;
        let seen = look().await?;
        let objects: BTreeSet<_> = seen.extents.iter().map(|it| it.stored.object).collect();
        let objects = objects.into_iter().map(|it| self.objects.hold(it));
        let held = objects.collect();
        match look().await? == seen {
            true => Ok((seen, held)),
            false => Err(FsError::Stale),
        }
    }

    /// Shows what was stored, where it is what the chunk shows still. Returns whether that was worth it.
    async fn replace(&self, at: At, before: Chunk, placed: &[Placed]) -> FsResult<bool> {
        let _moving = Moving {
            files: self,
            inode: at.0,
        };
        let folded: Vec<_> = placed.iter().map(|placed| placed.extent.clone()).collect();
        transact(&*self.engine, move |transaction| {
            operations::fold(transaction, at, &before, &folded)
        })
        .await
    }

    /// What was stored for nothing is garbage. What is in a spool goes by itself.
    async fn abandon(&self, placed: &[Placed]) -> FsResult<()> {
        let stored = placed.iter().map(|placed| &placed.extent.stored);
        let known = stored.filter(|stored| stored.object_length != UNKNOWN_LENGTH);
        let objects: BTreeSet<_> = known.map(|stored| stored.object).collect();
        let objects: Vec<_> = objects.into_iter().collect();
        transact(&*self.engine, move |transaction| {
            operations::abandon(transaction, &objects)
        })
        .await
    }

    /// Reads ranges of a chunk, in few requests.
    async fn read_ranges(
        &self,
        chunk: u64,
        extents: &Chunk,
        ranges: &[Range<u32>],
    ) -> FsResult<Vec<Piece>> {
        let index_of = |at: u32| ranges.partition_point(|range| range.end <= at);
        let parts = extents.extents.iter();
        let parts = parts.filter_map(|extent| extent.part(ranges.get(index_of(extent.at))?));
        let parts: Vec<_> = parts.collect();
        let zeros = |range: &Range<u32>| BytesMut::zeroed((range.end - range.start) as usize);
        let mut read: Vec<_> = ranges.iter().map(zeros).collect();
        let fetched = spans(&parts)?.into_iter().map(|span| self.fetch_span(span));
        let mut fetched = stream::iter(fetched).buffer_unordered(FETCHES_MAX);
        while let Some(parts) = fetched.try_next().await? {
            for (at, part) in parts {
                let index = index_of(at);
                let start = (at - ranges[index].start) as usize;
                read[index][start..start + part.len()].copy_from_slice(&part);
            }
        }
        let pieces = ranges.iter().zip(read).map(|(range, bytes)| Piece {
            offset: chunk * BLOCK_SIZE + u64::from(range.start),
            bytes: bytes.freeze(),
        });
        Ok(pieces.collect())
    }

    /// Fetches a part of an object, and returns the bytes in it with their places in the chunk.
    async fn fetch_span(&self, span: Span) -> FsResult<Vec<(u32, Bytes)>> {
        let (first, range) = (&span.wanted[0].stored, &span.range);
        let looked_at = |payload: FsResult<Payload>| {
            let payload = payload?;
            run_blocking(|| parts(&span, &payload))
        };
        match looked_at(self.objects.fetch(first, range.clone()).await) {
            Err(FsError::Corrupt(_)) => {
                looked_at(self.objects.fetch_anew(first, range.clone()).await)
            }
            looked_at => looked_at,
        }
    }
}

/// The bytes of what is wanted of a part of an object, with their places in the chunk.
fn parts(span: &Span, payload: &Payload) -> FsResult<Vec<(u32, Bytes)>> {
    let parts = span.wanted.iter().map(|extent| {
        let (grains, lies) = grains(extent)?;
        let within = |place: u32| u64::from(place - span.range.start);
        let received = payload.slice(&(within(lies.start)..within(lies.end)));
        let (first, mut plain) = (grains.start, Vec::new());
        let mut take = |grain: &[u8]| plain.extend_from_slice(grain);
        if !open(&extent.stored, grains, &received, &mut take) {
            return Err(differs(extent.stored.object));
        }
        let skip = (u64::from(extent.skip) - u64::from(GRAIN) * first as u64) as usize;
        let bytes = &plain[skip..skip + extent.length as usize];
        Ok((extent.at, Bytes::copy_from_slice(bytes)))
    });
    parts.collect()
}

/// A part of an object that is fetched at once, and what is wanted of it.
struct Span {
    range: Range<u32>,
    wanted: Vec<Extent>,
}

/// Which requests bring extents.
fn spans(extents: &[Extent]) -> FsResult<Vec<Span>> {
    let mut by_object: BTreeMap<ObjectId, Vec<(Range<u32>, &Extent)>> = BTreeMap::new();
    for extent in extents {
        let (_, lies) = grains(extent)?;
        let wanted = by_object.entry(extent.stored.object).or_default();
        wanted.push((lies, extent));
    }
    let mut spans: Vec<Span> = Vec::new();
    for mut wanted in by_object.into_values() {
        wanted.sort_by_key(|(lies, _)| lies.start);
        let first = spans.len();
        for (lies, extent) in wanted {
            let fits = |span: &&mut Span| {
                lies.start <= span.range.end.saturating_add(GAP_MAX)
                    && lies.end - span.range.start <= SPAN_MAX
            };
            match spans[first..].last_mut().filter(fits) {
                Some(span) => {
                    span.range.end = span.range.end.max(lies.end);
                    span.wanted.push(extent.clone());
                }
                None => spans.push(Span {
                    range: lies,
                    wanted: vec![extent.clone()],
                }),
            }
        }
    }
    Ok(spans)
}

/// The grains in which an extent's bytes are, and where these lie in the object.
fn grains(extent: &Extent) -> FsResult<(Range<usize>, Range<u32>)> {
    let stored = &extent.stored;
    let end = extent.skip.checked_add(extent.length);
    let end = end.filter(|end| *end <= stored.length);
    let end = end.ok_or_else(|| damaged("an extent"))?;
    let grains = (extent.skip / GRAIN) as usize..end.div_ceil(GRAIN) as usize;
    let lies = stored.lies(&grains).ok_or_else(|| damaged("an extent"))?;
    Ok((grains, lies))
}

fn differs(object: ObjectId) -> FsError {
    FsError::Corrupt(format!("bytes of {object} are not those that were written"))
}

/// The chunks in which pieces lie.
pub(super) fn chunks_of(pieces: &[Piece]) -> BTreeSet<u64> {
    let chunks = pieces.iter().flat_map(|piece| {
        let last = piece.offset + (piece.bytes.len() as u64).saturating_sub(1);
        piece.offset / BLOCK_SIZE..=last / BLOCK_SIZE
    });
    chunks.collect()
}

/// Those of some chunks that have too many extents for one more save.
fn overcrowded(reads: &dyn Reads, inode: Inode, chunks: &BTreeSet<u64>) -> FsResult<Vec<u64>> {
    let mut found = Vec::new();
    for index in chunks {
        let value = reads.get(&schema::chunk(inode, *index))?;
        let Some(value) = value.filter(|value| Chunk::may_be_overcrowded(value)) else {
            continue;
        };
        let chunk = Chunk::decode(&value)?;
        if chunk.extents.len() > FOLD_FIRST_AT && chunk.is_crowded() {
            found.push(*index);
        }
    }
    Ok(found)
}
