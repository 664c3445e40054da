//! The buffer of a connection: what does not fill a record yet, what was not asked for yet, and what is asked for in
//! small pieces.

use tokio::io::ReadBuf;

use super::{Broken, record_key::record_length};

/// Bytes of a read into the buffer when no more are known to come: a head, and little of a body.
const ASIDE_FIRST: usize = 4 << 10;

/// How far opening came.
pub(super) struct Run {
    /// Bytes of plaintext at the front.
    pub(super) plain: usize,
    /// Bytes that were opened.
    pub(super) opened: usize,
}

/// Bytes that were received and not handed out.
#[derive(Default)]
pub(super) struct Aside {
    pub(super) memory: Vec<u8>,
    /// Where the plaintext that nobody took begins and ends.
    plain_start: usize,
    plain_end: usize,
    /// Where what is not opened begins; it ends with the memory.
    sealed_start: usize,
}

impl Aside {
    /// Of bytes that are not opened.
    pub(super) fn new(memory: Vec<u8>) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// Holds the memory that was opened so far.
    pub(super) fn hold(&mut self, memory: Vec<u8>, run: &Run) {
        *self = Self {
            memory,
            plain_start: 0,
            plain_end: run.plain,
            sealed_start: run.opened,
        };
        self.release();
    }

    pub(super) fn plain(&self) -> &[u8] {
        &self.memory[self.plain_start..self.plain_end]
    }

    pub(super) fn sealed(&self) -> &[u8] {
        &self.memory[self.sealed_start..]
    }

    /// Moves at most `limit` bytes of plaintext to `buffer`; returns whether there were some.
    pub(super) fn take(&mut self, buffer: &mut ReadBuf<'_>, limit: usize) -> bool {
        let count = self.plain().len().min(limit);
        buffer.put_slice(&self.plain()[..count]);
        self.plain_start += count;
        self.release();
        count > 0
    }

    pub(super) fn holds_only(&mut self, plain: &[u8], sealed: &[u8]) {
        self.memory.clear();
        self.memory.extend_from_slice(plain);
        self.memory.extend_from_slice(sealed);
        (self.plain_start, self.plain_end, self.sealed_start) = (0, plain.len(), plain.len());
        self.release();
    }

    /// Makes room behind what is not opened; returns how much that is.
    pub(super) fn grow(&mut self) -> Result<usize, Broken> {
        self.tidy();
        let (held, wanted) = (self.memory.len(), self.wanted()?);
        self.memory.reserve_exact(wanted);
        self.memory.resize(held + wanted, 0);
        Ok(held)
    }

    /// Drops what was taken.
    fn tidy(&mut self) {
        self.memory.drain(..self.sealed_start);
        (self.plain_start, self.plain_end, self.sealed_start) = (0, 0, 0);
        self.release();
    }

    /// Drops the room behind the first `length` bytes.
    pub(super) fn shrink(&mut self, length: usize) {
        self.memory.truncate(length);
        self.release();
    }

    /// Gives the memory back when nothing is in it: most connections are idle.
    fn release(&mut self) {
        if self.plain().is_empty() && self.sealed().is_empty() {
            *self = Self::default();
        }
    }

    /// Bytes that the next read may bring: the rest of a record, or a head.
    fn wanted(&self) -> Result<usize, Broken> {
        let length = record_length(self.sealed())?.unwrap_or_default();
        Ok(length.max(ASIDE_FIRST) - self.sealed().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection keeps no memory for what it has handed out.
    #[test]
    fn nothing_is_kept_for_nothing() {
        let run = Run {
            plain: 10,
            opened: 40,
        };
        let mut aside = Aside::default();
        aside.hold(vec![7; 40], &run);
        let mut memory = [0; 16];
        let mut buffer = ReadBuf::new(&mut memory);
        assert!(aside.take(&mut buffer, 16));
        assert_eq!(buffer.filled(), [7; 10]);
        assert_eq!(aside.memory.capacity(), 0);
        let held = aside.grow().expect("nothing is wrong with nothing");
        assert_eq!((held, aside.memory.len()), (0, ASIDE_FIRST));
        aside.shrink(0);
        assert_eq!(aside.memory.capacity(), 0);
        aside.holds_only(&[9], &[23, 3, 3]);
        assert_eq!((aside.plain(), aside.sealed()), (&[9][..], &[23, 3, 3][..]));
        aside.holds_only(&[], &[]);
        assert_eq!(aside.memory.capacity(), 0);
    }
}
