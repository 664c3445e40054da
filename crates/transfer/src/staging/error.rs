//! Why something could not be done with a staged file.

use penstock_base::FsError;
use thiserror::Error;

use crate::TransferError;

/// Why something could not be done with a staged file.
#[derive(Debug, Clone, Error)]
pub enum StagedError {
    /// Bytes could not be moved from or to the store.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The file, or the disk that it is staged on, is in the way.
    #[error(transparent)]
    File(#[from] FsError),
}

impl From<penstock_object::ObjectError> for StagedError {
    fn from(error: penstock_object::ObjectError) -> Self {
        Self::Transfer(error.into())
    }
}
