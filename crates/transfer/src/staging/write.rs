//! Writing a staged file, cutting it, and reading what its staging file has.

use std::ops::Range;

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, FsResult, Payload};

use crate::{
    ObjectVersion,
    staging::{
        content::Content,
        disk::disk_failure,
        extents::{Held, Piece},
        file::{Engagement, StagedFile},
        journal::Record,
        space::Payment,
    },
};

/// As many zeros as a buffer has bytes.
pub(super) static ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];

/// A part of what a read of a staged file is answered with.
#[derive(Debug)]
pub enum Part {
    /// These bytes.
    Here(Bytes),
    /// This range of the base version.
    InStore(Range<u64>),
}

/// Where the bytes of a range are, at one moment: what is in the store is there of `base`.
#[derive(Debug)]
pub struct HeldRange {
    /// The parts of the range in order, up to the end of the file.
    pub pieces: Vec<Piece>,
    /// The version that has what is clean.
    pub base: Option<ObjectVersion>,
}

impl HeldRange {
    /// Whether only the store has some of it.
    pub fn lacks(&self) -> bool {
        self.pieces.iter().any(|piece| piece.held.is_none())
    }

    /// Whether the staging file has some of it.
    pub fn is_on_disk(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| piece.held.is_some_and(Held::is_backed))
    }

    /// The parts of it where nothing is here.
    pub fn in_store(self) -> Vec<Part> {
        let pieces = self.pieces.into_iter();
        pieces.map(|piece| Part::InStore(piece.range)).collect()
    }
}

/// Adds `length` zeros.
pub fn push_zeros(payload: &mut Payload, mut length: u64) {
    while length > 0 {
        let count = length.min(BLOCK_SIZE as u64) as usize;
        payload.push(Bytes::from_static(&ZEROS[..count]));
        length -= count as u64;
    }
}

impl StagedFile {
    /// Where the bytes of `range` are. Fails with `Stale` if the file is not engaged.
    pub fn held(&self, range: Range<u64>) -> FsResult<HeldRange> {
        self.look(|content| HeldRange {
            pieces: content.pieces(range),
            base: content.base().version().cloned(),
        })
    }

    /// Reads `pieces` as far as they are here, into `buffer` where the disk has them. The caller holds the
    /// change lock since it looked where they are. Blocks if the staging file has some of them.
    pub fn read_here(&self, pieces: Vec<Piece>, buffer: Buffer) -> FsResult<Vec<Part>> {
        let (mut writer, view) = buffer.share();
        let disk = self.disk_if_any();
        let mut parts = Vec::new();
        for Piece { range, held } in pieces {
            let length = (range.end - range.start) as usize;
            parts.push(match (held, &disk) {
                (None, _) => Part::InStore(range),
                (Some(held), Some(disk)) if held.is_backed() => {
                    let start = writer.filled();
                    let read = disk.read(&mut writer, range.start, length);
                    read.map_err(|error| disk_failure(&error))?;
                    Part::Here(view.slice(start..start + length))
                }
                _ => Part::Here(Bytes::from_static(&ZEROS[..length])),
            });
        }
        Ok(parts)
    }

    /// Writes `bytes` into the staging file at `offset`, which was found in `engagement`, and gives `payment`
    /// back. `then` sees the content with them. The caller holds the change lock. Blocks.
    pub fn write(
        &self,
        engagement: Engagement,
        offset: u64,
        bytes: &[u8],
        payment: Payment,
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let range = offset..offset + bytes.len() as u64;
        let written = self.try_write(engagement, range.clone(), bytes, then);
        // Given back when the content has been charged with what it really costs.
        drop(payment);
        if written.is_err()
            && let Some(state) = self.state().as_mut()
        {
            state.content.spoil(range);
            state.settle_payment();
        }
        written
    }

    fn try_write(
        &self,
        engagement: Engagement,
        range: Range<u64>,
        bytes: &[u8],
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        self.disk()?
            .write(bytes, range.start)
            .map_err(|error| disk_failure(&error))?;
        let record = Record::Dirty(range.clone());
        self.change_in(engagement, &record, |content| content.write(range), then)
    }

    /// Makes the file shorter, or longer by zeros. `then` sees the content. The caller has the file alone. Blocks.
    pub fn resize(&self, size: u64, then: impl FnOnce(&Content)) -> FsResult<()> {
        self.change(&Record::Size(size), |content| content.resize(size), then)?;
        if let Some(disk) = self.disk_if_any() {
            disk.cut(size);
        }
        Ok(())
    }

    /// Makes `range` of the file zero and gives the disk back what it occupies. `then` sees the content. The
    /// caller has the file alone. Blocks.
    pub fn zero(&self, range: Range<u64>, then: impl FnOnce(&Content)) -> FsResult<()> {
        let record = Record::Zero(range.clone());
        self.change(&record, |content| content.zero(range.clone()), then)?;
        if let Some(disk) = self.disk_if_any() {
            disk.punch(range);
        }
        Ok(())
    }
}
