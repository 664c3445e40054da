//! The procedures of NLM.
//!
//! No call waits here. A client that wants to wait is told that the lock is held, and is called when it has it
//! (`waiting`).

use std::{net::IpAddr, ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsError, clock};
use penstock_vfs::{AccessMask, Lock, LockFamily, LockMode, LockOwner, Locks, Waiting};

use super::{Asked, Service};
use crate::{
    callbacks::Host,
    limits::{RECLAIM_DEADLINE, RECLAIM_PAUSE},
    lockers::{ClientName, Holdings, Locker, OwnerName},
    monitored::Monitored,
    nodes::Node,
    protocol::{
        nfs3::Status,
        nlm4::{self, Asking, Holder, LockStatus, Place, Request, Wanted},
        xdr::Encoder,
    },
};

/// The number of clients and owners that hold nothing.
const NEW: u64 = 0;

/// Who calls, and where those are noted that are told of a start of the target that he calls.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) host: Host,
    pub(super) monitored: &'a Monitored,
}

/// Whether a lock was given.
enum Given {
    Yes,
    /// Somebody else holds it.
    Blocked(Node, Lock),
}

impl Service {
    /// Answers a call of the client at an address, and says how it went where there is a word for that.
    pub(super) async fn locking(
        self: &Arc<Self>,
        asked: &Asked,
        (caller, request): (Caller<'_>, Request),
        out: &mut Encoder,
    ) -> Option<LockStatus> {
        let client = caller.host.address;
        let (cookie, status) = match request {
            // What a client holds of other volumes is freed with it: its call does so.
            Request::Null | Request::GrantedResult | Request::FreeAll(_) => return None,
            Request::Test(cookie, wanted) => {
                let tested = self.test_lock(asked, (client, &wanted)).await;
                return Some(write_tested(out, &cookie, tested));
            }
            Request::Share(cookie) => {
                nlm4::answer(out, &cookie, LockStatus::NoLocks);
                out.u32(0);
                return Some(LockStatus::NoLocks);
            }
            Request::Lock(cookie, wanted, asking) => {
                let locked = self.lock(asked, (caller, &wanted), asking).await;
                (cookie, granted_unless(locked))
            }
            Request::Cancel(cookie, wanted) => {
                let cancelled = self.cancel(client, &wanted).await;
                (cookie, granted_unless(cancelled))
            }
            Request::Unlock(cookie, place) => {
                let unlocked = self.unlock((client, &place)).await;
                (cookie, granted_unless(unlocked))
            }
        };
        nlm4::answer(out, &cookie, status);
        Some(status)
    }

    /// Gives back what all clients hold, and gives nothing any more.
    pub(super) async fn free_everything(&self) {
        let Some(locks) = self.volume.locks() else {
            return;
        };
        self.lockers.close();
        self.end_waiting();
        for client in self.lockers.all() {
            locks.release_client(client).await;
        }
    }

    pub(super) async fn free_all(&self, name: &ClientName) {
        let Some(client) = self.lockers.find(name) else {
            return;
        };
        if let Some(_start) = client.start().await {
            self.free(&client).await;
        }
    }

    /// Gives back what a client holds, also what calls get that it made before. The caller has its start.
    pub(super) async fn free(&self, client: &Locker) {
        let Some(locks) = self.volume.locks() else {
            return;
        };
        self.stop_all_waiting(client.number).await;
        let mut holdings = client.turn().await;
        locks.release_client(client.number).await;
        holdings.clear();
    }

    fn locks(&self) -> Result<&dyn Locks, LockStatus> {
        self.volume.locks().ok_or(LockStatus::NoLocks)
    }

    /// The file of a lock that the caller may have: one that he may read or write.
    async fn lockable(&self, asked: &Asked, wanted: &Wanted) -> Result<Node, LockStatus> {
        let found = self.find(asked, &wanted.place.file).await;
        let node = found.map_err(lock_status)?;
        let access = [AccessMask::READ, AccessMask::WRITE, AccessMask::EXECUTE];
        let checked = asked.check_content(&node.attributes, &access);
        checked.map_err(lock_status)?;
        if wanted.is_exclusive {
            asked.may_change().map_err(lock_status)?;
        }
        Ok(node)
    }

    async fn test_lock(
        &self,
        asked: &Asked,
        (address, wanted): (IpAddr, &Wanted),
    ) -> Result<Option<Lock>, LockStatus> {
        let locks = self.locks()?;
        if self.grace_period.is_on() {
            return Err(LockStatus::GracePeriod);
        }
        let node = self.lockable(asked, wanted).await?;
        let range = range_of(&wanted.place)?;
        let owner = self.known_owner(address, &wanted.place).await?;
        let lock = lock_of(wanted, (owner, range));
        let conflict = locks.conflict(node.inode(), LockFamily::Record, &lock);
        conflict.await.map_err(|error| failure(&error))
    }

    /// The owner as the volume knows it, if it holds something.
    async fn known_owner(&self, address: IpAddr, place: &Place) -> Result<LockOwner, LockStatus> {
        let client = self.lockers.find(&client_name(address, &place.caller));
        let owner = match &client {
            Some(client) => {
                let holdings = client.holdings().await;
                let holdings = holdings.ok_or(LockStatus::NoLocks)?;
                holdings.owner(&owner_name(place))
            }
            None => None,
        };
        Ok(LockOwner {
            client: client.map_or(NEW, |client| client.number),
            owner: owner.unwrap_or(NEW),
        })
    }

    async fn lock(
        self: &Arc<Self>,
        asked: &Asked,
        (Caller { host, monitored }, wanted): (Caller<'_>, &Wanted),
        asking: Asking,
    ) -> Result<(), LockStatus> {
        self.locks()?;
        if asking.reclaims != self.grace_period.is_on() {
            return Err(LockStatus::GracePeriod);
        }
        if asking.reclaims && !self.before.contains(&host.address) {
            return Err(LockStatus::Denied);
        }
        let node = self.lockable(asked, wanted).await?;
        let name = client_name(host.address, &wanted.place.caller);
        let client = self.lockers.find_or_make(name);
        let client = client.ok_or(LockStatus::NoLocks)?;
        let calls_in = self.calls_in((&client, host.address), asking.state);
        calls_in.await?;
        let again = self.asked_again(client.number, (wanted, asking.waits));
        if let Some(()) = again.await? {
            return Ok(());
        }
        let kept = monitored.add(host).await;
        kept.map_err(|_| LockStatus::NoLocks)?;
        match asking.reclaims {
            true => self.reclaim(&client, wanted, node).await,
            false => match self.give(&client, wanted, node).await? {
                Given::Yes => Ok(()),
                Given::Blocked(node, lock) if asking.waits => {
                    let wait = self.wait_for_lock((host, client), wanted, (node, lock));
                    wait.await
                }
                Given::Blocked(..) => Err(LockStatus::Denied),
            },
        }
    }

    /// Gives a lock that the client had before the server was started. What is in its way may be its own, of a session
    /// that is not over yet.
    async fn reclaim(
        &self,
        client: &Locker,
        wanted: &Wanted,
        mut node: Node,
    ) -> Result<(), LockStatus> {
        let until = clock::now() + RECLAIM_DEADLINE;
        loop {
            node = match self.give(client, wanted, node).await? {
                Given::Yes => return Ok(()),
                Given::Blocked(..) if clock::now() > until => return Err(LockStatus::Denied),
                Given::Blocked(node, _) => node,
            };
            clock::sleep(RECLAIM_PAUSE).await;
        }
    }

    /// Gives a lock if nothing is in its way.
    async fn give(
        &self,
        client: &Locker,
        wanted: &Wanted,
        node: Node,
    ) -> Result<Given, LockStatus> {
        let locks = self.locks()?;
        let range = range_of(&wanted.place)?;
        let mut holdings = client.holdings().await.ok_or(LockStatus::NoLocks)?;
        if holdings.is_full() || self.lockers.is_closed() {
            return Err(LockStatus::NoLocks);
        }
        // An export that goes from now on takes back what is given here: that waits for this turn.
        self.check_served(client.address, &wanted.place)?;
        let owner = self.owner((client.number, &holdings), &wanted.place);
        let lock = lock_of(wanted, (owner, range));
        let given = locks.acquire(node.inode(), LockFamily::Record, lock.clone(), Waiting::No);
        match given.await {
            // All was given back meanwhile.
            Ok(given) if self.lockers.is_closed() => {
                drop(given);
                locks.release_client(client.number).await;
                Err(LockStatus::NoLocks)
            }
            Ok(given) => {
                given.keep();
                let place = &wanted.place;
                let name = owner_name(place);
                let touched = (&name, &*place.file);
                self.waiters.touched(client.number, touched, &lock.range);
                holdings.add((name, &place.file), node, lock);
                Ok(Given::Yes)
            }
            Err(FsError::WouldBlock) => Ok(Given::Blocked(node, lock)),
            Err(error) => Err(failure(&error)),
        }
    }

    fn owner(&self, (client, holdings): (u64, &Holdings), place: &Place) -> LockOwner {
        let name = owner_name(place);
        let known = holdings.owner(&name);
        let known = known.or_else(|| self.waiters.owner(client, &name));
        let owner = known.unwrap_or_else(|| self.lockers.number());
        LockOwner { client, owner }
    }

    /// Who holds nothing is told that it is given back. Nobody needs a permission to give his own back, nor a file that is
    /// still there.
    async fn unlock(&self, (address, place): (IpAddr, &Place)) -> Result<(), LockStatus> {
        let locks = self.locks()?;
        let range = range_of(place)?;
        let Some(client) = self.lockers.find(&client_name(address, &place.caller)) else {
            return Ok(());
        };
        let mut holdings = client.holdings().await.ok_or(LockStatus::NoLocks)?;
        let name = owner_name(place);
        let held = holdings.owner(&name).zip(holdings.file(&name, &place.file));
        let Some((owner, inode)) = held else {
            return Ok(());
        };
        let client = client.number;
        let owner = LockOwner { client, owner };
        if holdings.breaks_too_much(&name, &place.file, (owner, &range)) {
            return Err(LockStatus::NoLocks);
        }
        let held = (owner, range.clone());
        self.waiters.touched(client, (&name, &place.file), &range);
        locks.release(inode, LockFamily::Record, held).await;
        holdings.remove(&name, &place.file, (owner, &range));
        Ok(())
    }
}

pub(super) fn client_name(address: IpAddr, caller: &Bytes) -> ClientName {
    ClientName {
        address: address.to_canonical(),
        caller: caller.as_ref().into(),
    }
}

pub(super) fn owner_name(place: &Place) -> OwnerName {
    OwnerName {
        process: place.process,
        owner: place.owner.as_ref().into(),
    }
}

/// The bytes of a place.
pub(super) fn range_of(place: &Place) -> Result<Range<u64>, LockStatus> {
    let end = match place.length {
        0 => Some(u64::MAX),
        length => place.offset.checked_add(length),
    };
    let range = place.offset..end.ok_or(LockStatus::TooBig)?;
    match range.is_empty() {
        true => Err(LockStatus::TooBig),
        false => Ok(range),
    }
}

fn lock_of(wanted: &Wanted, (owner, range): (LockOwner, Range<u64>)) -> Lock {
    Lock {
        mode: match wanted.is_exclusive {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        },
        range,
        owner,
        process: wanted.place.process,
    }
}

fn granted_unless(outcome: Result<(), LockStatus>) -> LockStatus {
    outcome.err().unwrap_or(LockStatus::Granted)
}

fn write_tested(
    out: &mut Encoder,
    cookie: &Bytes,
    tested: Result<Option<Lock>, LockStatus>,
) -> LockStatus {
    let (status, conflict) = match tested {
        Ok(None) => (LockStatus::Granted, None),
        Ok(Some(lock)) => (LockStatus::Denied, Some(lock)),
        Err(status) => (status, None),
    };
    nlm4::answer(out, cookie, status);
    if let Some(lock) = conflict {
        nlm4::holder(out, &holder_of(&lock));
    }
    status
}

fn holder_of(lock: &Lock) -> Holder {
    let is_to_end = lock.range.end == u64::MAX;
    Holder {
        is_exclusive: lock.mode == LockMode::Exclusive,
        process: lock.process,
        offset: lock.range.start,
        length: match is_to_end {
            true => 0,
            false => lock.range.end - lock.range.start,
        },
    }
}

/// What a volume says of a lock.
pub(super) fn failure(error: &FsError) -> LockStatus {
    match error {
        FsError::WouldBlock => LockStatus::Denied,
        FsError::Deadlock => LockStatus::Deadlock,
        FsError::LimitReached(_) | FsError::OutOfMemory | FsError::Unsupported(_) => {
            LockStatus::NoLocks
        }
        FsError::NotFound | FsError::Stale | FsError::BadHandle => LockStatus::StaleHandle,
        FsError::ReadOnly => LockStatus::ReadOnly,
        _ => LockStatus::Failed,
    }
}

fn lock_status(status: Status) -> LockStatus {
    match status {
        Status::STALE | Status::BAD_HANDLE | Status::NO_ENTRY => LockStatus::StaleHandle,
        Status::READ_ONLY => LockStatus::ReadOnly,
        _ => LockStatus::Failed,
    }
}
