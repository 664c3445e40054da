//! What an object holds: a list of segments, each a piece of a block.
//!
//! Completing a multipart upload and copying objects or ranges of them only make new lists.

use std::{fs::File, io, ops::Range, sync::Arc};

use super::arena::{Arena, BLOCK_MAX, Block};

/// Bytes in the first block of a body of unknown length; the next are each twice as large.
const FIRST_BLOCK: u64 = 64 << 10;

/// A piece of a block.
#[derive(Debug, Clone)]
struct Segment {
    block: Arc<Block>,
    range: Range<u64>,
}

impl Segment {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// An immutable sequence of bytes; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    segments: Arc<[Segment]>,
    /// Where each segment begins in the sequence.
    starts: Arc<[u64]>,
    length: u64,
}

/// Content in the making: bytes are written at its end, where they stay.
#[derive(Debug)]
pub(crate) struct ContentWriter {
    arena: Arena,
    full: Vec<Segment>,
    block: Option<Block>,
    /// Bytes in `block`.
    filled: usize,
    /// Bytes that are expected to come; sizes the blocks.
    expected: u64,
    /// Size of the next block where nothing is expected.
    next: u64,
}

impl ContentWriter {
    /// For `expected` bytes, or an unknown number.
    pub(crate) fn new(arena: &Arena, expected: Option<u64>) -> Self {
        Self {
            arena: arena.clone(),
            full: Vec::new(),
            block: None,
            filled: 0,
            expected: expected.unwrap_or(0),
            next: FIRST_BLOCK,
        }
    }

    /// Memory for the next bytes; never empty.
    pub(crate) fn room(&mut self) -> io::Result<&mut [u8]> {
        if self
            .block
            .as_ref()
            .is_none_or(|block| block.size() == self.filled as u64)
        {
            self.finish_block();
            let size = self.next_size();
            self.block = Some(self.arena.block(size)?);
        }
        let block = self.block.as_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(&mut block.bytes_mut()[self.filled..])
    }

    /// Says that the first `count` bytes of the room were written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled += count;
        self.expected = self.expected.saturating_sub(count as u64);
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Content {
        self.finish_block();
        Content::new(self.full)
    }

    fn finish_block(&mut self) {
        let filled = std::mem::take(&mut self.filled) as u64;
        if let Some(block) = self.block.take().filter(|_| filled > 0) {
            self.full.push(Segment {
                block: Arc::new(block),
                range: 0..filled,
            });
        }
    }

    fn next_size(&mut self) -> u64 {
        if self.expected > 0 {
            return self.expected.min(BLOCK_MAX);
        }
        let size = self.next;
        self.next = (size * 2).min(BLOCK_MAX);
        size
    }
}

impl Content {
    fn new(segments: Vec<Segment>) -> Self {
        let mut length = 0;
        let mut starts = Vec::with_capacity(segments.len());
        for segment in &segments {
            starts.push(length);
            length += segment.length();
        }
        Self {
            segments: segments.into(),
            starts: starts.into(),
            length,
        }
    }

    /// A copy of `bytes`.
    pub(crate) fn of_bytes(arena: &Arena, bytes: &[u8]) -> io::Result<Self> {
        let mut writer = ContentWriter::new(arena, Some(bytes.len() as u64));
        writer.write(bytes)?;
        Ok(writer.finish())
    }

    /// One after the other.
    pub(crate) fn joined<'a>(contents: impl IntoIterator<Item = &'a Self>) -> Self {
        let segments = contents
            .into_iter()
            .flat_map(|content| content.segments.iter().cloned());
        Self::new(segments.collect())
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The bytes of `range`, which must lie inside.
    pub(crate) fn slice(&self, range: &Range<u64>) -> Self {
        let pieces = self.pieces(range.clone());
        let segment = |(segment, range): (&Segment, _)| Segment {
            block: Arc::clone(&segment.block),
            range,
        };
        Self::new(pieces.map(segment).collect())
    }

    /// Says that the pages of `range` may be on their way for as long as the client likes.
    pub(crate) fn taint(&self, range: Range<u64>) {
        self.pieces(range)
            .for_each(|(segment, _)| segment.block.taint());
    }

    /// The segments that `range` touches, each with the touched part of its block.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (&Segment, Range<u64>)> {
        debug_assert!(range.end <= self.length, "ranges lie inside the content");
        let first = self
            .starts
            .partition_point(|start| *start <= range.start)
            .saturating_sub(1);
        let from_first = self.segments.iter().zip(self.starts.iter()).skip(first);
        from_first
            .take_while(move |(_, start)| **start < range.end)
            .map(move |(segment, start)| {
                let begin = range.start.max(*start) - start;
                let end = (range.end - start).min(segment.length());
                (
                    segment,
                    segment.range.start + begin..segment.range.start + end,
                )
            })
            .filter(|(_, piece)| !piece.is_empty())
    }

    /// Where `range` lies: files and ranges of them, in order.
    pub(crate) fn places(&self, range: Range<u64>) -> impl Iterator<Item = (&File, Range<u64>)> {
        self.pieces(range).map(|(segment, piece)| {
            let (file, offset) = segment.block.place();
            (file, offset + piece.start..offset + piece.end)
        })
    }

    /// The bytes of `range` where they lie, in order.
    pub(crate) fn slices(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        self.pieces(range).map(|(segment, piece)| {
            &segment.block.bytes()[piece.start as usize..piece.end as usize]
        })
    }

    /// All bytes of `range` in one vector.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
        self.slices(range)
            .for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slices_of_joined_pieces_are_slices_of_the_bytes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            cuts in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 1..8),
        ) {
            let arena = Arena::new();
            let contents: Vec<_> = pieces
                .iter()
                .map(|piece| Content::of_bytes(&arena, piece).expect("write"))
                .collect();
            let mut expected = pieces.concat();
            let mut content = Content::joined(&contents);
            for (a, b) in cuts {
                prop_assert_eq!(content.length(), expected.len() as u64);
                let (a, b) = (a.min(b), a.max(b));
                let start = (a * expected.len() as f64) as usize;
                let end = (b * expected.len() as f64) as usize;
                content = content.slice(&(start as u64..end as u64));
                expected = expected[start..end].to_vec();
                prop_assert_eq!(&content.bytes(0..content.length()), &expected);
            }
        }
    }
}
