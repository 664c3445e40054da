//! The one place where file system errors become numbers of NFS.

use penstock_base::{FsError, NameError};

/// An nfsstat3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const NOT_OWNER: Self = Self(1);
    pub(crate) const NO_ENTRY: Self = Self(2);
    pub(crate) const IO: Self = Self(5);
    pub(crate) const ACCESS: Self = Self(13);
    pub(crate) const EXISTS: Self = Self(17);
    pub(crate) const OTHER_DEVICE: Self = Self(18);
    pub(crate) const NOT_DIRECTORY: Self = Self(20);
    pub(crate) const IS_DIRECTORY: Self = Self(21);
    pub(crate) const INVALID: Self = Self(22);
    pub(crate) const TOO_BIG: Self = Self(27);
    pub(crate) const NO_SPACE: Self = Self(28);
    pub(crate) const READ_ONLY: Self = Self(30);
    pub(crate) const TOO_MANY_LINKS: Self = Self(31);
    pub(crate) const NAME_TOO_LONG: Self = Self(63);
    pub(crate) const NOT_EMPTY: Self = Self(66);
    pub(crate) const QUOTA_EXCEEDED: Self = Self(69);
    pub(crate) const STALE: Self = Self(70);
    pub(crate) const BAD_HANDLE: Self = Self(10001);
    pub(crate) const NOT_SYNCHRONIZED: Self = Self(10002);
    pub(crate) const BAD_COOKIE: Self = Self(10003);
    pub(crate) const NOT_SUPPORTED: Self = Self(10004);
    pub(crate) const TOO_SMALL: Self = Self(10005);
    pub(crate) const BAD_TYPE: Self = Self(10007);
    /// Try again later.
    pub(crate) const JUKEBOX: Self = Self(10008);
}

/// The status of each error. There is no catch-all: a new error needs a decision here. What passes by itself is
/// answered with `JUKEBOX`, at which clients wait and ask again.
fn status_of(error: &FsError) -> Status {
    match error {
        FsError::NotFound => Status::NO_ENTRY,
        FsError::AlreadyExists => Status::EXISTS,
        FsError::NotADirectory => Status::NOT_DIRECTORY,
        FsError::IsADirectory => Status::IS_DIRECTORY,
        FsError::DirectoryNotEmpty => Status::NOT_EMPTY,
        FsError::PermissionDenied => Status::ACCESS,
        FsError::NotPermitted(_) => Status::NOT_OWNER,
        // There is no number for a name that is not UTF-8, nor for a place behind the end.
        FsError::InvalidArgument(_) | FsError::NameNotUtf8 | FsError::NoSuchPlace => {
            Status::INVALID
        }
        FsError::NameTooLong => Status::NAME_TOO_LONG,
        FsError::FileTooLarge => Status::TOO_BIG,
        FsError::NoSpace => Status::NO_SPACE,
        FsError::QuotaExceeded => Status::QUOTA_EXCEEDED,
        FsError::OutOfMemory
        | FsError::LimitReached(_)
        | FsError::Busy(_)
        | FsError::WouldBlock
        | FsError::Deadlock
        | FsError::Interrupted
        | FsError::TimedOut(_) => Status::JUKEBOX,
        // A handle of a volume is this door's own affair: a client has only handles of NFS.
        FsError::Stale | FsError::BadHandle => Status::STALE,
        FsError::ReadOnly => Status::READ_ONLY,
        FsError::Unsupported(_) | FsError::NoAttribute => Status::NOT_SUPPORTED,
        FsError::NotSynchronized => Status::NOT_SYNCHRONIZED,
        FsError::TooManyLinks => Status::TOO_MANY_LINKS,
        FsError::CrossDevice => Status::OTHER_DEVICE,
        FsError::Corrupt(_) | FsError::Io(_) => Status::IO,
    }
}

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        status_of(&error)
    }
}

impl From<NameError> for Status {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Empty | NameError::ForbiddenByte | NameError::NotUtf8 => Self::INVALID,
            NameError::Dots => Self::EXISTS,
            NameError::TooLong => Self::NAME_TOO_LONG,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_status() {
        let text = String::new;
        for (error, status) in [
            (FsError::NotFound, 2),
            (FsError::AlreadyExists, 17),
            (FsError::NotADirectory, 20),
            (FsError::IsADirectory, 21),
            (FsError::DirectoryNotEmpty, 66),
            (FsError::PermissionDenied, 13),
            (FsError::NotPermitted(""), 1),
            (FsError::InvalidArgument(""), 22),
            (FsError::NameTooLong, 63),
            (FsError::NameNotUtf8, 22),
            (FsError::FileTooLarge, 27),
            (FsError::NoSpace, 28),
            (FsError::QuotaExceeded, 69),
            (FsError::OutOfMemory, 10008),
            (FsError::LimitReached(""), 10008),
            (FsError::Busy(""), 10008),
            (FsError::Stale, 70),
            (FsError::ReadOnly, 30),
            (FsError::Unsupported(""), 10004),
            (FsError::NotSynchronized, 10002),
            (FsError::TooManyLinks, 31),
            (FsError::CrossDevice, 18),
            (FsError::BadHandle, 70),
            (FsError::Interrupted, 10008),
            (FsError::TimedOut(text()), 10008),
            (FsError::Corrupt(text()), 5),
            (FsError::Io(text()), 5),
        ] {
            assert_eq!(status_of(&error), Status(status), "{error:?}");
        }
    }
}
