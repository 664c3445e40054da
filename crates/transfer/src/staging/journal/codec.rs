//! Records as bytes: length, CRC-32C, and then a tag and its fields, little-endian.

use std::{
    io::{self, Read},
    ops::Range,
};

use crate::{
    ObjectVersion,
    staging::{
        attempt::{Sum, Trace},
        content::Base,
        folder::FileId,
    },
};
use penstock_base::{ChecksumKind, Summing};
use penstock_object::{Description, ETag, Key, UserMetadata};

const HEADER: u8 = 1;
const DIRTY: u8 = 2;
const ZERO: u8 = 3;
const SIZE: u8 = 4;
const SYNCED: u8 = 5;
const DESCRIBED: u8 = 6;
const SAVING: u8 = 7;
const SENT: u8 = 8;
const SENT_IN_PARTS: u8 = 9;
const REPLACES: u8 = 10;

const NEW: u8 = 0;
const EMPTIED: u8 = 1;
const EMPTIED_FROM: u8 = 2;
const VERSION: u8 = 3;

const KINDS: [ChecksumKind; 3] = [
    ChecksumKind::Crc64Ecma,
    ChecksumKind::Crc64Nvme,
    ChecksumKind::Crc32c,
];

/// Bytes in the longest record: a header with its longest texts.
pub(super) const RECORD_MAX: usize = 1 << 16;

/// What a journal begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Since when the system runs, as it names that.
    pub(crate) boot: String,
    /// Which volume the file is of.
    pub(crate) volume: String,
    pub(crate) key: String,
    pub(crate) base: Base,
    pub(crate) size: u64,
}

/// One entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Header(Header),
    /// This was written.
    Dirty(Range<u64>),
    /// This is zero now.
    Zero(Range<u64>),
    /// The file has this many bytes now.
    Size(u64),
    /// What the first so many bytes of the journal say is on the disk.
    Synced(u64),
    /// The object is to be described so.
    Described(Description),
    /// A save of this many bytes began.
    Saving(u64),
    /// The store may have that save, which left this trace.
    Sent(Trace),
    /// The file took the name of this one, which was unsaved: what that one's journal says does not count.
    Replaces(FileId),
    /// Something that a later version of this program wrote.
    Unknown,
}

impl Record {
    /// Adds the record to `bytes`.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            Self::Header(header) => encode_header(header, &mut body),
            Self::Dirty(range) => encode_numbers(DIRTY, &[range.start, range.end], &mut body),
            Self::Zero(range) => encode_numbers(ZERO, &[range.start, range.end], &mut body),
            Self::Size(size) => encode_numbers(SIZE, &[*size], &mut body),
            Self::Synced(length) => encode_numbers(SYNCED, &[*length], &mut body),
            Self::Described(description) => encode_description(description, &mut body),
            Self::Saving(size) => encode_numbers(SAVING, &[*size], &mut body),
            Self::Sent(trace) => encode_trace(trace, &mut body),
            Self::Replaces(replaced) => {
                body.push(REPLACES);
                encode_text(&replaced.to_string(), &mut body);
            }
            Self::Unknown => return,
        }
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(sum(&body).to_le_bytes());
        bytes.extend(body);
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let record = match fields.byte()? {
            HEADER => Self::Header(decode_header(&mut fields)?),
            DIRTY => Self::Dirty(fields.range()?),
            ZERO => Self::Zero(fields.range()?),
            SIZE => Self::Size(fields.number()?),
            SYNCED => Self::Synced(fields.number()?),
            DESCRIBED => Self::Described(decode_description(&mut fields)?),
            SAVING => Self::Saving(fields.number()?),
            SENT => Self::Sent(Trace {
                sums: decode_sums(&mut fields)?,
                tags: Vec::new(),
            }),
            SENT_IN_PARTS => Self::Sent(decode_trace(&mut fields)?),
            REPLACES => Self::Replaces(FileId::named(fields.text()?)),
            _ => return Some(Self::Unknown),
        };
        fields.0.is_empty().then_some(record)
    }
}

fn encode_numbers(tag: u8, numbers: &[u64], body: &mut Vec<u8>) {
    body.push(tag);
    body.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn encode_text(text: &str, body: &mut Vec<u8>) {
    body.extend((text.len() as u32).to_le_bytes());
    body.extend(text.as_bytes());
}

/// Texts as bytes that tell whether they are whole.
pub(crate) fn join_texts(texts: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for text in texts {
        encode_text(text, &mut body);
    }
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(sum(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The texts at the front of some bytes, and what follows them.
pub(crate) fn split_texts(bytes: &[u8]) -> Option<(Vec<String>, &[u8])> {
    let mut fields = Fields(bytes);
    let length = fields.short()? as usize;
    let expected = fields.short()?;
    let body = fields.take(length)?;
    let (mut texts, mut left) = (Vec::new(), Fields(body));
    while !left.0.is_empty() {
        texts.push(left.text()?);
    }
    (sum(body) == expected).then_some((texts, fields.0))
}

fn encode_header(header: &Header, body: &mut Vec<u8>) {
    encode_numbers(HEADER, &[header.size], body);
    for text in [&header.boot, &header.volume, &header.key] {
        encode_text(text, body);
    }
    match &header.base {
        Base::New => body.push(NEW),
        Base::Emptied(None) => body.push(EMPTIED),
        Base::Emptied(Some(etag)) => {
            body.push(EMPTIED_FROM);
            encode_text(etag.as_str(), body);
        }
        Base::Version(version) => {
            encode_numbers(VERSION, &[version.size], body);
            encode_text(version.key.as_str(), body);
            encode_text(version.etag.as_str(), body);
        }
    }
}

fn decode_header(fields: &mut Fields<'_>) -> Option<Header> {
    let size = fields.number()?;
    let [boot, volume, key] = [fields.text()?, fields.text()?, fields.text()?];
    let base = match fields.byte()? {
        NEW => Base::New,
        EMPTIED => Base::Emptied(None),
        EMPTIED_FROM => Base::Emptied(Some(ETag::new(&fields.text()?))),
        VERSION => {
            let size = fields.number()?;
            let key = Key::new(fields.text()?).ok()?;
            let etag = ETag::new(&fields.text()?);
            Base::Version(ObjectVersion { key, etag, size })
        }
        _ => return None,
    };
    Some(Header {
        boot,
        volume,
        key,
        base,
        size,
    })
}

fn encode_description(description: &Description, body: &mut Vec<u8>) {
    body.push(DESCRIBED);
    encode_text(
        description.content_type.as_deref().unwrap_or_default(),
        body,
    );
    for (name, value) in &description.metadata {
        encode_text(name, body);
        encode_text(value, body);
    }
}

fn decode_description(fields: &mut Fields<'_>) -> Option<Description> {
    let content_type = Some(fields.text()?).filter(|text| !text.is_empty());
    let mut metadata = UserMetadata::new();
    while !fields.0.is_empty() {
        metadata.insert(fields.text()?, fields.text()?);
    }
    Some(Description {
        content_type,
        metadata,
    })
}

fn encode_trace(Trace { sums, tags }: &Trace, body: &mut Vec<u8>) {
    match u8::try_from(tags.len()) {
        Ok(0) | Err(_) => body.push(SENT),
        Ok(count) => {
            body.extend([SENT_IN_PARTS, count]);
            tags.iter().for_each(|tag| encode_text(tag.as_str(), body));
        }
    }
    for Sum { range, checksum } in sums {
        let kind = KINDS.iter().position(|kind| *kind == checksum.kind());
        let kind = kind.unwrap_or_default() as u8;
        encode_numbers(kind, &[range.start, range.end, checksum.value()], body);
    }
}

fn decode_trace(fields: &mut Fields<'_>) -> Option<Trace> {
    let tags = (0..fields.byte()?).map(|_| Some(ETag::new(&fields.text()?)));
    let tags = tags.collect::<Option<_>>()?;
    let sums = decode_sums(fields)?;
    Some(Trace { sums, tags })
}

fn decode_sums(fields: &mut Fields<'_>) -> Option<Vec<Sum>> {
    let mut sums = Vec::new();
    while !fields.0.is_empty() {
        let kind = *KINDS.get(usize::from(fields.byte()?))?;
        let range = fields.range()?;
        let checksum = kind.with_value(fields.number()?);
        sums.push(Sum { range, checksum });
    }
    Some(sums)
}

fn sum(body: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(body);
    summing.checksum().value() as u32
}

/// A whole record of a kind that nobody knows.
#[cfg(test)]
pub(super) fn record_of(tag: u8) -> Vec<u8> {
    let body = [tag, 1, 2, 3];
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(sum(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The whole records at the front of some bytes, each with where it ends.
pub(super) struct Records<R> {
    rest: R,
    at: u64,
    is_cut: bool,
}

impl<R: Read> Records<R> {
    pub(super) fn new(bytes: R) -> Self {
        Self {
            rest: bytes,
            at: 0,
            is_cut: false,
        }
    }

    /// Whether the bytes ended before the record that was begun last did.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn read(&mut self) -> io::Result<Option<(u64, Record)>> {
        let (mut length, mut expected) = ([0; 4], [0; 4]);
        self.rest.read_exact(&mut length)?;
        self.rest.read_exact(&mut expected)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > RECORD_MAX {
            return Ok(None);
        }
        let mut body = vec![0; length];
        self.rest.read_exact(&mut body)?;
        if sum(&body) != u32::from_le_bytes(expected) {
            return Ok(None);
        }
        self.at += (8 + length) as u64;
        Ok(Record::decode(&body).map(|record| (self.at, record)))
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = io::Result<(u64, Record)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_cut = true;
                None
            }
            read => read.transpose(),
        }
    }
}

/// Fields that were not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn range(&mut self) -> Option<Range<u64>> {
        let range = self.number()?..self.number()?;
        (range.start <= range.end).then_some(range)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.short()? as usize;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_every_base() {
        let key = Key::new("k").expect("valid");
        let (etag, size) = (ETag::new("tag"), 7);
        let version = ObjectVersion {
            key,
            etag: etag.clone(),
            size,
        };
        let bases = [
            Base::New,
            Base::Emptied(None),
            Base::Emptied(Some(etag)),
            Base::Version(version),
        ];
        for base in bases {
            let header = Header {
                boot: "boot".to_owned(),
                volume: "volume".to_owned(),
                key: "ünï".to_owned(),
                base,
                size: u64::MAX,
            };
            let mut bytes = Vec::new();
            Record::Header(header.clone()).encode(&mut bytes);
            let found: Vec<_> = Records::new(&bytes[..]).map(Result::unwrap).collect();
            assert_eq!(found, [(bytes.len() as u64, Record::Header(header))]);
        }
    }

    #[test]
    fn saves_are_kept_whole() {
        let number = u64::from(u32::MAX);
        let sums = KINDS.map(|kind| Sum {
            range: 7..number,
            checksum: kind.with_value(number),
        });
        let longest = vec![sums[0].clone(); 1024];
        let tags = vec![
            ETag::new(""),
            ETag::new("d41d8cd98f00b204e9800998ecf8427e-2"),
        ];
        let sent = |sums: &[Sum], tags: &[ETag]| {
            Record::Sent(Trace {
                sums: sums.to_vec(),
                tags: tags.to_vec(),
            })
        };
        for record in [
            Record::Saving(number),
            sent(&[], &[]),
            sent(&sums, &[]),
            sent(&[], &tags),
            sent(&longest, &tags),
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let found: Vec<_> = Records::new(&bytes[..]).map(Result::unwrap).collect();
            assert_eq!(found, [(bytes.len() as u64, record)]);
        }
    }

    #[test]
    fn descriptions_are_kept_whole() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let metadata = [pair("mode", "33188"), pair("xattr", ""), pair("ü", "ü")];
        for content_type in [None, Some("text/plain".to_owned())] {
            let record = Record::Described(Description {
                content_type,
                metadata: metadata.clone().into(),
            });
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let found: Vec<_> = Records::new(&bytes[..]).map(Result::unwrap).collect();
            assert_eq!(found, [(bytes.len() as u64, record)]);
        }
    }
}
