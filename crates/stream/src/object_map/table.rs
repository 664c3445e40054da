//! The first blocks of the objects on one disk.

use std::ops::Range;

use super::TABLE_ENTRY;
use crate::{SnapshotError, checked_file::CheckedFile};

/// Bytes of an entry: the first block and the number of the record.
pub(super) const ENTRY: u64 = 8;

/// Where the table of a disk lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) start: u64,
    pub(super) entries: u64,
    /// Blocks of the disk up to the last one that is occupied.
    pub(super) blocks: u64,
}

impl Table {
    /// The tables that `range` of the file tells of.
    pub(super) fn read_all(
        file: &CheckedFile,
        range: Range<u64>,
    ) -> Result<Vec<Self>, SnapshotError> {
        let length = range.end.checked_sub(range.start);
        let disks = length
            .filter(|length| length.is_multiple_of(TABLE_ENTRY))
            .map(|length| length / TABLE_ENTRY)
            .filter(|disks| *disks <= u64::from(u16::MAX))
            .ok_or_else(|| file.damaged("the list of disks"))?;
        (0..disks)
            .map(|disk| Self::read(file, range.start + disk * TABLE_ENTRY))
            .collect()
    }

    fn read(file: &CheckedFile, at: u64) -> Result<Self, SnapshotError> {
        let table = Self {
            start: file.number(at)?,
            entries: file.number(at + 8)?,
            blocks: file.number(at + 16)?,
        };
        let length = table.entries.checked_mul(ENTRY);
        let end = length.and_then(|length| length.checked_add(table.start));
        match end {
            Some(end) if end <= file.length() => Ok(table),
            _ => Err(file.damaged("the place of a table")),
        }
    }

    /// The first block and the record number of an entry.
    pub(super) fn entry(
        &self,
        file: &CheckedFile,
        index: u64,
    ) -> Result<(u64, u32), SnapshotError> {
        let both = file.number(self.start + index * ENTRY)?;
        Ok((both & u64::from(u32::MAX), (both >> 32) as u32))
    }

    /// The first entry that begins behind `block`.
    pub(super) fn first_after(&self, file: &CheckedFile, block: u64) -> Result<u64, SnapshotError> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(file, middle)?.0 <= block {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// An entry as it is written.
pub(super) fn encode_entry(block: u32, number: u32) -> [u8; ENTRY as usize] {
    (u64::from(block) | u64::from(number) << 32).to_le_bytes()
}
