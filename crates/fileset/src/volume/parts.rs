//! What the parts of a volume share, and what follows from there being other machines.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{HandleId, Inode};

use crate::{
    Label,
    calls::Calls,
    data::Objects,
    files::{Files, Handle},
    held::Held,
    machines::{Leases, Machines},
    metrics::Failures,
    snapshots::Preserving,
    usage::{format_of, generation_of},
};

/// How long a snapshot waits until what is pending of open files is saved.
const SAVE_WAIT: Duration = Duration::from_secs(60);

/// What the parts of a volume share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) engine: Arc<Preserving>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) files: Arc<Files>,
    pub(crate) held: Arc<Held>,
    pub(crate) calls: Calls,
    pub(crate) failures: Arc<Failures>,
    /// Where others have the file system at the same time.
    pub(crate) machines: Option<Machines>,
}

impl Parts {
    /// Fails once others have the file system, and this machine has it no more.
    pub(super) fn check(&self) -> FsResult<()> {
        self.machines.as_ref().map_or(Ok(()), Machines::check)
    }

    /// What is known of the others. Fails on an engine that nobody else has.
    pub(crate) fn machines(&self) -> FsResult<&Machines> {
        let none = || FsError::Io("the engine has no sessions".to_owned());
        self.machines.as_ref().ok_or_else(none)
    }

    /// The leases of this machine, with strict coherence.
    pub(crate) fn leases(&self) -> Option<(&Machines, &Leases)> {
        let machines = self.machines.as_ref()?;
        Some((machines, machines.leases.as_ref()?))
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

    /// Saves what is pending of all files. Fails if something cannot be saved, or not in a minute.
    pub(crate) async fn save_pending(&self) -> FsResult<()> {
        let saved = clock::deadline(SAVE_WAIT, self.save_all()).await;
        saved.unwrap_or_else(|_| {
            let late = "what is pending could not be saved in time";
            Err(FsError::TimedOut(late.to_owned()))
        })
    }

    /// The same, however long that takes.
    pub(super) async fn save_all(&self) -> FsResult<()> {
        match self.files.save_all().await.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Whether this machine does what one of those has to do that have the file system.
    pub(crate) async fn is_elected(&self) -> bool {
        match &self.machines {
            Some(machines) => machines.is_first().await.unwrap_or(false),
            None => true,
        }
    }

    /// The label in the bucket. Fails if that is of another file system by now.
    pub(crate) async fn label(&self) -> FsResult<Label> {
        let format = format_of(&*self.engine).await?;
        let generation = generation_of(&*self.engine).await?;
        let label = Label::read(&**self.objects.transfer().store()).await;
        let label = label.ok().filter(|label| label.is_of(&format, generation));
        label.ok_or_else(|| {
            FsError::Io("the bucket does not say that it holds this file system".to_owned())
        })
    }
}
