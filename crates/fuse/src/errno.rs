//! The one place where file system errors become numbers.

use std::fmt;

use penstock_base::{FsError, NameError};

/// An error number as the kernel knows it, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// The errno of each error. There is no catch-all: a new error needs a decision here.
pub fn errno_of(error: &FsError) -> Errno {
    Errno(match error {
        FsError::NotFound => libc::ENOENT,
        FsError::AlreadyExists => libc::EEXIST,
        FsError::NotADirectory => libc::ENOTDIR,
        FsError::IsADirectory => libc::EISDIR,
        FsError::DirectoryNotEmpty => libc::ENOTEMPTY,
        FsError::PermissionDenied => libc::EACCES,
        FsError::NotPermitted(_) => libc::EPERM,
        FsError::InvalidArgument(_) => libc::EINVAL,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        // Other file systems that insist on UTF-8 answer the same.
        FsError::NameNotUtf8 => libc::EILSEQ,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::NoSpace => libc::ENOSPC,
        FsError::QuotaExceeded => libc::EDQUOT,
        FsError::OutOfMemory => libc::ENOMEM,
        FsError::LimitReached(_) => libc::EMFILE,
        FsError::Busy(_) => libc::EBUSY,
        FsError::Stale => libc::ESTALE,
        FsError::ReadOnly => libc::EROFS,
        // Never ENOSYS: the kernel would stop asking for the whole mount.
        FsError::Unsupported(_) => libc::EOPNOTSUPP,
        FsError::NoAttribute => libc::ENODATA,
        FsError::WouldBlock | FsError::NotSynchronized => libc::EAGAIN,
        FsError::Deadlock => libc::EDEADLK,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::NoSuchPlace => libc::ENXIO,
        FsError::CrossDevice => libc::EXDEV,
        FsError::BadHandle => libc::EBADF,
        FsError::Interrupted => libc::EINTR,
        FsError::TimedOut(_) => libc::ETIMEDOUT,
        FsError::Corrupt(_) | FsError::Io(_) => libc::EIO,
    })
}

/// The errno for making something under a name that cannot be.
pub(crate) fn errno_of_name(error: NameError) -> Errno {
    Errno(match error {
        NameError::Empty | NameError::Dots | NameError::ForbiddenByte => libc::EINVAL,
        NameError::TooLong => libc::ENAMETOOLONG,
        NameError::NotUtf8 => libc::EILSEQ,
    })
}
