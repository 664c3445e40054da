//! What an object holds: a list of segments, each a piece of an extent.
//!
//! Completing a multipart upload and copying objects or ranges of them only make new lists.

use std::{fs::File, io, ops::Range, sync::Arc};

use super::arena::{Arena, Extent};

/// Bytes read at a time where a body is walked through.
const WALK_STEP: usize = 256 << 10;

/// A piece of an extent.
#[derive(Debug, Clone)]
struct Segment {
    extent: Arc<Extent>,
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

    /// The first `length` bytes of an extent.
    pub(crate) fn of_extent(extent: Extent, length: u64) -> Self {
        debug_assert!(
            length <= extent.length(),
            "a segment lies inside its extent"
        );
        if length == 0 {
            return Self::default();
        }
        Self::new(vec![Segment {
            extent: Arc::new(extent),
            range: 0..length,
        }])
    }

    /// A copy of `bytes`.
    pub(crate) fn of_bytes(arena: &Arena, bytes: &[u8]) -> io::Result<Self> {
        let extent = arena.reserve(bytes.len() as u64);
        extent.write(bytes, 0)?;
        Ok(Self::of_extent(extent, bytes.len() as u64))
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
        Self::new(
            pieces
                .map(|(segment, range)| Segment {
                    extent: Arc::clone(&segment.extent),
                    range,
                })
                .collect(),
        )
    }

    /// The segments that `range` touches, each with the touched part of its extent.
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
            let (file, offset) = segment.extent.place();
            (file, offset + piece.start..offset + piece.end)
        })
    }

    /// Calls `visit` with the bytes of `range`, piece by piece.
    pub(crate) fn walk(&self, range: Range<u64>, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = vec![0; WALK_STEP.min(usize::try_from(self.length).unwrap_or(WALK_STEP))];
        for (segment, piece) in self.pieces(range) {
            let mut at = piece.start;
            while at < piece.end {
                let step = (piece.end - at).min(buffer.len() as u64) as usize;
                segment.extent.read(&mut buffer[..step], at)?;
                visit(&buffer[..step]);
                at += step as u64;
            }
        }
        Ok(())
    }

    /// All bytes of `range` in one vector.
    pub(crate) fn bytes(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
        self.walk(range, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
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
            let arena = Arena::new().expect("memory files");
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
                prop_assert_eq!(&content.bytes(0..content.length()).expect("read"), &expected);
            }
        }
    }
}
