//! A name within a directory.

use std::{fmt, sync::Arc};

use thiserror::Error;

/// Bytes in the longest name, as in every Linux file system (`NAME_MAX` of limits.h).
pub const NAME_LENGTH_MAX: usize = 255;

/// Why some text cannot be a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a file name cannot be empty")]
    Empty,
    /// The text is `.` or `..`.
    #[error("`.` and `..` are not names")]
    Dots,
    /// The text has a `/` or a NUL.
    #[error("a file name cannot contain `/` or NUL")]
    ForbiddenByte,
    /// The text is longer than [`NAME_LENGTH_MAX`].
    #[error("a file name has at most 255 bytes")]
    TooLong,
    /// The bytes are not UTF-8, which object keys must be.
    #[error("a file name must be UTF-8 here")]
    NotUtf8,
}

/// A name that a directory entry can have: UTF-8, 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Arc<str>);

impl FileName {
    /// Checks `text` and makes a name of it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        match text {
            "" => Err(NameError::Empty),
            "." | ".." => Err(NameError::Dots),
            _ if text.bytes().any(|byte| byte == b'/' || byte == 0) => {
                Err(NameError::ForbiddenByte)
            }
            _ if text.len() > NAME_LENGTH_MAX => Err(NameError::TooLong),
            _ => Ok(Self(text.into())),
        }
    }

    /// Checks `bytes` as they come from a kernel or a client and makes a name of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Self::new(std::str::from_utf8(bytes).map_err(|_| NameError::NotUtf8)?)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for FileName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for FileName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_directory_entry_can_be_called() {
        assert_eq!(FileName::new(""), Err(NameError::Empty));
        assert_eq!(FileName::new("."), Err(NameError::Dots));
        assert_eq!(FileName::new(".."), Err(NameError::Dots));
        assert_eq!(FileName::new("a/b"), Err(NameError::ForbiddenByte));
        assert_eq!(FileName::new("a\0"), Err(NameError::ForbiddenByte));
        assert_eq!(FileName::new(&"x".repeat(256)), Err(NameError::TooLong));
        assert_eq!(FileName::from_bytes(b"\xff"), Err(NameError::NotUtf8));
    }

    #[test]
    fn accepts_names_up_to_255_bytes() {
        for text in ["a", "...", "a b", "ü", &"x".repeat(255)] {
            assert_eq!(
                FileName::new(text).map(|name| name.to_string()),
                Ok(text.to_owned())
            );
        }
    }
}
