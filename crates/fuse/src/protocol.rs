//! The FUSE wire protocol, version 7.45, as plain code.
//!
//! Messages are structs in the byte order of the host, padded to eight bytes. [`parse`] turns the
//! bytes of one request into a [`Message`] and never panics, whatever the bytes; [`encode`]
//! writes the bodies of replies. Field offsets are written once, in the order of the wire, so
//! there is no `unsafe` and no struct layout to get wrong.
//!
//! A request is a 40-byte header, one fixed part per opcode, then NUL-terminated names or data. A
//! reply is a 16-byte header and a body. A WRITE may be parsed from its first
//! [`WRITE_HEAD_SIZE`] bytes alone ([`parse_detached`]), so that its data can lie elsewhere.

mod attributes;
mod capabilities;
pub(crate) mod encode;
mod error;
mod fields;
mod header;
mod init;
mod opcode;
mod parse;
mod request;

pub use capabilities::Capabilities;
pub use error::ParseError;
pub use header::{Caller, REQUEST_HEADER_SIZE, RequestHeader};
pub use init::{InitReply, InitRequest};
pub use opcode::Opcode;
pub use parse::{WRITE_HEAD_SIZE, parse, parse_detached, write_origin};
pub use request::{
    CopyRange, DescriptorTable, Forgotten, LockRequest, Message, Request, Transfer, WriteOrigin,
};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that is understood here.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is understood here, that of Linux 4.20: since then requests have
/// more than 128 KiB.
pub(crate) const MINOR_MIN: u32 = 28;
/// Bytes in a reply's header.
pub(crate) const REPLY_HEADER_SIZE: usize = 16;

#[cfg(test)]
mod tests;
