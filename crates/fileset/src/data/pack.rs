//! What is to be stored, cut into objects.

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
struct Run {
    chunk: u64,
    at: u32,
    bytes: Vec<Bytes>,
    length: u32,
}

/// What goes into one object.
#[derive(Debug, Default)]
pub(crate) struct Pack {
    runs: Vec<Run>,
    length: u32,
}

/// Cuts pieces, in order and without overlaps, into packs of at most one block.
pub(crate) fn packed(pieces: Vec<Piece>) -> Vec<Pack> {
    let mut packs: Vec<Pack> = Vec::new();
    for run in runs(pieces) {
        let fits = |pack: &&mut Pack| u64::from(pack.length + run.length) <= BLOCK_SIZE;
        match packs.last_mut().filter(fits) {
            Some(pack) => pack.push(run),
            None => {
                let mut pack = Pack::default();
                pack.push(run);
                packs.push(pack);
            }
        }
    }
    packs
}

/// Joins pieces that follow each other within a chunk, and cuts those that reach over its end.
fn runs(pieces: Vec<Piece>) -> Vec<Run> {
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
    fn push(&mut self, run: Run) {
        self.length += run.length;
        self.runs.push(run);
    }

    /// All bytes.
    pub(crate) fn payload(&self) -> Payload {
        let mut payload = Payload::new();
        let bytes = self.runs.iter().flat_map(|run| &run.bytes);
        bytes.for_each(|bytes| payload.push(bytes.clone()));
        payload
    }

    /// What is in which chunk, once `object` holds the bytes.
    pub(crate) fn extents(&self, object: ObjectId) -> Vec<(u64, Extent)> {
        let mut offset = 0;
        let extents = self.runs.iter().map(|run| {
            let stored = Stored {
                object,
                object_length: self.length,
                offset,
                length: run.length,
                checksums: checksums(run.bytes.iter()),
            };
            offset += run.length;
            let extent = Extent {
                at: run.at,
                length: run.length,
                skip: 0,
                stored,
            };
            (run.chunk, extent)
        });
        extents.collect()
    }
}

/// The checksum of each grain.
pub(super) fn checksums<'a>(slices: impl Iterator<Item = &'a Bytes>) -> Vec<u32> {
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
    fn small_pieces_share_an_object() {
        let packs = packed(vec![piece(0, 10), piece(10, 5), piece(BLOCK_SIZE * 3, 7)]);
        assert_eq!(packs.len(), 1);
        let extents = packs[0].extents(ID);
        let places = extents
            .iter()
            .map(|(chunk, extent)| (*chunk, extent.at, extent.length, extent.stored.offset));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 0, 15, 0), (3, 0, 7, 15)]);
        assert_eq!(packs[0].payload().len(), 22);
    }

    #[test]
    fn what_is_larger_than_a_block_is_cut_at_the_ends_of_chunks() {
        let half = BLOCK_SIZE / 2;
        let packs = packed(vec![piece(half, BLOCK_SIZE as usize)]);
        let lengths: Vec<_> = packs.iter().map(|pack| pack.length).collect();
        assert_eq!(lengths, [BLOCK_SIZE as u32], "both halves fit one object");
        let packs = packed(vec![piece(half, 2 * BLOCK_SIZE as usize)]);
        let lengths: Vec<_> = packs.iter().map(|pack| u64::from(pack.length)).collect();
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
