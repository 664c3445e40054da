//! Locks in exports that are not there any more, or not for the client that holds them.
//!
//! Two things together leave none of these with a client. One task of each volume gives back what is held when exports
//! change. A call that is under way then asks the audience once more in the turn of its client: either it finds the export
//! gone, or the task finds what it was given.

use std::sync::Arc;

use penstock_base::clock;
use penstock_vfs::{LockFamily, Locks};

use super::Service;
use crate::{
    limits::UNSERVED_PAUSE,
    lockers::Locker,
    protocol::nlm4::{LockStatus, Place},
    waiters::Waiter,
};

impl Service {
    /// Gives back, whenever exports have changed, what clients hold, or wait for, of files in exports that are not there
    /// for them any more. Only the newest change counts; a client that is busy is tried again after the others.
    pub(crate) async fn free_unserved(self: Arc<Self>) {
        let mut changes = self.audience.changes();
        while changes.changed().await.is_ok() {
            while !self.free_unserved_now().await {
                clock::sleep(UNSERVED_PAUSE).await;
            }
        }
    }

    /// Fails with `StaleHandle` if the export of a file is not there for a client any more.
    pub(super) fn check_served(
        &self,
        client: std::net::IpAddr,
        place: &Place,
    ) -> Result<(), LockStatus> {
        match self.audience.knows(client, &place.file) {
            true => Ok(()),
            false => Err(LockStatus::StaleHandle),
        }
    }

    /// Says whether all clients were reached.
    async fn free_unserved_now(&self) -> bool {
        let Some(locks) = self.volume.locks() else {
            return true;
        };
        let mut is_done = true;
        for client in self.lockers.clients() {
            is_done &= self.free_unserved_of(&client, locks).await.is_ok();
        }
        is_done
    }

    async fn free_unserved_of(&self, client: &Locker, locks: &dyn Locks) -> Result<(), LockStatus> {
        let is_gone = |handle: &[u8]| !self.audience.knows(client.address, handle);
        let waiters = self.waiters.of(client.number).into_iter();
        let gone = |waiter: &Arc<Waiter>| is_gone(&waiter.awaited.file);
        for waiter in waiters.filter(gone) {
            self.stop_waiting(&waiter).await?;
        }
        let mut holdings = client.holdings().await.ok_or(LockStatus::NoLocks)?;
        for (node, held) in holdings.remove_files(is_gone) {
            for lock in held.iter() {
                let held = (lock.owner, lock.range.clone());
                locks.release(node.inode(), LockFamily::Record, held).await;
            }
        }
        Ok(())
    }
}
