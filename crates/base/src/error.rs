//! What a file operation can fail with.

use thiserror::Error;

/// The result of a file operation.
pub type FsResult<T> = Result<T, FsError>;

/// Why a file operation failed, in the words of a file system rather than of a protocol.
///
/// Each door maps these to its own numbers in one exhaustive match; `docs/semantics/errno.md`
/// has the table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FsError {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists already")]
    AlreadyExists,
    /// A component that must be a directory is not one.
    #[error("not a directory")]
    NotADirectory,
    /// The operation needs something other than a directory.
    #[error("is a directory")]
    IsADirectory,
    /// The directory still has entries.
    #[error("the directory is not empty")]
    DirectoryNotEmpty,
    /// The store or the mount's mode bits refuse this caller.
    #[error("permission denied")]
    PermissionDenied,
    /// The operation is never allowed on this kind of file.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// An argument makes no sense here; the text names the remedy.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// A name or the key made from it is too long.
    #[error("the name is too long")]
    NameTooLong,
    /// A name that is to be made is not UTF-8, and must be here.
    #[error("the name is not UTF-8")]
    NameNotUtf8,
    /// The file would exceed what the store can hold.
    #[error("the file is too large")]
    FileTooLarge,
    /// The store's disk or quota is full, or the disk with the metadata of a fileset.
    #[error("no space left")]
    NoSpace,
    /// A quota of the user, the group or the directory is used up.
    #[error("the disk quota is used up")]
    QuotaExceeded,
    /// The memory budget stayed exhausted until the deadline.
    #[error("the memory budget is exhausted")]
    OutOfMemory,
    /// A limit on handles or on entries in one operation was reached.
    #[error("limit reached: {0}")]
    LimitReached(&'static str),
    /// Somebody else holds what this operation needs, such as the right to write a file.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The object behind the handle was replaced or removed.
    #[error("the file changed in the store since it was opened")]
    Stale,
    /// The volume is mounted read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The volume cannot do this; the text names what can.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// There is no such extended attribute.
    #[error("no such extended attribute")]
    NoAttribute,
    /// Another owner holds a lock on it.
    #[error("locked by somebody else")]
    WouldBlock,
    /// Waiting for a lock would never end, since its holder waits for the caller.
    #[error("two owners of locks would wait for each other")]
    Deadlock,
    /// The file was changed since the caller looked at it.
    #[error("the file changed since it was looked at")]
    NotSynchronized,
    /// The file has as many names as it may have.
    #[error("too many names for one file")]
    TooManyLinks,
    /// There is nothing of that kind behind this place in the file.
    #[error("nothing follows in the file")]
    NoSuchPlace,
    /// Source and target are not on the same volume.
    #[error("not on the same volume")]
    CrossDevice,
    /// The handle is not open, or not open for this.
    #[error("bad file handle")]
    BadHandle,
    /// The caller was interrupted while it waited.
    #[error("interrupted")]
    Interrupted,
    /// The store did not answer within the deadline.
    #[error("timed out: {0}")]
    TimedOut(String),
    /// What was read does not match its checksum.
    #[error("corrupt data: {0}")]
    Corrupt(String),
    /// The store failed for good after all retries.
    #[error("input/output error: {0}")]
    Io(String),
}
