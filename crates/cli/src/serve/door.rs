//! How programs reach a mounted volume.

use std::time::Duration;

use penstock_block::BlockVolume;
use penstock_fuse::{Session, UnmountError, UnmountMode, Unsaved};

/// The door of a mount, whichever it is.
#[derive(Debug)]
pub(crate) enum Door {
    /// The kernel asks for each operation.
    Fuse(Box<Session>),
    /// The kernel has a file system of its own and asks for blocks. There is nothing to save.
    Block(Box<BlockVolume>),
}

impl Door {
    /// Waits until the mount is gone, whoever took it away; returns what could not be saved.
    pub(super) async fn wait(&self) -> Unsaved {
        match self {
            Self::Fuse(session) => session.wait().await,
            Self::Block(volume) => {
                volume.wait().await;
                Unsaved::new()
            }
        }
    }

    /// Takes the mount out of the file tree.
    pub(super) async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        match self {
            Self::Fuse(session) => session.unmount(mode).await,
            Self::Block(volume) => volume.unmount(mode).await,
        }
    }

    /// Whether programs use what is out of the file tree, as far as the door can tell.
    pub(super) fn is_used(&self) -> bool {
        match self {
            Self::Fuse(session) => !session.has_ended(),
            Self::Block(_) => false,
        }
    }

    /// What waits to be saved. Disks are never written.
    pub(super) fn waits_to_be_saved(&self) -> penstock_vfs::Unsaved {
        match self {
            Self::Fuse(session) => session.waits_to_be_saved(),
            Self::Block(_) => penstock_vfs::Unsaved::default(),
        }
    }

    /// Unmounts, lazily if files are open, and gives those who use them `grace` to finish.
    pub(super) async fn leave(&self, grace: Duration) -> Unsaved {
        match self {
            Self::Fuse(session) => session.leave(grace).await,
            Self::Block(volume) => {
                volume.leave(grace).await;
                Unsaved::new()
            }
        }
    }
}
