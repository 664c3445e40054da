//! The objects of a path, in byte order of their keys.

use penstock_object::ObjectError;

/// Seconds since 1970 and nanoseconds below a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Less than a second.
    pub nanoseconds: u32,
}

/// One object of a snapshot, borrowed from its source until the next one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotObject<'a> {
    /// The key below the path that was listed.
    pub key: &'a [u8],
    /// Bytes in the object.
    pub size: u64,
    /// When it was written.
    pub modified: Timestamp,
    /// Its version, as the store writes it in listings.
    pub etag: &'a str,
    /// Where a symbolic link leads, as a path; empty for what is none.
    pub target: &'a str,
}

/// Why a snapshot could not be taken or read back.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] ObjectError),
    /// A local file failed.
    #[error("{path}: {source}")]
    File {
        /// The file, as a person would name it.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What was read is not what it should be; the text says where and what to do.
    #[error("{0}")]
    Invalid(String),
}

/// Gives the objects of a path one after the other, keys strictly rising in byte order.
pub trait ObjectSource {
    /// The next object, or none at the end.
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError>;
}
