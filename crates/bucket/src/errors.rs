//! What a failed request means to a file.
//!
//! One exhaustive match turns the store's error kinds into [`FsError`]s; its rows are the table
//! in `docs/semantics/errno.md`. The store's code and request id are logged here, once per
//! failure, since a door can only pass a number on.

#[cfg(test)]
mod tests;

use penstock_base::{FsError, FsResult};
use penstock_object::{ErrorKind, ObjectError};
use penstock_transfer::TransferError;

/// What the request was for, where that decides what its failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To look at a file or to read it.
    Read,
    /// To change something.
    Write,
}

/// What the failed request means to the file operation that made it. Logs the failure.
pub(crate) fn object_failure(error: &ObjectError, purpose: Purpose) -> FsError {
    let meaning = meaning_of(error, purpose);
    if matches!(error.kind, ErrorKind::NotFound | ErrorKind::AlreadyExists) {
        tracing::debug!("{error}");
        return meaning;
    }
    let told = match meaning {
        // They have the text of the error.
        FsError::Io(_) | FsError::TimedOut(_) | FsError::Corrupt(_) => error.to_string(),
        _ => format!("{error}: {meaning}"),
    };
    tracing::warn!(
        operation = error.operation.name(),
        code = error.code,
        request = error.request_id,
        "{told}"
    );
    meaning
}

/// What the failed transfer means to the file operation that made it. Logs the failure.
pub(crate) fn transfer_failure(error: &TransferError, purpose: Purpose) -> FsError {
    match error {
        TransferError::Object(error) => object_failure(error, purpose),
        TransferError::OutOfMemory => {
            tracing::warn!("{error}: raise the memory setting or open fewer files at once");
            FsError::OutOfMemory
        }
        TransferError::TooLarge(_) => {
            tracing::warn!("{error}");
            FsError::FileTooLarge
        }
    }
}

/// Whether a read of a pinned version failed because the object is another version now, is gone, or
/// has another name.
pub(crate) fn is_outdated(error: &TransferError) -> bool {
    let kinds = [
        ErrorKind::PreconditionFailed,
        ErrorKind::NotFound,
        ErrorKind::InvalidRange,
    ];
    matches!(error, TransferError::Object(error) if kinds.contains(&error.kind))
}

/// The table: error kind and purpose to meaning.
pub(crate) fn meaning_of(error: &ObjectError, purpose: Purpose) -> FsError {
    let text = || error.to_string();
    match (error.kind, purpose) {
        (ErrorKind::NotFound, _) => FsError::NotFound,
        (ErrorKind::AlreadyExists, _) => FsError::AlreadyExists,
        // A reader holds a version that is gone; a writer lost a race and may try again.
        (ErrorKind::PreconditionFailed | ErrorKind::InvalidRange, Purpose::Read) => FsError::Stale,
        (ErrorKind::PreconditionFailed | ErrorKind::PositionMismatch, _) => {
            FsError::Busy("another client changed the object meanwhile; try again")
        }
        (
            ErrorKind::PermissionDenied
            | ErrorKind::BadCredentials
            | ErrorKind::NoCredentials
            | ErrorKind::ClientUntrusted,
            _,
        ) => FsError::PermissionDenied,
        (ErrorKind::Archived, _) => FsError::NotPermitted(
            "the object is in an archive storage class; restore it in the store first",
        ),
        (ErrorKind::Unsupported, _) => {
            FsError::Unsupported("the store cannot do this with this object; see the log")
        }
        (ErrorKind::TooLarge, _) => FsError::FileTooLarge,
        (ErrorKind::NoSpace, _) => FsError::NoSpace,
        (ErrorKind::Timeout, _) => FsError::TimedOut(text()),
        (ErrorKind::ChecksumMismatch, _) => FsError::Corrupt(text()),
        (
            ErrorKind::NoSuchBucket
            | ErrorKind::NoSuchUpload
            | ErrorKind::ClockSkew
            | ErrorKind::WrongEndpoint
            | ErrorKind::InvalidRange
            | ErrorKind::InvalidRequest
            | ErrorKind::Throttled
            | ErrorKind::Unavailable
            | ErrorKind::Interrupted
            | ErrorKind::Protocol
            | ErrorKind::Untrusted,
            _,
        ) => FsError::Io(text()),
    }
}

/// The outcome of a request that looked or read, in the words of files. Logs a failure.
pub(crate) fn for_reading<T>(outcome: Result<T, ObjectError>) -> FsResult<T> {
    outcome.map_err(|error| object_failure(&error, Purpose::Read))
}

/// The outcome of a request that changed something, in the words of files. Logs a failure.
pub(crate) fn for_writing<T>(outcome: Result<T, ObjectError>) -> FsResult<T> {
    outcome.map_err(|error| object_failure(&error, Purpose::Write))
}
