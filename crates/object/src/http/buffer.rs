//! The small buffer that heads are read into.

use super::HttpError;

/// Bytes of the first read: a usual head and little of the body, which must be copied.
const CAPACITY_FIRST: usize = 2 << 10;

/// Bytes in the largest head, or chunk header, that is accepted.
pub(super) const HEAD_SIZE_MAX: usize = 64 << 10;

/// Bytes that arrived and were not used yet.
#[derive(Debug)]
pub(super) struct HeadBuffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl HeadBuffer {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0; CAPACITY_FIRST],
            start: 0,
            end: 0,
        }
    }

    /// What arrived and was not used yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Marks the first `count` of [`HeadBuffer::bytes`] as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "consumed more than arrived");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for the next read, growing up to [`HEAD_SIZE_MAX`].
    pub(super) fn room(&mut self) -> Result<&mut [u8], HttpError> {
        if self.end == self.memory.len() {
            self.make_room()?;
        }
        Ok(&mut self.memory[self.end..])
    }

    /// Declares `count` bytes of [`HeadBuffer::room`] as arrived.
    pub(super) fn arrived(&mut self, count: usize) {
        self.end += count;
    }

    fn make_room(&mut self) -> Result<(), HttpError> {
        if self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else if self.memory.len() < HEAD_SIZE_MAX {
            self.memory.resize(self.memory.len() * 2, 0);
        } else {
            return Err(HttpError::protocol("the response head exceeds 64 KiB"));
        }
        Ok(())
    }
}
