//! Blocks: what is cached, checked and missed as one.
//!
//! A block is 128 KiB: what the kernel reads ahead at once, so that random reads of that size can be
//! cached; small enough that a read of one page does not check a mebibyte, large enough that the
//! table of a 1 TiB object is 64 MiB.

use std::ops::Range;

use penstock_base::{Checksum, ChecksumKind, KIB, Summing};

/// Bytes in a block; the last one of an object may be shorter.
pub(crate) const BLOCK: u64 = 128 * KIB;

/// Bytes in a state as it lies in the index.
pub(super) const STATE_SIZE: u64 = 8;

/// What the upper half of a state says when the block is there.
const PRESENT: u32 = 0x5052_4553;

/// What an index says about one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    /// The data file has it, and it should have this CRC-32C.
    Present(u32),
}

impl State {
    pub(super) fn encode(self) -> [u8; STATE_SIZE as usize] {
        match self {
            Self::Absent => [0; STATE_SIZE as usize],
            Self::Present(sum) => (u64::from(PRESENT) << 32 | u64::from(sum)).to_le_bytes(),
        }
    }

    /// Anything but what [`State::encode`] makes of a present block is absent.
    pub(super) fn decode(bytes: [u8; STATE_SIZE as usize]) -> Self {
        let number = u64::from_le_bytes(bytes);
        if number >> 32 == u64::from(PRESENT) {
            Self::Present(number as u32)
        } else {
            Self::Absent
        }
    }
}

/// The CRC-32C of `bytes`.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    taken(&mut summing)
}

/// The CRC-32C that was made.
pub(super) fn taken(summing: &mut Summing) -> u32 {
    let Checksum::Crc32c(sum) = summing.take() else {
        return 0;
    };
    sum
}

/// The bytes of block `index` of an object of `size` bytes.
pub(super) fn range_of(index: u64, size: u64) -> Range<u64> {
    let start = index * BLOCK;
    start..size.min(start + BLOCK)
}

/// The blocks that have bytes of `range`.
pub(super) fn touched(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

/// The part of `range` that consists of whole blocks of an object of `size` bytes.
pub(super) fn whole(range: &Range<u64>, size: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(BLOCK);
    let end = if range.end >= size {
        size
    } else {
        range.end / BLOCK * BLOCK
    };
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_as_present_is() {
        for state in [State::Absent, State::Present(0), State::Present(u32::MAX)] {
            assert_eq!(State::decode(state.encode()), state);
        }
        assert_eq!(State::decode([0xff; 8]), State::Absent);
    }

    #[test]
    fn whole_blocks_end_with_the_object() {
        let size = 2 * BLOCK + 5;
        assert_eq!(whole(&(0..size), size), 0..size);
        assert_eq!(whole(&(1..size), size), BLOCK..size);
        assert_eq!(whole(&(0..size - 1), size), 0..2 * BLOCK);
        assert!(whole(&(1..BLOCK), size).is_empty());
        assert_eq!(range_of(2, size), 2 * BLOCK..size);
        assert_eq!(touched(&(1..BLOCK + 1)), 0..2);
    }
}
