//! The content of a compressed archive: of each stream in it, up to its checksum.
//!
//! What lies behind the last stream is passed over, such as the zeros that fill a tape.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::bufread::GzDecoder;
use liblzma::{bufread::XzDecoder, stream::Stream};

use super::Compression;

/// Memory that a compressed archive may ask for, by its own header.
const MEMORY_MAX: u64 = 512 << 20;
/// The same as a power of two, for zstd.
const WINDOW_LOG_MAX: u32 = 27;
/// Bytes that tell how a stream is compressed.
const MAGIC_BYTES: u64 = 6;

/// An archive from where a stream begins: what was looked at, and the rest.
pub(super) type Whole<'a> = Chain<Cursor<Vec<u8>>, BufReader<Box<dyn Read + Send + 'a>>>;

/// One stream after the other.
pub(super) struct Streams<'a> {
    kind: Compression,
    /// None behind the last one.
    stream: Option<Decoder<'a>>,
}

enum Decoder<'a> {
    Gzip(GzDecoder<Whole<'a>>),
    Zstd(zstd::Decoder<'static, Whole<'a>>),
    Xz(XzDecoder<Whole<'a>>),
}

/// How what comes next is compressed. Nothing of it is lost.
pub(super) fn look(mut whole: Whole<'_>) -> io::Result<(Compression, Whole<'_>)> {
    let mut begin = Vec::new();
    whole.by_ref().take(MAGIC_BYTES).read_to_end(&mut begin)?;
    let (mut before, rest) = whole.into_inner();
    before.read_to_end(&mut begin)?;
    let kind = Compression::of_content(&begin);
    Ok((kind, Cursor::new(begin).chain(rest)))
}

impl<'a> Streams<'a> {
    pub(super) fn new(kind: Compression, whole: Whole<'a>) -> io::Result<Self> {
        let stream = Decoder::new(kind, whole)?;
        Ok(Self { kind, stream })
    }

    /// Goes on with the stream behind `ended`, if there is one.
    fn go_on(&mut self, ended: Decoder<'a>) -> io::Result<()> {
        let mut whole = ended.into_inner();
        skip_zeros(&mut whole)?;
        let (kind, mut whole) = look(whole)?;
        if kind == self.kind {
            self.stream = Decoder::new(kind, whole)?;
            return Ok(());
        }
        io::copy(&mut whole, &mut io::sink()).map(drop)
    }
}

impl Read for Streams<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(stream) = &mut self.stream {
            let count = stream.read(buffer).map_err(explained)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if let Some(ended) = self.stream.take() {
                self.go_on(ended)?;
            }
        }
        Ok(0)
    }
}

impl<'a> Decoder<'a> {
    fn new(kind: Compression, whole: Whole<'a>) -> io::Result<Option<Self>> {
        Ok(Some(match kind {
            Compression::None => return Ok(None),
            Compression::Gzip => Self::Gzip(GzDecoder::new(whole)),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(whole)?.single_frame();
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Self::Zstd(decoder)
            }
            Compression::Xz => {
                let stream = Stream::new_stream_decoder(MEMORY_MAX, 0)?;
                Self::Xz(XzDecoder::new_stream(whole, stream))
            }
        }))
    }

    fn into_inner(self) -> Whole<'a> {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
            Self::Xz(decoder) => decoder.into_inner(),
        }
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
        }
    }
}

fn skip_zeros(whole: &mut Whole<'_>) -> io::Result<()> {
    loop {
        let next = whole.fill_buf()?;
        let zeros = next.iter().take_while(|byte| **byte == 0).count();
        let is_over = zeros < next.len() || next.is_empty();
        whole.consume(zeros);
        if is_over {
            return Ok(());
        }
    }
}

/// Decompressors have many kinds of errors for bytes that are none of theirs. What the system says, an archive that ends too
/// early and one that asks for too much memory are not damage.
fn explained(error: io::Error) -> io::Error {
    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
    let is_other = error.raw_os_error().is_some() || error.to_string().contains("memory");
    match is_cut || is_other {
        true => error,
        false => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
