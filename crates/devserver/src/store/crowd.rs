//! Very many objects that take no memory: what is asked of one is computed from its number.
//!
//! A crowd is for listings of millions of keys. Its objects hold what filled objects hold (see
//! [`super::fill`]), and can be replaced and deleted like all others; only these are kept account of.

use std::{collections::BTreeSet, fmt, io, str::FromStr, sync::Arc, time::SystemTime};

use super::{content::Content, data::Data, fill, object::Object};
use crate::{clock, rate::ByteCount};

/// Digits that a number in a key has at least.
const DIGITS_MIN: usize = 8;
/// Digits that a directory's number has at least.
const DIRECTORY_DIGITS_MIN: usize = 4;

/// Objects to be there, without being made: `PREFIX0001/00000042` and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowd {
    /// Where to put them; created if need be.
    pub bucket: String,
    /// What all keys begin with.
    pub prefix: String,
    /// How many.
    pub count: u64,
    /// Bytes in each.
    pub size: u64,
    /// Directories over which they are spread evenly; 0 for none.
    pub directories: u64,
}

impl Crowd {
    /// The key of object `index`; keys rise with their number.
    pub fn key(&self, index: u64) -> String {
        let mut key = self.prefix.clone();
        if self.directories > 0 {
            let each = self.count.div_ceil(self.directories).max(1);
            let digits = width(self.directories, DIRECTORY_DIGITS_MIN);
            push_number(&mut key, index / each, digits);
            key.push('/');
        }
        push_number(&mut key, index, width(self.count, DIGITS_MIN));
        key
    }

    fn tag(&self, index: u64) -> Tag {
        let bits = fill::word(index.rotate_left(32) ^ self.size);
        // Not the MD5 of the content, and marked as such at its end.
        let mut tag = *b"00000000000000000000000000000000-1";
        let bytes = [bits, fill::word(bits)].map(u64::to_be_bytes);
        for (pair, byte) in tag.chunks_exact_mut(2).zip(bytes.as_flattened()) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        Tag(tag)
    }
}

/// The tag of a member, without memory of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag([u8; 34]);

impl Tag {
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are text")
    }
}

/// Digits of the numbers below `count`.
fn width(count: u64, least: usize) -> usize {
    let last = count.saturating_sub(1).max(1);
    (last.ilog10() as usize + 1).max(least)
}

fn push_number(text: &mut String, number: u64, digits: usize) {
    let mut unit = 10u64.pow(digits as u32 - 1);
    while unit > 0 {
        text.push(char::from(b'0' + (number / unit % 10) as u8));
        unit /= 10;
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, prefix) = (&self.bucket, &self.prefix);
        let (count, size, directories) = (self.count, self.size, self.directories);
        write!(f, "{bucket}/{prefix}:{count}:{size}:{directories}")
    }
}

impl FromStr for Crowd {
    type Err = String;

    /// Parses `BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES`, such as `bench/many/:10000000:100KiB:1000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES, such as bench/many/:10000000:100KiB:1000"
            )
        };
        let (rest, directories) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (rest, size) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (place, count) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (bucket, prefix) = place.split_once('/').ok_or_else(wrong)?;
        let size: ByteCount = size.parse()?;
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            count: count.parse().map_err(|_| wrong())?,
            size: size.0,
            directories: directories.parse().map_err(|_| wrong())?,
        })
    }
}

impl Data {
    /// Lets a crowd be there. Objects of its keys that were there before are its members now.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn add_crowd(&self, crowd: &Crowd) -> io::Result<()> {
        self.create_bucket(&crowd.bucket);
        if let Some(bucket) = self.bucket(&crowd.bucket) {
            bucket.add_crowd(Members {
                crowd: crowd.clone(),
                pattern: fill::pattern_of(self)?,
                modified: clock::wall_time(),
                gone: BTreeSet::new(),
            });
        }
        Ok(())
    }
}

/// What a listing shows of a member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(super) etag: Tag,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

/// A crowd in its bucket.
#[derive(Debug)]
pub(super) struct Members {
    crowd: Crowd,
    pattern: Content,
    modified: SystemTime,
    /// Members that were replaced or deleted.
    gone: BTreeSet<u64>,
}

impl Members {
    pub(super) fn count(&self) -> u64 {
        self.crowd.count - self.gone.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count() * self.crowd.size
    }

    pub(super) fn object(&self, key: &[u8]) -> Option<Arc<Object>> {
        let index = self.index(key)?;
        let text = self.crowd.key(index);
        let content = fill::content_of(&self.pattern, &text, self.crowd.size);
        let mut object = Object::new(content, self.crowd.tag(index).as_str().to_owned());
        object.modified = self.modified;
        Some(Arc::new(object))
    }

    /// Lets the object at `key` be gone; false if it is not a member.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.index(key).is_some_and(|index| self.gone.insert(index))
    }

    /// The members from `key` on, or from behind it.
    pub(super) fn cursor(&self, key: &[u8], inclusive: bool) -> Cursor<'_> {
        let from = self.first_not_before(key);
        let is_key = from < self.crowd.count && self.crowd.key(from).as_bytes() == key;
        let mut cursor = Cursor {
            members: self,
            index: from + u64::from(is_key && !inclusive),
            key: None,
        };
        cursor.settle();
        cursor
    }

    fn index(&self, key: &[u8]) -> Option<u64> {
        if !key.starts_with(self.crowd.prefix.as_bytes()) {
            return None;
        }
        let index = self.first_not_before(key);
        let is_there = index < self.crowd.count
            && self.crowd.key(index).as_bytes() == key
            && !self.gone.contains(&index);
        is_there.then_some(index)
    }

    fn first_not_before(&self, key: &[u8]) -> u64 {
        let (mut low, mut high) = (0, self.crowd.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.crowd.key(middle).as_bytes() < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// A place among the members.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    members: &'a Members,
    index: u64,
    key: Option<String>,
}

impl Cursor<'_> {
    /// The key of the next member.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Takes the next member.
    pub(super) fn take(&mut self) -> Option<(String, Member)> {
        let key = self.key.take()?;
        let member = Member {
            etag: self.members.crowd.tag(self.index),
            size: self.members.crowd.size,
            modified: self.members.modified,
        };
        self.index += 1;
        self.settle();
        Some((key, member))
    }

    /// Moves to the first member from here on that is not gone.
    fn settle(&mut self) {
        let members = self.members;
        while !members.gone.is_empty() && members.gone.contains(&self.index) {
            self.index += 1;
        }
        self.key = (self.index < members.crowd.count).then(|| members.crowd.key(self.index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(count: u64, directories: u64) -> Crowd {
        Crowd {
            bucket: "b".into(),
            prefix: "p/".into(),
            count,
            size: 5000,
            directories,
        }
    }

    #[test]
    fn specifications_are_parsed() {
        let crowd: Crowd = "bench/many/:10000000:100KiB:1000".parse().expect("valid");
        assert_eq!((crowd.count, crowd.size), (10_000_000, 100 << 10));
        assert_eq!(crowd.key(9_999_999), "many/0999/09999999");
        assert_eq!(crowd.to_string().parse(), Ok(crowd));
        for text in ["b/p:1:1", "b/p:x:1:1", "b/p:1:1:", "p:1:1:1"] {
            assert!(text.parse::<Crowd>().is_err(), "{text}");
        }
    }

    #[test]
    fn keys_rise() {
        for (count, directories) in [(1000, 0), (1000, 7), (10, 20_000), (1, 1)] {
            let crowd = crowd(count, directories);
            let keys: Vec<String> = (0..count).map(|index| crowd.key(index)).collect();
            assert!(keys.is_sorted_by(|one, next| one < next), "{crowd}");
        }
    }

    #[test]
    fn members_live_among_other_objects() {
        let data = Data::new();
        data.put("b", "p/0000/a", b"before all").expect("memory");
        data.add_crowd(&crowd(10, 2)).expect("memory");
        data.put("b", "p/0000/00000002", b"new").expect("memory");
        data.put("b", "p/0000/00000002x", b"next").expect("memory");
        assert!(data.delete("b", "p/0001/00000007"));
        assert!(!data.delete("b", "p/0001/00000007"));
        let keys = data.keys("b");
        let mut expected: Vec<String> = (0..10).map(|index| crowd(10, 2).key(index)).collect();
        expected.retain(|key| key != "p/0001/00000007");
        expected.insert(3, "p/0000/00000002x".into());
        expected.insert(6, "p/0000/a".into());
        assert_eq!(keys, expected);
        assert_eq!(
            data.get("b", "p/0000/00000002").as_deref(),
            Some(&b"new"[..])
        );
        assert_eq!(data.get("b", "p/0001/00000007"), None);
        let mut bytes = vec![0; 5000];
        fill::expected("p/0001/00000009", 0, &mut bytes);
        assert_eq!(data.get("b", "p/0001/00000009"), Some(bytes));
        let bucket = data.bucket("b").expect("there");
        assert_eq!(bucket.totals(), (11, 8 * 5000 + 3 + 4 + 10));
    }
}
