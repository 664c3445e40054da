//! What an operation answers, and what must be undone if nobody hears the answer.

use penstock_base::{FsError, Payload};
use penstock_vfs::{Given, HandleId, Inode, Volume};
use smallvec::SmallVec;
use tracing::{debug, error, warn};

use crate::{
    errno::{Errno, errno_of},
    protocol::encode::Body,
};

/// The body of a reply.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A fixed structure, or nothing.
    Body(Body),
    /// A directory listing or a link target.
    Bytes(Vec<u8>),
    /// File content, sent from where it lies.
    Data(Payload),
}

/// What the kernel holds once it has heard the answer. If it never does (the caller was
/// interrupted), the volume must get it back.
#[derive(Debug, Default)]
pub(crate) enum Undo {
    /// Nothing is held.
    #[default]
    Nothing,
    /// A reference to each inode.
    Forget(SmallVec<[Inode; 1]>),
    /// An open file.
    Release(HandleId),
    /// A reference and an open file.
    ForgetAndRelease(Inode, HandleId),
    /// An open directory.
    ReleaseDirectory(HandleId),
    /// A lock.
    Unlock(Given),
}

impl Undo {
    /// The kernel has heard the answer.
    pub(crate) fn heard(self) {
        if let Self::Unlock(given) = self {
            given.keep();
        }
    }

    /// Gives everything back.
    pub(crate) async fn run(self, volume: &dyn Volume) {
        match self {
            Self::Nothing => {}
            Self::Forget(inodes) => inodes.iter().for_each(|inode| volume.forget(*inode, 1)),
            Self::Release(handle) => volume.undo_open(handle).await,
            Self::ForgetAndRelease(inode, handle) => {
                volume.undo_open(handle).await;
                volume.forget(inode, 1);
            }
            Self::ReleaseDirectory(handle) => volume.release_directory(handle).await,
            Self::Unlock(given) => drop(given),
        }
    }
}

/// A successful answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) undo: Undo,
    /// Of what the kernel drops the pages when it has heard the answer.
    pub(crate) outdated: Option<Inode>,
}

impl Answer {
    /// Success with nothing to say.
    pub(crate) fn done() -> Self {
        Self::body(|_| {})
    }

    /// A fixed structure that `fill` writes.
    pub(crate) fn body(fill: impl FnOnce(&mut Body)) -> Self {
        let mut body = Body::default();
        fill(&mut body);
        Reply::Body(body).into()
    }

    /// The same answer, with what the kernel is to drop the pages of behind it.
    pub(crate) fn and_drop(self, outdated: Option<Inode>) -> Self {
        Self { outdated, ..self }
    }

    /// The same answer, with what to undo.
    pub(crate) fn or_undo(self, undo: Undo) -> Self {
        Self { undo, ..self }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            undo: Undo::Nothing,
            outdated: None,
        }
    }
}

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The volume said so.
    Volume(FsError),
    /// The door itself said so.
    Door(Errno),
    /// There was a panic, with this text.
    Panic(String),
}

impl Failure {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Volume(error) => errno_of(error),
            Self::Door(errno) => *errno,
            Self::Panic(_) => Errno(libc::EIO),
        }
    }

    /// Tells the operator of failures that are more than everyday answers.
    pub(crate) fn log(&self, operation: &str, inode: Inode) {
        let inode = inode.0;
        match self {
            Self::Panic(text) => {
                error!(operation, inode, "panic, answered with EIO: {text}");
            }
            Self::Volume(error @ (FsError::Io(_) | FsError::Corrupt(_) | FsError::TimedOut(_))) => {
                warn!(operation, inode, %error, "the volume failed");
            }
            _ => debug!(operation, inode, errno = %self.errno(), "refused"),
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::Volume(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Door(errno)
    }
}

/// How an operation ended.
pub(crate) type Outcome = Result<Answer, Failure>;
