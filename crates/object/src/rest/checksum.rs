//! Checksums over bodies: as S3 writes them, and made while a body arrives.

use std::mem::MaybeUninit;

use base64::{Engine, engine::general_purpose::STANDARD};
use penstock_base::{Checksum, ChecksumKind, Summing};

use crate::{BodySink, sink::SUMMED_AT_ONCE_MAX};

/// Reads the Base64 of the big-endian value, as S3 writes it.
pub(crate) fn decode(kind: ChecksumKind, text: &str) -> Option<Checksum> {
    let bytes = STANDARD.decode(text.trim()).ok()?;
    let number = match kind {
        ChecksumKind::Crc32c => u64::from(u32::from_be_bytes(bytes.try_into().ok()?)),
        ChecksumKind::Crc64Ecma | ChecksumKind::Crc64Nvme => {
            u64::from_be_bytes(bytes.try_into().ok()?)
        }
    };
    Some(kind.with_value(number))
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

/// A sink that sums up what passes through it on its way to another one.
pub(super) struct SummingSink<'a> {
    inner: &'a mut dyn BodySink,
    summing: Summing,
}

impl<'a> SummingSink<'a> {
    pub(super) fn new(inner: &'a mut dyn BodySink, kind: ChecksumKind) -> Self {
        let summing = Summing::new(kind);
        Self { inner, summing }
    }

    pub(super) fn checksum(&self) -> Checksum {
        self.summing.checksum()
    }
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for SummingSink<'_> {
    fn filled(&self) -> u64 {
        self.inner.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.inner.unfilled();
        let length = room.len().min(SUMMED_AT_ONCE_MAX);
        &mut room[..length]
    }

    unsafe fn advance(&mut self, count: usize) {
        let received = &self.inner.unfilled()[..count];
        // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which is the
        // front of the inner sink's.
        self.summing.add(unsafe { received.assume_init_ref() });
        // SAFETY: the same bytes.
        unsafe { self.inner.advance(count) }
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::Payload;
    use proptest::prelude::*;

    use super::*;

    const KINDS: [ChecksumKind; 3] = [
        ChecksumKind::Crc64Ecma,
        ChecksumKind::Crc64Nvme,
        ChecksumKind::Crc32c,
    ];

    proptest! {
        #[test]
        fn reads_what_it_writes(number: u64) {
            for kind in KINDS {
                let checksum = kind.with_value(number);
                prop_assert_eq!(decode(kind, &encode(checksum)), Some(checksum));
            }
        }

        #[test]
        fn a_sink_sums_what_passes(body: Vec<u8>) {
            let kind = ChecksumKind::Crc64Nvme;
            let mut memory = Vec::new();
            let mut sink = SummingSink::new(&mut memory, kind);
            sink.copy_from(&body);
            prop_assert_eq!(sink.checksum(), Payload::from(body.clone()).checksum(kind));
            prop_assert_eq!(memory, body);
        }
    }
}
