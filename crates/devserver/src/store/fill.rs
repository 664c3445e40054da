//! Objects for benchmarks, made at once and without memory of their own.
//!
//! All filled objects share one pattern of pseudo-random bytes, [`PATTERN_LENGTH`] long: an
//! object is the pattern repeated, begun at a page that depends on its key. The pattern's
//! length is a prime number of pages, so that bytes of one place do not pass for those of
//! another where a client mixes up parts. [`expected`] computes what any byte must be.

use std::{fmt, io, str::FromStr};

use super::{
    arena::Arena,
    content::{Content, ContentWriter},
    data::Data,
    object::Object,
};
use crate::{
    clock,
    digest::{self, Algorithm},
    rate::ByteCount,
};

const PAGE: u64 = 4096;
/// A prime, near 64 MiB.
const PATTERN_PAGES: u64 = 16_381;
/// Bytes until the pattern repeats.
pub const PATTERN_LENGTH: u64 = PATTERN_PAGES * PAGE;
const WORD: u64 = 8;

/// Objects to make: a key, or many keys that begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    /// Where to put them; created if need be.
    pub bucket: String,
    /// The key of a single object, or what all keys begin with.
    pub prefix: String,
    /// How many. With more than one, keys get a number of eight digits.
    pub count: u64,
    /// Bytes in each.
    pub size: u64,
}

impl Fill {
    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        let single = self.count == 1 && !self.prefix.ends_with('/') && !self.prefix.is_empty();
        (0..self.count).map(move |index| {
            if single {
                self.prefix.clone()
            } else {
                format!("{}{index:08}", self.prefix)
            }
        })
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}:{}:{}",
            self.bucket, self.prefix, self.count, self.size
        )
    }
}

impl FromStr for Fill {
    type Err = String;

    /// Parses `BUCKET/PREFIX:COUNT:SIZE`, such as `bench/small/:10000:128KiB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not BUCKET/PREFIX:COUNT:SIZE, such as bench/small/:10000:128KiB")
        };
        let (rest, size) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (place, count) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (bucket, prefix) = place.split_once('/').ok_or_else(wrong)?;
        let size: ByteCount = size.parse()?;
        let count = count.parse().map_err(|_| wrong())?;
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            count,
            size: size.0,
        })
    }
}

impl Data {
    /// Makes objects at once.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn fill(&self, fill: &Fill) -> io::Result<()> {
        self.create_bucket(&fill.bucket);
        let Some(bucket) = self.bucket(&fill.bucket) else {
            return Ok(());
        };
        let pattern = pattern_of(self)?;
        let modified = clock::wall_time();
        for key in fill.keys() {
            let content = content_of(&pattern, &key, fill.size);
            // Not the MD5 of the content, and marked as such by its suffix.
            let tag = digest::of_bytes(Algorithm::Md5, format!("{key}:{}", fill.size).as_bytes());
            let mut object = Object::new(content, format!("{}-1", tag.hex()));
            object.modified = modified;
            bucket.put(&key, object);
        }
        Ok(())
    }
}

/// The pattern that all filled objects of a server share.
pub(super) fn pattern_of(data: &Data) -> io::Result<Content> {
    data.pattern(|| make_pattern(data.arena()))
}

/// What a filled object of this key and size holds.
pub(super) fn content_of(pattern: &Content, key: &str, size: u64) -> Content {
    repeated(pattern, shift(key), size)
}

/// Fills `bytes` with what a filled object of this key holds from `offset` on.
pub fn expected(key: &str, offset: u64, bytes: &mut [u8]) {
    let mut at = shift(key) + offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let position = at % PATTERN_LENGTH;
        let word = word(position / WORD).to_le_bytes();
        let skip = (position % WORD) as usize;
        let count = rest.len().min(word.len() - skip);
        let (now, later) = rest.split_at_mut(count);
        now.copy_from_slice(&word[skip..skip + count]);
        rest = later;
        at += count as u64;
    }
}

/// Where in the pattern an object begins: at a whole page.
fn shift(key: &str) -> u64 {
    digest::of_bytes(Algorithm::Crc64Ecma, key.as_bytes()).number() % PATTERN_PAGES * PAGE
}

/// Pseudo-random bits for a word of the pattern: its index, well mixed.
pub(super) fn word(index: u64) -> u64 {
    let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 32
}

fn make_pattern(arena: &Arena) -> io::Result<Content> {
    let mut writer = ContentWriter::new(arena, Some(PATTERN_LENGTH));
    let mut index = 0;
    while index < PATTERN_LENGTH / WORD {
        let room = writer.room()?;
        // Blocks are whole words, and the last one may be larger than what is left.
        let missing = (PATTERN_LENGTH - index * WORD) as usize;
        let count = room.len().min(missing);
        for bytes in room[..count].chunks_exact_mut(WORD as usize) {
            bytes.copy_from_slice(&word(index).to_le_bytes());
            index += 1;
        }
        writer.advance(count);
    }
    Ok(writer.finish())
}

/// `length` bytes of the pattern over and over, begun at `shift`.
fn repeated(pattern: &Content, shift: u64, length: u64) -> Content {
    let mut pieces = Vec::new();
    let (mut at, mut missing) = (shift, length);
    while missing > 0 {
        let step = missing.min(PATTERN_LENGTH - at);
        pieces.push(pattern.slice(&(at..at + step)));
        missing -= step;
        at = 0;
    }
    Content::joined(&pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_parsed() {
        let fill: Fill = "bench/small/:10000:128KiB".parse().expect("well formed");
        assert_eq!(
            (fill.bucket.as_str(), fill.prefix.as_str()),
            ("bench", "small/")
        );
        assert_eq!((fill.count, fill.size), (10_000, 128 << 10));
        assert_eq!(fill.keys().nth(42).as_deref(), Some("small/00000042"));
        let fill: Fill = "big/file:1:2GiB".parse().expect("well formed");
        assert_eq!(fill.keys().collect::<Vec<_>>(), ["file"]);
        for text in ["bench", "bench/x:1", "bench/x:y:1", "bench/x:1:1parsec"] {
            assert!(text.parse::<Fill>().is_err(), "{text}");
        }
    }

    #[test]
    fn filled_objects_hold_what_is_expected() {
        let data = Data::new();
        let fill = Fill {
            bucket: "b".into(),
            prefix: "k/".into(),
            count: 3,
            size: 100_003,
        };
        data.fill(&fill).expect("memory");
        let keys: Vec<_> = fill.keys().collect();
        assert_eq!(data.keys("b"), keys);
        let bodies: Vec<_> = keys
            .iter()
            .map(|key| data.get("b", key).expect("there"))
            .collect();
        assert_ne!(bodies[0], bodies[1]);
        for (key, body) in keys.iter().zip(&bodies) {
            let mut bytes = vec![0; 100_003];
            expected(key, 0, &mut bytes);
            assert!(*body == bytes);
            let mut piece = [0; 77];
            expected(key, 12_345, &mut piece);
            assert_eq!(body[12_345..12_345 + 77], piece);
        }
    }

    #[test]
    fn large_objects_wrap_around() {
        let data = Data::new();
        let size = PATTERN_LENGTH * 2 + 5;
        data.fill(&Fill {
            bucket: "b".into(),
            prefix: "f".into(),
            count: 1,
            size,
        })
        .expect("memory");
        let object = data.bucket("b").expect("there").get("f").expect("there");
        assert_eq!(object.length(), size);
        let mut tail = [0; 9000];
        expected("f", size - 9000, &mut tail);
        assert_eq!(object.content.bytes(size - 9000..size), tail);
    }
}
