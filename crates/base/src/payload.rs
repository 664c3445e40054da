//! Bytes on their way between a socket and a kernel.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{Checksum, ChecksumKind, Summing};

/// A run of bytes in reference-counted slices.
///
/// Slices are passed on as they are, to `writev` on either side: joining them would be a copy
/// of every byte. Two slices fit without allocating, since a read of one mebibyte straddles at
/// most two pool blocks.
///
/// A payload may bring its checksum along. Who touches the bytes first makes it, while they are in
/// the processor's cache, and damage that is done to them in memory afterwards is found by
/// whoever compares.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    slices: SmallVec<[Bytes; 2]>,
    len: usize,
    checksum: Option<Checksum>,
}

impl Payload {
    /// No bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `slice` at the end; an empty slice is dropped.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.checksum = None;
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Adds all of `other` at the end.
    pub fn append(&mut self, other: Payload) {
        self.checksum = None;
        self.len += other.len;
        self.slices.extend(other.slices);
    }

    /// The same bytes with their checksum, which holds until bytes are added.
    pub fn with_checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The checksum of all bytes: the one that they bring along if it is of this kind, or else made
    /// now.
    pub fn checksum(&self, kind: ChecksumKind) -> Checksum {
        if let Some(known) = self.checksum.filter(|known| known.kind() == kind) {
            return known;
        }
        let mut summing = Summing::new(kind);
        for slice in &self.slices {
            summing.add(slice);
        }
        summing.checksum()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices in order; none is empty.
    pub fn slices(&self) -> &[Bytes] {
        &self.slices
    }

    /// The bytes `range`, as far as there are any, without a copy.
    #[must_use]
    pub fn slice(&self, range: &Range<u64>) -> Self {
        let mut wanted = Self::new();
        let mut start = 0;
        for slice in &self.slices {
            let end = start + slice.len() as u64;
            let from = range.start.clamp(start, end) - start;
            let to = range.end.clamp(start, end) - start;
            wanted.push(slice.slice(from as usize..to as usize));
            start = end;
        }
        wanted
    }

    /// One contiguous copy, for small payloads and for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices.concat()
    }
}

impl From<Bytes> for Payload {
    fn from(slice: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(slice);
        payload
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_counts_bytes() {
        let mut payload = Payload::from(b"ab".to_vec());
        payload.push(Bytes::new());
        payload.append(Payload::from(b"cde".to_vec()));
        assert_eq!((payload.len(), payload.slices().len()), (5, 2));
        assert_eq!(payload.to_vec(), b"abcde");
    }

    #[test]
    fn a_slice_may_span_several_and_end_where_the_bytes_end() {
        let mut payload = Payload::from(b"abc".to_vec());
        payload.append(Payload::from(b"def".to_vec()));
        assert_eq!(payload.slice(&(2..4)).to_vec(), b"cd");
        assert_eq!(payload.slice(&(4..9)).to_vec(), b"ef");
        assert!(payload.slice(&(3..3)).is_empty());
    }

    #[test]
    fn a_checksum_holds_for_its_kind_and_until_bytes_are_added() {
        let known = Checksum::Crc32c(7);
        let mut payload = Payload::from(b"ab".to_vec()).with_checksum(known);
        assert_eq!(payload.checksum(ChecksumKind::Crc32c), known);
        let other = payload.checksum(ChecksumKind::Crc64Nvme);
        assert_eq!(other.kind(), ChecksumKind::Crc64Nvme);
        payload.push(Bytes::from_static(b"c"));
        let fresh = Payload::from(b"abc".to_vec());
        let kind = ChecksumKind::Crc32c;
        assert_eq!(payload.checksum(kind), fresh.checksum(kind));
    }
}
