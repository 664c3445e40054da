//! Which bytes of a file lie where.
//!
//! A file is cut into chunks of [`BLOCK_SIZE`](super::BLOCK_SIZE) bytes. A chunk is a list of extents that do not
//! overlap, in order; what lies between them was never written and reads as zeros. An extent shows a part of a
//! [`Stored`] run of bytes: where they lie in which object, with a checksum of each [`GRAIN`] of them. Overwriting and
//! truncating cut what an extent shows, not the run: so its checksums stay true, and a read of a part of it fetches
//! and checks whole grains. A run may be compressed, grain by grain ([`Frames`]): what an extent shows, and checksums,
//! are of its plain bytes all the same.

use std::ops::{AddAssign, Neg, Range};

use bytes::{Buf, BufMut, Bytes};
use penstock_base::FsResult;

use super::{codec::take_version_of, compression::Frames, damaged};
use crate::data::ObjectId;

/// No run is compressed.
const PLAIN: u8 = 1;
/// Each run says whether it is.
const WITH_FRAMES: u8 = 2;
/// Extents of a chunk after which it is to be folded: a save writes them all anew, and a read takes a request for each.
pub(crate) const FOLD_AT: usize = 256;
/// The same after which a save waits until it is folded: as many as random writes of whole pages leave at most.
pub(crate) const FOLD_FIRST_AT: usize = 4 * FOLD_AT;
/// Extents of so many bytes stay as they are when a chunk is folded.
const WHOLE: u32 = 1 << 20;
/// Holes of fewer bytes are filled with zeros when a chunk is folded: other file systems have no shorter ones.
const HOLE_MIN: u32 = 4 << 10;
/// Bytes of an extent without its checksums.
const EXTENT_LENGTH: usize = 40;
/// Bytes that say how it is compressed, without the lengths of its frames.
const CODEC_LENGTH: usize = 1;
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
    /// Its plain bytes.
    pub(crate) length: u32,
    /// CRC-32C of each grain's plain bytes; the last grain may be shorter.
    pub(crate) checksums: Vec<u32>,
    /// How the grains lie in the object, if they are compressed.
    pub(crate) frames: Option<Frames>,
}

impl Stored {
    /// Bytes that it takes in the object.
    pub(crate) fn stored_length(&self) -> u32 {
        match &self.frames {
            Some(frames) => frames.lengths.iter().sum(),
            None => self.length,
        }
    }

    /// Plain bytes of a grain; 0 behind the run.
    pub(crate) fn grain_length(&self, index: usize) -> u32 {
        let before = (index as u64).saturating_mul(u64::from(GRAIN));
        u64::from(self.length)
            .saturating_sub(before)
            .min(u64::from(GRAIN)) as u32
    }

    /// Where grains lie in the object. `None` if no object reaches so far.
    pub(crate) fn lies(&self, grains: &Range<usize>) -> Option<Range<u32>> {
        let before = |index: usize| -> u32 {
            match &self.frames {
                Some(frames) => frames.lengths.iter().take(index).sum(),
                None => (index as u64 * u64::from(GRAIN)).min(u64::from(self.length)) as u32,
            }
        };
        let place = |index| self.offset.checked_add(before(index));
        Some(place(grains.start)?..place(grains.end)?)
    }
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
    pub(crate) fn end(&self) -> u32 {
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

    /// Whether `next` lies behind it and shows the bytes behind its own.
    fn goes_on_in(&self, next: &Self) -> bool {
        self.end() == next.at && self.skip + self.length == next.skip && self.stored == next.stored
    }

    /// Bytes of it in the value of a chunk, at most.
    pub(crate) fn encoded_length(&self) -> usize {
        let frames = self.stored.frames.as_ref();
        let frames = frames.map_or(0, |frames| frames.lengths.len());
        EXTENT_LENGTH + CODEC_LENGTH + 4 * (self.stored.checksums.len() + frames)
    }

    /// What it refers to. The parts into which it is cut come to as much as it does.
    pub(crate) fn share(&self) -> Share {
        let (plain, stored) = (self.stored.length, self.stored.stored_length());
        let spared = u64::from(plain.saturating_sub(stored));
        let before = |place: u64| {
            let product = place.min(u64::from(plain)) * spared;
            product.checked_div(u64::from(plain)).unwrap_or(0)
        };
        let start = u64::from(self.skip);
        Share {
            bytes: i64::from(self.length),
            spared: (before(start + u64::from(self.length)) - before(start)).cast_signed(),
        }
    }
}

/// Bytes of files that extents refer to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) bytes: i64,
    /// How many of them their objects lack since they are compressed: of a run in proportion.
    pub(crate) spared: i64,
}

impl AddAssign for Share {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.spared += more.spared;
    }
}

impl Neg for Share {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            bytes: -self.bytes,
            spared: -self.spared,
        }
    }
}

/// What refers to an object, more or less than before.
pub(crate) type UseChange = (ObjectId, Share);

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
                    changes.push((part.stored.object, -part.share()));
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
                changes.extend(hidden.map(|it| (it.stored.object, -it.share())));
                at = over.end();
            }
            kept.extend(extent.part(&(at..u32::MAX)));
        }
        changes.extend(new.iter().map(|it| (it.stored.object, it.share())));
        kept.extend(new);
        // Two sorted lists.
        kept.sort_by_key(|extent| extent.at);
        // What was copied piece by piece is as short as what was copied at once.
        kept.dedup_by(|next, before| {
            let goes_on = before.goes_on_in(next);
            if goes_on {
                before.length += next.length;
            }
            goes_on
        });
        self.extents = kept;
    }

    /// Bytes that are written.
    pub(crate) fn allocated(&self) -> u64 {
        let lengths = self.extents.iter().map(|extent| u64::from(extent.length));
        lengths.sum()
    }

    /// Whether it is to be folded, and folding leaves much less.
    pub(crate) fn is_crowded(&self) -> bool {
        let spared = || self.groups().map(|(_, count)| count - 1).sum::<usize>();
        self.extents.len() > FOLD_AT && spared() >= FOLD_AT / 2
    }

    /// Whether a chunk of this value may have more than [`FOLD_FIRST_AT`] extents.
    pub(crate) fn may_be_overcrowded(value: &[u8]) -> bool {
        value.len() > FOLD_FIRST_AT * EXTENT_LENGTH
    }

    /// The ranges that folding makes one run each: of extents that are not long, between which there are short holes
    /// at most.
    pub(crate) fn foldable(&self) -> Vec<Range<u32>> {
        let groups = self.groups().filter(|(_, count)| *count > 1);
        groups.map(|(range, _)| range).collect()
    }

    /// Short extents that lie together, with how many these are.
    fn groups(&self) -> impl Iterator<Item = (Range<u32>, usize)> {
        let together = |one: &Extent, other: &Extent| {
            one.length.max(other.length) < WHOLE && other.at - one.end() < HOLE_MIN
        };
        let groups = self.extents.chunk_by(together);
        groups.filter_map(|group| {
            let (first, last) = group.first().zip(group.last())?;
            Some((first.at..last.end(), group.len()))
        })
    }

    /// Parts of `range` that are written here and in `other`, and where the same bytes are shown. Holes of both count as
    /// the same where they lie between such.
    pub(crate) fn agreeing(&self, other: &Self, range: &Range<u32>) -> Vec<Range<u32>> {
        let mut parts: Vec<Range<u32>> = Vec::new();
        let (mut at, mut goes_on) = (range.start, false);
        while at < range.end {
            let ((one, end), (another, other_end)) = (self.place(at), other.place(at));
            let end = end.min(other_end).min(range.end);
            match parts.last_mut().filter(|_| goes_on) {
                _ if one != another => goes_on = false,
                _ if one.is_none() => {}
                Some(last) => last.end = end,
                None => {
                    parts.push(at..end);
                    goes_on = true;
                }
            }
            at = end;
        }
        parts
    }

    /// Which byte of which run, by where that begins in its object, is shown at a place, if any, and how far it goes on like
    /// that.
    fn place(&self, at: u32) -> (Option<(ObjectId, u32, u32)>, u32) {
        let index = self.extents.partition_point(|extent| extent.end() <= at);
        match self.extents.get(index) {
            None => (None, u32::MAX),
            Some(extent) if at < extent.at => (None, extent.at),
            Some(extent) => {
                let stored = &extent.stored;
                let byte = extent.skip + (at - extent.at);
                (Some((stored.object, stored.offset, byte)), extent.end())
            }
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + self.extents.len() * 64);
        let mut runs = self.extents.iter().map(|extent| &extent.stored);
        let has_frames = runs.any(|stored| stored.frames.is_some());
        bytes.put_u8(if has_frames { WITH_FRAMES } else { PLAIN });
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
            if has_frames {
                Frames::put(stored.frames.as_ref(), &mut bytes);
            }
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        let version = take_version_of(&mut value, PLAIN..=WITH_FRAMES, "a chunk")?;
        let mut extents = Vec::new();
        while value.has_remaining() {
            let extent = decode_extent(&mut value, version);
            extents.push(extent.ok_or_else(|| damaged("a chunk"))?);
        }
        Ok(Self { extents })
    }
}

fn decode_extent(value: &mut &[u8], version: u8) -> Option<Extent> {
    let mut number = || value.try_get_u32_le().ok();
    let (at, extent_length, skip) = (number()?, number()?, number()?);
    let (object_length, offset, length) = (number()?, number()?, number()?);
    let object = ObjectId {
        writer: value.try_get_u64_le().ok()?,
        number: value.try_get_u64_le().ok()?,
    };
    let sums = 0..length.div_ceil(GRAIN);
    let checksums = sums.map(|_| value.try_get_u32_le().ok());
    let mut stored = Stored {
        object,
        object_length,
        offset,
        length,
        checksums: checksums.collect::<Option<_>>()?,
        frames: None,
    };
    if version == WITH_FRAMES {
        let grains = (0..stored.checksums.len()).map(|index| stored.grain_length(index));
        stored.frames = Frames::take(value, grains)?;
    }
    Some(Extent {
        at,
        length: extent_length,
        skip,
        stored,
    })
}

#[cfg(test)]
mod tests {
    use penstock_transfer::Codec;
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
                frames: None,
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

    fn chunk(extents: &[(Range<u32>, u64)]) -> Chunk {
        let extents = extents.iter();
        let extents = extents.map(|(range, number)| extent(range, *number));
        Chunk {
            extents: extents.collect(),
        }
    }

    #[test]
    fn short_extents_that_lie_together_are_folded_and_long_ones_stay() {
        let long = WHOLE;
        let chunk = chunk(&[
            (0..10, 1),
            (10..20, 2),
            (20..20 + long, 3),
            (20 + long..30 + long, 4),
            (30 + long + HOLE_MIN..2 * long, 5),
            (2 * long + HOLE_MIN - 1..3 * long, 6),
        ]);
        let behind = 30 + long + HOLE_MIN;
        assert_eq!(chunk.foldable(), [0..20, behind..3 * long]);
        assert!(!chunk.is_crowded());
    }

    #[test]
    fn many_extents_that_cannot_be_joined_are_left_alone() {
        let apart = |step: u32| {
            let extents = (0..500).map(|at| (at * step..at * step + 1, 1));
            chunk(&extents.collect::<Vec<_>>())
        };
        assert!(apart(100).is_crowded());
        assert!(!apart(HOLE_MIN + 1).is_crowded());
    }

    /// Places in compressed runs of one object are their own.
    #[test]
    fn runs_that_lie_one_behind_the_other_do_not_agree() {
        let at = |offset: u32| {
            let mut extent = extent(&(0..100), 1);
            extent.stored.offset = offset;
            Chunk {
                extents: vec![extent],
            }
        };
        let mut cut = at(0);
        cut.extents[0].skip = 50;
        assert_eq!(cut.agreeing(&at(50), &(0..100)), []);
    }

    #[test]
    fn what_changed_since_does_not_agree_and_what_is_cut_is_not_filled() {
        let before = chunk(&[(0..10, 1), (10..20, 2), (25..40, 3)]);
        let mut now = before.clone();
        now.insert(vec![extent(&(5..12), 4)], &mut Vec::new());
        assert_eq!(now.agreeing(&before, &(0..40)), [0..5, 12..40]);
        now.clear(&(18..40), &mut Vec::new());
        assert_eq!(now.agreeing(&before, &(0..40)), [0..5, 12..18]);
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
            let used: i64 = changes.iter().map(|(_, change)| change.bytes).sum();
            prop_assert_eq!(used as u64, chunk.allocated());
            prop_assert_eq!(Chunk::decode(&chunk.encode()).unwrap(), chunk);
        }

        #[test]
        fn a_chunk_is_what_it_was_and_no_part_of_it_is_another(
            runs in prop::collection::vec(run(), 0..6),
        ) {
            let mut chunk = Chunk::default();
            for (number, run) in runs.into_iter().enumerate() {
                let at = number as u32 * 3 * GRAIN;
                chunk.extents.push(Extent { at, ..run });
            }
            let value = chunk.encode();
            let has_frames = chunk.extents.iter().any(|extent| extent.stored.frames.is_some());
            prop_assert_eq!(value[0], if has_frames { 2 } else { 1 });
            prop_assert_eq!(&Chunk::decode(&value).unwrap(), &chunk);
            for end in 0..value.len() {
                prop_assert!(Chunk::decode(&value[..end]).map_or(true, |other| other != chunk));
            }
        }

        #[test]
        fn whatever_is_decoded_fits_itself(
            version in 1u8..=2,
            value in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..200),
        ) {
            let value = [&[version], &value[..]].concat();
            if let Ok(chunk) = Chunk::decode(&value) {
                for Extent { stored, .. } in &chunk.extents {
                    prop_assert!(stored.stored_length() <= stored.length);
                }
            }
        }

        #[test]
        fn what_is_cut_spares_as_much_as_the_whole(
            whole in run(),
            cuts in prop::collection::vec(0u32..3 * GRAIN, 0..8),
        ) {
            let (mut chunk, mut changes) = (Chunk::default(), Vec::new());
            chunk.insert(vec![whole], &mut changes);
            for start in cuts {
                chunk.clear(&(start..start + GRAIN / 3), &mut changes);
            }
            let (mut counted, mut there) = (Share::default(), Share::default());
            changes.iter().for_each(|(_, change)| counted += *change);
            chunk.extents.iter().for_each(|extent| there += extent.share());
            prop_assert_eq!(counted, there);
            chunk.clear(&(0..u32::MAX), &mut changes);
            let mut counted = Share::default();
            changes.iter().for_each(|(_, change)| counted += *change);
            prop_assert_eq!(counted, Share::default());
        }
    }

    /// An extent of a run that may be compressed.
    fn run() -> impl Strategy<Value = Extent> {
        let codec = prop::option::of(prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)]);
        let parts = (
            1..3 * GRAIN,
            any::<u32>(),
            codec,
            [any::<u32>(); 3],
            0u32..1 << 30,
        );
        parts.prop_map(|(length, cut, codec, sums, offset)| {
            let mut extent = extent(&(0..length), 5);
            let stored = &mut extent.stored;
            stored.offset = offset;
            stored
                .checksums
                .copy_from_slice(&sums[..length.div_ceil(GRAIN) as usize]);
            let lengths = (0..stored.checksums.len())
                .map(|index| 1 + sums[index] % stored.grain_length(index));
            let lengths = lengths.collect();
            stored.frames = codec.map(|codec| Frames { codec, lengths });
            extent.skip = cut % length;
            extent.length -= extent.skip;
            extent
        })
    }

    #[test]
    fn frames_that_cannot_be_are_refused() {
        let whole = Extent {
            stored: Stored {
                frames: Some(Frames {
                    codec: Codec::Lz4,
                    lengths: vec![GRAIN, 1],
                }),
                ..extent(&(0..GRAIN + 5), 1).stored
            },
            ..extent(&(0..GRAIN + 5), 1)
        };
        let chunk = Chunk {
            extents: vec![whole],
        };
        let value = chunk.encode().to_vec();
        assert_eq!(Chunk::decode(&value), Ok(chunk));
        let changed = |at: usize, byte: u8| {
            let mut changed = value.clone();
            changed[at] = byte;
            Chunk::decode(&changed)
        };
        let end = value.len();
        // The codec, no bytes at all, more bytes than the grain has, a kind of value that is not known.
        assert!(changed(end - 9, 3).is_err());
        assert!(changed(end - 4, 0).is_err());
        assert!(changed(end - 4, 6).is_err());
        assert!(changed(end - 8, 1).is_err());
        assert!(changed(0, 3).is_err());
    }
}
