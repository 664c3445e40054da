//! What a label says of encryption: the cipher, and the key of the data, wrapped by the key that the user keeps.

use std::fmt;

use penstock_object::sealed::{DataKey, NoRandom, UnwrapError, UserKey, WrappedKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How objects are sealed. What is not known is refused, not guessed.
const CIPHER: &str = "aes-256-gcm-64k";

/// That a file system is encrypted, and how its key is had. Holds nothing that has to be kept secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    cipher: String,
    #[serde(flatten)]
    key: WrappedKey,
}

/// Why the key of the data cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncryptionError {
    /// The user's key is that of something else.
    #[error("this is not its key")]
    OtherKey,
    /// The label was changed.
    #[error("what its label says of its key is damaged")]
    Damaged,
    /// It was made by a later version.
    #[error("it is encrypted in a way that this version does not know: `{0}`")]
    UnknownCipher(String),
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encryption({})", self.cipher)
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cipher)
    }
}

impl Encryption {
    /// That of a file system of this identity whose data has the key `data`, for whoever has `user`.
    pub fn new(identity: &str, data: &DataKey, user: &UserKey) -> Result<Self, NoRandom> {
        Ok(Self {
            cipher: CIPHER.to_owned(),
            key: data.wrapped(user, &context(CIPHER, identity))?,
        })
    }

    /// The key of the data of the file system of this identity.
    pub fn data_key(&self, identity: &str, user: &UserKey) -> Result<DataKey, EncryptionError> {
        if self.cipher != CIPHER {
            return Err(EncryptionError::UnknownCipher(self.cipher.clone()));
        }
        let unwrapped = self.key.unwrapped(user, &context(CIPHER, identity));
        unwrapped.map_err(|error| match error {
            UnwrapError::OtherKey => EncryptionError::OtherKey,
            UnwrapError::Damaged => EncryptionError::Damaged,
        })
    }
}

/// What a wrapped key belongs to.
fn context(cipher: &str, identity: &str) -> Vec<u8> {
    format!("penstock fileset {cipher} {identity}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(byte: u8) -> UserKey {
        UserKey::parse(&[byte; 32]).unwrap()
    }

    #[test]
    fn the_key_belongs_to_one_file_system_and_its_cipher() {
        let data = DataKey::random().unwrap();
        let made = Encryption::new("0123", &data, &user(1)).unwrap();
        assert!(made.data_key("0123", &user(1)).is_ok());
        let error = |made: &Encryption, identity, byte| {
            let key = made.data_key(identity, &user(byte));
            key.map(drop).unwrap_err()
        };
        assert_eq!(error(&made, "0123", 2), EncryptionError::OtherKey);
        assert_eq!(error(&made, "4567", 1), EncryptionError::Damaged);
        let later = Encryption {
            cipher: "rot-13".to_owned(),
            ..made
        };
        let unknown = EncryptionError::UnknownCipher("rot-13".to_owned());
        assert_eq!(error(&later, "0123", 1), unknown);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let data = DataKey::random().unwrap();
        let made = Encryption::new("0123", &data, &user(1)).unwrap();
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(serde_json::from_str::<Encryption>(&text).unwrap(), made);
        assert!(text.starts_with(r#"{"cipher":"aes-256-gcm-64k","salt":""#));
    }
}
