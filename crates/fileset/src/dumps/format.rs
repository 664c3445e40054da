//! The bytes of a dump.
//!
//! ```text
//! "PNSTKDMP"  version u32  length u32  head, as JSON                     crc32c
//! 'B'  length of keys u32  length u32  keys, compressed by zstd          crc32c     any number of times
//! 'E'  count of keys u64   their digest u64                              crc32c     and nothing behind
//! keys: ( key length u16, value length u32, key, value ) ...
//! ```
//!
//! Numbers are little endian. A checksum is of the number of the dump, of how many blocks were before, and of all in its
//! line: so a block is refused at another place and in another dump. Keys ascend. A dump without its last line was cut.
//! Who reads takes the bytes for those of somebody hostile: a length is compared with what there may be first.

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::{ChecksumKind, FsError, FsResult, Summing};

use super::{
    Head, PAGE_BYTES,
    pages::{Digest, Page, Pages},
};
use crate::engine::KEY_LENGTH_MAX;

const MAGIC: &[u8; 8] = b"PNSTKDMP";
const VERSION: u32 = 1;
const BLOCK: u8 = b'B';
const END: u8 = b'E';
/// Bytes in the longest head.
const HEAD_MAX: usize = 64 << 10;
/// Bytes of keys in the largest block: a page, whose last value may be as long as values get, with lengths.
const KEYS_MAX: usize = PAGE_BYTES + (8 << 20);
/// Bytes of a checksum.
const SUM: usize = 4;
/// Bytes of the lengths before a key.
const LENGTHS: usize = 6;
/// What zstd does: its default.
const LEVEL: i32 = 3;

/// What a dump has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Keys in it.
    pub keys: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// See [`Digest::sum`].
    pub digest: u64,
}

/// Where the bytes of a dump go.
#[async_trait]
pub trait Sink: Send {
    /// Takes the next ones.
    async fn write(&mut self, bytes: Bytes) -> FsResult<()>;
}

/// Where the bytes of a dump come from.
#[async_trait]
pub trait Source: Send {
    /// The next ones, some at a time; `None` behind the last.
    async fn read(&mut self) -> FsResult<Option<Bytes>>;
}

/// Writes a dump of all that `pages` has. `tell` is told how much is written.
pub async fn write(
    head: &Head,
    pages: &mut dyn Pages,
    (sink, tell): (&mut dyn Sink, &(dyn Fn(Summary) + Sync)),
) -> FsResult<Summary> {
    let mut line = Line::new(head.dump);
    let (mut digest, mut summary) = (Digest::default(), Summary::default());
    let mut bytes = line.head(head)?;
    loop {
        summary.bytes += bytes.len() as u64;
        sink.write(bytes).await?;
        summary.keys = digest.count();
        tell(summary);
        let Some(page) = pages.next().await? else {
            break;
        };
        page.iter().for_each(|(key, value)| digest.add(key, value));
        bytes = line.block(&page)?;
    }
    let end = line.end(&digest);
    summary.bytes += end.len() as u64;
    summary.digest = digest.sum();
    sink.write(end).await?;
    Ok(summary)
}

/// Where the next line stands, which its checksum is of.
struct Line {
    dump: u64,
    number: u64,
}

impl Line {
    fn new(dump: u64) -> Self {
        Self { dump, number: 0 }
    }

    fn sum(&self, line: &[u8]) -> u32 {
        let mut sum = Summing::new(ChecksumKind::Crc32c);
        sum.add(&self.dump.to_le_bytes());
        sum.add(&self.number.to_le_bytes());
        sum.add(line);
        sum.checksum().value() as u32
    }

    fn ended(&mut self, mut line: BytesMut) -> Bytes {
        let sum = self.sum(&line);
        self.number += 1;
        line.put_u32_le(sum);
        line.freeze()
    }

    fn head(&mut self, head: &Head) -> FsResult<Bytes> {
        let text = serde_json::to_vec(head).unwrap_or_default();
        if text.len() > HEAD_MAX {
            return Err(FsError::InvalidArgument("the label is too long for a dump"));
        }
        let mut line = BytesMut::new();
        line.put_slice(MAGIC);
        line.put_u32_le(VERSION);
        line.put_u32_le(text.len() as u32);
        line.put_slice(&text);
        Ok(self.ended(line))
    }

    fn block(&mut self, page: &Page) -> FsResult<Bytes> {
        let mut keys = Vec::new();
        for (key, value) in page {
            keys.put_u16_le(key.len() as u16);
            keys.put_u32_le(value.len() as u32);
            keys.put_slice(key);
            keys.put_slice(value);
        }
        if keys.len() > KEYS_MAX {
            return Err(FsError::Corrupt("a value is longer than any is".to_owned()));
        }
        let packed = zstd::bulk::compress(&keys, LEVEL);
        let packed = packed.map_err(|error| FsError::Io(error.to_string()))?;
        let mut line = BytesMut::with_capacity(packed.len() + 16);
        line.put_u8(BLOCK);
        line.put_u32_le(keys.len() as u32);
        line.put_u32_le(packed.len() as u32);
        line.put_slice(&packed);
        Ok(self.ended(line))
    }

    fn end(&mut self, digest: &Digest) -> Bytes {
        let mut line = BytesMut::new();
        line.put_u8(END);
        line.put_u64_le(digest.count());
        line.put_u64_le(digest.sum());
        self.ended(line)
    }
}

/// A dump that is being read. All that it returns was compared with its checksum; that it is whole is known when it returned
/// `None`.
pub struct Reading<'a> {
    source: &'a mut dyn Source,
    /// What came and was not looked at.
    ahead: BytesMut,
    line: Line,
    digest: Digest,
    /// The last key.
    last: Bytes,
    head: Head,
    is_over: bool,
}

impl<'a> Reading<'a> {
    /// Reads the head.
    pub async fn begin(source: &'a mut dyn Source) -> FsResult<Self> {
        let mut ahead = BytesMut::new();
        let length = MAGIC.len() + 8;
        let mut start = need(source, &mut ahead, length).await?;
        if &start[..MAGIC.len()] != MAGIC {
            return Err(damaged("it does not begin as a dump does"));
        }
        start = &start[MAGIC.len()..];
        let (version, text) = (start.get_u32_le(), start.get_u32_le() as usize);
        if version != VERSION {
            return Err(FsError::Unsupported(
                "the dump has another format: use the version of penstock that made it",
            ));
        }
        if text > HEAD_MAX {
            return Err(damaged("its head is too long"));
        }
        let line = need(source, &mut ahead, length + text + SUM).await?;
        let head: Head = serde_json::from_slice(&line[length..length + text])
            .map_err(|_| damaged("its head is not understood"))?;
        let mut reading = Self {
            line: Line::new(head.dump),
            source,
            ahead,
            digest: Digest::default(),
            last: Bytes::new(),
            head,
            is_over: false,
        };
        reading.line(length + text).await?;
        Ok(reading)
    }

    /// What the dump says of itself.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What was read so far.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// A line of so many bytes, whose checksum holds.
    async fn line(&mut self, length: usize) -> FsResult<Bytes> {
        need(self.source, &mut self.ahead, length + SUM).await?;
        let mut line = self.ahead.split_to(length + SUM).freeze();
        let mut sum = line.split_off(length);
        if sum.get_u32_le() != self.line.sum(&line) {
            return Err(damaged("a checksum does not fit"));
        }
        self.line.number += 1;
        Ok(line)
    }

    async fn block(&mut self) -> FsResult<Page> {
        let mut lengths = &need(self.source, &mut self.ahead, 9).await?[1..];
        let (keys, packed) = (lengths.get_u32_le() as usize, lengths.get_u32_le() as usize);
        if keys > KEYS_MAX || packed > zstd::zstd_safe::compress_bound(KEYS_MAX) {
            return Err(damaged("a block is too long"));
        }
        let line = self.line(9 + packed).await?;
        let unpacked = zstd::bulk::decompress(&line[9..], keys);
        let unpacked = unpacked.map_err(|_| damaged("a block cannot be unpacked"))?;
        if unpacked.len() != keys {
            return Err(damaged("a block has another length"));
        }
        self.page(unpacked.into())
    }

    /// The keys of a block.
    fn page(&mut self, mut keys: Bytes) -> FsResult<Page> {
        let mut page = Page::new();
        while keys.has_remaining() {
            if keys.len() < LENGTHS {
                return Err(damaged("a key is cut"));
            }
            let (key, value) = (keys.get_u16_le() as usize, keys.get_u32_le() as usize);
            if key > KEY_LENGTH_MAX || keys.len() < key || keys.len() - key < value {
                return Err(damaged("a key is cut"));
            }
            let (key, value) = (keys.split_to(key), keys.split_to(value));
            if key <= self.last {
                return Err(damaged("its keys do not ascend"));
            }
            self.digest.add(&key, &value);
            self.last = key.clone();
            page.push((key, value));
        }
        Ok(page)
    }

    async fn end(&mut self) -> FsResult<()> {
        let line = self.line(17).await?;
        let mut rest = &line[1..];
        let (count, sum) = (rest.get_u64_le(), rest.get_u64_le());
        if (count, sum) != (self.digest.count(), self.digest.sum()) {
            return Err(damaged("it says another number of keys, or other ones"));
        }
        if !self.ahead.is_empty() || self.source.read().await?.is_some() {
            return Err(damaged("something is behind its end"));
        }
        self.is_over = true;
        Ok(())
    }
}

#[async_trait]
impl Pages for Reading<'_> {
    async fn next(&mut self) -> FsResult<Option<Page>> {
        if self.is_over {
            return Ok(None);
        }
        match need(self.source, &mut self.ahead, 1).await?[0] {
            BLOCK => self.block().await.map(Some),
            END => self.end().await.map(|()| None),
            _ => Err(damaged("a block is of no kind")),
        }
    }
}

/// The next bytes, so many, which stay where they are.
async fn need<'b>(
    source: &mut dyn Source,
    ahead: &'b mut BytesMut,
    length: usize,
) -> FsResult<&'b [u8]> {
    while ahead.len() < length {
        let more = source.read().await?;
        ahead.extend_from_slice(&more.ok_or_else(|| damaged("it was cut"))?);
    }
    Ok(&ahead[..length])
}

fn damaged(what: &str) -> FsError {
    FsError::Corrupt(format!("the dump is damaged: {what}"))
}

/// Bytes in memory, at once.
#[cfg(feature = "testing")]
struct Whole(Option<Bytes>);

#[cfg(feature = "testing")]
#[async_trait]
impl Source for Whole {
    async fn read(&mut self) -> FsResult<Option<Bytes>> {
        Ok(self.0.take())
    }
}

#[cfg(feature = "testing")]
pub(super) fn try_to_read(bytes: &[u8]) {
    use futures_util::FutureExt;
    let mut source = Whole(Some(Bytes::copy_from_slice(bytes)));
    let read = async {
        let mut reading = Reading::begin(&mut source).await?;
        while reading.next().await?.is_some() {}
        Ok::<_, FsError>(())
    };
    let _ = read.now_or_never();
}
