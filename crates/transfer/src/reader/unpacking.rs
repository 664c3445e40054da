//! Makes grains of their frames as they arrive, where they are compressed.

use std::{mem::MaybeUninit, ops::Range};

use super::extent::{Frames, Grains};
use crate::codec::Decoder;

/// The frames of some grains on their way, from the beginning of one.
#[derive(Debug)]
pub(super) struct Unpacking {
    frames: Frames,
    /// Bytes of each grain from the one that is arriving on.
    plain_lengths: std::vec::IntoIter<u32>,
    /// The grain that is arriving.
    index: usize,
    decoder: Decoder,
    /// What arrived of its frame.
    frame: Vec<u8>,
    plain: Vec<u8>,
    arrived: u64,
}

impl Unpacking {
    /// For the frames of `received`, whole grains by their places. `None` where grains are not compressed.
    pub(super) fn new(grains: &Grains, received: &Range<u64>) -> Option<Self> {
        let frames = grains.frames.clone()?;
        let decoder = Decoder::new(frames.codec);
        let indices = grains.indices(received);
        let plain_lengths = indices.clone().map(|index| grains.length(index) as u32);
        let plain_lengths: Vec<_> = plain_lengths.collect();
        Some(Self {
            frames,
            plain_lengths: plain_lengths.into_iter(),
            index: indices.start as usize,
            decoder,
            frame: Vec::new(),
            plain: Vec::new(),
            arrived: 0,
        })
    }

    /// Bytes that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// What the present frame lacks; empty behind the last one.
    pub(super) fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let length = self.frame_length();
        let missing = length.saturating_sub(self.frame.len());
        self.frame.reserve_exact(missing);
        &mut self.frame.spare_capacity_mut()[..missing]
    }

    fn frame_length(&self) -> usize {
        let is_wanted = !self.plain_lengths.as_slice().is_empty();
        let length = self.frames.lengths.get(self.index).filter(|_| is_wanted);
        length.map_or(0, |length| *length as usize)
    }

    /// The first bytes of what the frame lacked are there. Returns the grain if that was all of it, and an error if the
    /// frame is none of this grain.
    ///
    /// # Safety
    ///
    /// The first `count` bytes of [`Unpacking::unfilled`] must be initialised.
    #[allow(unsafe_code)]
    pub(super) unsafe fn advance(&mut self, count: usize) -> Result<Option<&[u8]>, Damaged> {
        // SAFETY: the caller initialised `count` bytes of the free part.
        unsafe { self.frame.set_len(self.frame.len() + count) };
        self.arrived += count as u64;
        match self.frame.len() == self.frame_length() {
            true => self.open().map(Some),
            false => Ok(None),
        }
    }

    fn open(&mut self) -> Result<&[u8], Damaged> {
        let length = self.plain_lengths.next().ok_or(Damaged)? as usize;
        self.index += 1;
        self.plain.resize(length, 0);
        if self.frame.len() == length {
            std::mem::swap(&mut self.plain, &mut self.frame);
        } else if !self.decoder.decode(&self.frame, &mut self.plain) {
            return Err(Damaged);
        }
        self.frame.clear();
        Ok(&self.plain)
    }
}

/// A frame that does not become its grain.
#[derive(Debug)]
pub(super) struct Damaged;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Codec, Encoder};

    const SIZE: usize = 50;

    proptest! {
        #[test]
        fn grains_come_out_whole_whatever_pieces_their_frames_came_in(
            bytes in prop::collection::vec(0u8..3, 1..400),
            noise in prop::collection::vec(any::<bool>(), 8),
            first in 0usize..8,
            piece in 1usize..70,
        ) {
            let mut bytes = bytes;
            for (at, byte) in bytes.iter_mut().enumerate() {
                if noise[at / SIZE] {
                    *byte = (at as u32).wrapping_mul(0x9E37_79B9).to_be_bytes()[0];
                }
            }
            let mut encoder = Encoder::lz4();
            let frames = bytes.chunks(SIZE).map(|grain| {
                encoder.encode(grain).unwrap_or(grain).to_vec()
            });
            let frames: Vec<_> = frames.collect();
            let grains = Grains {
                run: 7..7 + bytes.len() as u64,
                size: SIZE as u64,
                checksums: vec![0; frames.len()].into(),
                frames: Some(Frames {
                    codec: Codec::Lz4,
                    lengths: frames.iter().map(|frame| frame.len() as u32).collect(),
                }),
            };
            let first = first.min(frames.len() - 1);
            let start = 7 + (first * SIZE) as u64;
            let received = start..grains.run.end;
            let stored = grains.stored(&received);
            let all = frames.concat();
            let mut arriving = &all[stored.start as usize - 7..stored.end as usize - 7];
            let mut unpacking = Unpacking::new(&grains, &received).expect("compressed");
            let mut plain = Vec::new();
            while !arriving.is_empty() {
                let room = unpacking.unfilled();
                let count = room.len().min(piece).min(arriving.len());
                prop_assert!(count > 0);
                room[..count].write_copy_of_slice(&arriving[..count]);
                arriving = &arriving[count..];
                #[allow(unsafe_code)]
                // SAFETY: that many were just written.
                let grain = unsafe { unpacking.advance(count) };
                plain.extend_from_slice(grain.expect("sound").unwrap_or_default());
            }
            prop_assert!(unpacking.unfilled().is_empty());
            prop_assert_eq!(unpacking.arrived(), stored.end - stored.start);
            prop_assert_eq!(&plain[..], &bytes[first * SIZE..]);
        }
    }

    /// Feeds what arrived of the frames of all grains, some at a time. Returns the lengths of the grains that came of it.
    fn unpacked(unpacking: &mut Unpacking, mut arriving: &[u8], piece: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        loop {
            let room = unpacking.unfilled();
            let count = room.len().min(piece).min(arriving.len());
            if count == 0 {
                return lengths;
            }
            room[..count].write_copy_of_slice(&arriving[..count]);
            arriving = &arriving[count..];
            #[allow(unsafe_code)]
            // SAFETY: that many were just written.
            match unsafe { unpacking.advance(count) } {
                Ok(None) => {}
                Ok(Some(grain)) => lengths.push(grain.len()),
                Err(Damaged) => return lengths,
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_arrives_for_frames_makes_grains_of_their_lengths_in_the_memory_of_two(
            length in 1usize..400,
            codec in prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)],
            seed in any::<u8>(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..6),
            wrong in prop::collection::vec((any::<prop::sample::Index>(), 1usize..=SIZE), 0..3),
            piece in 1usize..70,
        ) {
            let bytes: Vec<_> = (0..length).map(|at| seed.wrapping_add((at / 9) as u8)).collect();
            let mut encoder = match codec {
                Codec::Lz4 => Encoder::lz4(),
                Codec::Zstd => Encoder::zstd(1).expect("memory"),
            };
            let frames = bytes.chunks(SIZE).map(|grain| encoder.encode(grain).unwrap_or(grain).to_vec());
            let frames: Vec<_> = frames.collect();
            let plain: Vec<_> = bytes.chunks(SIZE).map(<[u8]>::len).collect();
            let mut lengths: Vec<_> = frames.iter().map(|frame| frame.len() as u32).collect();
            // As long as their grains at most, which whoever reads them from the metadata has seen to.
            for (index, length) in wrong {
                let index = index.index(lengths.len());
                lengths[index] = length.min(plain[index]) as u32;
            }
            let mut arriving = frames.concat();
            for (index, bits) in damage {
                let index = index.index(arriving.len());
                arriving[index] ^= bits;
            }
            let grains = Grains {
                run: 0..length as u64,
                size: SIZE as u64,
                checksums: vec![0; plain.len()].into(),
                frames: Some(Frames { codec, lengths: lengths.into() }),
            };
            let mut unpacking = Unpacking::new(&grains, &grains.run).expect("compressed");
            let came = unpacked(&mut unpacking, &arriving, piece);
            prop_assert_eq!(&came[..], &plain[..came.len()]);
            prop_assert!(unpacking.frame.capacity() <= SIZE && unpacking.plain.capacity() <= SIZE);
        }
    }
}
