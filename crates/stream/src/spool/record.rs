//! One object in a run.
//!
//! Neighbours have most of their key in common and often their time, and tags are mostly
//! hexadecimal digits; a record says only what differs:
//!
//! ```text
//! form (1 byte)   bits 0-1: the tag's form, bit 2: a time follows, bit 3: with nanoseconds,
//!                 bit 4: a target follows
//! shared, rest    lengths of what the key has in common with the one before, and of what it adds
//! rest of the key
//! size
//! time            seconds since that of the record before; nanoseconds
//! tag             as text, as 16 bytes for 32 digits, or those and the number after a dash
//! target          of a symbolic link
//! ```
//!
//! Numbers are written in groups of seven bits, low ones first; the time's difference is folded so
//! that small negative ones are short, too.

use super::SPOOLED_KEY_MAX;
use crate::{SnapshotObject, Timestamp};

/// Bytes in the longest tag that is kept.
pub(super) const TAG_MAX: usize = 1024;

/// Bytes in the longest target of a link.
pub(super) const TARGET_MAX: usize = 4095;

/// Bytes in the longest record: key, tag, target, and numbers of at most ten bytes each.
pub(super) const RECORD_MAX: usize = SPOOLED_KEY_MAX + TAG_MAX + TARGET_MAX + 90;

const FORM_MASK: u8 = 0b11;
const TAG_TEXT: u8 = 0;
const TAG_DIGITS: u8 = 1;
const TAG_DIGITS_AND_PARTS: u8 = 2;
const HAS_TIME: u8 = 0b100;
const HAS_NANOSECONDS: u8 = 0b1000;
const HAS_TARGET: u8 = 0b1_0000;

/// Hexadecimal digits in the usual tag.
const DIGITS: usize = 32;

/// What a record leaves out because the one before had it.
#[derive(Debug, Clone, Default)]
pub(super) struct Before {
    pub(super) key: Vec<u8>,
    pub(super) modified: Timestamp,
}

/// Writes a record and remembers what the next one may leave out.
pub(super) fn encode(out: &mut Vec<u8>, before: &mut Before, object: &SnapshotObject<'_>) {
    let tag = Tag::of(object.etag);
    let new_time = object.modified != before.modified;
    let nanoseconds = new_time && object.modified.nanoseconds > 0;
    let mut form = tag.form();
    form |= if new_time { HAS_TIME } else { 0 };
    form |= if nanoseconds { HAS_NANOSECONDS } else { 0 };
    let has_target = !object.target.is_empty();
    form |= if has_target { HAS_TARGET } else { 0 };
    out.push(form);
    let shared = common(&before.key, object.key);
    let rest = &object.key[shared..];
    put_number(out, shared as u64);
    put_number(out, rest.len() as u64);
    out.extend_from_slice(rest);
    put_number(out, object.size);
    if new_time {
        let passed = object
            .modified
            .seconds
            .wrapping_sub(before.modified.seconds);
        put_number(out, folded(passed));
    }
    if nanoseconds {
        put_number(out, u64::from(object.modified.nanoseconds));
    }
    tag.put(out);
    if has_target {
        put_number(out, object.target.len() as u64);
        out.extend_from_slice(object.target.as_bytes());
    }
    before.key.truncate(shared);
    before.key.extend_from_slice(rest);
    before.modified = object.modified;
}

/// What a record says beside key and time, which are in [`Before`] afterwards.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) size: u64,
    pub(super) etag: String,
    pub(super) target: String,
}

/// Reads the record at the front of `bytes` and returns its length; `None` where it is none, or its
/// key is not after the one before.
pub(super) fn decode(bytes: &[u8], before: &mut Before, object: &mut Decoded) -> Option<usize> {
    let mut reader = Reader { bytes, at: 0 };
    let form = reader.byte()?;
    let shared = usize::try_from(reader.number()?).ok()?;
    let rest = usize::try_from(reader.number()?).ok()?;
    let rest = reader.take(rest)?;
    let is_after = match before.key.get(shared) {
        Some(byte) => rest.first().is_some_and(|first| first > byte),
        None => shared == before.key.len() && !rest.is_empty(),
    };
    if !is_after || shared + rest.len() > SPOOLED_KEY_MAX {
        return None;
    }
    before.key.truncate(shared);
    before.key.extend_from_slice(rest);
    object.size = reader.number()?;
    if form & HAS_TIME != 0 {
        let passed = unfolded(reader.number()?);
        before.modified = Timestamp {
            seconds: before.modified.seconds.wrapping_add(passed),
            nanoseconds: 0,
        };
    }
    if form & HAS_NANOSECONDS != 0 {
        before.modified.nanoseconds = u32::try_from(reader.number()?).ok()?;
    }
    reader.tag(form & FORM_MASK, &mut object.etag)?;
    object.target.clear();
    if form & HAS_TARGET != 0 {
        let target = reader.text(TARGET_MAX).filter(|text| !text.is_empty())?;
        object.target.push_str(target);
    }
    Some(reader.at)
}

/// A tag in the form that takes the fewest bytes.
enum Tag<'a> {
    Text(&'a str),
    Digits([u8; DIGITS / 2], Option<u32>),
}

impl<'a> Tag<'a> {
    fn of(text: &'a str) -> Self {
        Self::digits(text).unwrap_or(Tag::Text(text))
    }

    fn digits(text: &str) -> Option<Self> {
        let (digits, rest) = text.as_bytes().split_at_checked(DIGITS)?;
        let parts = match rest {
            [] => None,
            [b'-', first @ b'1'..=b'9', ..] => {
                let _ = first;
                Some(text.get(DIGITS + 1..)?.parse().ok()?)
            }
            _ => return None,
        };
        let mut bytes = [0; DIGITS / 2];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self::Digits(bytes, parts))
    }

    fn form(&self) -> u8 {
        match self {
            Self::Text(_) => TAG_TEXT,
            Self::Digits(_, None) => TAG_DIGITS,
            Self::Digits(_, Some(_)) => TAG_DIGITS_AND_PARTS,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                put_number(out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Digits(bytes, parts) => {
                out.extend_from_slice(bytes);
                if let Some(parts) = parts {
                    put_number(out, u64::from(*parts));
                }
            }
        }
    }
}

/// Lower case only: upper case would not come back.
fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, length) = take_number(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(number)
    }

    /// A text of at most so many bytes, after its length.
    fn text(&mut self, length_max: usize) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let text = self.take(length).filter(|text| text.len() <= length_max)?;
        std::str::from_utf8(text).ok()
    }

    fn tag(&mut self, form: u8, etag: &mut String) -> Option<()> {
        etag.clear();
        if form == TAG_TEXT {
            etag.push_str(self.text(TAG_MAX)?);
            return Some(());
        }
        for byte in self.take(DIGITS / 2)? {
            for half in [byte >> 4, byte & 15] {
                etag.push(char::from(b"0123456789abcdef"[usize::from(half)]));
            }
        }
        if form == TAG_DIGITS_AND_PARTS {
            let parts = self.number()?;
            etag.push('-');
            etag.push_str(&parts.to_string());
        }
        Some(())
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at the front of `bytes`, and how many bytes it takes.
pub(super) fn take_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
