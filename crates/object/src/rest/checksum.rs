//! Checksums over bodies: made before a body is sent, while one arrives, and joined from parts.

use std::mem::MaybeUninit;

use base64::{Engine, engine::general_purpose::STANDARD};
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use penstock_base::Payload;

use crate::{BodySink, Checksum, Part};

/// Bytes received before they are added to the checksum: little enough to be in the CPU's cache
/// still.
const PIECE_MAX: usize = 256 << 10;

/// A way to sum bytes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChecksumKind {
    Crc64Ecma,
    Crc64Nvme,
    Crc32c,
}

impl ChecksumKind {
    /// The kind of a checksum.
    pub(crate) fn of(checksum: Checksum) -> Self {
        match checksum {
            Checksum::Crc64Ecma(_) => Self::Crc64Ecma,
            Checksum::Crc64Nvme(_) => Self::Crc64Nvme,
            Checksum::Crc32c(_) => Self::Crc32c,
        }
    }

    /// The checksum of a body.
    pub(crate) fn sum(self, body: &Payload) -> Checksum {
        let mut digest = Digest::new(self.algorithm());
        for slice in body.slices() {
            digest.update(slice);
        }
        self.checksum(digest.finalize())
    }

    /// Reads the Base64 of the big-endian value, as S3 writes it.
    pub(crate) fn decode(self, text: &str) -> Option<Checksum> {
        let bytes = STANDARD.decode(text.trim()).ok()?;
        let number = match self {
            Self::Crc32c => u64::from(u32::from_be_bytes(bytes.try_into().ok()?)),
            Self::Crc64Ecma | Self::Crc64Nvme => u64::from_be_bytes(bytes.try_into().ok()?),
        };
        Some(self.checksum(number))
    }

    fn algorithm(self) -> CrcAlgorithm {
        match self {
            Self::Crc64Ecma => CrcAlgorithm::Crc64Xz,
            Self::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
            Self::Crc32c => CrcAlgorithm::Crc32Iscsi,
        }
    }

    fn checksum(self, number: u64) -> Checksum {
        match self {
            Self::Crc64Ecma => Checksum::Crc64Ecma(number),
            Self::Crc64Nvme => Checksum::Crc64Nvme(number),
            Self::Crc32c => Checksum::Crc32c(number as u32),
        }
    }
}

/// The Base64 of the big-endian value, as S3 writes it.
pub(crate) fn encode(checksum: Checksum) -> String {
    match checksum {
        Checksum::Crc64Ecma(number) | Checksum::Crc64Nvme(number) => {
            STANDARD.encode(number.to_be_bytes())
        }
        Checksum::Crc32c(number) => STANDARD.encode(number.to_be_bytes()),
    }
}

/// The checksum of two runs of bytes from those of each; `None` when the kinds differ.
pub(crate) fn combine(first: Checksum, second: Checksum, second_size: u64) -> Option<Checksum> {
    let kind = ChecksumKind::of(first);
    if kind != ChecksumKind::of(second) {
        return None;
    }
    let joined = checksum_combine(kind.algorithm(), number(first), number(second), second_size);
    Some(kind.checksum(joined))
}

/// The checksum of the object that `parts` make, when each of them has one.
pub(crate) fn combine_parts(parts: &[Part]) -> Option<Checksum> {
    let (first, rest) = parts.split_first()?;
    rest.iter().try_fold(first.checksum?, |sum, part| {
        combine(sum, part.checksum?, part.size)
    })
}

fn number(checksum: Checksum) -> u64 {
    match checksum {
        Checksum::Crc64Ecma(number) | Checksum::Crc64Nvme(number) => number,
        Checksum::Crc32c(number) => u64::from(number),
    }
}

/// A sink that sums up what passes through it on its way to another one.
pub(super) struct SummingSink<'a> {
    inner: &'a mut dyn BodySink,
    digest: Digest,
    kind: ChecksumKind,
}

impl<'a> SummingSink<'a> {
    pub(super) fn new(inner: &'a mut dyn BodySink, kind: ChecksumKind) -> Self {
        Self {
            inner,
            digest: Digest::new(kind.algorithm()),
            kind,
        }
    }

    pub(super) fn checksum(&self) -> Checksum {
        self.kind.checksum(self.digest.finalize())
    }
}

impl BodySink for SummingSink<'_> {
    fn filled(&self) -> u64 {
        self.inner.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.inner.unfilled();
        let length = room.len().min(PIECE_MAX);
        &mut room[..length]
    }

    #[allow(unsafe_code)]
    unsafe fn advance(&mut self, count: usize) {
        let received = &self.inner.unfilled()[..count];
        // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which is the
        // front of the inner sink's.
        self.digest.update(unsafe { received.assume_init_ref() });
        // SAFETY: the same bytes.
        unsafe { self.inner.advance(count) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ETag;

    const KINDS: [ChecksumKind; 3] = [
        ChecksumKind::Crc64Ecma,
        ChecksumKind::Crc64Nvme,
        ChecksumKind::Crc32c,
    ];

    #[test]
    fn knows_the_check_values() {
        let body = Payload::from(b"123456789".to_vec());
        assert_eq!(
            KINDS.map(|kind| kind.sum(&body)),
            [
                Checksum::Crc64Ecma(0x995d_c9bb_df19_39fa),
                Checksum::Crc64Nvme(0xae8b_1486_0a79_9888),
                Checksum::Crc32c(0xe306_9283),
            ]
        );
    }

    proptest! {
        #[test]
        fn parts_combine_to_the_whole(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..500), 1..6)) {
            for kind in KINDS {
                let sums: Vec<Part> = parts.iter().map(|bytes| Part {
                    number: 1,
                    etag: ETag::new(""),
                    size: bytes.len() as u64,
                    checksum: Some(kind.sum(&Payload::from(bytes.clone()))),
                }).collect();
                let whole = kind.sum(&Payload::from(parts.concat()));
                prop_assert_eq!(combine_parts(&sums), Some(whole));
                prop_assert_eq!(kind.decode(&encode(whole)), Some(whole));
            }
        }

        #[test]
        fn a_sink_sums_what_passes(body: Vec<u8>) {
            let mut memory = Vec::new();
            let mut sink = SummingSink::new(&mut memory, ChecksumKind::Crc64Nvme);
            sink.copy_from(&body);
            prop_assert_eq!(sink.checksum(), ChecksumKind::Crc64Nvme.sum(&Payload::from(body.clone())));
            prop_assert_eq!(memory, body);
        }
    }
}
