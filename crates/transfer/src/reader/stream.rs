//! Which reads follow one another.
//!
//! A read that continues nothing is a candidate; when a second read continues it, it becomes a
//! sequential stream and only then is anything fetched ahead. A stream tolerates what the
//! kernel's read-ahead does to the order of reads: several are sent at once and overtake one
//! another. Two reads that touch are therefore one stream in either order while both are in
//! flight; a program that reads backwards waits for each read and stays a random reader.
//!
//! In a file that is read at random two reads follow one another by chance now and then, and each such
//! pair would fetch mebibytes in vain. Where nothing continued the last reads a stream must therefore
//! be continued several times before it is taken for one.
//!
//! What lies behind a stream's frontier and is held no more was read: whoever reads it again went
//! back, and two such reads in a row are a stream of their own, however near the old one is.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use penstock_base::{MIB, clock::Instant};
use smallvec::SmallVec;

use super::{share::StreamShare, window::Consumption};

/// How far behind its frontier a stream still owns bytes that it fetched and nobody read. One of
/// the threads that take the kernel's requests may sleep while the others go on, so a read can be
/// late by two windows of the kernel's read-ahead: 4 MiB each by default, twice that after a
/// POSIX_FADV_SEQUENTIAL, and as much again to be sure.
pub(crate) const UNREAD_BEHIND_MAX: u64 = 32 * MIB;

/// Reads that are remembered in case another one continues them.
const CANDIDATES_MAX: usize = 8;

/// Reads that nothing continued, after which a file is taken to be read at random.
const STRAYS_MAX: usize = CANDIDATES_MAX;

/// How often a stream is to be continued in such a file. By chance that happens to one read in
/// 100,000 where there are a thousand places to read.
const CONTINUATIONS_AMONG_STRAYS: u32 = 3;

/// Distinguishes the streams of one reader, dead ones included.
pub(crate) type StreamId = u64;

/// A read that is going on; streams know when it ends.
pub(crate) type InFlight = Arc<()>;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Where the first read started.
    start: u64,
    /// The end of the farthest read.
    pub(crate) frontier: u64,
    /// The end of what has been asked of the store for this stream.
    pub(crate) scheduled: u64,
    /// Bytes by which the frontier has moved.
    pub(crate) length: u64,
    pub(crate) consumption: Consumption,
    /// Reads that continued others.
    continuations: u32,
    /// Whether there were enough of them.
    sequential: bool,
    /// Bytes that may still be skipped. Reading earns them back, so a program that skips more
    /// than it reads is not taken for a stream for long.
    skips_left: u64,
    last_read: Weak<()>,
    /// Its part in the memory for read-ahead, while it uses any.
    pub(crate) share: Option<StreamShare>,
}

/// Where a read belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: StreamId,
    /// Bytes by which the read moved the stream's frontier; 0 for a read behind it.
    pub(crate) advanced: u64,
}

/// A read that may have made one stream of two.
#[derive(Debug)]
struct Reached {
    start: u64,
    /// Everything from `start` to here is held.
    held_until: u64,
}

/// The streams of one reader, least recently used first.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    next_id: StreamId,
    sequential_max: usize,
    skip_max: u64,
    /// Reads that nothing continued since the last stream was found.
    strays: usize,
}

/// What [`Streams::place`] did besides.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Sequential streams that are gone.
    pub(crate) evicted: SmallVec<[StreamId; 2]>,
    /// Reads that are remembered no more.
    pub(crate) forgotten: SmallVec<[StreamId; 2]>,
    /// Streams that were found to be one: what the first had belongs to the second.
    pub(crate) merged: SmallVec<[(StreamId, StreamId); 2]>,
}

impl Streams {
    pub(crate) fn new(sequential_max: usize, skip_max: u64) -> Self {
        Self {
            streams: Vec::new(),
            next_id: 0,
            sequential_max,
            skip_max,
            strays: 0,
        }
    }

    /// Finds the stream that a read of `range` belongs to, or begins one. Everything from its start
    /// to `held_until` is held: when that is all of it, the read may be late.
    pub(crate) fn place(
        &mut self,
        range: &Range<u64>,
        held_until: u64,
        read: &InFlight,
        now: Instant,
    ) -> (Place, Changes) {
        let mut changes = Changes::default();
        let found = self
            .sequential_at(range, held_until >= range.end)
            .or_else(|| self.candidate_at(range));
        let index = match found {
            Some(index) => self.touch(index),
            None => self.begin(range.start, now),
        };
        let skips_max = 2 * self.skip_max;
        let stream = &mut self.streams[index];
        let advanced = stream.advance(range, read, skips_max);
        if found.is_some() {
            stream.continuations += 1;
            let last = Reached {
                start: range.start,
                held_until,
            };
            self.merge_into(index, &last, &mut changes);
            self.judge_last();
        }
        let stream = self.streams.last().expect("the touched stream is last").id;
        self.evict(&mut changes);
        (Place { stream, advanced }, changes)
    }

    pub(crate) fn get(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    /// How many streams fetch ahead.
    pub(crate) fn sequential(&self) -> usize {
        let streams = self.streams.iter();
        streams.filter(|stream| stream.is_sequential()).count()
    }

    /// What was fetched ahead is partly gone: all of them look again what they lack.
    pub(crate) fn look_again(&mut self) {
        for stream in &mut self.streams {
            stream.scheduled = stream.scheduled.min(stream.frontier);
        }
    }

    /// The streams that may hold something, least recently used first.
    pub(crate) fn ids(&self) -> SmallVec<[StreamId; 16]> {
        self.streams.iter().map(|stream| stream.id).collect()
    }

    fn sequential_at(&self, range: &Range<u64>, is_held: bool) -> Option<usize> {
        let distances = self.streams.iter().enumerate();
        let reaches = |stream: &Stream| stream.reaches(range, is_held, self.skip_max);
        distances
            .filter(|(_, stream)| stream.is_sequential() && reaches(stream))
            .min_by_key(|(_, stream)| stream.frontier.abs_diff(range.start))
            .map(|(index, _)| index)
    }

    fn candidate_at(&self, range: &Range<u64>) -> Option<usize> {
        self.streams
            .iter()
            .position(|stream| !stream.is_sequential() && stream.is_continued_by(range))
    }

    fn begin(&mut self, offset: u64, now: Instant) -> usize {
        self.streams.push(Stream {
            id: self.next_id,
            start: offset,
            frontier: offset,
            scheduled: offset,
            length: 0,
            consumption: Consumption::new(now),
            continuations: 0,
            sequential: false,
            skips_left: 2 * self.skip_max,
            last_read: Weak::new(),
            share: None,
        });
        self.next_id += 1;
        self.streams.len() - 1
    }

    /// Makes a stream the most recently used one.
    fn touch(&mut self, index: usize) -> usize {
        self.streams[index..].rotate_left(1);
        self.streams.len() - 1
    }

    /// Whether the stream that was continued last is a sequential one.
    fn judge_last(&mut self) {
        let needed = if self.strays < STRAYS_MAX {
            1
        } else {
            CONTINUATIONS_AMONG_STRAYS
        };
        if let Some(stream) = self.streams.last_mut()
            && !stream.sequential
            && stream.continuations >= needed
        {
            stream.sequential = true;
            self.strays = 0;
        }
    }

    /// Joins streams that the one at `index`, the last, has run into.
    fn merge_into(&mut self, index: usize, last: &Reached, changes: &mut Changes) {
        let target = self.streams[index].id;
        while let Some(other) = self.run_into(self.streams.len() - 1, last) {
            let gone = self.streams.remove(other);
            let stream = self.streams.last_mut().expect("the target is last");
            stream.frontier = stream.frontier.max(gone.frontier);
            stream.scheduled = stream.scheduled.max(gone.scheduled);
            stream.start = stream.start.min(gone.start);
            stream.length += gone.length;
            stream.continuations += gone.continuations + 1;
            stream.sequential |= gone.sequential;
            changes.merged.push((gone.id, target));
        }
    }

    /// The stream that the one at `index` has run into with its last read. One that has read, and
    /// let go, what comes next is none: this stream reads that again.
    fn run_into(&self, index: usize, last: &Reached) -> Option<usize> {
        let this = &self.streams[index];
        self.streams[..index].iter().position(|other| {
            let near = other.frontier.saturating_sub(this.frontier) <= self.skip_max;
            let inside = (other.start..=other.frontier).contains(&this.frontier);
            let between_is_held = other.frontier <= last.held_until.max(this.frontier);
            let began_here = (last.start..=this.frontier).contains(&other.start);
            let overtook = other.is_being_read() || (other.sequential && this.id < other.id);
            near && inside && ((between_is_held && other.sequential) || (began_here && overtook))
        })
    }

    fn evict(&mut self, changes: &mut Changes) {
        self.evict_beyond(self.sequential_max, true, changes);
        self.evict_beyond(CANDIDATES_MAX, false, changes);
    }

    fn evict_beyond(&mut self, limit: usize, sequential: bool, changes: &mut Changes) {
        let kind = |stream: &Stream| stream.is_sequential() == sequential;
        let count = self.streams.iter().filter(|stream| kind(stream)).count();
        if count > limit
            && let Some(oldest) = self.streams.iter().position(kind)
        {
            let gone = self.streams.remove(oldest);
            self.strays += usize::from(gone.continuations == 0);
            match sequential {
                true => changes.evicted.push(gone.id),
                false => changes.forgotten.push(gone.id),
            }
        }
    }
}

impl Stream {
    pub(crate) fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Whether a sequential stream takes a read of `range` for its own.
    fn reaches(&self, range: &Range<u64>, is_held: bool, skip_max: u64) -> bool {
        if !is_held && range.end <= self.frontier {
            return false;
        }
        let behind_max = if is_held { UNREAD_BEHIND_MAX } else { skip_max };
        let farthest = self.scheduled.max(self.frontier + skip_max);
        let skipped = range.start.saturating_sub(self.frontier);
        let near = range.start + behind_max >= self.frontier && range.start <= farthest;
        near && skipped <= self.skips_left
    }

    fn is_continued_by(&self, range: &Range<u64>) -> bool {
        let before = range.end == self.start && self.is_being_read();
        range.start == self.frontier || before
    }

    fn is_being_read(&self) -> bool {
        self.last_read.strong_count() > 0
    }

    fn advance(&mut self, range: &Range<u64>, read: &InFlight, skips_max: u64) -> u64 {
        let frontier = self.frontier.max(range.end);
        let skipped = range.start.saturating_sub(self.frontier);
        let earned = self.skips_left.saturating_sub(skipped) + (range.end - range.start);
        self.skips_left = earned.min(skips_max);
        let advanced = frontier - self.frontier;
        self.start = self.start.min(range.start);
        self.frontier = frontier;
        self.length += advanced;
        self.last_read = Arc::downgrade(read);
        advanced
    }
}

/// Bytes in the next part of a stream that has moved `length` bytes: 1 MiB at first, then as much
/// as was read so far, in powers of two up to `limit`.
pub(crate) fn part_size(length: u64, limit: u64) -> u64 {
    let doubled = MIB << (length / MIB).max(1).ilog2().min(16);
    doubled.min(limit).max(MIB)
}

/// Where a part with the bytes that are `wanted`, and about `length` if that is more, ends: at a multiple of `unit`.
/// Blocks of the disk cache are one, which would have to copy what comes in two pieces, and grains are.
pub(crate) fn part_end(wanted: &Range<u64>, length: u64, unit: u64) -> u64 {
    let end = wanted.start.saturating_add(length) / unit * unit;
    end.max(wanted.end.next_multiple_of(unit))
}
