//! Maps of files with holes.
//!
//! GNU tar wrote them in four ways: in blocks behind the header (`S`), as pairs of records (0.0), as one record
//! (0.1), and in front of the data (1.0), which is what we write where records are allowed.

use super::{
    BLOCK,
    header::{Block, Field},
    pax,
};

/// Where data lies: offsets and lengths.
pub(super) type Map = Vec<(u64, u64)>;

/// Where the map lies in a header, and how many ranges it has there.
pub(super) const IN_HEADER: (usize, usize) = (386, 4);
/// The same in a block that extends it, and the byte that says whether another one follows.
pub(super) const IN_EXTENSION: (usize, usize) = (0, 21);
pub(super) const EXTENSION_GOES_ON: usize = 504;

/// Ranges that a map may have, the mark of an end among them.
pub(in crate::archive) const RANGES_MAX: usize = 1 << 20;

/// The ranges of a part of a map. None if they are no numbers.
pub(super) fn from_block(
    block: &Block,
    (begin, count): (usize, usize),
    map: &mut Map,
) -> Option<()> {
    for index in 0..count {
        let (offset, length) = Field::of_map(begin, index);
        if offset.of(block)[0] == 0 {
            break;
        }
        let range = (offset.number(block)?, length.number(block)?);
        map.push((u64::try_from(range.0).ok()?, u64::try_from(range.1).ok()?));
    }
    (map.len() <= RANGES_MAX).then_some(())
}

/// The map in a record of the form 0.1.
pub(super) fn from_record(text: &[u8]) -> Option<Map> {
    let numbers: Option<Vec<u64>> = text.split(|byte| *byte == b',').map(pax::number).collect();
    let numbers = numbers?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    let is_whole = rest.is_empty() && pairs.len() <= RANGES_MAX;
    is_whole.then(|| {
        pairs
            .iter()
            .map(|[offset, length]| (*offset, *length))
            .collect()
    })
}

/// Whether the map is one: ranges in order that end where the file does, with as much data as there is. Ranges
/// without data, which mark an end, go.
pub(super) fn check(map: &mut Map, size: u64, stored: u64) -> Option<()> {
    let mut end = 0;
    let mut data: u64 = 0;
    for (offset, length) in map.iter() {
        if *offset < end {
            return None;
        }
        end = offset.checked_add(*length)?;
        data = data.checked_add(*length)?;
    }
    map.retain(|(_, length)| *length > 0);
    (end <= size && data == stored).then_some(())
}

/// The map as it stands in front of data, to whole blocks.
pub(super) fn to_text(map: &Map, size: u64) -> Vec<u8> {
    let ranges = with_end(map, size);
    let mut text = format!("{}\n", ranges.len());
    for (offset, length) in ranges {
        text += &format!("{offset}\n{length}\n");
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// The map with a range of nothing where a file ends with a hole.
pub(super) fn with_end(map: &Map, size: u64) -> Map {
    let mut ranges = map.clone();
    let end = map.last().map_or(0, |(offset, length)| offset + length);
    if end < size || map.is_empty() {
        ranges.push((size, 0));
    }
    ranges
}

/// Reads numbers, each on its line, from blocks that come one by one.
#[derive(Debug, Default)]
pub(super) struct TextMap {
    numbers: Vec<u64>,
    digits: Vec<u8>,
}

impl TextMap {
    /// Takes a block. Returns the map when it is whole; fails without one.
    pub(super) fn take(&mut self, block: &Block) -> Result<Option<Map>, ()> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > 20 {
                    return Err(());
                }
                continue;
            }
            let number = pax::number(&self.digits).ok_or(())?;
            self.digits.clear();
            self.numbers.push(number);
            if self.numbers[0] > RANGES_MAX as u64 {
                return Err(());
            }
            if self.numbers.len() as u64 == 1 + 2 * self.numbers[0] {
                let (pairs, _) = self.numbers[1..].as_chunks::<2>();
                return Ok(Some(
                    pairs
                        .iter()
                        .map(|[offset, length]| (*offset, *length))
                        .collect(),
                ));
            }
        }
        Ok(None)
    }
}
