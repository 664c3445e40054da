//! The chunked transfer coding: how a server sends a body whose length it does not know yet.
//!
//! Data ends with the last chunk, and whoever reads gives the length that may come. What stands
//! around the data is limited here: each line, and the fields behind the last chunk, which nobody
//! looks at and which a broken server could send for ever.

use super::HttpError;

/// Bytes in the longest chunk size line; extensions are skipped, so they count.
const LINE_MAX: usize = 4 << 10;
/// Fields behind the last chunk; servers that send any send a checksum or two.
const TRAILER_LINES_MAX: u16 = 64;
/// Bytes of all those fields.
const TRAILER_MAX: u16 = 16 << 10;

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunked {
    /// A line with the next chunk's size; the first has no line break before it.
    Size { first: bool },
    /// Data of a chunk.
    Data(u64),
    /// Fields after the last chunk, up to an empty line: how many, and how many bytes, may come.
    Trailer { lines: u16, bytes: u16 },
    /// Nothing.
    End,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self::Size { first: true }
    }

    /// Takes what is not data from the front of `bytes`. Returns how many bytes that were, or
    /// `None` when more must be read first.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, HttpError> {
        match *self {
            Self::Size { first } => self.read_size(bytes, first),
            Self::Trailer { lines, bytes: most } => self.read_trailer(bytes, (lines, most)),
            Self::Data(_) | Self::End => Ok(Some(0)),
        }
    }

    /// Takes `count` bytes of data off.
    pub(super) fn took(&mut self, count: u64) {
        if let Self::Data(left) = *self {
            *self = match left - count {
                0 => Self::Size { first: false },
                left => Self::Data(left),
            };
        }
    }

    fn read_size(&mut self, bytes: &[u8], first: bool) -> Result<Option<usize>, HttpError> {
        let lead = if first { 0 } else { 2 };
        if bytes.len() < lead {
            return Ok(None);
        }
        if !first && &bytes[..2] != b"\r\n" {
            return Err(HttpError::protocol("a chunk is longer than it said"));
        }
        let Some(length) = line_length(&bytes[lead..])? else {
            return Ok(None);
        };
        let size = parse_size(&bytes[lead..lead + length])?;
        *self = match size {
            0 => Self::Trailer {
                lines: TRAILER_LINES_MAX,
                bytes: TRAILER_MAX,
            },
            size => Self::Data(size),
        };
        Ok(Some(lead + length))
    }

    fn read_trailer(
        &mut self,
        bytes: &[u8],
        (lines, most): (u16, u16),
    ) -> Result<Option<usize>, HttpError> {
        let Some(length) = line_length(bytes)? else {
            return Ok(None);
        };
        if bytes[..length].trim_ascii().is_empty() {
            *self = Self::End;
            return Ok(Some(length));
        }
        let left = u16::try_from(length)
            .ok()
            .and_then(|length| most.checked_sub(length));
        let (Some(lines), Some(bytes)) = (lines.checked_sub(1), left) else {
            return Err(HttpError::protocol(
                "the fields behind a chunked body have no end",
            ));
        };
        *self = Self::Trailer { lines, bytes };
        Ok(Some(length))
    }
}

/// Bytes up to and with the next line break.
fn line_length(bytes: &[u8]) -> Result<Option<usize>, HttpError> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    if end.unwrap_or(bytes.len()) > LINE_MAX {
        return Err(HttpError::protocol("a line of a chunked body is too long"));
    }
    Ok(end.map(|position| position + 1))
}

fn parse_size(line: &[u8]) -> Result<u64, HttpError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    std::str::from_utf8(digits.trim_ascii())
        .ok()
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or_else(|| HttpError::protocol("a chunk size is not a number"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::http::fuzzing::chunked;

    #[test]
    fn takes_extensions_and_trailers() {
        let body = b"3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\n";
        assert_eq!(chunked(body, 1).expect("valid"), b"abc0123456789");
    }

    #[test]
    fn refuses_what_is_not_chunked() {
        for body in [
            &b"x\r\n"[..],
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"+3\r\nabc",
            b"\r\n",
        ] {
            assert!(chunked(body, 4).is_err());
        }
    }

    #[test]
    fn refuses_a_trailer_without_an_end() {
        let field = |length: usize| format!("x: {}\r\n", "y".repeat(length - 5));
        let trailer = |count, length| format!("0\r\n{}\r\n", field(length).repeat(count));
        for (count, length, fine) in [
            (64, 10, true),
            (65, 10, false),
            (4, 4096, true),
            (5, 4096, false),
        ] {
            let decoded = chunked(trailer(count, length).as_bytes(), 100);
            assert_eq!(decoded.is_ok(), fine, "{count} of {length} bytes");
        }
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            window in 1usize..600,
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend(format!("{:x}\r\n", chunk.len()).bytes());
                body.extend(chunk);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n\r\n");
            prop_assert_eq!(chunked(&body, window).expect("valid"), chunks.concat());
        }

        #[test]
        fn never_panics(body in prop::collection::vec(any::<u8>(), 0..200), window in 1usize..50) {
            let _ = chunked(&body, window);
        }
    }
}
