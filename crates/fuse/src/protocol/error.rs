//! Why bytes are not a request.

use thiserror::Error;

/// Why bytes are not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Fewer bytes than a header has.
    #[error("a request of {0} bytes is shorter than its header")]
    ShortHeader(usize),
    /// The header speaks of another length than what arrived.
    #[error("the header speaks of {said} bytes, {received} arrived")]
    WrongLength {
        /// Bytes according to the header.
        said: usize,
        /// Bytes that arrived.
        received: usize,
    },
    /// The body ends within its fixed part, or its data is shorter than it says.
    #[error("the body of opcode {0} is cut off")]
    Truncated(u32),
    /// A name has no terminating NUL.
    #[error("a name of opcode {0} has no end")]
    UnterminatedName(u32),
}
