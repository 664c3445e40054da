//! What a name leads to, and how long a door may believe it.
//!
//! A name that is there may be believed for a moment where others change the file system: an `open` of what it led to
//! finds out that the name leads elsewhere by now. Nothing would find out that a name is there by now. So its
//! absence is said when this machine knows all that was done before on any, and a door asks again each time.

use std::time::Duration;

use penstock_base::FsResult;
use penstock_vfs::{Dentry, Identity, Inode, Lookup};

use super::FilesetVolume;
use crate::{operations, schema};

impl FilesetVolume {
    /// How long a name is believed that is there: those of snapshots and in the trash come and go without the kernel.
    pub(super) fn believed_for(&self, dentry: Dentry<'_>) -> Duration {
        match dentry.parent == schema::SNAPSHOTS || schema::is_of_trash(dentry.parent) {
            true => Duration::ZERO,
            false => self.ttl(),
        }
    }

    /// The file of a name, if it has one after all that was done on any machine before the call.
    pub(super) async fn find(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Option<Inode>> {
        self.see().await?;
        let known = self.find_known(by, dentry).await?;
        match &self.parts.machines {
            Some(_) if self.is_strict() => return Ok(known),
            Some(machines) if known.is_none() => machines.see_all().await?,
            _ => return Ok(known),
        }
        self.find_known(by, dentry).await
    }

    async fn find_known(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Option<Inode>> {
        self.query(|reads| Ok(operations::lookup(reads, by, dentry)?.map(|found| found.inode)))
            .await
    }

    pub(super) fn absent(&self, dentry: Dentry<'_>) -> Lookup {
        Lookup::Absent(match &self.parts.machines {
            Some(_) => Duration::ZERO,
            None => self.believed_for(dentry),
        })
    }
}
