//! Why bytes could not be moved.

use penstock_object::ObjectError;
use thiserror::Error;

/// The result of a transfer.
pub type TransferResult<T> = Result<T, TransferError>;

/// Why bytes could not be moved.
#[derive(Debug, Clone, Error)]
pub enum TransferError {
    /// The store failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The memory budget is too small, or stayed exhausted until the deadline.
    #[error("the memory budget is exhausted: allow more memory, or use fewer files at once")]
    OutOfMemory,
    /// The object would exceed what the store can hold in parts that fit into memory.
    #[error(
        "the object would exceed {0} bytes, the most that the store takes in parts that fit into the memory budget"
    )]
    TooLarge(u64),
}
