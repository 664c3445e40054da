//! External data representation (RFC 4506), as far as ONC RPC and NFS need it.
//!
//! A [`Decoder`] cuts slices out of the bytes that were received and copies nothing; each length is held against a
//! limit and against what is there before anything is made of it.

use bytes::{Buf, Bytes};
use thiserror::Error;

/// Bytes in a unit: everything is padded to a multiple.
const UNIT: usize = 4;

/// What was received is not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed message")]
pub struct Malformed;

/// What reading gives.
pub type Decoded<T> = Result<T, Malformed>;

/// Zeros behind `length` bytes up to the next unit.
pub(crate) fn padding(length: usize) -> usize {
    length.next_multiple_of(UNIT) - length
}

/// Reads values from the front of a message.
#[derive(Debug, Clone)]
pub struct Decoder(Bytes);

impl Decoder {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &Bytes {
        &self.0
    }

    /// Fails unless all is read.
    pub(crate) fn end(&self) -> Decoded<()> {
        self.0.is_empty().then_some(()).ok_or(Malformed)
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        self.0.try_get_u32().map_err(|_| Malformed)
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        self.0.try_get_u64().map_err(|_| Malformed)
    }

    pub(crate) fn bool(&mut self) -> Decoded<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A value that may be missing.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Decoded<T>,
    ) -> Decoded<Option<T>> {
        self.bool()?.then(|| read(self)).transpose()
    }

    /// `N` bytes, a multiple of four.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut bytes = [0; N];
        self.0
            .try_copy_to_slice(&mut bytes)
            .map(|()| bytes)
            .map_err(|_| Malformed)
    }

    /// Bytes with their length in front, at most `limit`.
    pub(crate) fn opaque(&mut self, limit: usize) -> Decoded<Bytes> {
        let length = self.u32()? as usize;
        let padded = length + padding(length);
        if length > limit || padded > self.0.len() {
            return Err(Malformed);
        }
        let bytes = self.0.split_to(padded);
        Ok(bytes.slice(..length))
    }
}

/// Writes values to the end of a message.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Writes `value` over the one at `place`.
    pub(crate) fn set_u32(&mut self, place: usize, value: u32) {
        self.0[place..place + UNIT].copy_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// A value that may be missing.
    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Bytes whose number both sides know, a multiple of four.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Bytes with their length in front.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + padding(bytes.len()), 0);
    }
}

/// Bytes that [`Encoder::opaque`] makes of `length`.
pub(crate) fn opaque_length(length: usize) -> usize {
    UNIT + length + padding(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(bytes: &'static [u8]) -> Decoder {
        Decoder::new(Bytes::from_static(bytes))
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = Encoder::default();
        out.u32(7);
        out.u64(1 << 40);
        out.option(Some(3), Encoder::u32);
        out.opaque(b"abcde");
        out.bool(false);
        assert_eq!(out.len() % UNIT, 0);
        let mut read = Decoder::new(out.into_bytes().into());
        assert_eq!(read.u32(), Ok(7));
        assert_eq!(read.u64(), Ok(1 << 40));
        assert_eq!(read.option(Decoder::u32), Ok(Some(3)));
        assert_eq!(read.opaque(5).as_deref(), Ok(&b"abcde"[..]));
        assert_eq!(read.option(Decoder::u32), Ok(None));
        assert_eq!(read.end(), Ok(()));
    }

    #[test]
    fn lengths_are_held_against_the_limit_and_against_what_is_there() {
        let long = b"\0\0\0\x05abcde\0\0\0";
        assert_eq!(decoder(long).opaque(4), Err(Malformed));
        assert_eq!(decoder(&long[..9]).opaque(5), Err(Malformed), "cut padding");
        assert_eq!(
            decoder(b"\xff\xff\xff\xff").opaque(usize::MAX),
            Err(Malformed)
        );
        assert_eq!(decoder(b"\0\0\0\x02").bool(), Err(Malformed));
        assert_eq!(decoder(b"\0\0\0").u32(), Err(Malformed));
        assert_eq!(decoder(b"\0\0\0").end(), Err(Malformed));
    }
}
