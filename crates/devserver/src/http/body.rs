//! The body of one request on its connection.

use std::io::{self, BufRead, Read};

use super::{chunks::Chunks, request::Framing, wire::Wire};

/// What is left of a refused request's body is read up to this, to keep the connection;
/// beyond it closing is cheaper.
const DRAIN_MAX: u64 = 1 << 20;

/// Reads one request's body and no further. The client is told to go on with the first read.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    framed: Framed<'a>,
    expects_continue: bool,
}

#[derive(Debug)]
enum Framed<'a> {
    Length { wire: &'a mut Wire, remaining: u64 },
    Chunked(Box<Chunks<&'a mut Wire>>),
}

impl<'a> Body<'a> {
    pub(crate) fn new(wire: &'a mut Wire, framing: Framing, expects_continue: bool) -> Self {
        let framed = match framing {
            Framing::Length(remaining) => Framed::Length { wire, remaining },
            Framing::Chunked => Framed::Chunked(Box::new(Chunks::new(wire))),
        };
        Self {
            framed,
            expects_continue,
        }
    }

    /// Bytes still to come, where that is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match &self.framed {
            Framed::Length { remaining, .. } => Some(*remaining),
            Framed::Chunked(_) => None,
        }
    }

    /// The connection, without its framing; for who counts for himself.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        match &mut self.framed {
            Framed::Length { wire, .. } => wire,
            Framed::Chunked(chunks) => chunks.inner_mut(),
        }
    }

    /// Reads the rest away. False if that is not worth it or failed: the connection cannot be
    /// used again.
    pub(crate) fn drain(&mut self) -> bool {
        if self.finished() {
            return true;
        }
        if self.expects_continue
            || self
                .remaining()
                .is_some_and(|remaining| remaining > DRAIN_MAX)
        {
            return false;
        }
        let drained = io::copy(&mut self.by_ref().take(DRAIN_MAX), &mut io::sink());
        drained.is_ok() && self.finished()
    }

    /// Whether the whole body was read.
    pub(crate) fn finished(&self) -> bool {
        match &self.framed {
            Framed::Length { remaining, .. } => *remaining == 0,
            Framed::Chunked(chunks) => chunks.finished(),
        }
    }

    /// Whether the client does not hold the body back.
    fn invite(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.expects_continue) {
            self.wire().send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        Ok(())
    }
}

impl Read for Body<'_> {
    fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        self.invite()?;
        match &mut self.framed {
            Framed::Chunked(chunks) => chunks.read(destination),
            Framed::Length { wire, remaining } => {
                let limit = (*remaining).min(destination.len() as u64) as usize;
                if limit == 0 {
                    return Ok(0);
                }
                let count = wire.read(&mut destination[..limit])?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *remaining -= count as u64;
                Ok(count)
            }
        }
    }
}

impl BufRead for Body<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.invite()?;
        match &mut self.framed {
            Framed::Chunked(chunks) => chunks.fill_buf(),
            Framed::Length { remaining: 0, .. } => Ok(&[]),
            Framed::Length { wire, remaining } => {
                let available = wire.fill_buf()?;
                if available.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let limit = (*remaining).min(available.len() as u64) as usize;
                Ok(&available[..limit])
            }
        }
    }

    fn consume(&mut self, count: usize) {
        match &mut self.framed {
            Framed::Chunked(chunks) => chunks.consume(count),
            Framed::Length { wire, remaining } => {
                wire.consume(count);
                *remaining -= count as u64;
            }
        }
    }
}
