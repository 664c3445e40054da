//! Replies whose bytes never were in memory.
//!
//! The kernel takes a reply from a pipe as it takes one from memory: as one message, header first. The
//! header is therefore put into a pipe of its own, and what was read is moved behind it.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use penstock_base::{Chunk, Contents, Pipe, Pipes};

/// Replies that are put together at once. Who finds no pipe for it copies.
const REPLIES_MAX: usize = 8;

/// Where replies are put together.
#[derive(Debug, Default)]
pub(super) struct ReplyPipes {
    pipes: OnceLock<Option<Arc<Pipes>>>,
}

/// A reply that was put together, or was not.
#[derive(Debug)]
pub(super) enum Assembled {
    /// Header and contents.
    Pipe(Pipe),
    /// There was no room; these are the contents.
    Not(Contents),
}

impl ReplyPipes {
    /// Puts `header` and `contents` into one pipe. Fails when the kernel does not give the contents back.
    pub(super) fn assemble(&self, header: &[u8], contents: Contents) -> io::Result<Assembled> {
        let pipes = self.pipes.get_or_init(|| Pipes::new(REPLIES_MAX));
        let Some(pipe) = pipes.as_ref().and_then(Pipes::take) else {
            return Ok(Assembled::Not(contents));
        };
        if pipe.write(header)? != header.len() {
            return Ok(Assembled::Not(contents));
        }
        let mut chunks = contents.into_chunks();
        while let Some(mut chunk) = chunks.next() {
            if chunk.move_to(&pipe).is_err() {
                let rest = std::iter::once(chunk).chain(chunks);
                return take_back(&pipe, header.len(), rest).map(Assembled::Not);
            }
        }
        Ok(Assembled::Pipe(pipe))
    }
}

/// What is in `pipe` after the header, followed by `rest`.
fn take_back(
    pipe: &Pipe,
    header: usize,
    rest: impl Iterator<Item = Chunk>,
) -> io::Result<Contents> {
    let moved = Bytes::from(pipe.read(pipe.len())?);
    let mut contents = Contents::from(moved.slice(header..));
    for chunk in rest {
        contents.push(Chunk::Memory(chunk.into_memory()?));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use penstock_base::Piped;

    use super::*;

    const HEADER: &[u8] = b"sixteen bytes...";

    /// A pipe whose places are all taken, each by one page, and the number of bytes in it.
    fn full_pipe(pipes: &Arc<Pipes>, byte: u8) -> (Chunk, usize) {
        let pipe = pipes.take().expect("one");
        while pipe.write(&[byte; 4 << 10]).is_ok() {}
        let length = pipe.len() as usize;
        (Chunk::Piped(Piped::all_of(Arc::new(pipe), length)), length)
    }

    #[test]
    fn header_and_chunks_follow_one_another() {
        let pipes = Pipes::new(1).expect("pipes of one mebibyte");
        let pipe = pipes.take().expect("one");
        pipe.write(b"cde").expect("room");
        let mut contents = Contents::from(Bytes::from_static(b"ab"));
        contents.push(Chunk::Piped(Piped::all_of(Arc::new(pipe), 3)));
        contents.push(Chunk::Memory(Bytes::from_static(b"fg")));
        let assembled = ReplyPipes::default().assemble(HEADER, contents);
        let Assembled::Pipe(pipe) = assembled.expect("assembled") else {
            unreachable!("there is room");
        };
        let message = pipe.read(pipe.len()).expect("it is there");
        assert_eq!(message, [HEADER, b"abcdefg"].concat());
    }

    #[test]
    fn what_has_no_room_beside_the_header_is_given_back_whole() {
        let pipes = Pipes::new(1).expect("pipes of one mebibyte");
        let (chunk, length) = full_pipe(&pipes, 7);
        let mut contents = Contents::from(Bytes::from_static(b"ab"));
        contents.push(chunk);
        contents.push(Chunk::Memory(Bytes::from_static(b"c")));
        let assembled = ReplyPipes::default().assemble(HEADER, contents);
        let Assembled::Not(contents) = assembled.expect("assembled") else {
            unreachable!("a place is missing");
        };
        assert_eq!(contents.len(), length + 3);
        let bytes = contents.into_memory().expect("memory").to_vec();
        assert_eq!((&bytes[..2], &bytes[length + 2..]), (&b"ab"[..], &b"c"[..]));
        assert!(bytes[2..length + 2].iter().all(|byte| *byte == 7));
    }
}
