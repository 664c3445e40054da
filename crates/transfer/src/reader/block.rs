//! One block of a part: where its bytes are.
//!
//! A block is received into memory, where it can be read any number of times, or into a pipe, which
//! gives each byte once and in order. Reads come nearly in order. One that overtakes another makes
//! what lies before it be copied aside; one that comes for bytes that are gone finds nothing.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{BufferView, Chunk, Contents, Pipe, Piped};
use smallvec::SmallVec;

/// Where bytes are.
#[derive(Debug)]
pub(super) enum Place {
    /// In a buffer, from its front on.
    Buffer(BufferView),
    /// In a pipe.
    Pipe(Arc<Pipe>),
    /// Taken out of a pipe by a read that wanted what came after them.
    Aside(Bytes),
}

/// Bytes of the object in one place: those from `start` to `end`, as far as they have arrived.
#[derive(Debug)]
struct Stretch {
    start: u64,
    end: u64,
    place: Place,
}

/// The stretches of one block, in order. Between them may be gaps, of what a pipe has given away.
#[derive(Debug)]
pub(super) struct Block {
    stretches: SmallVec<[Stretch; 1]>,
}

impl Block {
    /// A block of `range`, all of which goes to `place`.
    pub(super) fn new(range: Range<u64>, place: Place) -> Self {
        let mut block = Self {
            stretches: SmallVec::new(),
        };
        block.go_on(range, place);
        block
    }

    /// What comes from the start of `range` on goes to `place` instead.
    pub(super) fn go_on(&mut self, range: Range<u64>, place: Place) {
        if let Some(last) = self.stretches.last_mut() {
            last.end = range.start;
        }
        self.stretches.push(Stretch {
            start: range.start,
            end: range.end,
            place,
        });
    }

    /// Whether all bytes of `range` can still be read once they have arrived.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let mut start = range.start;
        while start < range.end {
            match self.index_at(start) {
                Some(index) => start = self.stretches[index].end,
                None => return false,
            }
        }
        true
    }

    /// Adds the bytes of `range`, all of which it [has](Self::has), to `contents`. Everything before
    /// `filled` has arrived. Fails when the kernel does not give its bytes back, and they are lost.
    pub(super) fn read(
        &mut self,
        range: &Range<u64>,
        filled: u64,
        contents: &mut Contents,
    ) -> io::Result<()> {
        let mut start = range.start;
        while start < range.end {
            let index = self.index_at(start).ok_or(io::ErrorKind::NotFound)?;
            let end = range.end.min(self.stretches[index].end);
            contents.push(self.take(index, start..end, filled)?);
            start = end;
        }
        Ok(())
    }

    fn index_at(&self, offset: u64) -> Option<usize> {
        let mut stretches = self.stretches.iter();
        stretches.position(|stretch| stretch.start <= offset && offset < stretch.end)
    }

    fn take(&mut self, index: usize, range: Range<u64>, filled: u64) -> io::Result<Chunk> {
        let Stretch {
            start,
            end,
            ref place,
        } = self.stretches[index];
        let within = (range.start - start) as usize..(range.end - start) as usize;
        match place {
            Place::Buffer(view) => Ok(Chunk::Memory(view.slice(within))),
            Place::Aside(bytes) => Ok(Chunk::Memory(bytes.slice(within))),
            Place::Pipe(pipe) => {
                let pipe = Arc::clone(pipe);
                self.stretches[index].start = range.end;
                self.put_aside(index, &pipe, start..range.start)?;
                let is_rest = range.end == end && end <= filled;
                take_from(&pipe, (range.end - range.start) as usize, is_rest)
            }
        }
    }

    fn put_aside(&mut self, index: usize, pipe: &Pipe, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let bytes = pipe.read(range.end - range.start)?;
        let aside = Stretch {
            start: range.start,
            end: range.end,
            place: Place::Aside(bytes.into()),
        };
        self.stretches.insert(index, aside);
        Ok(())
    }
}

/// The next `length` bytes of `pipe`. When they are the rest of it, the pipe goes with them.
fn take_from(pipe: &Arc<Pipe>, length: usize, is_rest: bool) -> io::Result<Chunk> {
    if is_rest {
        return Ok(Chunk::Piped(Piped::all_of(Arc::clone(pipe), length)));
    }
    let Some(other) = pipe.another() else {
        return Ok(Chunk::Memory(pipe.read(length as u64)?.into()));
    };
    if pipe.move_to(&other, length as u64).is_ok() {
        return Ok(Chunk::Piped(Piped::all_of(Arc::new(other), length)));
    }
    let mut bytes = other.read(other.len())?;
    bytes.extend(pipe.read((length - bytes.len()) as u64)?);
    Ok(Chunk::Memory(bytes.into()))
}

#[cfg(test)]
mod tests {
    use penstock_base::Pipes;

    use super::*;

    /// A block of ten bytes at 100, the first `piped` of which are in a pipe.
    fn block(piped: usize) -> (Block, Arc<Pipes>) {
        let pipes = Pipes::new(8).expect("pipes of one mebibyte");
        let pipe = pipes.take().expect("one");
        pipe.write(&b"0123456789"[..piped]).expect("room");
        (Block::new(100..110, Place::Pipe(Arc::new(pipe))), pipes)
    }

    /// What a read of `range` delivers and whether the bytes were in a pipe.
    fn read(block: &mut Block, range: Range<u64>, filled: u64) -> Option<(String, bool)> {
        if !block.has(&range) {
            return None;
        }
        let mut contents = Contents::new();
        block
            .read(&range, filled, &mut contents)
            .expect("it is there");
        let is_piped = contents.is_piped();
        let bytes = contents.into_memory().expect("it is there").to_vec();
        Some((String::from_utf8(bytes).expect("digits"), is_piped))
    }

    fn text(digits: &str, is_piped: bool) -> Option<(String, bool)> {
        Some((digits.to_owned(), is_piped))
    }

    #[test]
    fn a_pipe_gives_each_byte_once() {
        let (mut block, _pipes) = block(10);
        assert_eq!(read(&mut block, 100..104, 110), text("0123", true));
        assert_eq!(read(&mut block, 102..104, 110), None);
        assert_eq!(read(&mut block, 102..106, 110), None, "not even half of it");
        assert_eq!(read(&mut block, 104..110, 110), text("456789", true));
        assert_eq!(read(&mut block, 109..110, 110), None);
    }

    #[test]
    fn what_a_read_overtakes_is_kept_for_the_one_that_comes_late() {
        let (mut block, _pipes) = block(10);
        assert_eq!(read(&mut block, 106..108, 110), text("67", true));
        assert_eq!(read(&mut block, 105..107, 110), None, "half of it is gone");
        assert_eq!(read(&mut block, 103..106, 110), text("345", false));
        assert_eq!(read(&mut block, 100..103, 110), text("012", false));
        assert_eq!(read(&mut block, 108..110, 110), text("89", true));
    }

    #[test]
    fn a_pipe_that_is_still_filled_is_not_given_away() {
        let (mut block, pipes) = block(4);
        assert_eq!(read(&mut block, 100..104, 104), text("0123", true));
        let pipe = pipes.take().expect("one");
        block.go_on(104..110, Place::Pipe(Arc::new(pipe)));
        assert!(block.has(&(104..110)), "it will arrive");
        assert!(!block.has(&(103..105)));
    }

    #[test]
    fn without_another_pipe_bytes_are_copied() {
        let pipes = Pipes::new(1).expect("pipes of one mebibyte");
        let pipe = pipes.take().expect("one");
        pipe.write(b"0123456789").expect("room");
        let mut block = Block::new(100..110, Place::Pipe(Arc::new(pipe)));
        assert_eq!(read(&mut block, 100..104, 110), text("0123", false));
        assert_eq!(read(&mut block, 104..110, 110), text("456789", true));
    }

    #[test]
    fn a_block_may_go_on_in_memory() {
        let (mut block, _pipes) = block(4);
        block.go_on(104..110, Place::Aside(Bytes::from_static(b"456789")));
        assert_eq!(read(&mut block, 102..108, 110), text("234567", true));
        assert_eq!(read(&mut block, 105..107, 110), text("56", false));
        assert_eq!(read(&mut block, 100..102, 110), text("01", false));
    }
}
