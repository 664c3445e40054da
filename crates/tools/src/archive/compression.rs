//! Compressed archives.

mod streams;

use std::{
    io::{self, BufReader, Read, Write},
    path::Path,
};

use liblzma::stream::{Check, MtStreamBuilder};

use streams::Streams;

/// Levels that are usual for each.
const LEVELS: (u32, i32, u32) = (6, 3, 6);
/// Threads that compress.
const THREADS_MAX: usize = 16;

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip(1).
    Gzip,
    /// zstd(1).
    Zstd,
    /// xz(1).
    Xz,
}

impl Compression {
    /// What the end of a file's name asks for.
    pub fn of_name(path: &Path) -> Self {
        let name = path.to_string_lossy();
        let ends = |words: &[&str]| words.iter().any(|word| name.ends_with(word));
        if ends(&[".gz", ".tgz", ".taz"]) {
            Self::Gzip
        } else if ends(&[".zst", ".tzst"]) {
            Self::Zstd
        } else if ends(&[".xz", ".txz"]) {
            Self::Xz
        } else {
            Self::None
        }
    }

    fn of_content(begin: &[u8]) -> Self {
        match begin {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A frame without content.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::None,
        }
    }

    /// Reads `input`, whatever it is compressed with.
    pub(super) fn reader<'a>(
        input: Box<dyn Read + Send + 'a>,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        let input = BufReader::with_capacity(1 << 20, input);
        let (kind, whole) = streams::look(io::Cursor::new(Vec::new()).chain(input))?;
        Ok(match kind {
            Self::None => Box::new(whole),
            kind => Box::new(Streams::new(kind, whole)?),
        })
    }

    /// Writes compressed to `output`.
    pub(super) fn writer<'a>(
        self,
        output: Box<dyn Write + Send + 'a>,
        threads: usize,
    ) -> io::Result<Output<'a>> {
        let threads = threads.clamp(1, THREADS_MAX) as u32;
        Ok(match self {
            Self::None => Output::Plain(output),
            Self::Gzip => {
                let level = flate2::Compression::new(LEVELS.0);
                Output::Gzip(flate2::write::GzEncoder::new(output, level))
            }
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(output, LEVELS.1)?;
                encoder.include_checksum(true)?;
                encoder.multithread(threads)?;
                Output::Zstd(encoder)
            }
            Self::Xz => {
                let mut builder = MtStreamBuilder::new();
                let builder = builder
                    .threads(threads)
                    .preset(LEVELS.2)
                    .check(Check::Crc64);
                Output::Xz(liblzma::write::XzEncoder::new_stream(
                    output,
                    builder.encoder()?,
                ))
            }
        })
    }
}

/// An archive on its way to a file.
pub(super) enum Output<'a> {
    Plain(Box<dyn Write + Send + 'a>),
    Gzip(flate2::write::GzEncoder<Box<dyn Write + Send + 'a>>),
    Zstd(zstd::Encoder<'static, Box<dyn Write + Send + 'a>>),
    Xz(liblzma::write::XzEncoder<Box<dyn Write + Send + 'a>>),
}

impl Output<'_> {
    /// Writes what is held back, and the end.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut output = match self {
            Self::Plain(output) => output,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Xz(encoder) => encoder.finish()?,
        };
        output.flush()
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Xz(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
