//! Quotas of a file system that is open.

use penstock_base::FsResult;

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

    /// Takes a limit away: see [`quotas::remove`].
    pub async fn remove_quota(&self, subject: Subject) -> FsResult<()> {
        quotas::remove(&*self.parts.engine, subject).await
    }

    /// All quotas: see [`quotas::list`].
    pub async fn list_quotas(&self) -> FsResult<Vec<Quota>> {
        quotas::list(&*self.parts.engine).await
    }
}
