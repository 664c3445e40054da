//! The bytes of a record.
//!
//! ```text
//! key bytes shared with the one before | key bytes left | those | tag | size | seconds | fraction
//! ```
//!
//! Numbers are variable in length, seven bits in a byte. Seconds count from the record before.

use crate::{SnapshotObject, Timestamp};

/// How a tag is written.
const TAG_TEXT: u64 = 0;
const TAG_LOWER: u64 = 1;
const TAG_UPPER: u64 = 2;

const NANOSECONDS_IN_MILLISECOND: u32 = 1_000_000;

/// Writes records of one group after the other.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    key: Vec<u8>,
    seconds: i64,
}

impl Encoder {
    /// Begins a group.
    pub(super) fn begin_group(&mut self) {
        self.key.clear();
        self.seconds = 0;
    }

    /// Adds the record of `object` to `bytes`.
    pub(super) fn encode(&mut self, object: &SnapshotObject<'_>, bytes: &mut Vec<u8>) {
        let both = self.key.iter().zip(object.key);
        let shared = both.take_while(|(ours, theirs)| ours == theirs).count();
        let rest = &object.key[shared..];
        put_number(bytes, shared as u64);
        put_number(bytes, rest.len() as u64);
        bytes.extend(rest);
        self.key.truncate(shared);
        self.key.extend(rest);
        put_tag(bytes, object.etag);
        put_number(bytes, object.size);
        self.put_time(bytes, object.modified);
    }

    fn put_time(&mut self, bytes: &mut Vec<u8>, time: Timestamp) {
        let step = time.seconds.wrapping_sub(self.seconds);
        self.seconds = time.seconds;
        put_number(bytes, ((step << 1) ^ (step >> 63)) as u64);
        let nanoseconds = time.nanoseconds;
        let fraction = if nanoseconds.is_multiple_of(NANOSECONDS_IN_MILLISECOND) {
            u64::from(nanoseconds / NANOSECONDS_IN_MILLISECOND) << 1
        } else {
            u64::from(nanoseconds) << 1 | 1
        };
        put_number(bytes, fraction);
    }
}

/// Reads the records of one group.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    pub(super) key: Vec<u8>,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    tag: &'a [u8],
    tag_form: u64,
}

impl<'a> Decoder<'a> {
    /// Stands before the first record in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            key: Vec::new(),
            size: 0,
            modified: Timestamp::default(),
            tag: &[],
            tag_form: TAG_TEXT,
        }
    }

    /// Reads the next record; `None` where there is none.
    pub(super) fn next(&mut self) -> Option<()> {
        let shared = usize::try_from(self.number()?).ok()?;
        let rest = self.run()?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend(rest);
        let tag = self.number()?;
        self.tag_form = tag & 3;
        self.tag = self.take(tag >> 2)?;
        self.size = self.number()?;
        let step = self.number()?;
        let step = (step >> 1) as i64 ^ -((step & 1) as i64);
        self.modified.seconds = self.modified.seconds.wrapping_add(step);
        let fraction = self.number()?;
        let unit = if fraction & 1 == 0 {
            NANOSECONDS_IN_MILLISECOND
        } else {
            1
        };
        let fraction = u32::try_from(fraction >> 1).ok()?;
        self.modified.nanoseconds = fraction.checked_mul(unit)?;
        Some(())
    }

    /// The tag of the record that was read last.
    pub(super) fn etag(&self) -> Option<String> {
        match self.tag_form {
            TAG_TEXT => String::from_utf8(self.tag.to_vec()).ok(),
            TAG_LOWER => Some(hexadecimal(self.tag, b"0123456789abcdef")),
            TAG_UPPER => Some(hexadecimal(self.tag, b"0123456789ABCDEF")),
            _ => None,
        }
    }

    fn run(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_tag(bytes: &mut Vec<u8>, tag: &str) {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let upper = |byte: u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    let form = match tag.as_bytes() {
        digits if digits.len() % 2 == 1 => TAG_TEXT,
        digits if digits.iter().copied().all(lower) => TAG_LOWER,
        digits if digits.iter().copied().all(upper) => TAG_UPPER,
        _ => TAG_TEXT,
    };
    let length = tag.len() as u64;
    if form == TAG_TEXT {
        put_number(bytes, length << 2 | form);
        bytes.extend(tag.as_bytes());
        return;
    }
    put_number(bytes, (length / 2) << 2 | form);
    let pairs = tag.as_bytes().chunks_exact(2);
    bytes.extend(pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
}

fn digit(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0',
        _ => (character | 0x20) - b'a' + 10,
    }
}

fn hexadecimal(bytes: &[u8], digits: &[u8; 16]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(digits[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_object() -> impl Strategy<Value = (Vec<u8>, u64, i64, u32, String)> {
        (
            prop::collection::vec(any::<u8>(), 0..20),
            any::<u64>(),
            any::<i64>(),
            prop_oneof![
                (0..1000u32).prop_map(|milliseconds| milliseconds * 1_000_000),
                0..1_000_000_000u32
            ],
            prop_oneof![
                "[0-9a-f]{32}",
                "[0-9A-F]{32}",
                "[0-9a-f]{0,9}",
                "\\PC{0,20}"
            ],
        )
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(
            objects in prop::collection::vec(any_object(), 1..16)
        ) {
            let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
            encoder.begin_group();
            for (key, size, seconds, nanoseconds, etag) in &objects {
                let modified = Timestamp { seconds: *seconds, nanoseconds: *nanoseconds };
                let object = SnapshotObject { key, size: *size, modified, etag, target: "" };
                encoder.encode(&object, &mut bytes);
            }
            let mut decoder = Decoder::new(&bytes);
            for (key, size, seconds, nanoseconds, etag) in &objects {
                prop_assert!(decoder.next().is_some());
                let modified = Timestamp { seconds: *seconds, nanoseconds: *nanoseconds };
                let (tag, read) = (decoder.etag(), &decoder);
                prop_assert_eq!((&read.key, read.size, read.modified), (key, *size, modified));
                prop_assert_eq!(tag.as_ref(), Some(etag));
            }
            prop_assert!(decoder.next().is_none());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            for _ in 0..16 {
                if decoder.next().is_none() {
                    break;
                }
                decoder.etag();
            }
        }
    }

    #[test]
    fn usual_tags_take_half_their_length() {
        for tag in [
            "d41d8cd98f00b204e9800998ecf8427e",
            "D41D8CD98F00B204E9800998ECF8427E",
        ] {
            let mut bytes = Vec::new();
            put_tag(&mut bytes, tag);
            assert_eq!(bytes.len(), 17);
        }
    }
}
