//! Bytes on their way between a socket and a kernel.

use bytes::Bytes;
use smallvec::SmallVec;

/// A run of bytes in reference-counted slices.
///
/// Slices are passed on as they are, to `writev` on either side: joining them would be a copy
/// of every byte. Two slices fit without allocating, since a read of one mebibyte straddles at
/// most two pool blocks.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    slices: SmallVec<[Bytes; 2]>,
    len: usize,
}

impl Payload {
    /// No bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `slice` at the end; an empty slice is dropped.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Adds all of `other` at the end.
    pub fn append(&mut self, other: Payload) {
        self.len += other.len;
        self.slices.extend(other.slices);
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
}
