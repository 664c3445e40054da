//! What is to be stored: runs of bytes, and the object that some of them make.

use bytes::Bytes;
use penstock_base::Payload;

use crate::schema::{BLOCK_SIZE, Compression, Extent, Frames, Stored};

use super::{ObjectId, grains::checksums};

/// Bytes that were written to a file, in one piece.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// A run of bytes in one chunk.
#[derive(Debug)]
pub(super) struct Run {
    chunk: u64,
    at: u32,
    bytes: Vec<Bytes>,
    length: u32,
    /// How it is to be compressed.
    pub(super) compression: Compression,
}

impl Run {
    pub(super) fn length(&self) -> u64 {
        u64::from(self.length)
    }

    pub(super) fn payload(&self) -> Payload {
        joined(&self.bytes)
    }
}

fn joined<'a>(bytes: impl IntoIterator<Item = &'a Bytes>) -> Payload {
    let mut payload = Payload::new();
    let bytes = bytes.into_iter();
    bytes.for_each(|bytes| payload.push(bytes.clone()));
    payload
}

/// A run as it lies in an object. Its sums were made before it is sent: what happens to it on the way is noticed.
#[derive(Debug)]
pub(super) struct Packed {
    chunk: u64,
    at: u32,
    /// Plain bytes.
    length: u32,
    checksums: Vec<u32>,
    frames: Option<Frames>,
    /// What is stored.
    bytes: Vec<Bytes>,
}

impl Packed {
    pub(super) fn plain(run: &Run) -> Self {
        Self {
            chunk: run.chunk,
            at: run.at,
            length: run.length,
            checksums: checksums(run.bytes.iter()),
            frames: None,
            bytes: run.bytes.clone(),
        }
    }

    /// A run with its frames, and the bytes of these.
    pub(super) fn compressed(run: &Run, (frames, bytes): (Frames, Vec<Bytes>)) -> Self {
        Self {
            frames: Some(frames),
            bytes,
            ..Self::plain(run)
        }
    }

    pub(super) fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Bytes that it takes in the object.
    pub(super) fn stored_length(&self) -> u32 {
        let lengths = self.bytes.iter().map(Bytes::len);
        lengths.sum::<usize>() as u32
    }

    /// Bytes that are there beside those of the run.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.frames
            .as_ref()
            .map_or(0, |_| u64::from(self.stored_length()))
    }

    pub(super) fn slices(&self) -> &[Bytes] {
        &self.bytes
    }

    #[cfg(test)]
    pub(super) fn payload(&self) -> Payload {
        joined(&self.bytes)
    }

    /// What is stored, in one piece of its own: a part of what was written would keep all of that in memory.
    pub(super) fn whole(&self) -> Bytes {
        self.bytes.concat().into()
    }

    /// What is in its chunk once `object`, of so many bytes, holds it from `offset` on.
    pub(super) fn extent(&self, (object, object_length): (ObjectId, u32), offset: u32) -> Extent {
        Extent {
            at: self.at,
            length: self.length,
            skip: 0,
            stored: Stored {
                object,
                object_length,
                offset,
                length: self.length,
                checksums: self.checksums.clone(),
                frames: self.frames.clone(),
            },
        }
    }
}

/// What goes into one object.
#[derive(Debug)]
pub(super) struct Pack {
    runs: Vec<Packed>,
    length: u32,
}

/// Joins pieces that follow each other within a chunk, and cuts those that reach over its end.
pub(super) fn runs(pieces: Vec<Piece>, compression: Compression) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for Piece {
        mut offset,
        mut bytes,
    } in pieces
    {
        while !bytes.is_empty() {
            let (chunk, at) = (offset / BLOCK_SIZE, (offset % BLOCK_SIZE) as u32);
            let room = (BLOCK_SIZE - u64::from(at)) as usize;
            let part = bytes.split_to(room.min(bytes.len()));
            offset += part.len() as u64;
            let length = part.len() as u32;
            let follows = |run: &&mut Run| run.chunk == chunk && run.at + run.length == at;
            match runs.last_mut().filter(follows) {
                Some(run) => {
                    run.bytes.push(part);
                    run.length += length;
                }
                None => runs.push(Run {
                    chunk,
                    at,
                    bytes: vec![part],
                    length,
                    compression,
                }),
            }
        }
    }
    runs
}

impl Pack {
    pub(super) fn new(runs: Vec<Packed>) -> Self {
        let length = runs.iter().map(Packed::stored_length).sum();
        Self { runs, length }
    }

    /// All bytes.
    pub(super) fn payload(&self) -> Payload {
        joined(self.runs.iter().flat_map(|run| &run.bytes))
    }

    /// What is in which chunk, run by run, once `object` holds the bytes.
    pub(super) fn extents(&self, object: ObjectId) -> Vec<(u64, Extent)> {
        let mut offset = 0;
        let extents = self.runs.iter().map(|run| {
            let extent = run.extent((object, self.length), offset);
            offset += run.stored_length();
            (run.chunk, extent)
        });
        extents.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, length: usize) -> Piece {
        let bytes: Vec<u8> = (0..length).map(|at| (offset as usize + at) as u8).collect();
        Piece {
            offset,
            bytes: bytes.into(),
        }
    }

    const ID: ObjectId = ObjectId {
        writer: 1,
        number: 2,
    };

    #[test]
    fn runs_lie_one_behind_the_other() {
        let pieces = vec![piece(0, 10), piece(10, 5), piece(BLOCK_SIZE * 3, 7)];
        let runs = runs(pieces, Compression::None);
        let pack = Pack::new(runs.iter().map(Packed::plain).collect());
        let extents = pack.extents(ID);
        let places = extents
            .iter()
            .map(|(chunk, extent)| (*chunk, extent.at, extent.length, extent.stored.offset));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 0, 15, 0), (3, 0, 7, 15)]);
        assert_eq!(pack.payload().len(), 22);
    }

    /// Much was written at once and cut to little: the rest stayed in memory with what the metadata has.
    #[test]
    fn what_is_stored_in_one_piece_keeps_nothing_else_in_memory() {
        let written = Bytes::from(vec![1; 1 << 20]);
        let bytes = written.slice(..10);
        let runs = runs(vec![Piece { offset: 0, bytes }], Compression::None);
        let whole = Packed::plain(&runs[0]).whole();
        assert_eq!(whole, written[..10]);
        assert_ne!(whole.as_ptr(), written.as_ptr());
    }

    #[test]
    fn pieces_are_cut_at_the_ends_of_chunks() {
        let half = BLOCK_SIZE / 2;
        let cut = runs(
            vec![piece(half, 2 * BLOCK_SIZE as usize)],
            Compression::None,
        );
        let lengths: Vec<_> = cut.iter().map(Run::length).collect();
        assert_eq!(lengths, [half, BLOCK_SIZE, half]);
    }
}
