//! Names of objects, their versions and their unfinished uploads.

use std::{borrow::Borrow, fmt, sync::Arc};

use thiserror::Error;

/// Bytes in the longest key that both S3 (1,024) and OSS (1,023) take.
pub const KEY_LENGTH_MAX: usize = 1023;

/// Why some text cannot be an object key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("an object key cannot be empty")]
    Empty,
    /// The text is longer than [`KEY_LENGTH_MAX`].
    #[error("an object key has at most 1023 bytes")]
    TooLong,
}

/// The name of an object within the volume's part of the bucket: 1 to 1023 bytes of UTF-8.
///
/// The prefix that was mounted (`s3://bucket/prefix`) is not part of it; the store adds it.
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks `text` and makes a key of it.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        match text.len() {
            0 => Err(KeyError::Empty),
            length if length > KEY_LENGTH_MAX => Err(KeyError::TooLong),
            _ => Ok(Self(text.into())),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of an object's content as its store names it, without quotes. Two objects with
/// equal tags under one key have equal content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(Arc<str>);

impl ETag {
    /// Takes a tag with or without the quotes that HTTP puts around it.
    pub fn new(text: &str) -> Self {
        Self(text.trim_matches('"').into())
    }

    /// The tag without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The store's name for an unfinished multipart upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UploadId(Arc<str>);

impl UploadId {
    /// Takes the store's text as it is.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The store's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
