//! How bytes of files are compressed before they are stored.

use std::{fmt, str::FromStr};

use bytes::{Buf, BufMut, Bytes};
use penstock_base::{FsError, FsResult};
use penstock_transfer::{Codec, ZSTD_LEVELS};

use super::{codec::take_version, damaged};

const VERSION: u8 = 1;
/// The level of zstd where none is said.
const USUAL_LEVEL: u8 = 3;

/// The key of [`Compression`]; absent for none.
pub(crate) const COMPRESSION: &[u8] = b"c";

/// How saves compress what they store. What is stored already stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With LZ4.
    Lz4,
    /// With Zstandard, of a level of [`ZSTD_LEVELS`].
    Zstd(u8),
}

impl Compression {
    pub(crate) fn encode(self) -> Bytes {
        let (codec, level) = match self {
            Self::None => (0, 0),
            Self::Lz4 => (letter(Codec::Lz4), 0),
            Self::Zstd(level) => (letter(Codec::Zstd), level),
        };
        Bytes::copy_from_slice(&[VERSION, codec, level])
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        const WHAT: &str = "the compression";
        take_version(&mut value, VERSION, WHAT)?;
        match value {
            [0, 0] => Ok(Self::None),
            [codec, level] => match codec_of(*codec) {
                Some(Codec::Lz4) => Ok(Self::Lz4),
                Some(Codec::Zstd) if ZSTD_LEVELS.contains(level) => Ok(Self::Zstd(*level)),
                _ => Err(damaged(WHAT)),
            },
            _ => Err(damaged(WHAT)),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = FsError;

    fn from_str(text: &str) -> FsResult<Self> {
        let wrong = FsError::InvalidArgument("compression is none, lz4 or zstd:LEVEL from 1 to 19");
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd(USUAL_LEVEL)),
            _ => {
                let level = text
                    .strip_prefix("zstd:")
                    .and_then(|level| level.parse().ok());
                let level = level.filter(|level| ZSTD_LEVELS.contains(level));
                level.map(Self::Zstd).ok_or(wrong)
            }
        }
    }
}

/// How the grains of a run lie in their object, where they are compressed: one frame behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) codec: Codec,
    /// Bytes that each grain takes: at least 1, and at most as many as it has. One that takes as many lies there as it is.
    pub(crate) lengths: Vec<u32>,
}

impl Frames {
    pub(super) fn put(frames: Option<&Self>, bytes: &mut Vec<u8>) {
        bytes.put_u8(frames.map_or(0, |frames| letter(frames.codec)));
        let lengths = frames.into_iter().flat_map(|frames| &frames.lengths);
        lengths.for_each(|length| bytes.put_u32_le(*length));
    }

    /// Takes the frames off that lie for grains of these lengths. `None` if they cannot.
    pub(super) fn take(
        value: &mut &[u8],
        grains: impl Iterator<Item = u32>,
    ) -> Option<Option<Self>> {
        let letter = value.try_get_u8().ok()?;
        if letter == 0 {
            return Some(None);
        }
        let length = |grain: u32| {
            let length = value.try_get_u32_le().ok()?;
            (1..=grain).contains(&length).then_some(length)
        };
        let codec = codec_of(letter)?;
        let lengths = grains.map(length);
        let lengths = lengths.collect::<Option<Vec<_>>>()?;
        (!lengths.is_empty()).then_some(Some(Self { codec, lengths }))
    }
}

fn letter(codec: Codec) -> u8 {
    match codec {
        Codec::Lz4 => 1,
        Codec::Zstd => 2,
    }
}

fn codec_of(letter: u8) -> Option<Codec> {
    match letter {
        1 => Some(Codec::Lz4),
        2 => Some(Codec::Zstd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_what_it_was() {
        let levels = ZSTD_LEVELS.map(Compression::Zstd);
        for setting in levels.chain([Compression::None, Compression::Lz4]) {
            let value = setting.encode();
            assert_eq!(Compression::decode(&value), Ok(setting));
            assert_eq!(setting.to_string().parse(), Ok(setting));
            assert!((0..value.len()).all(|end| Compression::decode(&value[..end]).is_err()));
        }
        assert_eq!("zstd".parse(), Ok(Compression::Zstd(USUAL_LEVEL)));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for text in [
            "", "LZ4", "gzip", "zstd:", "zstd:0", "zstd:20", "zstd:300", "lz4:1",
        ] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        for value in [
            &[1, 2, 0][..],
            &[1, 2, 20],
            &[1, 3, 0],
            &[2, 1, 0],
            &[1, 1, 0, 0],
        ] {
            assert!(Compression::decode(value).is_err(), "{value:?}");
        }
    }
}
