//! A connection: bytes in through one buffer, bytes out without one.
//!
//! The buffer is there for heads and for lines inside chunked bodies. A large read that finds
//! it empty goes straight from the socket to its destination.

use std::{
    io::{self, BufRead, Read, Write},
    net::TcpStream,
    sync::Arc,
};

/// Bytes in the largest request head.
pub(crate) const HEAD_MAX: usize = 32 << 10;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Arc<TcpStream>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Wire {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Self {
        Self {
            stream,
            buffer: vec![0; HEAD_MAX].into(),
            start: 0,
            end: 0,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What has arrived and was not consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Waits for more bytes behind those buffered; 0 at the end of the stream, an error when
    /// the buffer is full.
    pub(crate) fn receive_more(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the head is too long",
            ));
        }
        let received = retry(|| (&*self.stream).read(&mut self.buffer[self.end..]))?;
        self.end += received;
        Ok(received)
    }

    /// Sends everything.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self.stream).write_all(bytes)
    }
}

impl Read for Wire {
    fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            return retry(|| (&*self.stream).read(destination));
        }
        let count = destination.len().min(self.end - self.start);
        destination[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl BufRead for Wire {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.receive_more()?;
        }
        Ok(self.buffered())
    }

    fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
