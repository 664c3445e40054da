//! What is to be stored: runs of bytes, and the object that some of them make.

use bytes::Bytes;
use penstock_base::{ChecksumKind, Payload, Summing};

use crate::schema::{BLOCK_SIZE, Extent, GRAIN, Stored};

use super::ObjectId;

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
}

impl Run {
    pub(super) fn length(&self) -> u64 {
        u64::from(self.length)
    }

    pub(super) fn slices(&self) -> &[Bytes] {
        &self.bytes
    }

    /// What is in its chunk once `object`, of so many bytes, holds its bytes from `offset` on.
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
                checksums: checksums(self.bytes.iter()),
            },
        }
    }

    pub(super) fn chunk(&self) -> u64 {
        self.chunk
    }
}

/// What goes into one object.
#[derive(Debug, Default)]
pub(super) struct Pack {
    runs: Vec<Run>,
    length: u32,
}

/// Joins pieces that follow each other within a chunk, and cuts those that reach over its end.
pub(super) fn runs(pieces: Vec<Piece>) -> Vec<Run> {
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
                }),
            }
        }
    }
    runs
}

impl Pack {
    pub(super) fn push(&mut self, run: Run) {
        self.length += run.length;
        self.runs.push(run);
    }

    /// All bytes.
    pub(super) fn payload(&self) -> Payload {
        let mut payload = Payload::new();
        let bytes = self.runs.iter().flat_map(|run| &run.bytes);
        bytes.for_each(|bytes| payload.push(bytes.clone()));
        payload
    }

    /// What is in which chunk, run by run, once `object` holds the bytes.
    pub(super) fn extents(&self, object: ObjectId) -> Vec<(u64, Extent)> {
        let mut offset = 0;
        let extents = self.runs.iter().map(|run| {
            let extent = run.extent((object, self.length), offset);
            offset += run.length;
            (run.chunk, extent)
        });
        extents.collect()
    }
}

/// The checksum of each grain.
pub(crate) fn checksums<'a>(slices: impl Iterator<Item = &'a Bytes>) -> Vec<u32> {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    let (mut sums, mut filled) = (Vec::new(), 0);
    for slice in slices {
        let mut rest = &slice[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(GRAIN as usize - filled));
            summing.add(now);
            filled += now.len();
            rest = later;
            if filled == GRAIN as usize {
                sums.push(summing.take().value() as u32);
                filled = 0;
            }
        }
    }
    if filled > 0 {
        sums.push(summing.take().value() as u32);
    }
    sums
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
        let mut pack = Pack::default();
        let pieces = vec![piece(0, 10), piece(10, 5), piece(BLOCK_SIZE * 3, 7)];
        runs(pieces).into_iter().for_each(|run| pack.push(run));
        let extents = pack.extents(ID);
        let places = extents
            .iter()
            .map(|(chunk, extent)| (*chunk, extent.at, extent.length, extent.stored.offset));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 0, 15, 0), (3, 0, 7, 15)]);
        assert_eq!(pack.payload().len(), 22);
    }

    #[test]
    fn pieces_are_cut_at_the_ends_of_chunks() {
        let half = BLOCK_SIZE / 2;
        let cut = runs(vec![piece(half, 2 * BLOCK_SIZE as usize)]);
        let lengths: Vec<_> = cut.iter().map(Run::length).collect();
        assert_eq!(lengths, [half, BLOCK_SIZE, half]);
    }

    #[test]
    fn the_sums_do_not_depend_on_how_the_bytes_came() {
        let whole = piece(0, GRAIN as usize * 2 + 3).bytes;
        let sums = checksums([&whole].into_iter());
        assert_eq!(sums.len(), 3);
        let slices = [
            whole.slice(..5),
            whole.slice(5..200_000),
            whole.slice(200_000..),
        ];
        assert_eq!(checksums(slices.iter()), sums);
    }
}
