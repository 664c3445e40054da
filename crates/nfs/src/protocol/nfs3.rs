//! NFS, version 3 (RFC 1813): the arguments of its procedures, and what results are made of.

mod request;
mod results;
mod status;

pub use request::{CreateHow, NewAttributes, NodeKind, Place, Request, Stability, decode_write};
pub(crate) use request::{Effect, name_of};
pub(crate) use results::{FileId, attributes, post_operation, weak_consistency};
pub(crate) use status::Status;

/// The number of the program.
pub(crate) const PROGRAM: u32 = 100_003;
/// The only version.
pub(crate) const VERSION: u32 = 3;
/// The number of WRITE.
pub(crate) const WRITE: u32 = 7;
/// Bytes in the longest handle.
pub(crate) const HANDLE_MAX: usize = 64;
/// Bytes in a verifier.
pub(crate) const VERIFIER: usize = 8;

/// The procedures by number, as RFC 1813 names them.
pub(crate) const PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];
