//! Bodies that are cut or damaged on their way.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use penstock_base::Payload;

use penstock_object::{BodySink, Got};

/// Takes only the first bytes.
pub(super) struct Cut<'a> {
    sink: &'a mut dyn BodySink,
    left: u64,
    /// Bytes that were announced and have not come.
    missing: u64,
}

impl<'a> Cut<'a> {
    pub(super) fn new(sink: &'a mut dyn BodySink, after: u64) -> Self {
        Self {
            sink,
            left: after,
            missing: 0,
        }
    }

    /// Whether the body was longer than what was let through.
    pub(super) fn was_cut(&self) -> bool {
        self.left == 0 && self.missing > 0
    }
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Cut<'_> {
    fn begin(&mut self, got: &Got) {
        self.missing = got.range.end - got.range.start;
        self.sink.begin(got);
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.sink.unfilled();
        let count = usize::try_from(self.left).map_or(room.len(), |left| left.min(room.len()));
        &mut room[..count]
    }

    unsafe fn advance(&mut self, count: usize) {
        self.left -= count as u64;
        self.missing -= count as u64;
        // SAFETY: `unfilled` is the front of the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }
}

/// Damages one byte.
pub(super) struct Flipping<'a> {
    sink: &'a mut dyn BodySink,
    /// Bytes before the one to damage, if it is still to come.
    before: Option<u64>,
}

impl<'a> Flipping<'a> {
    pub(super) fn new(sink: &'a mut dyn BodySink, at: u64) -> Self {
        Self {
            sink,
            before: Some(at),
        }
    }
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Flipping<'_> {
    fn begin(&mut self, got: &Got) {
        self.sink.begin(got);
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        self.sink.unfilled()
    }

    unsafe fn advance(&mut self, count: usize) {
        match self.before {
            Some(before) if before < count as u64 => {
                let byte = &mut self.sink.unfilled()[before as usize];
                // SAFETY: it is among the `count` bytes that the caller initialised.
                let value = unsafe { byte.assume_init_read() };
                byte.write(value ^ 1);
                self.before = None;
            }
            Some(before) => self.before = Some(before - count as u64),
            None => {}
        }
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }
}

/// `body` with one bit wrong in byte `at`, if it has that many.
pub(super) fn flipped(body: &Payload, at: u64) -> Payload {
    let mut before = at;
    let mut result = Payload::new();
    for slice in body.slices() {
        let length = slice.len() as u64;
        result.push(if before < length {
            damaged(slice, before as usize)
        } else {
            slice.clone()
        });
        before = before.checked_sub(length).unwrap_or(u64::MAX);
    }
    result
}

fn damaged(slice: &Bytes, at: usize) -> Bytes {
    let mut copy = BytesMut::from(&slice[..]);
    copy[at] ^= 1;
    copy.freeze()
}
