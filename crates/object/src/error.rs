//! What an object store can fail with, sorted by what the caller can do about it.

use std::{fmt, time::Duration};

use crate::{ETag, Key};

/// The result of a store operation.
pub type ObjectResult<T> = Result<T, ObjectError>;

/// The store's operations, as metrics, logs and fault injection name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Operation {
    Head,
    Get,
    Put,
    Append,
    Copy,
    Delete,
    DeleteMany,
    List,
    CreateUpload,
    UploadPart,
    CopyPart,
    CompleteUpload,
    AbortUpload,
    ListUploads,
    PutSymlink,
    GetSymlink,
}

impl Operation {
    /// Every operation, for tables indexed by `operation as usize`.
    pub const ALL: [Self; 16] = [
        Self::Head,
        Self::Get,
        Self::Put,
        Self::Append,
        Self::Copy,
        Self::Delete,
        Self::DeleteMany,
        Self::List,
        Self::CreateUpload,
        Self::UploadPart,
        Self::CopyPart,
        Self::CompleteUpload,
        Self::AbortUpload,
        Self::ListUploads,
        Self::PutSymlink,
        Self::GetSymlink,
    ];

    /// The name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Get => "get",
            Self::Put => "put",
            Self::Append => "append",
            Self::Copy => "copy",
            Self::Delete => "delete",
            Self::DeleteMany => "delete_many",
            Self::List => "list",
            Self::CreateUpload => "create_upload",
            Self::UploadPart => "upload_part",
            Self::CopyPart => "copy_part",
            Self::CompleteUpload => "complete_upload",
            Self::AbortUpload => "abort_upload",
            Self::ListUploads => "list_uploads",
            Self::PutSymlink => "put_symlink",
            Self::GetSymlink => "get_symlink",
        }
    }
}

/// Why an operation failed. Each kind says what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such object. Normal; the answer to a question.
    NotFound,
    /// No such bucket. Fix the source URL.
    NoSuchBucket,
    /// No such multipart upload: finished, aborted or expired. Start a new one.
    NoSuchUpload,
    /// The write forbade overwriting and the key is taken.
    AlreadyExists,
    /// `if_match` did not hold: the object is another version now. Look again.
    PreconditionFailed,
    /// The append position is not the object's length. Look again.
    PositionMismatch,
    /// The credentials are valid but do not allow this.
    PermissionDenied,
    /// The store does not know the key id, or the signature is wrong. Fix the credentials.
    BadCredentials,
    /// No credentials could be had from any of the configured places.
    NoCredentials,
    /// The clocks differ by more than the store allows. Fix the clock.
    ClockSkew,
    /// The bucket lives elsewhere; the message names the endpoint or region.
    WrongEndpoint,
    /// The object must be restored from an archive class first.
    Archived,
    /// The range lies beyond the object's end.
    InvalidRange,
    /// The store says that the request is malformed: a bug, or an option it does not know.
    InvalidRequest,
    /// The store cannot do this.
    Unsupported,
    /// The object or part would exceed the store's limits.
    TooLarge,
    /// The store is full.
    NoSpace,
    /// The store asks for fewer requests. Retry later.
    Throttled,
    /// The store failed or could not be reached. Retry.
    Unavailable,
    /// The deadline passed. The request may or may not have been carried out.
    Timeout,
    /// The body ended early or the connection broke in it. Retry from where it stopped.
    Interrupted,
    /// What arrived does not match its checksum. Retry once, then report.
    ChecksumMismatch,
    /// The answer makes no sense. Report.
    Protocol,
    /// The server did not prove that it is the one that was asked for. Fix its certificate, its name, or
    /// whom this side trusts.
    Untrusted,
    /// The server does not accept the certificate of this client, or wants one. Fix that, or whom the server trusts.
    ClientUntrusted,
}

impl ErrorKind {
    /// Whether the same request may succeed when repeated.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Throttled
                | Self::Unavailable
                | Self::Timeout
                | Self::Interrupted
                | Self::ChecksumMismatch
        )
    }

    /// Whether it says how things are, and not that something failed.
    pub fn is_answer(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::AlreadyExists
                | Self::PreconditionFailed
                | Self::PositionMismatch
                | Self::InvalidRange
        )
    }

    /// Whether a write that ended like this may have taken effect.
    pub fn is_doubtful(self) -> bool {
        matches!(
            self,
            Self::Timeout | Self::Unavailable | Self::Interrupted | Self::ChecksumMismatch
        )
    }
}

/// A failed store operation with what an operator needs to know about it. Never holds
/// credentials, signatures or query strings.
#[derive(Debug, Clone)]
pub struct ObjectError {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// What was attempted.
    pub operation: Operation,
    /// On which object, if on one.
    pub key: Option<Key>,
    /// The HTTP status, if one arrived.
    pub status: Option<u16>,
    /// The store's own error code, such as `SlowDown`; empty if none.
    pub code: String,
    /// The store's or our own explanation in one line.
    pub message: String,
    /// The store's name for the request; empty if none.
    pub request_id: String,
    /// How long the store asked us to wait.
    pub retry_after: Option<Duration>,
    /// The tag of what a write left that is not what was sent, where the store told both.
    pub left: Option<Box<ETag>>,
}

impl ObjectError {
    /// An error with a kind, an operation and an explanation.
    pub fn new(kind: ErrorKind, operation: Operation, message: impl Into<String>) -> Self {
        Self {
            kind,
            operation,
            key: None,
            status: None,
            code: String::new(),
            message: message.into(),
            request_id: String::new(),
            retry_after: None,
            left: None,
        }
    }

    /// The same error, about `key`.
    #[must_use]
    pub fn about(mut self, key: &Key) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// The same error of a write that left the version `tag`; an empty one names none.
    #[must_use]
    pub fn leaving(mut self, tag: ETag) -> Self {
        self.left = (!tag.as_str().is_empty()).then(|| Box::new(tag));
        self
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        if let Some(key) = &self.key {
            write!(f, " `{key}`")?;
        }
        write!(f, ": {}", self.message)?;
        if !self.code.is_empty() {
            write!(f, " ({})", self.code)?;
        }
        if let Some(status) = self.status {
            write!(f, " [status {status}]")?;
        }
        if !self.request_id.is_empty() {
            write!(f, " [request {}]", self.request_id)?;
        }
        Ok(())
    }
}

impl std::error::Error for ObjectError {}
