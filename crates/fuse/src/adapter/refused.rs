//! What is answered without asking the volume.
//!
//! `ENOSYS` makes the kernel remember, for the whole mount, not to ask again; it then acts by
//! itself. That is right only where what the kernel does instead is right:
//!
//! | request | what the kernel does after ENOSYS |
//! |---|---|
//! | extended attributes, if the volume has none | `EOPNOTSUPP`, which programs expect then |
//! | ACCESS | allows it; with `default_permissions` it has checked already |
//! | FSYNCDIR, unless names are saved behind | success; names are in the store when the call that made them returns |
//! | LSEEK, if the volume knows of no holes | seeks by itself; `SEEK_HOLE` finds only the end |
//! | COPY_FILE_RANGE, if the volume copies nothing | copies through the page cache |
//! | IOCTL but for [`crate::save`], POLL, BMAP | `ENOTTY`; always ready; `EINVAL` |
//! | STATX, TMPFILE, SYNCFS | asks with GETATTR; `EOPNOTSUPP`; success |
//!
//! Locks are negotiated only where the volume has some. Else the kernel keeps them itself and never asks.

use crate::{errno::Errno, protocol::Opcode};

/// What a request that the volume does not see is answered with.
pub(super) fn errno(opcode: Option<Opcode>) -> Errno {
    Errno(match opcode {
        // As link(2) says of a file system without hard links.
        Some(Opcode::Link) => libc::EPERM,
        Some(Opcode::Init) => libc::EIO,
        _ => libc::ENOSYS,
    })
}
