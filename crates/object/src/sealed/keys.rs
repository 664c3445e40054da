//! The keys of sealed objects: who holds which, and what is made of which.
//!
//! ```text
//! user's key --HKDF, salt of the wrapping--> wraps --> data key --HKDF, salt and name of an object--> seals its frames
//!                                        \--> check value
//! ```
//!
//! None of them is ever printed, and what is held here is overwritten when it goes. What `ring` makes of a key for as
//! long as an object is sealed or opened is not.

use std::fmt;

use base64::Engine as _;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf,
    rand::{SecureRandom, SystemRandom},
};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::sign::hex;

/// Bytes of a key.
pub const KEY_LENGTH: usize = 32;
/// Bytes of a wrapped key: its own and a tag.
const WRAPPED_LENGTH: usize = KEY_LENGTH + 16;
/// Bytes of the salt of a wrapping, and of a check value.
const SALT_LENGTH: usize = 16;
const CHECK_LENGTH: usize = 16;

/// What each key that is derived is for.
const FOR_WRAPPING: &[u8] = b"penstock wrap 1";
const FOR_CHECK: &[u8] = b"penstock check 1";
const FOR_OBJECT: &[u8] = b"penstock object 1";

/// The machine gives no random bytes.
#[derive(Debug, Error)]
#[error("this machine gives no random bytes")]
pub struct NoRandom;

/// Random bytes for keys and salts.
pub(super) fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], NoRandom> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
    Ok(bytes)
}

/// Why text is no key. Never says what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a key is 32 random bytes: as 64 hexadecimal digits, as base64, or as they are")]
pub struct NoKey;

/// What a [`WrappedKey`] cannot be unwrapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnwrapError {
    /// It was wrapped by another key.
    #[error("it was wrapped by another key")]
    OtherKey,
    /// It was changed, or belongs to something else.
    #[error("the wrapped key is damaged")]
    Damaged,
}

/// The key that somebody keeps, and without which nothing can be read.
pub struct UserKey(Zeroizing<[u8; KEY_LENGTH]>);

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(***)")
    }
}

impl UserKey {
    /// Reads what a file or a program has: 64 hexadecimal digits or base64, perhaps with white space around it, or
    /// 32 bytes.
    pub fn parse(text: &[u8]) -> Result<Self, NoKey> {
        let trimmed = text.trim_ascii();
        let bytes = match (trimmed.len(), text.len()) {
            (64, _) => unhex(trimmed),
            (43 | 44, _) => from_base64(trimmed),
            (_, KEY_LENGTH) => Some(Zeroizing::new(text.to_vec())),
            _ => None,
        };
        Ok(Self(key_of(&bytes.ok_or(NoKey)?)?))
    }

    /// The same of what nobody else needs, which is overwritten.
    pub fn taken(text: Vec<u8>) -> Result<Self, NoKey> {
        Self::parse(&Zeroizing::new(text))
    }

    fn derived(&self, salt: &[u8], purpose: &[u8]) -> hkdf::Prk {
        let salted = [salt, purpose].concat();
        hkdf::Salt::new(hkdf::HKDF_SHA256, &salted).extract(&*self.0)
    }

    fn wrapping(&self, salt: &[u8]) -> LessSafeKey {
        derive(&self.derived(salt, FOR_WRAPPING), &[])
    }

    fn check(&self, salt: &[u8]) -> [u8; CHECK_LENGTH] {
        let mut check = [0; CHECK_LENGTH];
        let derived = self.derived(salt, FOR_CHECK);
        let filled = derived
            .expand(&[], Length(CHECK_LENGTH))
            .map(|okm| okm.fill(&mut check));
        debug_assert!(matches!(filled, Ok(Ok(()))), "16 bytes can be derived");
        check
    }
}

/// The key that the objects of one file system are sealed with. Only its wrapped form is ever stored.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; KEY_LENGTH]>);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(***)")
    }
}

impl DataKey {
    /// A new one.
    pub fn random() -> Result<Self, NoRandom> {
        Ok(Self(Zeroizing::new(random()?)))
    }

    /// It, for whoever has `user`; `context` is what it belongs to, and must be the same when it is unwrapped.
    pub fn wrapped(&self, user: &UserKey, context: &[u8]) -> Result<WrappedKey, NoRandom> {
        let salt: [u8; SALT_LENGTH] = random()?;
        let mut key = self.0.to_vec();
        let aad = Aad::from(context);
        // A key of its own for each wrapping: so each nonce is of one message.
        let sealed = user
            .wrapping(&salt)
            .seal_in_place_append_tag(zero(), aad, &mut key);
        sealed.map_err(|_| NoRandom)?;
        Ok(WrappedKey {
            salt: hex(&salt),
            check: hex(&user.check(&salt)),
            key: hex(&key),
        })
    }

    /// The key of one object.
    pub(super) fn of_object(&self, salt: &[u8], name: &str) -> LessSafeKey {
        let object = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&*self.0);
        derive(&object, &[FOR_OBJECT, name.as_bytes()])
    }
}

/// A [`DataKey`] as it can be stored in the open: in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WrappedKey {
    salt: String,
    check: String,
    key: String,
}

impl WrappedKey {
    /// The key within.
    pub fn unwrapped(&self, user: &UserKey, context: &[u8]) -> Result<DataKey, UnwrapError> {
        let part = |text: &str, length| {
            let bytes = unhex(text.as_bytes()).filter(|bytes| bytes.len() == length);
            bytes.ok_or(UnwrapError::Damaged)
        };
        let salt = part(&self.salt, SALT_LENGTH)?;
        let check = part(&self.check, CHECK_LENGTH)?;
        let mut key = part(&self.key, WRAPPED_LENGTH)?;
        // Both can be seen by whoever sees the bucket: how long it takes to compare them tells nothing.
        if check[..] != user.check(&salt) {
            return Err(UnwrapError::OtherKey);
        }
        let opened = user
            .wrapping(&salt)
            .open_in_place(zero(), Aad::from(context), &mut key);
        let opened = opened.map_err(|_| UnwrapError::Damaged)?;
        key_of(opened)
            .map(DataKey)
            .map_err(|_| UnwrapError::Damaged)
    }
}

/// How many bytes are derived.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(from: &hkdf::Prk, info: &[&[u8]]) -> LessSafeKey {
    let derived = from.expand(info, &AES_256_GCM);
    LessSafeKey::new(UnboundKey::from(derived.expect("32 bytes can be derived")))
}

fn zero() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn key_of(bytes: &[u8]) -> Result<Zeroizing<[u8; KEY_LENGTH]>, NoKey> {
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    if bytes.len() != KEY_LENGTH {
        return Err(NoKey);
    }
    key.copy_from_slice(bytes);
    Ok(key)
}

fn unhex(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(high)? << 4 | digit(low)?));
    bytes.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

fn from_base64(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    let decoded = STANDARD
        .decode(text)
        .or_else(|_| STANDARD_NO_PAD.decode(text));
    decoded.ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(byte: u8) -> UserKey {
        UserKey::parse(&[byte; KEY_LENGTH]).unwrap()
    }

    #[test]
    fn a_key_is_read_in_each_of_its_spellings() {
        let bytes = *b"\x00\xffan old key, of thirty-two bytes";
        let bytes: [u8; 32] = bytes[..32].try_into().unwrap();
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        let spellings = [
            bytes.to_vec(),
            format!("{}\n", hex(&bytes)).into_bytes(),
            hex(&bytes).to_uppercase().into_bytes(),
            format!(" {base64}\r\n").into_bytes(),
            base64.trim_end_matches('=').as_bytes().to_vec(),
        ];
        for text in spellings {
            assert_eq!(*UserKey::parse(&text).unwrap().0, bytes, "{text:?}");
        }
        let long = vec![b'0'; 65];
        for text in [
            &b""[..],
            b"secret",
            &[7; 31],
            &[7; 33],
            &[b'g'; 64],
            &[b'!'; 44],
            &long,
        ] {
            assert_eq!(UserKey::parse(text).unwrap_err(), NoKey, "{text:?}");
        }
    }

    #[test]
    fn a_wrapped_key_needs_its_user_and_its_context() {
        let key = DataKey::random().unwrap();
        let wrapped = key.wrapped(&user(1), b"home").unwrap();
        assert_eq!(wrapped.unwrapped(&user(1), b"home").unwrap().0, key.0);
        let other = wrapped.unwrapped(&user(2), b"home").unwrap_err();
        assert_eq!(other, UnwrapError::OtherKey);
        let elsewhere = wrapped.unwrapped(&user(1), b"away").unwrap_err();
        assert_eq!(elsewhere, UnwrapError::Damaged);
    }

    #[test]
    fn each_digit_of_a_wrapped_key_counts() {
        let wrapped = DataKey::random().unwrap().wrapped(&user(1), b"").unwrap();
        let text = serde_json::to_string(&wrapped).unwrap();
        for (at, old) in text
            .char_indices()
            .filter(|(_, old)| old.is_ascii_hexdigit())
        {
            let mut text = text.clone();
            text.replace_range(at..=at, if old == '0' { "1" } else { "0" });
            // The names of its parts have such letters, too.
            if let Ok(changed) = serde_json::from_str::<WrappedKey>(&text) {
                assert!(changed.unwrapped(&user(1), b"").is_err(), "{at}");
            }
        }
    }

    #[test]
    fn no_key_is_printed() {
        let (user, key) = (user(b'K'), DataKey(Zeroizing::new([b'K'; 32])));
        let printed = format!("{user:?} {key:?}");
        assert_eq!(printed, "UserKey(***) DataKey(***)");
    }
}
