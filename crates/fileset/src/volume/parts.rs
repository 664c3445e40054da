//! What the parts of a volume share, and what follows from there being other machines.

use std::sync::Arc;

use penstock_base::FsResult;
use penstock_vfs::{HandleId, Inode};

use crate::{
    data::Objects,
    files::{Files, Handle},
    held::Held,
    machines::Machines,
    snapshots::Preserving,
};

/// What the parts of a volume share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) engine: Arc<Preserving>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) files: Arc<Files>,
    pub(crate) held: Arc<Held>,
    /// Where others have the file system at the same time.
    pub(crate) machines: Option<Machines>,
}

impl Parts {
    /// Fails once others have the file system, and this machine has it no more.
    pub(super) fn check(&self) -> FsResult<()> {
        self.machines.as_ref().map_or(Ok(()), Machines::check)
    }

    /// Returns when what was done on any machine is seen here.
    pub(crate) async fn catch_up(&self) -> FsResult<()> {
        match &self.machines {
            Some(machines) => machines.catch_up().await,
            None => Ok(()),
        }
    }

    /// A handle was used.
    pub(super) fn used(&self, inode: Inode, handle: HandleId) {
        if let Some(machines) = &self.machines {
            machines.contents.arrived(inode, handle);
        }
    }

    pub(super) fn forget(&self, inode: Inode, count: u64) {
        self.held.give_back(inode, count);
        if let Some(machines) = self.machines.as_ref().filter(|_| !self.held.has(inode)) {
            machines.contents.forget(inode);
        }
    }

    /// A handle is about to be used. Fails if it cannot be.
    pub(super) fn using(&self, id: HandleId) -> FsResult<()> {
        match &self.machines {
            Some(_) => self.handle(id).map(drop),
            None => Ok(()),
        }
    }

    /// An open handle that can be used.
    pub(super) fn handle(&self, id: HandleId) -> FsResult<Handle> {
        self.check()?;
        let handle = self.files.handle(id)?;
        self.used(handle.file.inode, id);
        Ok(handle)
    }
}
