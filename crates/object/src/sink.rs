//! Where a body is received.

use std::{mem::MaybeUninit, ops::Range};

use bytes::Bytes;
use penstock_base::Checksum;

use crate::Got;

/// Bytes that are received before they are summed up, so that the processor still has them in its cache.
pub(crate) const SUMMED_AT_ONCE_MAX: usize = 256 << 10;

/// Memory that a [`crate::Store::get`] fills from front to back.
///
/// A store takes [`BodySink::unfilled`], receives into it and calls [`BodySink::advance`]. What
/// was advanced over stays valid when the transfer is cut: a retry goes on at
/// [`BodySink::filled`], and readers of the sink may use that part already.
///
/// # Safety
///
/// Who wraps a sink reads what was received into [`BodySink::unfilled`] by calling that again, before
/// [`BodySink::advance`]. So all calls of `unfilled` must return the same memory, with what was
/// written there, until `advance` or `begin` is called.
#[allow(unsafe_code)]
pub unsafe trait BodySink: Send {
    /// Called once per response, when its head has arrived and before its first byte, with the
    /// object's description and the range that is about to be delivered.
    fn begin(&mut self, _got: &Got) {}

    /// The same of bytes that are at hand already: how soon they came says nothing of the way to the store.
    fn begin_at_hand(&mut self, got: &Got) {
        self.begin(got);
    }

    /// Bytes received so far.
    fn filled(&self) -> u64;

    /// The next piece of memory to fill; empty when the sink takes no more. It may be longer than what
    /// is to come, and may be written over behind what is then advanced over.
    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>];

    /// Declares the first `count` bytes of [`BodySink::unfilled`] as received: no more than were announced.
    ///
    /// # Safety
    ///
    /// The caller must have initialised those bytes.
    unsafe fn advance(&mut self, count: usize);

    /// The bytes `range`, counted as [`BodySink::filled`] counts, by reference, for somebody who
    /// wants to keep them. `None` from a sink that cannot share its memory. Only what was filled
    /// since `unfilled` last began a new piece of memory has to be there; an empty range at
    /// `filled` asks whether that piece can be shared at all.
    fn shared(&self, _range: Range<u64>) -> Option<Bytes> {
        None
    }

    /// The sum of the body so far, from a sink that sums it up: of all bytes that came since the first
    /// [`BodySink::begin`], which told of a whole object with a checksum. A store compares it
    /// instead of summing up the same bytes. A sink around another hands it on if it changes
    /// neither what it is told nor a byte.
    fn summed(&self) -> Option<Checksum> {
        None
    }

    /// Copies `bytes` in and advances over them; returns how many fitted.
    fn copy_from(&mut self, bytes: &[u8]) -> usize {
        let mut copied = 0;
        while copied < bytes.len() {
            let room = self.unfilled();
            let count = room.len().min(bytes.len() - copied);
            if count == 0 {
                break;
            }
            room[..count].write_copy_of_slice(&bytes[copied..copied + count]);
            // SAFETY: the first `count` bytes of `unfilled` were written above.
            #[allow(unsafe_code)]
            unsafe {
                self.advance(count);
            }
            copied += count;
        }
        copied
    }
}

/// A growing vector takes bodies of any length: for small objects and for tests.
// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Vec<u8> {
    fn filled(&self) -> u64 {
        self.len() as u64
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        const GROWTH: usize = 64 << 10;
        if self.len() == self.capacity() {
            self.reserve(GROWTH);
        }
        self.spare_capacity_mut()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller initialised `count` bytes of the spare capacity.
        unsafe { self.set_len(self.len() + count) }
    }
}

/// Pooled memory, read by its views while it fills.
// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for penstock_base::BufferWriter {
    fn filled(&self) -> u64 {
        self.filled() as u64
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        self.unfilled()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller initialised the first `count` bytes of `unfilled`.
        unsafe { self.advance(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_takes_bodies_of_any_length() {
        let body: Vec<u8> = (0..200_000u32).map(|number| number as u8).collect();
        let mut sink = Vec::new();
        assert_eq!(sink.copy_from(&body), body.len());
        assert_eq!((sink.filled(), &sink), (200_000, &body));
    }
}
