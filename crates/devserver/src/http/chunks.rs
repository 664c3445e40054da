//! Chunked bodies: sizes in hexadecimal on lines of their own, then trailers.
//!
//! HTTP's transfer coding and S3's `aws-chunked` content coding have the same grammar, so one
//! decoder reads both, also one inside the other. Chunk signatures are extensions of the size
//! line and are not looked at.

use std::io::{self, BufRead, Read};

/// Bytes in a size line or trailer.
const LINE_MAX: u64 = 4096;
/// Trailers after the last chunk.
const TRAILERS_MAX: usize = 32;

/// Reads the bytes inside chunks.
#[derive(Debug)]
pub(crate) struct Chunks<R> {
    inner: R,
    /// Bytes of the current chunk that are still to come.
    remaining: u64,
    begun: bool,
    finished: bool,
    trailers: Vec<(String, String)>,
}

impl<R: BufRead> Chunks<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            remaining: 0,
            begun: false,
            finished: false,
            trailers: Vec::new(),
        }
    }

    pub(crate) fn finished(&self) -> bool {
        self.finished
    }

    /// Fields after the last chunk, names in lower case.
    pub(crate) fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    pub(crate) fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Makes sure that there are bytes left in the current chunk, or that the body finished.
    fn advance(&mut self) -> io::Result<()> {
        if self.remaining > 0 || self.finished {
            return Ok(());
        }
        if self.begun && !self.line()?.is_empty() {
            return Err(malformed("a chunk is longer than its size"));
        }
        self.begun = true;
        let line = self.line()?;
        let size = line.split(';').next().unwrap_or("").trim();
        self.remaining = u64::from_str_radix(size, 16)
            .map_err(|_| malformed("a chunk's size is not a number"))?;
        if self.remaining == 0 {
            self.read_trailers()?;
            self.finished = true;
        }
        Ok(())
    }

    fn read_trailers(&mut self) -> io::Result<()> {
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(());
            }
            if self.trailers.len() == TRAILERS_MAX {
                return Err(malformed("too many trailers"));
            }
            let (name, value) = line
                .split_once(':')
                .ok_or(malformed("a trailer has no name"))?;
            self.trailers
                .push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// One line without its end. A body that ends where a line should be counts as an empty
    /// line, as some clients leave the very last line end away.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.inner)
            .take(LINE_MAX)
            .read_until(b'\n', &mut line)?;
        if line.len() as u64 == LINE_MAX {
            return Err(malformed("a line is too long"));
        }
        let text = String::from_utf8(line).map_err(|_| malformed("a line is not UTF-8"))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn advanced(&mut self, count: usize) -> io::Result<usize> {
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        self.advance()?;
        if self.finished || destination.is_empty() {
            return Ok(0);
        }
        let limit = self.remaining.min(destination.len() as u64) as usize;
        let count = self.inner.read(&mut destination[..limit])?;
        self.advanced(count)
    }
}

impl<R: BufRead> BufRead for Chunks<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.advance()?;
        if self.finished {
            return Ok(&[]);
        }
        let remaining = self.remaining;
        let available = self.inner.fill_buf()?;
        if available.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let limit = remaining.min(available.len() as u64) as usize;
        Ok(&available[..limit])
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.remaining -= count as u64;
    }
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(pieces: &[Vec<u8>], extension: &str, end: &str) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            text.extend(format!("{:x}{extension}\r\n", piece.len()).bytes());
            text.extend(piece);
            text.extend(b"\r\n");
        }
        text.extend(format!("0{extension}\r\n{end}").bytes());
        text
    }

    #[test]
    fn trailers_are_kept() {
        let text = encode(
            &[b"hello".to_vec()],
            ";chunk-signature=ab",
            "X-Amz-Checksum-Crc32: AAAA==\r\n\r\n",
        );
        let mut chunks = Chunks::new(&text[..]);
        let mut body = String::new();
        chunks.read_to_string(&mut body).expect("well formed");
        assert_eq!(body, "hello");
        assert_eq!(
            chunks.trailers(),
            [("x-amz-checksum-crc32".to_owned(), "AAAA==".to_owned())]
        );
    }

    #[test]
    fn a_body_that_is_cut_or_lies_is_an_error() {
        for text in [
            "5\r\nhel",
            "5\r\nhello!\r\n0\r\n\r\n",
            "zz\r\n",
            "",
            "5\r\nhello\r\n",
        ] {
            let mut body = Vec::new();
            let outcome = Chunks::new(text.as_bytes()).read_to_end(&mut body);
            assert!(outcome.is_err(), "{text:?} gave {body:?}");
        }
    }

    proptest! {
        #[test]
        fn chunks_in_chunks_give_the_bytes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..6),
            cut in 1..50usize,
        ) {
            let inner = encode(&pieces, ";chunk-signature=0", "\r\n");
            let outer: Vec<_> = inner.chunks(cut).map(<[u8]>::to_vec).collect();
            let text = encode(&outer, "", "\r\n");
            let mut chunks = Chunks::new(Chunks::new(&text[..]));
            let mut body = Vec::new();
            chunks.read_to_end(&mut body).expect("well formed");
            prop_assert_eq!(body, pieces.concat());
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Chunks::new(&bytes[..]).read_to_end(&mut Vec::new());
        }
    }
}
