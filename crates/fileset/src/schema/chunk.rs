//! Which bytes of a file lie where.
//!
//! A file is cut into chunks of [`BLOCK_SIZE`](super::BLOCK_SIZE) bytes. A chunk is a list of extents that do not
//! overlap, in order; what lies between them was never written and reads as zeros. An extent shows a part of a
//! [`Stored`] run of bytes: where they lie in which object, with a checksum of each [`GRAIN`] of them. Overwriting and
//! truncating cut what an extent shows, not the run: so its checksums stay true, and a read of a part of it fetches
//! and checks whole grains.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes};
use penstock_base::FsResult;

use super::{codec::take_version, damaged};
use crate::data::ObjectId;

const VERSION: u8 = 1;
/// Bytes that one checksum is of: as many as the kernel reads ahead of a reader at least, so that small reads from a
/// large block need not fetch the whole.
pub(crate) const GRAIN: u32 = 128 << 10;

/// A run of bytes in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) object: ObjectId,
    /// Bytes in the whole object.
    pub(crate) object_length: u32,
    /// Where it begins there.
    pub(crate) offset: u32,
    pub(crate) length: u32,
    /// CRC-32C of each grain, the last of which may be shorter.
    pub(crate) checksums: Vec<u32>,
}

/// A part of a chunk that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where in the chunk.
    pub(crate) at: u32,
    pub(crate) length: u32,
    /// Where in the run its bytes begin.
    pub(crate) skip: u32,
    pub(crate) stored: Stored,
}

impl Extent {
    fn end(&self) -> u32 {
        self.at + self.length
    }

    /// Its part in `range` of the chunk, if there is any.
    pub(crate) fn part(&self, range: &Range<u32>) -> Option<Self> {
        let (start, end) = (self.at.max(range.start), self.end().min(range.end));
        (start < end).then(|| Self {
            at: start,
            length: end - start,
            skip: self.skip + (start - self.at),
            stored: self.stored.clone(),
        })
    }
}

/// Bytes of an object that something refers to, more or less than before.
pub(crate) type UseChange = (ObjectId, i64);

/// What is written of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) extents: Vec<Extent>,
}

impl Chunk {
    /// Takes `range` out, and notes what is not referred to any more.
    pub(crate) fn clear(&mut self, range: &Range<u32>, changes: &mut Vec<UseChange>) {
        let mut kept = Vec::with_capacity(self.extents.len() + 1);
        for extent in self.extents.drain(..) {
            match extent.part(range) {
                None => kept.push(extent),
                Some(part) => {
                    changes.push((extent.stored.object, -i64::from(part.length)));
                    kept.extend(extent.part(&(0..range.start)));
                    kept.extend(extent.part(&(range.end..u32::MAX)));
                }
            }
        }
        self.extents = kept;
    }

    /// Puts extents in that do not overlap, over what was there, in one pass.
    pub(crate) fn insert(&mut self, mut new: Vec<Extent>, changes: &mut Vec<UseChange>) {
        new.sort_by_key(|extent| extent.at);
        let mut kept = Vec::with_capacity(self.extents.len() + new.len() + 1);
        let mut first = 0;
        for extent in self.extents.drain(..) {
            while new.get(first).is_some_and(|over| over.end() <= extent.at) {
                first += 1;
            }
            let mut at = 0;
            let over = new[first..].iter();
            for over in over.take_while(|over| over.at < extent.end()) {
                kept.extend(extent.part(&(at..over.at)));
                let hidden = extent.part(&(over.at..over.end()));
                changes.extend(hidden.map(|it| (it.stored.object, -i64::from(it.length))));
                at = over.end();
            }
            kept.extend(extent.part(&(at..u32::MAX)));
        }
        changes.extend(
            new.iter()
                .map(|it| (it.stored.object, i64::from(it.length))),
        );
        kept.extend(new);
        // Two sorted lists.
        kept.sort_by_key(|extent| extent.at);
        self.extents = kept;
    }

    /// Bytes that are written.
    pub(crate) fn allocated(&self) -> u64 {
        let lengths = self.extents.iter().map(|extent| u64::from(extent.length));
        lengths.sum()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + self.extents.len() * 64);
        bytes.put_u8(VERSION);
        for extent in &self.extents {
            let stored = &extent.stored;
            let shown = [extent.at, extent.length, extent.skip];
            let lies = [stored.object_length, stored.offset, stored.length];
            for number in shown.into_iter().chain(lies) {
                bytes.put_u32_le(number);
            }
            bytes.put_u64_le(stored.object.writer);
            bytes.put_u64_le(stored.object.number);
            stored
                .checksums
                .iter()
                .for_each(|sum| bytes.put_u32_le(*sum));
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "a chunk")?;
        let mut extents = Vec::new();
        while value.has_remaining() {
            let extent = decode_extent(&mut value);
            extents.push(extent.ok_or_else(|| damaged("a chunk"))?);
        }
        Ok(Self { extents })
    }
}

fn decode_extent(value: &mut &[u8]) -> Option<Extent> {
    let mut number = || value.try_get_u32_le().ok();
    let (at, extent_length, skip) = (number()?, number()?, number()?);
    let (object_length, offset, length) = (number()?, number()?, number()?);
    let object = ObjectId {
        writer: value.try_get_u64_le().ok()?,
        number: value.try_get_u64_le().ok()?,
    };
    let sums = 0..length.div_ceil(GRAIN);
    let checksums = sums.map(|_| value.try_get_u32_le().ok());
    Some(Extent {
        at,
        length: extent_length,
        skip,
        stored: Stored {
            object,
            object_length,
            offset,
            length,
            checksums: checksums.collect::<Option<_>>()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A run of which each byte of the file is known by its number.
    fn extent(range: &Range<u32>, number: u64) -> Extent {
        let length = range.end - range.start;
        Extent {
            at: range.start,
            length,
            skip: 0,
            stored: Stored {
                object: ObjectId { writer: 1, number },
                object_length: 7 + length,
                offset: 7,
                length,
                checksums: vec![number as u32; length.div_ceil(GRAIN) as usize],
            },
        }
    }

    /// What a reader would see at each place: which object, and which byte of it.
    fn shown(chunk: &Chunk) -> Vec<(u32, u64, u32)> {
        let bytes = chunk.extents.iter().flat_map(|extent| {
            let byte = |by| {
                (
                    extent.at + by,
                    extent.stored.object.number,
                    extent.skip + by,
                )
            };
            (0..extent.length).map(byte)
        });
        bytes.collect()
    }

    proptest! {
        #[test]
        fn what_was_written_last_is_shown(
            writes in prop::collection::vec((0u32..50, 1u32..20, prop::bool::ANY), 1..20)
        ) {
            let (mut chunk, mut changes) = (Chunk::default(), Vec::new());
            let mut model = std::collections::BTreeMap::new();
            for (number, (start, length, is_written)) in writes.into_iter().enumerate() {
                let (range, number) = (start..start + length, number as u64);
                if is_written {
                    chunk.insert(vec![extent(&range, number)], &mut changes);
                } else {
                    chunk.clear(&range, &mut changes);
                }
                for at in range {
                    match is_written {
                        true => model.insert(at, (number, at - start)),
                        false => model.remove(&at),
                    };
                }
            }
            let model: Vec<_> = model.into_iter().map(|(at, (number, byte))| (at, number, byte)).collect();
            prop_assert_eq!(shown(&chunk), model);
            let used: i64 = changes.iter().map(|(_, change)| change).sum();
            prop_assert_eq!(used as u64, chunk.allocated());
            prop_assert_eq!(Chunk::decode(&chunk.encode()).unwrap(), chunk);
        }
    }
}
