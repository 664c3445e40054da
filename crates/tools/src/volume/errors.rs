//! What a volume says as an error of the system.

use std::io;

use penstock_base::{FsError, NameError};
use rustix::io::Errno;

/// The same as an error of this machine: it has the kind of its number, and says what the volume said.
pub fn io_error(error: FsError) -> io::Error {
    let number = number(&error);
    match says_more(&error) {
        true => io::Error::new(io::Error::from(number).kind(), error),
        false => number.into(),
    }
}

/// The number of an error of a volume or of the system.
pub fn errno_of(error: &io::Error) -> Option<Errno> {
    let told = error.get_ref().and_then(|told| told.downcast_ref());
    told.map(number).or_else(|| Errno::from_io_error(error))
}

/// Something under a name that cannot be.
pub(super) fn name_error(error: NameError) -> io::Error {
    let number = match error {
        NameError::Empty | NameError::Dots | NameError::ForbiddenByte => Errno::INVAL,
        NameError::TooLong => Errno::NAMETOOLONG,
        NameError::NotUtf8 => Errno::ILSEQ,
    };
    number.into()
}

/// Whether the system's words for the number would leave something out.
fn says_more(error: &FsError) -> bool {
    match error {
        FsError::NotFound
        | FsError::AlreadyExists
        | FsError::NotADirectory
        | FsError::IsADirectory
        | FsError::DirectoryNotEmpty
        | FsError::PermissionDenied
        | FsError::NameTooLong
        | FsError::FileTooLarge
        | FsError::NoSpace
        | FsError::QuotaExceeded
        | FsError::NoAttribute
        | FsError::TooManyLinks
        | FsError::NoSuchPlace
        | FsError::CrossDevice
        | FsError::BadHandle
        | FsError::Interrupted => false,
        FsError::NotPermitted(_)
        | FsError::InvalidArgument(_)
        | FsError::NameNotUtf8
        | FsError::OutOfMemory
        | FsError::LimitReached(_)
        | FsError::Busy(_)
        | FsError::Stale
        | FsError::ReadOnly
        | FsError::Unsupported(_)
        | FsError::WouldBlock
        | FsError::NotSynchronized
        | FsError::Deadlock
        | FsError::TimedOut(_)
        | FsError::Corrupt(_)
        | FsError::Io(_) => true,
    }
}

fn number(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::AlreadyExists => Errno::EXIST,
        FsError::NotADirectory => Errno::NOTDIR,
        FsError::IsADirectory => Errno::ISDIR,
        FsError::DirectoryNotEmpty => Errno::NOTEMPTY,
        FsError::PermissionDenied => Errno::ACCESS,
        FsError::NotPermitted(_) => Errno::PERM,
        FsError::InvalidArgument(_) => Errno::INVAL,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::NameNotUtf8 => Errno::ILSEQ,
        FsError::FileTooLarge => Errno::FBIG,
        FsError::NoSpace => Errno::NOSPC,
        FsError::QuotaExceeded => Errno::DQUOT,
        FsError::OutOfMemory => Errno::NOMEM,
        FsError::LimitReached(_) => Errno::MFILE,
        FsError::Busy(_) => Errno::BUSY,
        FsError::Stale => Errno::STALE,
        FsError::ReadOnly => Errno::ROFS,
        FsError::Unsupported(_) => Errno::OPNOTSUPP,
        FsError::NoAttribute => Errno::NODATA,
        FsError::WouldBlock | FsError::NotSynchronized => Errno::AGAIN,
        FsError::Deadlock => Errno::DEADLK,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::NoSuchPlace => Errno::NXIO,
        FsError::CrossDevice => Errno::XDEV,
        FsError::BadHandle => Errno::BADF,
        FsError::Interrupted => Errno::INTR,
        FsError::TimedOut(_) => Errno::TIMEDOUT,
        FsError::Corrupt(_) | FsError::Io(_) => Errno::IO,
    }
}
