//! What a failed read of an object means to the file.

use penstock_base::{FsError, metrics::Counter};
use penstock_object::{ErrorKind, ObjectError};
use penstock_transfer::TransferError;

use super::Metrics;
use crate::SnapshotError;

/// Failures of each sort that are logged one by one. A kernel repeats reads that fail.
const LOGGED_MAX: u64 = 100;

/// The meaning of a failed read, which is counted and logged.
pub(super) fn of_read(key: &[u8], error: &TransferError, metrics: &Metrics) -> FsError {
    let meaning = meaning_of(error);
    let counter = match meaning {
        FsError::Stale => &metrics.changed_objects,
        _ => &metrics.failed_reads,
    };
    counter.increment();
    log(key, error, &meaning, counter);
    meaning
}

fn log(key: &[u8], error: &TransferError, meaning: &FsError, counter: &Counter) {
    let remedy = match meaning {
        FsError::Stale => "the object is not the one in the snapshot: refresh the volume",
        _ => "the read failed",
    };
    let count = counter.value();
    if count <= LOGGED_MAX {
        tracing::warn!(key = %key.escape_ascii(), "{remedy}: {error}");
    }
    if count == LOGGED_MAX {
        tracing::warn!("more failures of this sort are counted and not logged");
    }
}

/// The meaning of a map that cannot be read. It is logged.
pub(crate) fn damaged_map(error: &SnapshotError) -> FsError {
    tracing::error!("{error}");
    FsError::Corrupt(error.to_string())
}

fn meaning_of(error: &TransferError) -> FsError {
    match error {
        TransferError::Object(error) => meaning_of_object(error),
        TransferError::OutOfMemory => FsError::OutOfMemory,
        TransferError::TooLarge(_) => FsError::FileTooLarge,
    }
}

fn meaning_of_object(error: &ObjectError) -> FsError {
    match error.kind {
        // A snapshot knows its objects: one that is gone has changed.
        ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::InvalidRange => {
            FsError::Stale
        }
        ErrorKind::PermissionDenied
        | ErrorKind::BadCredentials
        | ErrorKind::NoCredentials
        | ErrorKind::ClientUntrusted => FsError::PermissionDenied,
        ErrorKind::Archived => FsError::NotPermitted(
            "the object is in an archive storage class; restore it in the store first",
        ),
        ErrorKind::Timeout => FsError::TimedOut(error.to_string()),
        ErrorKind::ChecksumMismatch => FsError::Corrupt(error.to_string()),
        ErrorKind::NoSuchBucket
        | ErrorKind::NoSuchUpload
        | ErrorKind::AlreadyExists
        | ErrorKind::PositionMismatch
        | ErrorKind::ClockSkew
        | ErrorKind::WrongEndpoint
        | ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge
        | ErrorKind::NoSpace
        | ErrorKind::Throttled
        | ErrorKind::Unavailable
        | ErrorKind::Interrupted
        | ErrorKind::Protocol
        | ErrorKind::Untrusted => FsError::Io(error.to_string()),
    }
}
