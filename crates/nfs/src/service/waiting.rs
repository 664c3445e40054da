//! Locks that are given late: a task for each waits for the volume, and then calls the client until it knows.

use std::{net::IpAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsResult, clock, random};
use penstock_vfs::{Given, Inode, Lock, LockFamily, Waiting};
use tracing::debug;

use super::{
    Service,
    locking::{client_name, failure, owner_name, range_of},
};
use crate::{
    callbacks::{CallbackError, Host},
    limits::{FIRST_WAIT, GRANT_PAUSES, LOCKER_DEADLINE, WAITING_DEADLINE},
    lockers::Locker,
    nodes::Node,
    protocol::{
        nlm4::{self, LockStatus, Wanted},
        xdr::Encoder,
    },
    waiters::{Again, Awaited, Waiter},
};

/// A volume that is asked for a lock until it gives it.
type Acquiring = Pin<Box<dyn Future<Output = FsResult<Given>> + Send>>;

impl Service {
    /// What a lock that a client asks for is already, if it is among those that clients wait for.
    pub(super) async fn asked_again(
        &self,
        client: u64,
        (wanted, waits): (&Wanted, bool),
    ) -> Result<Option<()>, LockStatus> {
        let Some(waiter) = self.waiters.find(client, &awaited(wanted)?) else {
            return Ok(None);
        };
        match waiter.again() {
            Again::Has => Ok(Some(())),
            Again::Waits if waits => Err(LockStatus::Blocked),
            // Who asks without waiting does not wait any more.
            Again::Waits | Again::Ends => self.stop_waiting(&waiter).await.map(|()| None),
        }
    }

    /// Begins to wait for a lock that is held. Fails with `Blocked` when that is so.
    pub(super) async fn wait_for_lock(
        self: &Arc<Self>,
        (host, locker): (Host, Arc<Locker>),
        wanted: &Wanted,
        (node, lock): (Node, Lock),
    ) -> Result<(), LockStatus> {
        let awaited = awaited(wanted)?;
        let waiter = self.waiters.begin(awaited, lock.owner, host.address);
        let waiter = waiter.ok_or(LockStatus::NoLocks)?;
        let mut acquiring = self.acquiring(node.inode(), lock.clone());
        // A deadlock is found at once; afterwards nobody could be told.
        let early = clock::deadline(FIRST_WAIT, &mut acquiring).await;
        if let Ok(Err(error)) = &early {
            self.waiters.end(&waiter);
            return Err(failure(error));
        }
        let wait = Wait {
            service: Arc::clone(self),
            host,
            locker,
            waiter,
            wanted: wanted.clone(),
            lock,
        };
        let acquiring = match early {
            Ok(given) => Box::pin(async move { given }),
            Err(_) => acquiring,
        };
        tokio::spawn(wait.carry_out(node, acquiring));
        Err(LockStatus::Blocked)
    }

    fn acquiring(self: &Arc<Self>, inode: Inode, lock: Lock) -> Acquiring {
        let volume = Arc::clone(&self.volume);
        Box::pin(async move {
            let locks = volume.locks().ok_or(penstock_base::FsError::WouldBlock)?;
            let family = LockFamily::Record;
            locks.acquire(inode, family, lock, Waiting::Yes).await
        })
    }

    /// A client does not wait for a lock any more. One that was given and that it does not know of is taken back.
    pub(super) async fn cancel(&self, address: IpAddr, wanted: &Wanted) -> Result<(), LockStatus> {
        let name = client_name(address, &wanted.place.caller);
        let Some(client) = self.lockers.find(&name) else {
            return Ok(());
        };
        match self.waiters.find(client.number, &awaited(wanted)?) {
            Some(waiter) => self.stop_waiting(&waiter).await,
            None => Ok(()),
        }
    }

    async fn stop_waiting(&self, waiter: &Waiter) -> Result<(), LockStatus> {
        waiter.give_up();
        let over = clock::deadline(LOCKER_DEADLINE, waiter.over()).await;
        over.map_err(|_| LockStatus::NoLocks)
    }

    /// A client waits for nothing any more.
    pub(super) async fn stop_all_waiting(&self, client: u64) {
        let waiters = self.waiters.of(client);
        waiters.iter().for_each(|waiter| waiter.give_up());
        for waiter in waiters {
            waiter.over().await;
        }
    }

    /// Nobody waits for a lock any more.
    pub(crate) fn end_waiting(&self) {
        let waiters = self.waiters.all();
        waiters.iter().for_each(|waiter| waiter.give_up());
    }
}

pub(super) fn awaited(wanted: &Wanted) -> Result<Awaited, LockStatus> {
    let place = &wanted.place;
    Ok(Awaited {
        owner: owner_name(place),
        file: place.file.as_ref().into(),
        range: range_of(place)?,
        is_exclusive: wanted.is_exclusive,
    })
}

/// One lock that a client waits for.
struct Wait {
    service: Arc<Service>,
    host: Host,
    locker: Arc<Locker>,
    waiter: Arc<Waiter>,
    wanted: Wanted,
    lock: Lock,
}

impl Wait {
    async fn carry_out(self, node: Node, acquiring: Acquiring) {
        let inode = node.inode();
        if let Some(given) = self.given(acquiring).await
            && self.take_note(node, given).await
        {
            self.tell().await;
            if !self.waiter.is_taken() {
                self.take_back(inode).await;
            }
        }
        self.service.waiters.end(&self.waiter);
    }

    async fn given(&self, acquiring: Acquiring) -> Option<Given> {
        let given = tokio::select! {
            biased;
            given = acquiring => given,
            () = self.waiter.settled() => return None,
            () = clock::sleep(WAITING_DEADLINE) => return None,
        };
        given
            .inspect_err(|error| debug!(%error, "a lock that a client waits for is not given"))
            .ok()
    }

    /// The client holds it from now on; says whether it is still wanted and may have it.
    async fn take_note(&self, node: Node, given: Given) -> bool {
        let mut holdings = self.locker.turn().await;
        if holdings.is_full() || self.service.lockers.is_closed() || !self.waiter.give() {
            self.waiter.give_up();
            return false;
        }
        given.keep();
        let awaited = &self.waiter.awaited;
        let place = (awaited.owner.clone(), &*awaited.file);
        holdings.add(place, node, self.lock.clone());
        true
    }

    /// Calls the client until it says that it knows, does not want the lock, or is taken for gone.
    ///
    /// A client that took the lock, and whose answer was lost, denies it when it is called again: it does not wait any
    /// more. So who may have taken it keeps it, unless he says meanwhile that he does not want it (CANCEL).
    async fn tell(&self) {
        let mut may_know = false;
        for pause in GRANT_PAUSES {
            let called = async {
                clock::sleep(pause).await;
                self.call().await
            };
            let called = tokio::select! {
                biased;
                () = self.waiter.settled() => return,
                called = called => called,
            };
            self.service.metrics.called_back(&called);
            match called {
                Ok(LockStatus::Granted) => return self.waiter.take(),
                Ok(LockStatus::GracePeriod) => {}
                Ok(_) if may_know => {}
                Ok(_) => break,
                Err(error) => {
                    may_know |= matches!(error, CallbackError::Unanswered);
                    debug!(client = %self.host.address, %error, "cannot tell a client that it has a lock");
                }
            }
        }
        match may_know {
            true => self.waiter.take(),
            false => self.waiter.give_up(),
        }
    }

    async fn call(&self) -> Result<LockStatus, CallbackError> {
        let cookie = Bytes::copy_from_slice(&random::number().to_be_bytes());
        let write = |out: &mut Encoder| nlm4::write_granted(out, &cookie, &self.wanted);
        let callbacks = &self.service.callbacks;
        let called = callbacks.call(self.host, nlm4::GRANTED, write).await;
        Ok(nlm4::read_status(&mut called?)?)
    }

    async fn take_back(&self, inode: Inode) {
        let mut holdings = self.locker.turn().await;
        let Some(locks) = self.service.volume.locks() else {
            return;
        };
        let (owner, range) = (self.lock.owner, &self.lock.range);
        let held = (owner, range.clone());
        locks.release(inode, LockFamily::Record, held).await;
        let awaited = &self.waiter.awaited;
        holdings.remove(&awaited.owner, &awaited.file, (owner, range));
    }
}
