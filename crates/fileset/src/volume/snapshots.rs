//! Snapshots through the doors: `mkdir` and `rmdir` in the directory of all snapshots, and what is in the way of changes.

use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{
    AccessMask, Change, Dentry, HandleId, Identity, Inode, Made, New, NewKind, RemoveKind, Volume,
    permission,
};

use super::FilesetVolume;
use crate::{
    operations::{self, Condition},
    schedule::{self, Keep},
    schema::{SNAPSHOTS, in_snapshot, is_in_snapshot},
    snapshots::{self, Holding, Snapshot},
};

impl FilesetVolume {
    /// Takes a snapshot, after what is pending of all files is saved. It is durable when this returns. Fails if something
    /// cannot be saved, or not in a minute.
    pub async fn take_snapshot(&self, name: &FileName) -> FsResult<Snapshot> {
        self.take_if(name, None).await
    }

    async fn take_if(&self, name: &FileName, condition: Option<Condition>) -> FsResult<Snapshot> {
        self.parts.save_pending().await?;
        snapshots::take_if(&*self.parts.engine, name, condition).await
    }

    /// Removes a snapshot, and clears away behind the caller what it kept.
    pub async fn remove_snapshot(&self, name: &FileName) -> FsResult<()> {
        self.remove_if(name, None).await
    }

    async fn remove_if(&self, name: &FileName, condition: Option<Condition>) -> FsResult<()> {
        snapshots::remove_if(&*self.parts.engine, name, condition).await?;
        self.parts.held.bell.notify_one();
        Ok(())
    }

    /// All snapshots, and what they hold.
    pub async fn list_snapshots(&self) -> FsResult<(Vec<Snapshot>, Holding)> {
        let engine = &*self.parts.engine;
        Ok((
            snapshots::list(engine).await?,
            snapshots::holding(engine).await?,
        ))
    }

    /// Changes what is done by itself, and does at once what is due: see [`schedule::set`].
    pub async fn set_schedule(&self, changes: Keep) -> FsResult<Keep> {
        let keep = schedule::set(&*self.parts.engine, changes).await?;
        self.scheduler.look();
        Ok(keep)
    }

    /// Whether a name is, or would be, that of a snapshot.
    pub(super) fn is_of_snapshots(&self, dentry: Dentry<'_>) -> bool {
        dentry.parent == SNAPSHOTS
    }

    /// `mkdir` of a snapshot takes it.
    pub(super) async fn make_snapshot(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: &New<'_>,
    ) -> FsResult<Made> {
        if !matches!(new.kind, NewKind::Directory) {
            return Err(FsError::ReadOnly);
        }
        let condition = Some(may_change_snapshots(by));
        let taken = self.take_if(dentry.name, condition).await?;
        let root = in_snapshot(taken.number, Inode::ROOT);
        Ok(Made::new(self.hold(by, root).await?))
    }

    /// `rmdir` of a snapshot removes it, with all that is in it.
    pub(super) async fn drop_snapshot(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        if kind != RemoveKind::Directory {
            return Err(FsError::IsADirectory);
        }
        let condition = Some(may_change_snapshots(by));
        self.remove_if(dentry.name, condition).await?;
        Ok(Change::UNTOLD)
    }

    /// What a read fails with: of a snapshot that was removed meanwhile objects may be gone.
    pub(super) async fn why_not_read(&self, handle: HandleId, error: FsError) -> FsError {
        let Ok(handle) = self.parts.files.handle(handle) else {
            return error;
        };
        let inode = handle.file.inode;
        let look = self.query(|reads| operations::node(reads, inode));
        match is_in_snapshot(inode) && matches!(look.await, Err(FsError::Stale)) {
            true => FsError::Stale,
            false => error,
        }
    }
}

/// `by` may take and remove snapshots: who may change the root's owner's own.
fn may_change_snapshots(by: &Identity) -> Condition {
    let by = by.clone();
    let wanted = AccessMask::WRITE.union(AccessMask::EXECUTE);
    Condition::new(move |directory| permission::check(directory, &by, wanted))
}
