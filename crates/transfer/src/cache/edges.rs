//! Blocks of which a part has arrived.
//!
//! Requests begin where somebody reads, so two of them may meet inside a block. What the first of
//! them brought of it waits here, copied out of the memory that it was received in, until the other
//! brings the rest; the whole block waits in the same memory to be written. That memory is set aside
//! when the cache is opened. When it is full the part that came first goes, and is fetched again.
//!
//! Of a block its front and its back are kept until what lies between joins them. What touches neither is not kept: reads
//! at random would fill the memory with what nothing continues.

use std::{
    collections::VecDeque,
    ops::{Range, RangeInclusive},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use penstock_base::{Reservation, metrics::Counter};

use super::{block, name::VersionName};
use crate::lock::lock;

/// Parts of blocks, and whole ones made of them, in the memory that was set aside.
#[derive(Debug)]
pub(super) struct Edges {
    state: Mutex<State>,
    /// None when there was none to be set aside; then nothing is kept.
    memory: Option<Reservation>,
    /// Bytes of whole blocks for which there was no room.
    skipped: Arc<Counter>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they came.
    edges: VecDeque<Edge>,
    /// Of edges, and of whole blocks that somebody still has.
    bytes: u64,
}

/// A part of one block.
#[derive(Debug)]
pub(super) struct Edge {
    name: VersionName,
    /// Where in the object it begins.
    start: u64,
    bytes: Vec<u8>,
}

/// A block that was made of edges.
struct Whole {
    bytes: Vec<u8>,
    edges: Arc<Edges>,
}

impl Edges {
    /// Keeps edges in `memory`, and counts in `skipped` whole blocks that find no room there.
    pub(super) fn new(memory: Option<Reservation>, skipped: Arc<Counter>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            memory,
            skipped,
        })
    }

    /// Takes an edge of an object of `size` bytes. Returns the block and where it begins if this was
    /// what was missing of it.
    pub(super) fn add(self: &Arc<Self>, edge: Edge, size: u64) -> Option<(u64, Bytes)> {
        let block = edge.block(size);
        let mut state = lock(&self.state);
        let mut joined = edge;
        while let Some(other) = state.take_neighbour(&joined, &block) {
            joined = joined.join(other);
        }
        let bytes_max = self.memory.as_ref().map_or(0, Reservation::bytes);
        if joined.range() == block {
            if !state.make_room(joined.length(), bytes_max) {
                self.skipped.add(joined.length());
                return None;
            }
            return Some((block.start, joined.into_whole(self)));
        }
        let is_at_border = joined.start == block.start || joined.end() == block.end;
        if is_at_border && state.make_room(joined.length(), bytes_max) {
            state.edges.push_back(joined);
        }
        None
    }

    /// Drops what is of versions with these names.
    pub(super) fn forget(&self, names: &RangeInclusive<VersionName>) {
        let mut state = lock(&self.state);
        let before = state.kept();
        state.edges.retain(|edge| !names.contains(&edge.name));
        state.bytes -= before - state.kept();
    }
}

impl State {
    fn kept(&self) -> u64 {
        self.edges.iter().map(Edge::length).sum()
    }

    /// Counts `length` bytes more, for which old edges go. Says whether there is room for them.
    fn make_room(&mut self, length: u64, bytes_max: u64) -> bool {
        while self.bytes + length > bytes_max {
            let Some(oldest) = self.edges.pop_front() else {
                return false;
            };
            self.bytes -= oldest.length();
        }
        self.bytes += length;
        true
    }

    /// Takes out what there is of `block` that touches `edge`.
    fn take_neighbour(&mut self, edge: &Edge, block: &Range<u64>) -> Option<Edge> {
        let is_it = |other: &Edge| {
            other.name == edge.name && block.contains(&other.start) && other.touches(edge)
        };
        let index = self.edges.iter().position(is_it)?;
        let edge = self.edges.remove(index)?;
        self.bytes -= edge.length();
        Some(edge)
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        lock(&self.edges.state).bytes -= self.bytes.len() as u64;
    }
}

impl Edge {
    /// What `slices` hold, from `start` on.
    pub(super) fn of(name: VersionName, start: u64, slices: &[Bytes]) -> Self {
        Self {
            name,
            start,
            bytes: slices.concat(),
        }
    }

    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn end(&self) -> u64 {
        self.start + self.length()
    }

    fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    fn block(&self, size: u64) -> Range<u64> {
        block::range_of(self.start / block::BLOCK, size)
    }

    fn into_whole(self, edges: &Arc<Edges>) -> Bytes {
        let edges = Arc::clone(edges);
        let bytes = self.bytes;
        Bytes::from_owner(Whole { bytes, edges })
    }

    fn touches(&self, other: &Self) -> bool {
        self.start <= other.end() && other.start <= self.end()
    }

    /// Both, which touch, as one.
    fn join(self, other: Self) -> Self {
        let (mut first, second) = if self.start <= other.start {
            (self, other)
        } else {
            (other, self)
        };
        let known = (first.end() - second.start) as usize;
        let new = second.bytes.get(known..).unwrap_or_default();
        first.bytes.extend_from_slice(new);
        first
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::{KIB, MemoryBudget};

    use super::{super::block::BLOCK, *};

    const SIZE: u64 = 3 * BLOCK + 10;

    fn edges(bytes: u64) -> Arc<Edges> {
        Edges::new(MemoryBudget::new(bytes).try_reserve(bytes), Arc::default())
    }

    fn content(range: Range<u64>) -> Vec<u8> {
        range.map(|at| (at % 251) as u8).collect()
    }

    /// Adds a part of an object; the block that is whole then.
    fn add(edges: &Arc<Edges>, key: &str, range: Range<u64>) -> Option<(u64, Vec<u8>)> {
        let edge = Edge {
            name: VersionName::of("s", key, "1"),
            start: range.start,
            bytes: content(range),
        };
        let (start, bytes) = edges.add(edge, SIZE)?;
        Some((start, bytes.to_vec()))
    }

    fn used(edges: &Edges) -> u64 {
        lock(&edges.state).bytes
    }

    #[test]
    fn a_block_is_whole_in_whatever_pieces_and_order_it_comes() {
        let whole = Some((BLOCK, content(BLOCK..2 * BLOCK)));
        for (first, second) in [
            (BLOCK..BLOCK + 1, BLOCK + 1..2 * BLOCK),
            (BLOCK + 4096..2 * BLOCK, BLOCK..BLOCK + 4096),
            (BLOCK..2 * BLOCK - 1, BLOCK + 9..2 * BLOCK),
        ] {
            let edges = edges(2 * BLOCK);
            assert_eq!(add(&edges, "a", first.clone()), None);
            assert_eq!(add(&edges, "b", 0..1), None, "of another");
            assert_eq!(add(&edges, "a", second), whole);
            assert_eq!(
                (add(&edges, "a", first.clone()), used(&edges) - 1),
                (None, first.end - first.start)
            );
        }
    }

    #[test]
    fn the_last_block_is_whole_where_the_object_ends() {
        let edges = edges(BLOCK);
        assert_eq!(add(&edges, "a", 3 * BLOCK + 4..SIZE), None);
        let whole = add(&edges, "a", 3 * BLOCK..3 * BLOCK + 4);
        assert_eq!(whole, Some((3 * BLOCK, content(3 * BLOCK..SIZE))));
    }

    #[test]
    fn what_joins_the_front_and_the_back_of_a_block_makes_it_whole() {
        let whole = Some((0, content(0..BLOCK)));
        for pieces in [
            [0..100, 200..BLOCK, 50..150, 100..200],
            [200..BLOCK, 100..200, 150..300, 0..101],
            [200..BLOCK, 0..100, 0..BLOCK - 1, 100..200],
        ] {
            let edges = edges(2 * BLOCK);
            let made: Vec<_> = pieces
                .into_iter()
                .map(|piece| add(&edges, "a", piece))
                .collect();
            assert_eq!(made.iter().flatten().count(), 1, "once");
            assert!(made.contains(&whole));
        }
        let edges = edges(BLOCK);
        for range in [0..100, 300..BLOCK, 150..200] {
            assert_eq!(add(&edges, "a", range), None);
        }
        assert_eq!(add(&edges, "a", 100..300), whole);
        assert_eq!(used(&edges), 0);
    }

    #[test]
    fn memory_is_what_was_set_aside_and_the_oldest_go() {
        let edges = edges(BLOCK + 64 * KIB);
        assert_eq!(add(&edges, "a", 1..BLOCK - 1), None);
        assert_eq!(
            used(&edges),
            0,
            "what is in the middle of a block is not kept"
        );
        for key in ["a", "b", "c", "d"] {
            assert_eq!(add(&edges, key, 0..60 * KIB), None);
        }
        assert_eq!(used(&edges), 3 * 60 * KIB);
        assert_eq!(add(&edges, "a", 60 * KIB..BLOCK), None, "it had to go");
        edges.forget(&{
            let (first, last) = VersionName::all_of("s", "a");
            first..=last
        });
        assert_eq!(used(&edges), 2 * 60 * KIB);
    }

    #[test]
    fn a_whole_block_counts_as_long_as_somebody_has_it() {
        let edges = edges(BLOCK + 64 * KIB);
        let name = VersionName::of("s", "a", "1");
        let part = |range: Range<u64>| Edge::of(name, range.start, &[content(range).into()]);
        assert!(edges.add(part(0..1), SIZE).is_none());
        let whole = edges.add(part(1..BLOCK), SIZE);
        assert_eq!(used(&edges), BLOCK);
        assert!(add(&edges, "b", 0..1).is_none());
        assert_eq!(add(&edges, "b", 1..BLOCK), None, "no room for another");
        assert_eq!(edges.skipped.value(), BLOCK);
        drop(whole);
        assert_eq!(used(&edges), 0);
    }
}
