//! What a read delivers.

use std::{io, sync::Arc};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::{Payload, Pipe};

/// The bytes of a read in order, in memory or still in the kernel.
#[derive(Debug, Default)]
pub struct Contents {
    chunks: SmallVec<[Chunk; 2]>,
    len: usize,
}

/// A run of bytes.
#[derive(Debug)]
pub enum Chunk {
    /// In memory.
    Memory(Bytes),
    /// In a pipe.
    Piped(Piped),
}

/// The bytes of a pipe, all of which belong to whoever has this.
#[derive(Debug)]
pub struct Piped {
    pipe: Arc<Pipe>,
    len: usize,
}

impl Piped {
    /// The `len` bytes of `pipe`, which nobody else takes from or adds to any more.
    pub fn all_of(pipe: Arc<Pipe>, len: usize) -> Self {
        Self { pipe, len }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Chunk {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Piped(piped) => piped.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves the bytes to the end of `pipe`. Fails with `StorageFull` when that has no room for all;
    /// then the chunk is what is left.
    pub fn move_to(&mut self, pipe: &Pipe) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                let written = pipe.write(bytes)?;
                bytes.advance(written);
                if bytes.is_empty() {
                    return Ok(());
                }
                Err(io::ErrorKind::StorageFull.into())
            }
            Self::Piped(piped) => piped.pipe.move_to(pipe, piped.len as u64),
        }
    }

    /// The bytes in memory, copied if they are in a pipe.
    pub fn into_memory(self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes),
            Self::Piped(Piped { pipe, .. }) => Ok(pipe.read(pipe.len())?.into()),
        }
    }
}

impl Contents {
    /// No bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `chunk` at the end; an empty one is dropped.
    pub fn push(&mut self, chunk: Chunk) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push(chunk);
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether any of the bytes are in a pipe.
    pub fn is_piped(&self) -> bool {
        self.chunks
            .iter()
            .any(|chunk| matches!(chunk, Chunk::Piped(_)))
    }

    /// The chunks in order; none is empty.
    pub fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.chunks.into_iter()
    }

    /// All bytes in memory: those that are in a pipe are copied.
    pub fn into_memory(self) -> io::Result<Payload> {
        let mut payload = Payload::new();
        for chunk in self.chunks {
            payload.push(chunk.into_memory()?);
        }
        Ok(payload)
    }
}

impl From<Payload> for Contents {
    fn from(payload: Payload) -> Self {
        let mut contents = Self::new();
        for slice in payload.slices() {
            contents.push(Chunk::Memory(slice.clone()));
        }
        contents
    }
}

impl From<Bytes> for Contents {
    fn from(bytes: Bytes) -> Self {
        Payload::from(bytes).into()
    }
}
