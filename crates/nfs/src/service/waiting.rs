//! Locks that are given late: a task for each waits for the volume, and then calls the client until it knows.

use std::{net::IpAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsError, FsResult, clock, random};
use penstock_vfs::{Given, HeldLocks, Inode, Lock, LockFamily, Waiting};
use tracing::debug;

use super::{
    Service,
    locking::{client_name, failure, owner_name, range_of},
};
use crate::{
    callbacks::{CallbackError, Host},
    limits::{FIRST_WAIT, GRANT_PAUSES, LOCKER_DEADLINE, WAITING_DEADLINE},
    lockers::{Holdings, Locker, OwnerName},
    nodes::Node,
    protocol::{
        nlm4::{self, LockStatus, Wanted},
        xdr::Encoder,
    },
    waiters::{Again, Awaited, Begun, Waiter},
};

/// A volume that is asked for a lock until it gives it.
type Acquiring = Pin<Box<dyn Future<Output = FsResult<()>> + Send>>;

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
        let waiter = match self.waiters.begin(awaited, lock.owner, host.address) {
            Begun::New(waiter) => waiter,
            Begun::Before => return Err(LockStatus::Blocked),
            Begun::TooMany => return Err(LockStatus::NoLocks),
        };
        // An export that goes from now on finds the waiter.
        self.check_served(locker.address, &wanted.place)
            .inspect_err(|_| self.waiters.end(&waiter))?;
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
            let locks = volume.locks().ok_or(FsError::WouldBlock)?;
            let family = LockFamily::Record;
            let given = locks.acquire(inode, family, lock, Waiting::Yes).await;
            given.map(Given::keep)
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

    pub(super) async fn stop_waiting(&self, waiter: &Waiter) -> Result<(), LockStatus> {
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

/// What the client holds of a lock that the volume gave.
enum Noted {
    /// All of it, in place of these locks.
    Has(Vec<Lock>),
    /// Not all of it any more: it gave some back, or took it otherwise, while the volume gave it.
    Lost(Node),
    /// What it held before: it does not want this one, or may not have it.
    Refused,
}

impl Wait {
    async fn carry_out(self, mut node: Node, mut acquiring: Acquiring) {
        let inode = node.inode();
        while self.is_given(acquiring).await {
            match self.take_note(node).await {
                Noted::Has(before) => {
                    self.tell().await;
                    self.take_back(inode, before).await;
                    break;
                }
                Noted::Refused => break,
                Noted::Lost(back) => {
                    node = back;
                    acquiring = self.service.acquiring(inode, self.lock.clone());
                }
            }
        }
        self.service.waiters.end(&self.waiter);
    }

    async fn is_given(&self, acquiring: Acquiring) -> bool {
        let given = tokio::select! {
            biased;
            given = acquiring => given,
            () = self.waiter.settled() => return false,
            () = clock::sleep(WAITING_DEADLINE) => return false,
        };
        if let Err(error) = &given {
            debug!(%error, "a lock that a client waits for is not given");
        }
        given.is_ok()
    }

    /// The client holds it from now on, if it is still wanted and the client may have it.
    ///
    /// The volume gives it while other calls of the client are carried out, one of which may give it back or change it.
    /// So the volume is asked once more when they are done. What it gave is kept until then: else they would wait for this.
    async fn take_note(&self, node: Node) -> Noted {
        let mut holdings = self.locker.turn().await;
        let awaited = &self.waiter.awaited;
        let place = (&awaited.owner, &*awaited.file);
        let before = holdings.of_range(place.0, place.1, &awaited.range);
        if self.may_have(&holdings) {
            match self.acquire_at_once(node.inode(), &self.lock).await {
                Ok(()) if self.is_noted(place) => {
                    holdings.add((place.0.clone(), place.1), node, self.lock.clone());
                    return Noted::Has(before);
                }
                Err(FsError::WouldBlock) => return Noted::Lost(node),
                Ok(()) | Err(_) => {}
            }
        }
        self.restore(&mut holdings, node.inode(), before).await;
        Noted::Refused
    }

    fn may_have(&self, holdings: &Holdings) -> bool {
        let is_closed = self.service.lockers.is_closed();
        !holdings.is_full() && !is_closed && self.waiter.is_awaited()
    }

    /// The client has it, and nothing of it is taken back that it was given before. Says whether it is still wanted.
    fn is_noted(&self, place: (&OwnerName, &[u8])) -> bool {
        let (waiters, client) = (&self.service.waiters, self.lock.owner.client);
        waiters.touched(client, place, &self.lock.range);
        self.waiter.give()
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

    async fn acquire_at_once(&self, inode: Inode, lock: &Lock) -> FsResult<()> {
        let locks = self.service.volume.locks();
        let locks = locks.ok_or(FsError::WouldBlock)?;
        let (family, lock) = (LockFamily::Record, lock.clone());
        let given = locks.acquire(inode, family, lock, Waiting::No).await;
        given.map(Given::keep)
    }

    /// Takes back what was given, if the client does not know of it: it holds what it held before.
    async fn take_back(&self, inode: Inode, before: Vec<Lock>) {
        if self.waiter.is_taken() {
            return;
        }
        let mut holdings = self.locker.turn().await;
        if !self.waiter.is_taken() {
            self.restore(&mut holdings, inode, before).await;
        }
    }

    /// Leaves the client what it held before. Who gets less than he has is in nobody's way.
    async fn restore(&self, holdings: &mut Holdings, inode: Inode, before: Vec<Lock>) {
        let Some(locks) = self.service.volume.locks() else {
            return;
        };
        let mut surplus = HeldLocks::default();
        surplus.add(self.lock.clone());
        let mut left = Vec::new();
        for lock in before {
            match self.acquire_at_once(inode, &lock).await {
                Ok(()) => {
                    surplus.cut(lock.owner, &lock.range);
                    left.push(lock);
                }
                Err(error) => debug!(%error, "a lock that a client held before is lost"),
            }
        }
        for Lock { owner, range, .. } in surplus.iter() {
            let held = (*owner, range.clone());
            locks.release(inode, LockFamily::Record, held).await;
        }
        let awaited = &self.waiter.awaited;
        let place = (&awaited.owner, &*awaited.file);
        holdings.replace(place, (self.lock.owner, &self.lock.range), left);
    }
}
