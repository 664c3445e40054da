//! What a failed request to the bucket means to a file.

use penstock_base::FsError;
use penstock_object::{ErrorKind, ObjectError};
use penstock_transfer::TransferError;

/// What a failed request means to the operation that made it. Logs the failure.
pub(crate) fn object_failure(error: &ObjectError) -> FsError {
    tracing::warn!(
        operation = error.operation.name(),
        code = error.code,
        request = error.request_id,
        "{error}"
    );
    match error.kind {
        // Of an object that the metadata refers to.
        ErrorKind::NotFound | ErrorKind::InvalidRange | ErrorKind::PreconditionFailed => {
            FsError::Corrupt(format!("a block is missing in the bucket: {error}"))
        }
        ErrorKind::ChecksumMismatch => {
            tracing::error!("damaged bytes in the bucket: see `penstock fileset check`");
            FsError::Corrupt(error.to_string())
        }
        ErrorKind::PermissionDenied
        | ErrorKind::BadCredentials
        | ErrorKind::NoCredentials
        | ErrorKind::ClientUntrusted => FsError::PermissionDenied,
        ErrorKind::Timeout => FsError::TimedOut(error.to_string()),
        _ => FsError::Io(error.to_string()),
    }
}

/// What a failed transfer means to the operation that made it. Logs the failure.
pub(crate) fn transfer_failure(error: &TransferError) -> FsError {
    match error {
        TransferError::Object(error) => object_failure(error),
        TransferError::OutOfMemory => FsError::OutOfMemory,
        TransferError::TooLarge(_) => FsError::FileTooLarge,
    }
}
