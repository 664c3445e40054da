//! What an engine can fail with.

use penstock_base::FsError;
use thiserror::Error;

/// The result of an engine's operation.
pub type EngineResult<T> = Result<T, EngineError>;

/// Why an engine failed. What an operation itself fails with is its own result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// Another process has the file system open.
    #[error("its metadata is in use by process {pid}")]
    InUse {
        /// Who has it; 0 if that cannot be seen.
        pid: u32,
    },
    /// What is on the disk is not what was written there.
    #[error("the metadata is damaged: {0}")]
    Corrupt(String),
    /// The disk is full. It is tried again.
    #[error("the disk of the metadata is full: {0}")]
    Full(String),
    /// The disk failed. Nothing more is changed.
    #[error("metadata: {0}")]
    Io(String),
    /// The bucket has not taken the log: what was changed is on this machine alone, so far. It is tried again.
    #[error("the log of the metadata is not in the bucket: {0}")]
    Store(String),
    /// The database does not do what it is asked, so far. It is tried again.
    #[error("the database of the metadata: {0}")]
    Database(String),
    /// One operation changes more than a record may hold. Nothing was changed.
    #[error("an operation that changes {0} bytes of the metadata is too large")]
    TooLarge(usize),
    /// Another machine has the file system now. Nothing more is changed.
    #[error("the file system was taken over: {0}")]
    Fenced(String),
}

impl EngineError {
    /// An engine returned before it ran what it was given.
    pub(super) const NOT_RUN: Self = Self::Io(String::new());
    /// A read of what is fetched now: whoever reads is run again.
    pub(super) const NOT_KNOWN: Self = Self::Io(String::new());
}

impl From<EngineError> for FsError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InUse { .. } => Self::Busy("another process has the file system open"),
            EngineError::Corrupt(text) => Self::Corrupt(text),
            EngineError::Full(_) => Self::NoSpace,
            EngineError::Io(text) => Self::Io(format!("metadata: {text}")),
            EngineError::Store(_)
            | EngineError::Database(_)
            | EngineError::Fenced(_)
            | EngineError::TooLarge(_) => Self::Io(error.to_string()),
        }
    }
}
