//! The format of a sealed object.
//!
//! ```text
//! object  frame 0, frame 1, ...   each of 64 KiB of plaintext but the last one, which has what is left; one at least
//! frame   format, salt            1 and 15 bytes, the same in each frame of an object
//!         ciphertext              as long as the plaintext
//!         tag                     16 bytes
//! ```
//!
//! AES-256-GCM. The key is the object's own: HKDF-SHA256 of the data key, with the random salt and the object's name. The
//! nonce is the frame's number. Authenticated with it are the format, how long the whole plaintext is, and the number: so
//! a frame is that of this object under this name, in this place, of a body of this length. A body that was cut or
//! extended opens nowhere, as its length is another. The salt stands in each frame, 16 bytes of 64 KiB, so that a range is
//! one request: in the beginning of the object alone it would be a second one.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use penstock_base::Payload;
use ring::aead::{Aad, LessSafeKey, Nonce};

use super::keys::{DataKey, NoRandom, random};

/// Bytes of plaintext in each frame but the last one.
pub const FRAME_PLAIN: u64 = 64 << 10;
/// The first byte of each frame.
const FORMAT: u8 = 1;
const SALT_LENGTH: usize = 15;
const HEAD_LENGTH: usize = 1 + SALT_LENGTH;
const TAG_LENGTH: usize = 16;
/// Bytes that sealing adds to each frame.
const OVERHEAD: u64 = (HEAD_LENGTH + TAG_LENGTH) as u64;
/// Bytes of each frame but the last one.
pub(super) const FRAME_SEALED: u64 = FRAME_PLAIN + OVERHEAD;

type Head = [u8; HEAD_LENGTH];

/// What a frame cannot be opened for: it is not what was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// Bytes of the object that a plaintext of this length becomes.
pub fn sealed_length(plain: u64) -> u64 {
    plain + plain.div_ceil(FRAME_PLAIN).max(1) * OVERHEAD
}

/// Bytes of plaintext in an object of this length; none where no object has that.
pub fn plain_length(sealed: u64) -> Option<u64> {
    let (whole, rest) = (sealed / FRAME_SEALED, sealed % FRAME_SEALED);
    let last = match rest {
        0 if whole > 0 => 0,
        OVERHEAD if whole == 0 => 0,
        _ => rest.checked_sub(OVERHEAD).filter(|last| *last > 0)?,
    };
    Some(whole * FRAME_PLAIN + last)
}

/// The bytes of an object that have these bytes of plaintext: whole frames.
pub(super) fn covering(plain: &Range<u64>) -> Range<u64> {
    let first = plain.start / FRAME_PLAIN;
    let last = plain.end.saturating_sub(1).max(plain.start) / FRAME_PLAIN;
    first.saturating_mul(FRAME_SEALED)..last.saturating_add(1).saturating_mul(FRAME_SEALED)
}

/// An object's key, and how long its plaintext is.
struct ObjectKey {
    key: LessSafeKey,
    length: u64,
}

impl ObjectKey {
    fn new(key: &DataKey, salt: &[u8], (name, length): (&str, u64)) -> Self {
        let key = key.of_object(salt, name);
        Self { key, length }
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn context(&self, number: u64) -> Aad<[u8; 17]> {
        let mut context = [FORMAT; 17];
        context[1..9].copy_from_slice(&self.length.to_be_bytes());
        context[9..].copy_from_slice(&number.to_be_bytes());
        Aad::from(context)
    }
}

/// The object of a body under this name.
pub(super) fn seal(key: &DataKey, name: &str, body: &Payload) -> Result<Bytes, NoRandom> {
    let mut head: Head = [FORMAT; HEAD_LENGTH];
    head[1..].copy_from_slice(&random::<SALT_LENGTH>()?);
    let length = body.len() as u64;
    let key = ObjectKey::new(key, &head[1..], (name, length));
    let mut sealed = BytesMut::with_capacity(sealed_length(length) as usize);
    for number in 0..length.div_ceil(FRAME_PLAIN).max(1) {
        let start = number * FRAME_PLAIN;
        sealed.extend_from_slice(&head);
        let plain = sealed.len();
        for slice in body.slice(&(start..start + FRAME_PLAIN)).slices() {
            sealed.extend_from_slice(slice);
        }
        let (nonce, context) = (ObjectKey::nonce(number), key.context(number));
        let memory = &mut sealed[plain..];
        let tag = key.key.seal_in_place_separate_tag(nonce, context, memory);
        sealed.extend_from_slice(tag.map_err(|_| NoRandom)?.as_ref());
    }
    Ok(sealed.freeze())
}

/// Opens the frames of one object, as they come.
pub(super) struct Opener<'a> {
    data: &'a DataKey,
    name: &'a str,
    /// Bytes of plaintext in the whole object.
    pub(super) length: u64,
    /// The number of the next frame.
    number: u64,
    /// What all frames begin with, and the key that follows from it.
    known: Option<(Head, ObjectKey)>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(data: &'a DataKey, name: &'a str, (length, first): (u64, u64)) -> Self {
        Self {
            data,
            name,
            length,
            number: first,
            known: None,
        }
    }

    /// Where in the plaintext the next frame begins.
    pub(super) fn position(&self) -> u64 {
        self.number * FRAME_PLAIN
    }

    /// Bytes of the next frame.
    pub(super) fn frame_length(&self) -> usize {
        let plain = self.length.saturating_sub(self.position()).min(FRAME_PLAIN);
        (plain + OVERHEAD) as usize
    }

    /// The plaintext of the next frame, where it lies.
    pub(super) fn open<'b>(&mut self, frame: &'b mut [u8]) -> Result<&'b [u8], Broken> {
        let (head, sealed) = frame.split_first_chunk_mut().ok_or(Broken)?;
        let number = self.number;
        let key = self.key(head)?;
        let (nonce, context) = (ObjectKey::nonce(number), key.context(number));
        let plain = key
            .key
            .open_in_place(nonce, context, sealed)
            .map_err(|_| Broken)?;
        self.number += 1;
        Ok(plain)
    }

    fn key(&mut self, head: &Head) -> Result<&ObjectKey, Broken> {
        if head[0] != FORMAT || self.known.as_ref().is_some_and(|(known, _)| known != head) {
            return Err(Broken);
        }
        let named = (self.name, self.length);
        let known = self
            .known
            .get_or_insert_with(|| (*head, ObjectKey::new(self.data, &head[1..], named)));
        Ok(&known.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_from_each_other() {
        let sizes = [
            0,
            1,
            FRAME_PLAIN - 1,
            FRAME_PLAIN,
            FRAME_PLAIN + 1,
            5 * FRAME_PLAIN,
            1 << 40,
        ];
        for plain in sizes {
            assert_eq!(plain_length(sealed_length(plain)), Some(plain));
        }
        for sealed in [0, 1, 31, FRAME_SEALED + 1, FRAME_SEALED + 32] {
            assert_eq!(plain_length(sealed), None, "{sealed}");
        }
        let possible = (0..200_000).filter_map(plain_length);
        let expected = (0..200_000).filter(|plain| sealed_length(*plain) < 200_000);
        assert!(possible.eq(expected), "each length is that of one body");
    }

    #[test]
    fn a_range_is_covered_by_whole_frames() {
        assert_eq!(covering(&(0..1)), 0..FRAME_SEALED);
        assert_eq!(covering(&(0..FRAME_PLAIN)), 0..FRAME_SEALED);
        let over = FRAME_PLAIN - 1..FRAME_PLAIN + 1;
        assert_eq!(covering(&over), 0..2 * FRAME_SEALED);
        assert_eq!(covering(&(FRAME_PLAIN..u64::MAX)).start, FRAME_SEALED);
        assert_eq!(covering(&(0..0)), 0..FRAME_SEALED);
    }
}
