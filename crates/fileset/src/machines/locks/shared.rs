//! The locks of files that other machines lock, too.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::poll;
use penstock_base::{FsError, FsResult, Mutex, clock};
use penstock_vfs::{Given, Inode, Lock, LockFamily, LockOwner, Settled, Turns, Waiting, Waits};
use tokio::sync::oneshot;

use super::{
    Listener,
    keys::{self, At, Held, Taken},
};
use crate::{
    engine::{EngineError, transact},
    machines::{Machines, follower::passes, sessions::Over},
    schema::FileLocks,
    snapshots::Preserving,
    volume::Parts,
};

/// How long a waiter hears of nothing before it looks whether who is in its way lives.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing is tried again that the engine did not do.
const REST: Duration = Duration::from_secs(1);
/// How long an owner waits until what it gave back before is back.
const TURN_MAX: Duration = Duration::from_secs(60);

/// The locks of files that other machines lock, too.
#[derive(Debug)]
pub(super) struct SharedLocks {
    parts: Arc<Parts>,
    session: u64,
    engine: Arc<Preserving>,
    /// Of owners on this machine.
    waits: Mutex<Waits>,
    /// Who on this machine may hold locks of which file.
    holders: Mutex<HashSet<(Inode, LockOwner)>>,
    turns: Turns,
}

/// What became of an attempt to take a lock.
enum Attempt {
    Given(Given),
    /// These are in the way.
    Blocked(Vec<Held>),
}

/// What the owner of a lock held of its range before that was taken, if it was.
type Before = Arc<Mutex<Option<Vec<Lock>>>>;

/// Why the locks of a file were not changed.
enum Unchanged {
    Engine(EngineError),
    File(FsError),
}

impl From<EngineError> for Unchanged {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<FsError> for Unchanged {
    fn from(error: FsError) -> Self {
        Self::File(error)
    }
}

impl SharedLocks {
    pub(super) fn new(parts: &Arc<Parts>, machines: &Machines) -> Arc<Self> {
        Arc::new(Self {
            parts: Arc::clone(parts),
            session: machines.session(),
            engine: Arc::clone(&machines.engine),
            waits: Mutex::default(),
            holders: Mutex::default(),
            turns: Turns::default(),
        })
    }

    fn machines(&self) -> FsResult<&Machines> {
        let machines = self.parts.machines()?;
        machines.check()?;
        Ok(machines)
    }

    pub(super) async fn conflict(&self, at: At, wanted: &Lock) -> FsResult<Option<Lock>> {
        loop {
            let (session, over, wanted) = (self.session, self.machines()?.over(), wanted.clone());
            // An operation sees what is held now, where a look may lag behind.
            let look = transact(&*self.engine, move |transaction| {
                let locks = keys::living_locks(transaction, at.0, &over)?;
                Ok::<_, FsError>(keys::blocking(&locks, at.1, (session, &wanted)))
            });
            let blocking = look.await?;
            if !self.are_over(&blocking).await? {
                return Ok(blocking.into_iter().next().map(|(_, lock)| lock));
            }
        }
    }

    /// Whether one of those who hold locks is found to be over.
    async fn are_over(&self, held: &[Held]) -> FsResult<bool> {
        let others = held.iter().map(|(session, _)| *session);
        let others: BTreeSet<_> = others.filter(|session| *session != self.session).collect();
        match others.is_empty() {
            true => Ok(false),
            false => self.machines()?.are_over(others).await,
        }
    }

    pub(super) async fn acquire(
        self: &Arc<Self>,
        at: At,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given> {
        if wanted.range.is_empty() {
            return Err(FsError::InvalidArgument("an empty range cannot be locked"));
        }
        let wait = Wait::begin(self, at.0, wanted.owner)?;
        self.save(at.0).await;
        loop {
            let rings = wait.listener.bell.notified();
            tokio::pin!(rings);
            rings.as_mut().enable();
            let blocked = match self.attempt(at, wanted.clone()).await? {
                Attempt::Given(given) => return Ok(given),
                Attempt::Blocked(blocked) => blocked,
            };
            if self.are_over(&blocked).await? {
                continue;
            }
            if waiting == Waiting::No {
                return Err(FsError::WouldBlock);
            }
            if at.1 == LockFamily::Record {
                let own = blocked.iter().filter(|(held, _)| *held == self.session);
                let own = own.map(|(_, lock)| lock.owner).collect();
                let waits = (wanted.owner, wait.number);
                self.waits.lock().wait(waits, (at.0, own))?;
            }
            // It is looked again either way.
            let _ = clock::deadline(LOOK, rings).await;
        }
    }

    /// Takes a lock if it can be had, and catches up with those who had it. It goes on if this is dropped, and takes back
    /// what nobody hears of.
    async fn attempt(self: &Arc<Self>, at: At, wanted: Lock) -> FsResult<Attempt> {
        let turn = clock::deadline(TURN_MAX, self.turns.turn(at.0, wanted.owner)).await;
        let late = |_| FsError::TimedOut("what was locked before is still given back".to_owned());
        let (turn, over) = (turn.map_err(late)?, self.machines()?.over());
        let (tell, told) = oneshot::channel();
        let locks = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            let before = Before::default();
            let blocked = locks.take(at, (&wanted, &before), over).await;
            let before = before.lock().take();
            let is_kept = tell_taken(tell, (blocked, before.is_some())).await;
            if let Some(before) = before.filter(|_| !is_kept) {
                locks.take_back(at, wanted, before).await;
            }
        });
        let ended = |_| FsError::Io("a lock ended unexpectedly".to_owned());
        told.await.map_err(ended)?
    }

    /// Takes a lock, or says who is in the way. It may be taken also where this fails: `before` says so.
    async fn take(
        &self,
        at: At,
        (wanted, before): (&Lock, &Before),
        over: Over,
    ) -> FsResult<Vec<Held>> {
        let (session, lock, noted) = (self.session, wanted.clone(), Arc::clone(before));
        let taken = transact(&*self.engine, move |transaction| {
            let taken = keys::take(transaction, at, (session, &lock), &over);
            *noted.lock() = match &taken {
                Ok(Taken::Given(before)) => Some(before.clone()),
                _ => None,
            };
            taken
        });
        match taken.await? {
            Taken::Blocked(blocked) => Ok(blocked),
            Taken::Given(_) => {
                self.holders.lock().insert((at.0, wanted.owner));
                // Who waits for what the owner gave up for it.
                self.gave_back(at.0, |owner| owner == wanted.owner);
                self.parts.catch_up().await?;
                Ok(Vec::new())
            }
        }
    }

    /// Takes back that a lock was given.
    async fn take_back(&self, at: At, given: Lock, before: Vec<Lock>) {
        let (session, owner) = (self.session, given.owner);
        let change = move |locks: &mut FileLocks| {
            keys::take_back(locks, at.1, (session, &given, &before));
        };
        self.change_own((at.0, owner), change).await;
    }

    pub(super) async fn release(self: &Arc<Self>, at: At, (owner, range): (LockOwner, Range<u64>)) {
        if !self.holders.lock().contains(&(at.0, owner)) {
            return;
        }
        // Its place in the line is that of the call.
        let mut turn = Box::pin(self.turns.turn(at.0, owner));
        let turn_now = poll!(&mut turn);
        let (locks, session) = (Arc::clone(self), self.session);
        let released = tokio::spawn(async move {
            let _turn = match turn_now {
                Poll::Ready(turn) => turn,
                Poll::Pending => turn.await,
            };
            locks.save(at.0).await;
            let change = move |held: &mut FileLocks| {
                held.held(at.1, session).cut(owner, &range);
            };
            locks.change_own((at.0, owner), change).await;
        });
        // It goes on if this is dropped.
        let _ = released.await;
    }

    pub(super) async fn release_client(self: &Arc<Self>, client: u64) {
        let locks = Arc::clone(self);
        let released = tokio::spawn(async move { locks.drop_client(client).await });
        // It goes on if this is dropped.
        let _ = released.await;
    }

    async fn drop_client(&self, client: u64) {
        let is_one = move |owner: LockOwner| owner.client == client;
        let locked: BTreeSet<_> = {
            let holders = self.holders.lock();
            let own = holders.iter().filter(|(_, owner)| is_one(*owner));
            own.map(|(inode, _)| *inode).collect()
        };
        for inode in locked {
            let session = self.session;
            let change = move |locks: &mut FileLocks| {
                for family in [LockFamily::Record, LockFamily::Whole] {
                    locks.held(family, session).drop_client(client);
                }
            };
            self.save(inode).await;
            self.change_until_done(inode, change).await;
            let mut holders = self.holders.lock();
            holders.retain(|(of, owner)| *of != inode || !is_one(*owner));
            drop(holders);
            self.gave_back(inode, is_one);
        }
    }

    /// Saves what is pending of a file. What cannot be saved is told to who syncs or closes it.
    async fn save(&self, inode: Inode) {
        let files = &self.parts.files;
        if let Some(file) = files.find(inode)
            && let Err(error) = files.save(&file).await
        {
            tracing::debug!(inode = inode.0, %error, "a lock changes hands before what was written is saved");
        }
    }

    /// Changes what an owner holds of a file, in its turn, and forgets an owner that holds nothing more.
    async fn change_own(
        &self,
        (inode, owner): (Inode, LockOwner),
        change: impl Fn(&mut FileLocks) + Clone + Send + 'static,
    ) {
        let session = self.session;
        let change = move |locks: &mut FileLocks| {
            change(locks);
            locks.has(session, owner)
        };
        let holds = self.change_until_done(inode, change).await;
        if holds != Some(true) {
            self.holders.lock().remove(&(inode, owner));
        }
        self.gave_back(inode, |one| one == owner);
    }

    /// Changes the locks of a file, however long the engine needs for that. Nothing comes of it once the session is over,
    /// and so nobody is in the way of others, or where what is kept of the locks is damaged.
    async fn change_until_done<T: Send + 'static>(
        &self,
        inode: Inode,
        change: impl Fn(&mut FileLocks) -> T + Clone + Send + 'static,
    ) -> Option<T> {
        while self.machines().is_ok() {
            let change = change.clone();
            let changed = transact(&*self.engine, move |transaction| {
                Ok(keys::change(transaction, inode, &change)?)
            });
            match changed.await {
                Ok(changed) => return Some(changed),
                Err(Unchanged::Engine(error)) if passes(&error) => {
                    tracing::debug!(%error, "a lock is given back later");
                    clock::sleep(REST).await;
                }
                Err(Unchanged::Engine(error)) => {
                    tracing::debug!(%error, "a lock is given back with its session");
                    break;
                }
                Err(Unchanged::File(error)) => {
                    tracing::warn!(inode = inode.0, %error, "a lock cannot be given back");
                    break;
                }
            }
        }
        None
    }

    /// Some owners may have given locks of a file back.
    fn gave_back(&self, inode: Inode, is_one: impl Fn(LockOwner) -> bool) {
        self.waits.lock().gave_back(inode, is_one);
        if let Some(machines) = &self.parts.machines {
            machines.bells.ring(inode);
        }
    }
}

/// Tells what became of an attempt, and returns whether a lock is kept.
async fn tell_taken(
    tell: oneshot::Sender<FsResult<Attempt>>,
    (blocked, is_taken): (FsResult<Vec<Held>>, bool),
) -> bool {
    let (keep, kept) = oneshot::channel();
    let given = Given::new(move |settled| {
        if settled == Settled::Kept {
            // Who hears of it is below.
            let _ = keep.send(());
        }
    });
    let attempt = blocked.map(|blocked| match is_taken {
        true => Attempt::Given(given),
        false => Attempt::Blocked(blocked),
    });
    // If nobody hears of it, it is dropped here.
    drop(tell.send(attempt));
    kept.await.is_ok()
}

/// An owner that may wait. However its wait ends, nothing is kept of it.
struct Wait<'a> {
    locks: &'a SharedLocks,
    owner: LockOwner,
    number: u64,
    listener: Listener<'a>,
}

impl<'a> Wait<'a> {
    fn begin(locks: &'a SharedLocks, inode: Inode, owner: LockOwner) -> FsResult<Self> {
        Ok(Self {
            locks,
            owner,
            number: locks.waits.lock().begin(),
            listener: locks.machines()?.bells.listen(inode),
        })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.locks.waits.lock().end((self.owner, self.number));
    }
}
