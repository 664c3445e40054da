//! Compression of grains: each is a frame of its own, so that one is read without the others.
//!
//! A frame says nothing of its length or codec: whoever stores it keeps both beside its checksum. So whatever a frame
//! says, it becomes as many bytes as it was made of, or none.

use zstd::bulk::{Compressor, Decompressor};

/// A grain is stored as it is unless its frame is smaller by one part in so many.
const WORTH: usize = 8;
/// Bytes that a decoder of zstd needs beside what it reads and writes.
const ZSTD_DECODER: u64 = 192 << 10;
/// Levels of zstd that are of use for grains: what is beyond needs windows that no grain fills.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<u8> = 1..=19;

/// How a frame is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// A block of LZ4, without a head.
    Lz4,
    /// A frame of Zstandard.
    Zstd,
}

impl Codec {
    /// Bytes that decoding takes beside a frame and what becomes of it.
    pub(crate) fn memory(self) -> u64 {
        match self {
            Self::Lz4 => 0,
            Self::Zstd => ZSTD_DECODER,
        }
    }
}

/// Makes grains of frames. Keeps what can be used again between frames.
pub struct Decoder {
    codec: Codec,
    zstd: Option<Decompressor<'static>>,
}

impl Decoder {
    /// A decoder of frames of one codec.
    pub fn new(codec: Codec) -> Self {
        Self { codec, zstd: None }
    }

    /// Fills `plain` with what a frame holds. Returns whether that was just as much; what is in `plain` means nothing
    /// if it was not. Writes nowhere else and takes no memory that depends on the frame.
    #[must_use]
    pub fn decode(&mut self, frame: &[u8], plain: &mut [u8]) -> bool {
        let length = match self.codec {
            Codec::Lz4 => lz4_flex::block::decompress_into(frame, plain).ok(),
            Codec::Zstd => self.zstd(frame, plain),
        };
        length == Some(plain.len())
    }

    fn zstd(&mut self, frame: &[u8], plain: &mut [u8]) -> Option<usize> {
        let decoder = match &mut self.zstd {
            Some(decoder) => decoder,
            none => none.insert(Decompressor::new().ok()?),
        };
        decoder.decompress_to_buffer(frame, plain).ok()
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({:?})", self.codec)
    }
}

/// Makes frames of grains.
pub struct Encoder {
    /// Of LZ4 if there is none.
    zstd: Option<Compressor<'static>>,
    frame: Vec<u8>,
}

impl Encoder {
    /// Bytes that one takes at most beside grains and their frames: that of the highest level of Zstandard.
    pub const MEMORY: u64 = 4 << 20;

    /// An encoder of LZ4.
    pub fn lz4() -> Self {
        Self {
            zstd: None,
            frame: Vec::new(),
        }
    }

    /// An encoder of Zstandard, of one of [`ZSTD_LEVELS`]. Fails where there is no memory for it.
    pub fn zstd(level: u8) -> std::io::Result<Self> {
        Ok(Self {
            zstd: Some(Compressor::new(level.into())?),
            ..Self::lz4()
        })
    }

    /// The frame of a grain, if it is worth it.
    pub fn encode(&mut self, plain: &[u8]) -> Option<&[u8]> {
        let room = match &self.zstd {
            None => lz4_flex::block::get_maximum_output_size(plain.len()),
            Some(_) => zstd::zstd_safe::compress_bound(plain.len()),
        };
        self.frame.resize(room, 0);
        let length = match &mut self.zstd {
            None => lz4_flex::block::compress_into(plain, &mut self.frame).ok(),
            Some(encoder) => encoder.compress_to_buffer(plain, &mut self.frame[..]).ok(),
        };
        let worth = plain.len() - plain.len().div_ceil(WORTH);
        self.frame.get(..length.filter(|length| *length <= worth)?)
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let codec = self.zstd.as_ref().map_or(Codec::Lz4, |_| Codec::Zstd);
        write!(f, "Encoder({codec:?})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoder(codec: Codec) -> Encoder {
        match codec {
            Codec::Lz4 => Encoder::lz4(),
            Codec::Zstd => Encoder::zstd(3).expect("memory"),
        }
    }

    fn codecs() -> impl Strategy<Value = Codec> {
        prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)]
    }

    proptest! {
        #[test]
        fn a_frame_becomes_what_it_was_made_of_and_nothing_else(
            codec in codecs(),
            words in prop::collection::vec((0u8..4, 1usize..300), 1..60),
            flips in prop::collection::vec((0usize..1 << 20, 1u8..), 0..3),
            wrong in -3isize..4,
        ) {
            let plain: Vec<u8> = words
                .iter()
                .flat_map(|(byte, count)| std::iter::repeat_n(*byte, *count))
                .collect();
            let mut encoder = encoder(codec);
            if let Some(frame) = encoder.encode(&plain) {
                prop_assert!(frame.len() < plain.len());
                let (mut frame, mut decoder) = (frame.to_vec(), Decoder::new(codec));
                let length = plain.len().saturating_add_signed(wrong);
                let mut room = vec![0xee; length + 8];
                let is_right = decoder.decode(&frame, &mut room[..length]);
                prop_assert_eq!(is_right, length == plain.len());
                prop_assert!(!is_right || room[..length] == plain[..]);
                for (at, bits) in flips {
                    let at = at % frame.len();
                    frame[at] ^= bits;
                }
                // It may be other bytes, which a checksum tells, and never more of them.
                let _ = decoder.decode(&frame, &mut room[..length]);
                prop_assert_eq!(&room[length..], &[0xee; 8][..]);
            }
        }

        #[test]
        fn whatever_a_frame_says_it_takes_no_more_than_its_room(
            codec in codecs(),
            frame in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut room = [0xee; 512];
            let _ = Decoder::new(codec).decode(&frame, &mut room[..500]);
            prop_assert_eq!(&room[500..], &[0xee; 12][..]);
        }
    }

    #[test]
    fn no_encoder_takes_more_memory_than_is_said() {
        let grain: Vec<u8> = (0..128 << 10).map(|at| (at / 7) as u8).collect();
        for level in ZSTD_LEVELS {
            let mut encoder = Encoder::zstd(level).expect("memory");
            assert!(encoder.encode(&grain).is_some(), "{level}");
            let made = encoder.zstd.as_mut().expect("it was made of that");
            let taken = made.context_mut().sizeof() as u64;
            assert!(taken <= Encoder::MEMORY, "level {level}: {taken}");
        }
    }

    #[test]
    fn what_cannot_be_compressed_has_no_frame() {
        let noise: Vec<u8> = (0..20_000u64)
            .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at << 7) as u8)
            .scan(1u64, |state, byte| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005) + u64::from(byte) + 1;
                Some((*state >> 56) as u8)
            })
            .collect();
        for codec in [Codec::Lz4, Codec::Zstd] {
            assert!(encoder(codec).encode(&noise).is_none(), "{codec:?}");
            assert!(encoder(codec).encode(&[]).is_none(), "{codec:?}");
        }
    }
}
