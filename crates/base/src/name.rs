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

/// A name that a directory entry can have: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Arc<[u8]>);

impl FileName {
    /// Checks `bytes` and makes a name of them.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            b"" => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::ForbiddenByte),
            _ if bytes.len() > NAME_LENGTH_MAX => Err(NameError::TooLong),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Shows what is not UTF-8 as U+FFFD.
impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A [`FileName`] that is UTF-8, as object keys must be. Cheap to clone and to turn into the other.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Utf8Name(FileName);

impl Utf8Name {
    /// Checks `text` and makes a name of it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        FileName::new(text.as_bytes()).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.0.as_bytes()).expect("it was made of text")
    }

    /// The name as doors know it.
    pub fn as_file_name(&self) -> &FileName {
        &self.0
    }
}

impl TryFrom<&FileName> for Utf8Name {
    type Error = NameError;

    fn try_from(name: &FileName) -> Result<Self, NameError> {
        match std::str::from_utf8(name.as_bytes()) {
            Ok(_) => Ok(Self(name.clone())),
            Err(_) => Err(NameError::NotUtf8),
        }
    }
}

impl fmt::Debug for Utf8Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Utf8Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_directory_entry_can_be_called() {
        assert_eq!(FileName::new(b""), Err(NameError::Empty));
        assert_eq!(FileName::new(b"."), Err(NameError::Dots));
        assert_eq!(FileName::new(b".."), Err(NameError::Dots));
        assert_eq!(FileName::new(b"a/b"), Err(NameError::ForbiddenByte));
        assert_eq!(FileName::new(b"a\0"), Err(NameError::ForbiddenByte));
        assert_eq!(FileName::new(&[b'x'; 256]), Err(NameError::TooLong));
    }

    #[test]
    fn accepts_names_up_to_255_bytes() {
        for text in ["a", "...", "a b", "ü", &"x".repeat(255)] {
            assert_eq!(
                Utf8Name::new(text).map(|name| name.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn any_bytes_are_a_name_and_text_only_if_they_are_utf8() {
        let name = FileName::new(b"a\xff").expect("a name");
        assert_eq!(Utf8Name::try_from(&name), Err(NameError::NotUtf8));
        assert_eq!(name.to_string(), "a\u{fffd}");
    }
}
