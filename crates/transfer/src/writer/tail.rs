//! What was written and is not yet part of an upload.
//!
//! Large pieces stay in the memory they came in. Small ones are copied together, because each
//! would pin the whole buffer that the kernel's request was received into, for a fraction of its
//! size. Buffers for them grow with what is written, from a few pages to whole blocks, so that
//! thousands of small files do not need a block each.

use bytes::Bytes;
use penstock_base::{
    BLOCK_SIZE, Buffer, BufferView, BufferWriter, HEAP_BUFFER_MAX, Payload, Reservation,
};

/// Pieces from this size on stay where they are. They pin at most twice their size.
pub(super) const KEEP_MIN: usize = BLOCK_SIZE / 2;

/// Bytes in the first buffer for small pieces.
const FIRST_BUFFER: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Tail {
    payload: Payload,
    open: Option<Open>,
    spare: Option<Buffer>,
    /// Bytes copied into the open buffer that are not in the payload yet.
    copied: usize,
}

/// A buffer that small pieces are copied into.
struct Open {
    writer: BufferWriter,
    view: BufferView,
}

impl Tail {
    pub(super) fn len(&self) -> u64 {
        (self.payload.len() + self.copied) as u64
    }

    /// Small pieces of that many bytes can be added without a new buffer.
    pub(super) fn room(&self) -> usize {
        let spare = self.spare.as_ref().map_or(0, Buffer::capacity);
        self.open.as_ref().map_or(0, Open::room) + spare
    }

    /// Bytes in the next buffer to [`Tail::provide`] for a small piece of `length` bytes.
    pub(super) fn next_capacity(&self, length: usize) -> usize {
        let held = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let wanted = held.max(length).clamp(FIRST_BUFFER, BLOCK_SIZE);
        match wanted.next_power_of_two() {
            small if small <= HEAP_BUFFER_MAX => small,
            _ => BLOCK_SIZE,
        }
    }

    /// A buffer for the next small pieces.
    pub(super) fn provide(&mut self, buffer: Buffer) {
        self.spare = Some(buffer);
    }

    /// Adds a large piece as it is.
    pub(super) fn keep(&mut self, piece: Bytes) {
        self.flush();
        self.payload.push(piece);
    }

    /// Adds a copy of a piece for which there is [`Tail::room`].
    pub(super) fn copy(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            if self.open.as_ref().is_none_or(|open| open.room() == 0) {
                self.flush();
                let spare = self.spare.take().expect("the caller provided room");
                self.open = Some(Open::new(spare));
            }
            let open = self.open.as_mut().expect("a buffer was opened");
            let count = open.writer.copy_from(piece);
            self.copied += count;
            piece = &piece[count..];
        }
    }

    /// Everything so far; the tail stays as it is.
    pub(super) fn snapshot(&mut self) -> Payload {
        self.flush();
        self.payload.clone()
    }

    /// Takes everything out. The buffer for small pieces goes on to be used.
    pub(super) fn take(&mut self) -> Payload {
        self.flush();
        std::mem::take(&mut self.payload)
    }

    /// Lets go of memory that nothing was written to yet.
    pub(super) fn close(&mut self) {
        self.flush();
        self.open = None;
        self.spare = None;
    }

    /// Moves what was copied since the last time from the open buffer into the payload.
    fn flush(&mut self) {
        if let Some(open) = self.open.as_ref().filter(|_| self.copied > 0) {
            let end = open.writer.filled();
            self.payload.push(open.view.slice(end - self.copied..end));
            self.copied = 0;
        }
    }
}

impl Open {
    fn new(buffer: Buffer) -> Self {
        let (writer, view) = buffer.share();
        Self { writer, view }
    }

    fn room(&self) -> usize {
        self.view.capacity() - self.writer.filled()
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail")
            .field("len", &self.len())
            .field("open", &self.open.as_ref().map(|open| &open.view))
            .field("spare", &self.spare)
            .finish_non_exhaustive()
    }
}

/// `piece`, which occupies what `memory` pays for until its last slice is gone.
pub(super) fn paid(piece: Bytes, memory: Reservation) -> Bytes {
    Bytes::from_owner(Paid {
        piece,
        _memory: memory,
    })
}

struct Paid {
    piece: Bytes,
    _memory: Reservation,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{BufferPool, MIB, MemoryBudget};

    #[test]
    fn keeps_the_order_of_small_and_large_pieces() {
        let pool = BufferPool::new(MemoryBudget::new(4 * MIB));
        let mut tail = Tail::default();
        tail.provide(pool.try_take(tail.next_capacity(3)).expect("free"));
        tail.copy(b"abc");
        tail.keep(Bytes::from_static(b"DEF"));
        tail.copy(b"ghi");
        assert_eq!(
            (tail.len(), tail.snapshot().to_vec()),
            (9, b"abcDEFghi".to_vec())
        );
        assert_eq!(tail.take().to_vec(), b"abcDEFghi");
        tail.copy(b"jkl");
        assert_eq!((tail.len(), tail.take().to_vec()), (3, b"jkl".to_vec()));
    }

    #[test]
    fn buffers_grow_with_what_is_written() {
        let pool = BufferPool::new(MemoryBudget::new(4 * MIB));
        let mut tail = Tail::default();
        let mut capacities = Vec::new();
        for _ in 0..64 {
            let piece = [7; 8 << 10];
            if tail.room() < piece.len() {
                let capacity = tail.next_capacity(piece.len());
                capacities.push(capacity >> 10);
                tail.provide(pool.try_take(capacity).expect("free"));
            }
            tail.copy(&piece);
        }
        assert_eq!(capacities, [16, 16, 32, 64, 128, 1024]);
        assert_eq!(tail.take().len(), 512 << 10);
    }

    #[test]
    fn memory_is_paid_for_until_the_last_slice_is_gone() {
        let budget = MemoryBudget::new(MIB);
        let memory = budget.try_reserve(MIB).expect("free");
        let mut piece = paid(Bytes::from(vec![1; 10]), memory);
        let front = piece.split_to(3);
        drop(piece);
        assert_eq!(budget.used(), MIB);
        drop(front);
        assert_eq!(budget.used(), 0);
    }
}
