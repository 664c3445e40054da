//! What was written and is not yet part of an upload.
//!
//! Large pieces stay in the memory they came in. Small ones are copied together, because each
//! would pin the whole buffer that the kernel's request was received into, for a fraction of its
//! size. Buffers for them grow with what is written, from a few pages to whole blocks, so that
//! thousands of small files do not need a block each.
//!
//! Whatever is added is summed up at once, while the kernel's copy of it is still in the processor's
//! cache; when a part is sent the bytes come from main memory.

use bytes::Bytes;
use penstock_base::{
    BLOCK_SIZE, Buffer, BufferView, BufferWriter, Checksum, ChecksumKind, HEAP_BUFFER_MAX, Payload,
    Reservation, Summing,
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
    /// Of all bytes, if the store wants to know.
    summing: Option<Summing>,
}

/// A buffer that small pieces are copied into.
struct Open {
    writer: BufferWriter,
    view: BufferView,
}

impl Tail {
    /// Sums up what is added, as `checksum` says.
    pub(super) fn new(checksum: Option<ChecksumKind>) -> Self {
        Self {
            summing: checksum.map(Summing::new),
            ..Self::default()
        }
    }

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
        self.sum(&piece);
        self.payload.push(piece);
    }

    /// Adds a copy of a piece for which there is [`Tail::room`].
    pub(super) fn copy(&mut self, mut piece: &[u8]) {
        self.sum(piece);
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
        let checksum = self.summing.as_ref().map(Summing::checksum);
        with_checksum(self.payload.clone(), checksum)
    }

    /// Takes everything out. The buffer for small pieces goes on to be used.
    pub(super) fn take(&mut self) -> Payload {
        self.flush();
        let checksum = self.summing.as_mut().map(Summing::take);
        with_checksum(std::mem::take(&mut self.payload), checksum)
    }

    /// Lets go of memory that nothing was written to yet.
    pub(super) fn close(&mut self) {
        self.flush();
        self.open = None;
        self.spare = None;
    }

    fn sum(&mut self, piece: &[u8]) {
        if let Some(summing) = &mut self.summing {
            summing.add(piece);
        }
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

fn with_checksum(payload: Payload, checksum: Option<Checksum>) -> Payload {
    match checksum {
        Some(checksum) => payload.with_checksum(checksum),
        None => payload,
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

    /// The checksum is compared with one that is made from the bytes.
    fn assert_is(kind: ChecksumKind, payload: &Payload, bytes: &[u8]) {
        let fresh = Payload::from(bytes.to_vec());
        assert_eq!(payload.to_vec(), bytes);
        assert_eq!(payload.checksum(kind), fresh.checksum(kind));
    }

    #[test]
    fn keeps_the_order_of_small_and_large_pieces() {
        let kind = ChecksumKind::Crc64Nvme;
        let pool = BufferPool::new(MemoryBudget::new(4 * MIB));
        let mut tail = Tail::new(Some(kind));
        tail.provide(pool.try_take(tail.next_capacity(3)).expect("free"));
        tail.copy(b"abc");
        tail.keep(Bytes::from_static(b"DEF"));
        tail.copy(b"ghi");
        assert_eq!(tail.len(), 9);
        assert_is(kind, &tail.snapshot(), b"abcDEFghi");
        assert_is(kind, &tail.take(), b"abcDEFghi");
        tail.copy(b"jkl");
        assert_eq!(tail.len(), 3);
        assert_is(kind, &tail.take(), b"jkl");
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
