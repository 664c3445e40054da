//! Quotas of a file system that is open.

use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::FilesetVolume;
use crate::quotas::{self, Change, Quota, Subject};

impl FilesetVolume {
    /// Limits what somebody uses, or changes that: see [`quotas::set`]. Files are counted behind the caller where they
    /// have to be.
    pub async fn set_quota(&self, subject: Subject, change: Change) -> FsResult<()> {
        quotas::set(&*self.parts.engine, subject, change).await?;
        self.parts.held.bell.notify_one();
        Ok(())
    }

    /// The directory at a path from the root on.
    pub async fn directory_at(&self, path: &str) -> FsResult<Inode> {
        quotas::directory_at(&*self.parts.engine, path).await
    }

    /// Takes a limit away: see [`quotas::remove`].
    pub async fn remove_quota(&self, subject: Subject) -> FsResult<()> {
        quotas::remove(&*self.parts.engine, subject).await?;
        self.parts.held.bell.notify_one();
        Ok(())
    }

    /// All quotas: see [`quotas::list`].
    pub async fn list_quotas(&self) -> FsResult<Vec<Quota>> {
        quotas::list(&*self.parts.engine).await
    }
}
