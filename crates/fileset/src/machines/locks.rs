//! Locks of files over machines: a key `A` of each file that has some holds all of them.
//!
//! Whoever wants a lock takes it in an operation that looks at all that are held, and so at one time everywhere. Who waits
//! listens for changes of that key, which the follower hears of, and looks again now and then: locks of sessions that are
//! over count for nothing, and nobody tells of these. Cycles of owners that wait for each other are found within a machine;
//! those over machines are not, and last until somebody gives up.
//!
//! A lock orders what programs do on several machines. Before one is given back, or taken, which can give another one back,
//! what is pending of the file is saved; and who gets one has caught up with all that was saved before.
//!
//! A volume on an engine that no other machine has keeps its locks in memory.

mod keys;
mod shared;

use std::{collections::HashMap, ops::Range, sync::Arc};

use async_trait::async_trait;
use penstock_base::{FsResult, Mutex};
use penstock_vfs::{Given, Inode, Lock, LockFamily, LockOwner, LockTable, Locks, Waiting};
use tokio::sync::Notify;

pub(super) use self::keys::{drop_locks, lock_holders};
use self::shared::SharedLocks;
use crate::volume::Parts;

/// What rings when locks of a file change, or its write lease.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<HashMap<Inode, Arc<Notify>>>);

impl Bells {
    fn of(&self, inode: Inode) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(inode).or_default())
    }

    /// Hears what rings of a file.
    pub(super) fn listen(&self, inode: Inode) -> Listener<'_> {
        Listener {
            bells: self,
            inode,
            bell: self.of(inode),
        }
    }

    /// Locks of a file changed, or its write lease.
    pub(super) fn ring(&self, inode: Inode) {
        if let Some(bell) = self.0.lock().get(&inode) {
            bell.notify_waiters();
        }
    }

    /// Any locks may have changed.
    pub(super) fn ring_all(&self) {
        self.0
            .lock()
            .values()
            .for_each(|bell| bell.notify_waiters());
    }

    /// Forgets a bell that nobody listens to.
    fn prune(&self, inode: Inode) {
        let mut bells = self.0.lock();
        let is_unused = |bell: &Arc<Notify>| Arc::strong_count(bell) == 1;
        if bells.get(&inode).is_some_and(is_unused) {
            bells.remove(&inode);
        }
    }
}

/// Who waits for what rings of a file. A bell that nobody listens to is forgotten.
#[derive(Debug)]
pub(super) struct Listener<'a> {
    bells: &'a Bells,
    inode: Inode,
    pub(super) bell: Arc<Notify>,
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.bell = Arc::default();
        self.bells.prune(self.inode);
    }
}

/// The locks of a volume.
#[derive(Debug)]
pub(crate) struct VolumeLocks {
    local: LockTable,
    shared: Option<Arc<SharedLocks>>,
}

impl VolumeLocks {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        let machines = parts.machines.as_ref();
        let shared = machines.map(|machines| SharedLocks::new(parts, machines));
        Self {
            local: LockTable::default(),
            shared,
        }
    }
}

#[async_trait]
impl Locks for VolumeLocks {
    async fn conflict(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: &Lock,
    ) -> FsResult<Option<Lock>> {
        match &self.shared {
            Some(shared) => shared.conflict((inode, family), wanted).await,
            None => self.local.conflict(inode, family, wanted).await,
        }
    }

    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given> {
        match &self.shared {
            Some(shared) => shared.acquire((inode, family), wanted, waiting).await,
            None => self.local.acquire(inode, family, wanted, waiting).await,
        }
    }

    async fn release(&self, inode: Inode, family: LockFamily, held: (LockOwner, Range<u64>)) {
        match &self.shared {
            Some(shared) => shared.release((inode, family), held).await,
            None => self.local.release(inode, family, held).await,
        }
    }

    async fn release_client(&self, client: u64) {
        match &self.shared {
            Some(shared) => shared.release_client(client).await,
            None => self.local.release_client(client).await,
        }
    }
}
