//! A connection: bytes in through one buffer, bytes out without one.
//!
//! The buffer is there for heads and for lines inside chunked bodies. A large read that finds
//! it empty goes straight from the socket to its destination. Where the client speaks HTTPS, bytes pass through
//! [`Secure`] on their way to and from the socket.

use std::{
    fs::File,
    io::{self, BufRead, Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    sync::Arc,
};

use super::secure::Secure;
use crate::system;

/// Bytes in the largest request head.
pub(crate) const HEAD_MAX: usize = 32 << 10;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Arc<TcpStream>,
    secure: Option<Box<Secure>>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Wire {
    pub(crate) fn new(stream: Arc<TcpStream>, secure: Option<Box<Secure>>) -> Self {
        Self {
            stream,
            secure,
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
        let room = &mut self.buffer[self.end..];
        let received = receive(&self.stream, &mut self.secure, room)?;
        self.end += received;
        Ok(received)
    }

    /// Whether bytes can only be sent after they were looked at.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Sends everything.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.secure {
            Some(secure) => secure.send_more(bytes).and_then(|()| secure.flush()),
            None => (&*self.stream).write_all(bytes),
        }
    }

    /// Sends bytes that more will follow, so that they share a packet with what follows.
    pub(crate) fn send_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.secure {
            Some(secure) => secure.send_more(bytes),
            None => system::send_more(&self.stream, bytes),
        }
    }

    /// Sends part of a file as it is, so not where bytes are enciphered; returns how much went.
    pub(crate) fn send_file(&self, file: &File, range: Range<u64>) -> io::Result<u64> {
        system::send_file(&self.stream, file, range)
    }

    /// Ends encipherment, so that the client knows that nothing was cut off.
    pub(crate) fn take_leave(&mut self) -> io::Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.end())
    }

    /// Says that nothing more is sent.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.take_leave()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Makes the end of the connection a reset, before which nothing is said.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        self.secure = None;
        system::reset_on_close(&self.stream)
    }

    /// Ends what is sent as a cut does: without a word.
    pub(crate) fn cut(&mut self) -> io::Result<()> {
        self.send(b"")?;
        self.stream.shutdown(Shutdown::Write)
    }
}

impl Read for Wire {
    fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            return receive(&self.stream, &mut self.secure, destination);
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

fn receive(
    stream: &TcpStream,
    secure: &mut Option<Box<Secure>>,
    destination: &mut [u8],
) -> io::Result<usize> {
    match secure {
        Some(secure) => secure.read(destination),
        None => retry(|| (&*stream).read(destination)),
    }
}

pub(super) fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
