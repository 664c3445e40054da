//! The beginning of an index file: which version of which object the files hold.
//!
//! ```text
//! magic 8 | length 4 | CRC-32C of the rest 4 | block size 4 | store | key | tag | size 8 | ...
//! ```
//!
//! Numbers are little-endian, texts have their length in two bytes before them. Behind the header,
//! at the next multiple of eight, the table of blocks begins.

use std::time::{Duration, UNIX_EPOCH};

use penstock_base::{Checksum, ChecksumKind};
use penstock_object::{ETag, ObjectInfo, ObjectKind, UserMetadata};

use super::block::{self, BLOCK};

const MAGIC: &[u8; 8] = b"PnstkIx1";

/// Bytes of magic, length and sum.
pub(super) const PREFIX: usize = 16;

/// Bytes in the longest header: far more than stores allow for keys and metadata together.
pub(super) const LENGTH_MAX: usize = 64 << 10;

/// Which version of which object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The store without credentials.
    pub(super) identity: String,
    pub(super) key: String,
    pub(super) info: ObjectInfo,
}

impl Header {
    /// The bytes, or `None` when there are more of them than a header may have.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        put_number(&mut body, BLOCK, 4);
        let info = &self.info;
        for text in [&self.identity, &self.key, info.etag.as_str()] {
            put_text(&mut body, text)?;
        }
        put_number(&mut body, info.size, 8);
        let modified = info.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        put_number(&mut body, modified.as_secs(), 8);
        put_number(&mut body, modified.subsec_nanos().into(), 4);
        body.push(info.kind as u8);
        put_text(&mut body, &info.storage_class)?;
        put_text(&mut body, &info.content_type)?;
        put_checksum(&mut body, info.checksum);
        put_number(&mut body, info.metadata.len() as u64, 2);
        for (name, value) in &info.metadata {
            put_text(&mut body, name)?;
            put_text(&mut body, value)?;
        }
        let length = PREFIX + body.len();
        let mut bytes = MAGIC.to_vec();
        put_number(&mut bytes, length as u64, 4);
        put_number(&mut bytes, block::sum(&body).into(), 4);
        bytes.extend(body);
        (length <= LENGTH_MAX).then_some(bytes)
    }

    /// How many bytes the header has that begins with `prefix`.
    pub(super) fn length(prefix: &[u8]) -> Option<usize> {
        let mut rest = prefix.strip_prefix(MAGIC)?;
        let length = usize::try_from(take_number(&mut rest, 4)?).ok()?;
        (PREFIX..=LENGTH_MAX).contains(&length).then_some(length)
    }

    /// Reads what [`Header::encode`] wrote; `None` if it is damaged or of another format.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let length = Self::length(bytes)?;
        let mut sum = bytes.get(12..PREFIX)?;
        let mut body = bytes.get(PREFIX..length)?;
        if take_number(&mut sum, 4)? != u64::from(block::sum(body)) {
            return None;
        }
        if take_number(&mut body, 4)? != BLOCK {
            return None;
        }
        let identity = take_text(&mut body)?;
        let key = take_text(&mut body)?;
        let info = take_info(&mut body)?;
        Some(Self {
            identity,
            key,
            info,
        })
    }

    /// Whether both are of the same version of the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (one, another) = (&self.info, &other.info);
        self.identity == other.identity
            && self.key == other.key
            && (&one.etag, one.size) == (&another.etag, another.size)
    }

    /// Where the table of blocks begins behind a header of `length` bytes.
    pub(super) fn table_start(length: usize) -> u64 {
        (length as u64).next_multiple_of(block::STATE_SIZE)
    }
}

fn take_info(body: &mut &[u8]) -> Option<ObjectInfo> {
    let etag = ETag::new(&take_text(body)?);
    let size = take_number(body, 8)?;
    let seconds = take_number(body, 8)?;
    let nanoseconds = u32::try_from(take_number(body, 4)?).ok()?;
    let modified = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))?;
    let kinds = [
        ObjectKind::Normal,
        ObjectKind::Appendable,
        ObjectKind::Symlink,
    ];
    let kind = *kinds.get(take_number(body, 1)? as usize)?;
    let storage_class = take_text(body)?;
    let content_type = take_text(body)?;
    let checksum = take_checksum(body)?;
    let mut metadata = UserMetadata::new();
    for _ in 0..take_number(body, 2)? {
        metadata.insert(take_text(body)?, take_text(body)?);
    }
    Some(ObjectInfo {
        size,
        etag,
        modified,
        kind,
        storage_class,
        content_type,
        metadata,
        checksum,
    })
}

const CHECKSUMS: [ChecksumKind; 3] = [
    ChecksumKind::Crc64Ecma,
    ChecksumKind::Crc64Nvme,
    ChecksumKind::Crc32c,
];

/// 0 for none, or one more than the place in [`CHECKSUMS`], and the value.
fn put_checksum(bytes: &mut Vec<u8>, checksum: Option<Checksum>) {
    let kind = checksum.and_then(|sum| CHECKSUMS.iter().position(|kind| *kind == sum.kind()));
    bytes.push(kind.map_or(0, |kind| kind as u8 + 1));
    put_number(bytes, checksum.map_or(0, Checksum::value), 8);
}

fn take_checksum(bytes: &mut &[u8]) -> Option<Option<Checksum>> {
    let kind = take_number(bytes, 1)? as usize;
    let value = take_number(bytes, 8)?;
    if kind == 0 {
        return Some(None);
    }
    let kind = CHECKSUMS.get(kind - 1)?;
    Some(Some(kind.with_value(value)))
}

fn put_number(bytes: &mut Vec<u8>, number: u64, width: usize) {
    bytes.extend_from_slice(&number.to_le_bytes()[..width]);
}

fn take_number(bytes: &mut &[u8], width: usize) -> Option<u64> {
    let (number, rest) = bytes.split_at_checked(width)?;
    *bytes = rest;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(number);
    Some(u64::from_le_bytes(wide))
}

fn put_text(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    let length = u16::try_from(text.len()).ok()?;
    put_number(bytes, length.into(), 2);
    bytes.extend_from_slice(text.as_bytes());
    Some(())
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let length = take_number(bytes, 2)? as usize;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(texts: [String; 4], size: u64, metadata: UserMetadata) -> Header {
        let [identity, key, etag, content_type] = texts;
        Header {
            identity,
            key,
            info: ObjectInfo {
                size,
                etag: ETag::new(&etag),
                modified: UNIX_EPOCH + Duration::from_millis(size >> 20),
                kind: ObjectKind::Appendable,
                storage_class: String::new(),
                content_type,
                metadata,
                checksum: size.is_multiple_of(2).then_some(Checksum::Crc64Nvme(size)),
            },
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(texts: [String; 4], size: u64, metadata: UserMetadata) {
            let header = header(texts, size, metadata);
            let mut bytes = header.encode().expect("short enough");
            prop_assert_eq!(Header::length(&bytes[..PREFIX]), Some(bytes.len()));
            bytes.extend([7; 100]);
            prop_assert_eq!(Header::decode(&bytes), Some(header));
        }

        #[test]
        fn damage_is_noticed(at: prop::sample::Index, bit in 0..8u8) {
            let texts = ["store", "key", "tag", "text/plain"].map(str::to_owned);
            let mut bytes = header(texts, 5, UserMetadata::new()).encode().expect("short");
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Header::decode(&bytes), None);
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>) {
            let _ = Header::decode(&bytes);
            bytes.splice(0..0, MAGIC.iter().copied());
            let _ = Header::decode(&bytes);
        }
    }

    #[test]
    fn a_key_that_is_too_long_for_the_format_is_not_written() {
        let texts = [
            "s".to_owned(),
            "k".repeat(1 << 16),
            "t".to_owned(),
            String::new(),
        ];
        assert_eq!(header(texts, 1, UserMetadata::new()).encode(), None);
    }
}
