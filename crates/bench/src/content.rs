//! What is in a file: how it is made, and whether what came back is it.
//!
//! Content can be told without having kept it. Files that the benchmark makes hold the pattern of
//! the development server, which depends on the file's key and on the place. Files of our
//! rw-bench hold one mebibyte over and over, begun at a page that depends on the name. What fio
//! writes by default has in every 512 bytes, at one of eight places, where in the file it was
//! written to ("scrambled" buffers). sysbench writes zeros.

use serde::{Deserialize, Serialize};

/// Bytes that rw-bench repeats.
const LOOP: usize = 1 << 20;
const PAGE: usize = 4096;
/// Bytes in which fio says once where they belong.
const FIO_UNIT: usize = 512;
/// Between the places where it may stand.
const FIO_STEP: usize = 64;

/// What a file must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Content {
    /// The development server's pattern for the file's key.
    #[default]
    Pattern,
    /// What [`crate::rw_bench`] writes.
    RwBench,
    /// What fio writes.
    Fio,
    /// Nothing but zeros.
    Zeros,
    /// Nobody can say; the size must be right.
    Any,
}

impl Content {
    /// Whether there is more to compare than the size.
    pub(crate) fn is_known(self) -> bool {
        self != Self::Any
    }

    /// The first place in `bytes`, which were found at `offset` of the file `key`, that is wrong.
    pub(crate) fn first_difference(self, key: &str, offset: u64, bytes: &[u8]) -> Option<u64> {
        let at = match self {
            Self::Any => None,
            Self::Zeros => bytes.iter().position(|byte| *byte != 0),
            Self::Fio => fio_difference(offset, bytes),
            Self::Pattern | Self::RwBench => {
                let mut expected = vec![0; bytes.len()];
                self.make(key, offset, &mut expected);
                if expected == bytes {
                    return None;
                }
                expected.iter().zip(bytes).position(|(a, b)| a != b)
            }
        };
        at.map(|at| offset + at as u64)
    }

    /// What the file `key` holds from `offset` on, where that can be made.
    pub(crate) fn make(self, key: &str, offset: u64, bytes: &mut [u8]) {
        match self {
            Self::RwBench => RwBenchContent::default().fill(key, offset, bytes),
            Self::Zeros => bytes.fill(0),
            _ => penstock_devserver::expected(key, offset, bytes),
        }
    }
}

fn fio_difference(offset: u64, bytes: &[u8]) -> Option<usize> {
    let units = bytes.chunks_exact(FIO_UNIT).enumerate();
    for (index, unit) in units {
        let at = index * FIO_UNIT;
        let expected = (offset + at as u64).to_le_bytes();
        let mut places = unit.chunks_exact(FIO_STEP);
        if !places.any(|place| place.starts_with(&expected)) {
            return Some(at);
        }
    }
    None
}

/// The bytes that rw-bench writes, made once.
#[derive(Debug, Clone)]
pub(crate) struct RwBenchContent {
    /// The loop twice, so that one whole turn from any start is one slice.
    twice: Vec<u8>,
}

impl Default for RwBenchContent {
    fn default() -> Self {
        let mut twice = vec![0; LOOP];
        penstock_devserver::expected("rw-bench", 0, &mut twice);
        twice.extend_from_within(..);
        Self { twice }
    }
}

impl RwBenchContent {
    /// At most a mebibyte of the file `name` from `offset` on.
    pub(crate) fn slice(&self, name: &str, offset: u64, length: usize) -> &[u8] {
        let start = (shift(name) + offset as usize) % LOOP;
        &self.twice[start..start + length.min(LOOP)]
    }

    fn fill(&self, key: &str, offset: u64, bytes: &mut [u8]) {
        let name = key.rsplit('/').next().unwrap_or(key);
        let mut at = offset;
        for piece in bytes.chunks_mut(LOOP) {
            piece.copy_from_slice(self.slice(name, at, piece.len()));
            at += piece.len() as u64;
        }
    }
}

/// Where in the loop a file begins: FNV-1a of its name, as a page.
fn shift(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize % (LOOP / PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fio_says_where_each_512_bytes_belong() {
        let mut bytes = vec![7; 4 * FIO_UNIT];
        for index in 0..4 {
            let at = index * FIO_UNIT + (index % 8) * FIO_STEP;
            bytes[at..at + 8].copy_from_slice(&(1024 + (index * FIO_UNIT) as u64).to_le_bytes());
        }
        assert_eq!(Content::Fio.first_difference("f", 1024, &bytes), None);
        assert_eq!(Content::Fio.first_difference("f", 0, &bytes), Some(0));
        bytes[2 * FIO_UNIT..3 * FIO_UNIT].fill(0);
        assert_eq!(Content::Fio.first_difference("f", 1024, &bytes), Some(2048));
    }

    proptest! {
        // Each case makes megabytes.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_is_made_is_recognised_and_damage_is_found(
            offset in 0_u64..5 << 20,
            length in 1_usize..3 << 20,
            at in any::<prop::sample::Index>(),
        ) {
            for content in [Content::RwBench, Content::Zeros] {
                let mut bytes = vec![1; length];
                content.make("d/17.dat", offset, &mut bytes);
                prop_assert_eq!(content.first_difference("d/17.dat", offset, &bytes), None);
                let at = at.index(length);
                bytes[at] ^= 1;
                let found = content.first_difference("d/17.dat", offset, &bytes);
                prop_assert_eq!(found, Some(offset + at as u64));
            }
        }
    }

    #[test]
    fn files_differ() {
        let make = |content: Content, key: &str| {
            let mut bytes = vec![0; 8192];
            content.make(key, 0, &mut bytes);
            bytes
        };
        for content in [Content::Pattern, Content::RwBench] {
            assert_ne!(make(content, "a/1.dat"), make(content, "a/2.dat"));
        }
    }
}
