//! How soon what one machine changes is seen on others.
//!
//! Close-to-open asks at an `open`. With strict coherence each look asks ([`FilesetVolume::see`]), and each change of bytes has
//! the write lease of its file ([`crate::machines`]); doors keep nothing of what they were shown.

use std::time::Duration;

use penstock_base::{FsError, FsResult};
use penstock_vfs::{HandleId, Inode};

use super::{FilesetVolume, TTL};
use crate::machines::{Changing, return_idle};

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coherence {
    /// An `open` sees what was closed before, on any machine.
    #[default]
    CloseToOpen,
    /// Each operation sees what was done before, on any machine that has it so.
    Strict,
}

impl FilesetVolume {
    pub(super) fn is_strict(&self) -> bool {
        self.parts.leases().is_some()
    }

    /// How long a door may believe what it is told.
    pub(super) fn ttl(&self) -> Duration {
        match self.is_strict() {
            true => Duration::ZERO,
            false => TTL,
        }
    }

    /// With strict coherence, returns when looks show what was done before on any machine, but for bytes that are not saved.
    pub(super) async fn see(&self) -> FsResult<()> {
        match self.parts.leases() {
            Some((machines, _)) => machines.see_all().await,
            None => Ok(()),
        }
    }

    /// The same, with all that was written to a file.
    pub(super) async fn see_file(&self, inode: Inode) -> FsResult<()> {
        match self.parts.leases() {
            Some((machines, _)) => {
                machines.see_all().await?;
                machines.see_writes(inode).await
            }
            None => Ok(()),
        }
    }

    /// With strict coherence, returns when what is known here of the bytes of an open file is all that was written to it.
    pub(super) async fn see_bytes(&self, handle: HandleId) -> FsResult<()> {
        let Some((machines, leases)) = self.parts.leases() else {
            return Ok(());
        };
        let inode = self.parts.files.handle(handle)?.file.inode;
        if leases.has(inode) {
            return self.is_alive().await;
        }
        machines.see_all().await?;
        machines.see_writes(inode).await?;
        // Behind that look: what it found to have ended this machine may not have taken in.
        machines.settle().await
    }

    /// The same as [`Self::to_change`] of an open file.
    pub(super) async fn to_write(&self, handle: HandleId) -> FsResult<Option<Changing>> {
        match self.is_strict() {
            true => {
                self.to_change(self.parts.files.handle(handle)?.file.inode)
                    .await
            }
            false => Ok(None),
        }
    }

    /// With strict coherence, begins a change of a file's bytes, which ends when what is returned goes.
    async fn to_change(&self, inode: Inode) -> FsResult<Option<Changing>> {
        match self.parts.leases() {
            Some((machines, leases)) => {
                let changing = machines.to_change((leases, &self.parts), inode);
                changing.await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Makes a change of a file's bytes. With strict coherence it goes on if this is dropped, and so does what it has of the lease.
    pub(super) async fn change_bytes<T: Send + 'static>(
        &self,
        inode: Inode,
        change: impl Future<Output = FsResult<T>> + Send + 'static,
    ) -> FsResult<T> {
        let Some(changing) = self.to_change(inode).await? else {
            return change.await;
        };
        let changed = tokio::spawn(async move {
            let _changing = changing;
            change.await
        });
        changed.await.unwrap_or_else(|_| {
            Err(FsError::Io(
                "a change of a file ended unexpectedly".to_owned(),
            ))
        })
    }

    /// A handle was closed.
    pub(super) fn closed(&self) {
        if self.is_strict() {
            return_idle(&self.parts);
        }
    }

    /// Fails once the session is over, and waits while that is uncertain: what a lease says holds no longer.
    pub(super) async fn is_alive(&self) -> FsResult<()> {
        self.query(|_| Ok(())).await
    }
}
