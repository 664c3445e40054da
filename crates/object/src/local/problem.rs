//! What goes wrong on a disk, in the words of an object store.

use rustix::io::Errno;

use crate::{ErrorKind, ObjectError, Operation};

/// A failure whose operation and key the caller knows.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: ErrorKind,
    message: String,
}

pub(super) type Attempt<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(super) fn during(self, operation: Operation) -> ObjectError {
        ObjectError::new(self.kind, operation, self.message)
    }
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        let (kind, message) = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO => (ErrorKind::NotFound, "no such object"),
            Errno::ACCESS | Errno::PERM => (
                ErrorKind::PermissionDenied,
                "the file system refuses access: check owner and mode of the bucket's directory",
            ),
            Errno::ROFS => (
                ErrorKind::PermissionDenied,
                "the file system is mounted read-only",
            ),
            Errno::XDEV | Errno::LOOP => (
                ErrorKind::PermissionDenied,
                "a symbolic link leads out of the bucket's directory",
            ),
            Errno::NOSPC => (
                ErrorKind::NoSpace,
                "the file system is full: make room and try again",
            ),
            Errno::DQUOT => (
                ErrorKind::NoSpace,
                "the disk quota is used up: make room and try again",
            ),
            Errno::FBIG => (
                ErrorKind::TooLarge,
                "the file system takes no files that large",
            ),
            Errno::NAMETOOLONG => (
                ErrorKind::InvalidRequest,
                "the file system takes no names that long",
            ),
            Errno::OPNOTSUPP | Errno::NOSYS => (
                ErrorKind::Unsupported,
                "the file system cannot do this: use ext4, xfs, btrfs or tmpfs",
            ),
            other => {
                let message = format!("the file system failed: {other}");
                return Self::new(ErrorKind::Unavailable, message);
            }
        };
        Self::new(kind, message)
    }
}
