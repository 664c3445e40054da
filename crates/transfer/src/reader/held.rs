//! What a reader holds or is about to receive: the blocks of its parts, by offset, never
//! overlapping. Holes, of which nothing needs to be fetched, are among them.
//!
//! A [`PartHandle`] is shared by the blocks of a part and by the reads that wait for it. When the
//! last of them is gone nobody wants the part any more and its GET is cancelled.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use penstock_base::Payload;
use smallvec::SmallVec;
use tokio::task::AbortHandle;

use super::{part::Part, source::Ranges, stream::StreamId};
use crate::TransferResult;

/// Owns the holes. No stream has this number, nor the next.
const NOBODY: StreamId = StreamId::MAX;

/// Owns what was fetched with reads here and there, and may be read again.
pub(super) const KEPT: StreamId = StreamId::MAX - 1;

/// Bytes of the budget that it has at most.
const KEPT_MAX: u64 = 8 << 20;

/// What holes read as.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Keeps a part's GET going.
#[derive(Debug)]
pub(crate) struct PartHandle {
    part: Arc<Part>,
    get: AbortHandle,
    /// Reads that wait for the part right now.
    awaited: AtomicUsize,
}

impl PartHandle {
    pub(crate) fn new(part: Arc<Part>, get: AbortHandle) -> Arc<Self> {
        Arc::new(Self {
            part,
            get,
            awaited: AtomicUsize::new(0),
        })
    }

    fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }
}

impl Drop for PartHandle {
    fn drop(&mut self) {
        self.get.abort();
    }
}

/// The bytes of one part that a read waits for. While it exists the part is not dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    handle: Arc<PartHandle>,
    range: Range<u64>,
}

impl Piece {
    fn new(handle: &Arc<PartHandle>, range: Range<u64>) -> Self {
        handle.awaited.fetch_add(1, Ordering::Relaxed);
        Self {
            handle: Arc::clone(handle),
            range,
        }
    }

    /// Waits until the bytes are there.
    pub(crate) async fn arrival(&self) -> TransferResult<()> {
        self.handle.part.arrival(self.range.end).await
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.handle.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that need not be fetched.
#[derive(Debug)]
struct Segment {
    end: u64,
    content: Content,
    owner: StreamId,
    /// Bytes that were read.
    read: u64,
}

#[derive(Debug)]
enum Content {
    /// One block of a part.
    Block {
        handle: Arc<PartHandle>,
        index: usize,
    },
    Hole,
}

impl Segment {
    fn hole(end: u64) -> Self {
        Self {
            end,
            content: Content::Hole,
            owner: NOBODY,
            read: 0,
        }
    }

    /// The part that it is of, unless it is a hole.
    fn handle(&self) -> Option<&Arc<PartHandle>> {
        match &self.content {
            Content::Block { handle, .. } => Some(handle),
            Content::Hole => None,
        }
    }

    /// Bytes of the budget that it has.
    fn cost(&self) -> u64 {
        match &self.content {
            Content::Block { handle, index } => handle.part.block_cost(*index),
            Content::Hole => 0,
        }
    }

    fn is_of(&self, handle: &Arc<PartHandle>) -> bool {
        self.handle().is_some_and(|own| Arc::ptr_eq(own, handle))
    }

    fn is_awaited(&self) -> bool {
        self.handle().is_some_and(|handle| handle.is_awaited())
    }

    /// Whether everything of it is there or still to come.
    fn is_sound(&self) -> bool {
        let sound = |part: &Part| !part.failed() || part.filled() >= self.end;
        self.handle().is_none_or(|handle| sound(&handle.part))
    }

    /// The bytes of `range` added to `payload`; `false` when they are not all there.
    fn read(&self, range: &Range<u64>, payload: &mut Payload) -> bool {
        match &self.content {
            Content::Block { handle, .. } => handle.part.read(range, payload),
            Content::Hole => {
                push_zeros(payload, range.end - range.start);
                true
            }
        }
    }
}

/// Adds `count` zeros to `payload`.
pub(super) fn push_zeros(payload: &mut Payload, mut count: u64) {
    while count > 0 {
        let some = count.min(ZEROS.len() as u64);
        payload.push(Bytes::from_static(&ZEROS[..some as usize]));
        count -= some;
    }
}

/// How much of a range is held.
#[derive(Debug)]
pub(crate) struct Coverage {
    pub(crate) pieces: SmallVec<[Piece; 2]>,
    pub(crate) gaps: Ranges,
}

/// What was given up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Bytes of the budget.
    pub(crate) cost: u64,
    /// Bytes that nobody had read.
    pub(crate) unread: u64,
    /// The lowest offset, if anything was given up.
    pub(crate) start: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    segments: BTreeMap<u64, Segment>,
    /// How many of them are.
    holes: usize,
    /// Where blocks begin that are kept, the oldest first.
    kept: VecDeque<u64>,
    /// Bytes of the budget that they have.
    kept_cost: u64,
}

impl Held {
    /// Whether nothing is held but holes.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.len() == self.holes
    }

    /// Adds holes, where nothing is held.
    pub(crate) fn add_holes(&mut self, holes: impl IntoIterator<Item = Range<u64>>) {
        for hole in holes {
            self.segments.insert(hole.start, Segment::hole(hole.end));
            self.holes += 1;
        }
    }

    /// Forgets all holes, and drops the blocks whose ranges are not to be `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(&Range<u64>) -> bool) -> Dropped {
        self.segments
            .retain(|_, segment| segment.handle().is_some());
        self.holes = 0;
        let segments = self.segments.iter();
        let gone: SmallVec<[u64; 8]> = segments
            .filter(|(start, segment)| !kept(&(**start..segment.end)))
            .map(|(start, _)| *start)
            .collect();
        self.drop_all(&gone)
    }

    /// Adds a part for the stream `owner`. Blocks that are held already stay as they are: where two
    /// parts overlap both must begin at the same offset.
    pub(crate) fn add(&mut self, handle: &Arc<PartHandle>, owner: StreamId) {
        for index in 0..handle.part.blocks() {
            let block = handle.part.block_range(index);
            if block.is_empty() {
                handle.part.release(index);
                continue;
            }
            match self.segments.entry(block.start) {
                Entry::Occupied(_) => handle.part.release(index),
                Entry::Vacant(place) => drop(place.insert(Segment {
                    end: block.end,
                    content: Content::Block {
                        handle: Arc::clone(handle),
                        index,
                    },
                    owner,
                    read: 0,
                })),
            }
        }
    }

    /// The bytes of `range` if all have arrived, and accounts them as read.
    pub(crate) fn read(&mut self, range: &Range<u64>) -> Option<Payload> {
        let mut payload = Payload::new();
        let mut start = range.start;
        while start < range.end {
            let (_, segment) = self.segments.range(..=start).next_back()?;
            let end = range.end.min(segment.end);
            if start >= end || !segment.read(&(start..end), &mut payload) {
                return None;
            }
            start = end;
        }
        self.consume(range);
        Some(payload)
    }

    /// The parts that hold or will hold bytes of `range`, and what is missing. Forgets blocks
    /// whose GET has failed.
    pub(crate) fn coverage(&mut self, range: &Range<u64>) -> Coverage {
        self.forget_failed(range);
        let mut coverage = Coverage {
            pieces: SmallVec::new(),
            gaps: SmallVec::new(),
        };
        let mut start = range.start;
        for (segment_start, segment) in self.overlapping(range) {
            let begin = segment_start.max(range.start);
            if start < begin {
                coverage.gaps.push(start..begin);
            }
            start = segment.end.min(range.end);
            if let Some(handle) = segment.handle() {
                coverage.pieces.push(Piece::new(handle, begin..start));
            }
        }
        if start < range.end {
            coverage.gaps.push(start..range.end);
        }
        coverage
    }

    /// The first offset from `start` on that is not held.
    pub(crate) fn first_gap(&self, start: u64) -> u64 {
        let mut gap = start;
        for (segment_start, segment) in self.overlapping(&(start..u64::MAX)) {
            if segment_start > gap {
                break;
            }
            gap = segment.end;
        }
        gap
    }

    /// The first held offset from `start` on, at most `limit`.
    pub(crate) fn next_held(&self, start: u64, limit: u64) -> u64 {
        let next = self.segments.range(start..limit).next();
        next.map_or(limit, |(held, _)| *held)
    }

    /// The bytes of `limits` around a `gap` in it that are not held.
    pub(crate) fn free_around(&self, gap: &Range<u64>, limits: &Range<u64>) -> Range<u64> {
        let before = self.segments.range(limits.start..gap.start).next_back();
        let reaching = self.segments.range(..=limits.start).next_back();
        let ends = before.or(reaching).map_or(0, |(_, segment)| segment.end);
        ends.max(limits.start)..self.next_held(gap.end, limits.end)
    }

    /// Parts that hold, or will hold, bytes from `start` on.
    pub(crate) fn parts_from(&self, start: u64) -> usize {
        let segments = self.segments.range(start..);
        let blocks = segments.filter_map(|(_, segment)| match &segment.content {
            Content::Block { handle, index } => Some((handle, *index)),
            Content::Hole => None,
        });
        blocks.filter(|(_, index)| *index == 0).count()
    }

    /// Drops what `owner` holds below `end`.
    pub(crate) fn drop_below(&mut self, owner: StreamId, end: u64) -> Dropped {
        let behind: SmallVec<[u64; 8]> = self
            .segments
            .range(..end)
            .filter(|(_, segment)| segment.owner == owner && segment.end <= end)
            .map(|(start, _)| *start)
            .collect();
        self.drop_all(&behind)
    }

    /// Drops everything that `owner` holds.
    pub(crate) fn drop_owned(&mut self, owner: StreamId) -> Dropped {
        self.drop_below(owner, u64::MAX)
    }

    /// What `from` holds belongs to `to` now.
    pub(crate) fn change_owner(&mut self, from: StreamId, to: StreamId) {
        for segment in self.segments.values_mut() {
            if segment.owner == from {
                segment.owner = to;
            }
        }
    }

    /// Keeps what `owner` holds, in place of what was kept for longest.
    pub(crate) fn keep(&mut self, owner: StreamId) -> Dropped {
        for (start, segment) in &mut self.segments {
            if segment.owner == owner {
                segment.owner = KEPT;
                self.kept.push_back(*start);
                self.kept_cost += segment.cost();
            }
        }
        let mut dropped = Dropped::default();
        while self.kept_cost > KEPT_MAX
            && let Some(oldest) = self.kept.front().copied()
        {
            dropped = dropped.and(self.drop_all(&[oldest]));
        }
        dropped
    }

    /// Drops parts of `owner` that no read waits for, the farthest first, until `cost` is saved.
    pub(crate) fn reclaim(&mut self, owner: StreamId, cost: u64) -> Dropped {
        let mut dropped = Dropped::default();
        while dropped.cost < cost {
            let farthest = self
                .segments
                .iter()
                .rev()
                .find(|(_, segment)| segment.owner == owner && !segment.is_awaited());
            let Some(part) = farthest.and_then(|(_, segment)| segment.handle()) else {
                break;
            };
            let part = Arc::clone(part);
            dropped = dropped.and(self.drop_part(&part));
        }
        dropped
    }

    /// A part is dropped whole: as long as one block is wanted the GET goes on, and the memory
    /// of the others is not free before it ends.
    fn drop_part(&mut self, handle: &Arc<PartHandle>) -> Dropped {
        let starts: SmallVec<[u64; 8]> = self
            .overlapping(handle.part.range())
            .filter(|(_, segment)| segment.is_of(handle))
            .map(|(start, _)| start)
            .collect();
        self.drop_all(&starts)
    }

    fn drop_all(&mut self, starts: &[u64]) -> Dropped {
        let mut dropped = Dropped::default();
        for start in starts {
            if let Some(segment) = self.segments.remove(start) {
                if segment.owner == KEPT {
                    self.kept.retain(|kept| kept != start);
                    self.kept_cost -= segment.cost();
                }
                if let Content::Block { handle, index } = &segment.content {
                    handle.part.release(*index);
                }
                let length = segment.end - start;
                dropped = dropped.and(Dropped {
                    cost: segment.cost(),
                    unread: length.saturating_sub(segment.read),
                    start: Some(*start),
                });
            }
        }
        dropped
    }

    /// Accounts `range` as read and drops blocks of which nothing is left to read, unless another
    /// read waits for them.
    fn consume(&mut self, range: &Range<u64>) {
        let mut consumed = SmallVec::<[u64; 4]>::new();
        let first = self.first_overlapping(range.start);
        for (start, segment) in self.segments.range_mut(first..range.end) {
            let Content::Block { handle, .. } = &segment.content else {
                continue;
            };
            segment.read += segment.end.min(range.end) - range.start.max(*start);
            let is_read = segment.owner != KEPT && segment.read >= segment.end - start;
            if is_read && !handle.is_awaited() {
                consumed.push(*start);
            }
        }
        self.drop_all(&consumed);
    }

    /// Drops what the failed parts that overlap `range` will never receive.
    fn forget_failed(&mut self, range: &Range<u64>) {
        let failed: SmallVec<[Arc<PartHandle>; 1]> = self
            .overlapping(range)
            .filter(|(_, segment)| !segment.is_sound())
            .filter_map(|(_, segment)| segment.handle().map(Arc::clone))
            .collect();
        for handle in failed {
            let starts: SmallVec<[u64; 8]> = self
                .overlapping(handle.part.range())
                .filter(|(_, segment)| segment.is_of(&handle) && !segment.is_sound())
                .map(|(start, _)| start)
                .collect();
            self.drop_all(&starts);
        }
    }

    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Segment)> {
        self.segments
            .range(self.first_overlapping(range.start)..range.end)
            .map(|(start, segment)| (*start, segment))
    }

    /// Where the segment starts that holds `offset`; `offset` itself if none does.
    fn first_overlapping(&self, offset: u64) -> u64 {
        let before = self.segments.range(..offset).next_back();
        match before {
            Some((start, segment)) if segment.end > offset => *start,
            _ => offset,
        }
    }
}

impl Dropped {
    /// Both together.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cost: self.cost + other.cost,
            unread: self.unread + other.unread,
            start: match (self.start, other.start) {
                (Some(one), Some(another)) => Some(one.min(another)),
                (one, another) => one.or(another),
            },
        }
    }
}
