//! A digest of a listing, by which images of the same objects are known.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::SnapshotObject;

/// Bytes that are collected before they are summed up.
const CHUNK: usize = 64 << 10;

/// SHA-256 of the keys, sizes, times, versions and targets of all objects in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListingDigest(pub [u8; 32]);

impl fmt::Display for ListingDigest {
    /// As 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest that is being made.
#[derive(Default)]
pub(super) struct Digest {
    hash: Sha256,
    chunk: Vec<u8>,
}

impl Digest {
    pub(super) fn add(&mut self, object: &SnapshotObject<'_>) {
        // Texts come with their lengths, so that two lists never look the same.
        for text in [object.key, object.etag.as_bytes(), object.target.as_bytes()] {
            self.chunk
                .extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.chunk.extend_from_slice(text);
        }
        self.chunk.extend_from_slice(&object.size.to_le_bytes());
        let modified = object.modified;
        self.chunk
            .extend_from_slice(&modified.seconds.to_le_bytes());
        self.chunk
            .extend_from_slice(&modified.nanoseconds.to_le_bytes());
        if self.chunk.len() >= CHUNK {
            self.flush();
        }
    }

    pub(super) fn finish(mut self) -> ListingDigest {
        self.flush();
        ListingDigest(self.hash.finalize().into())
    }

    fn flush(&mut self) {
        self.hash.update(&self.chunk);
        self.chunk.clear();
    }
}
