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

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::{ControlFlow, Range},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult, Mutex, clock};
use penstock_vfs::{Inode, Lock, LockFamily, LockOwner, LockTable, Locks, Waiting, Waits};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, oneshot};

use super::{Machines, sessions::Over};
use crate::{
    engine::{Reads, Transaction, transact},
    operations,
    schema::{self, FileLocks, is_in_snapshot, kind},
    snapshots::Preserving,
    volume::Parts,
};

/// How long a waiter hears of nothing before it looks whether who is in its way lives.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing is tried again that the engine did not do.
const REST: Duration = Duration::from_secs(1);
/// Locks of one file, of all machines.
const LOCKS_MAX: usize = 4096;

/// What rings when locks of a file change.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<HashMap<Inode, Arc<Notify>>>);

impl Bells {
    fn of(&self, inode: Inode) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(inode).or_default())
    }

    /// Locks of a file changed.
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

/// The locks of a volume.
#[derive(Debug)]
pub(crate) struct VolumeLocks {
    local: LockTable,
    shared: Option<SharedLocks>,
}

impl VolumeLocks {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        let shared = parts.machines.as_ref().map(|machines| SharedLocks {
            parts: Arc::clone(parts),
            session: machines.session(),
            engine: Arc::clone(&machines.engine),
            waits: Mutex::default(),
            locked: Mutex::default(),
            attempts: Arc::default(),
        });
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
    ) -> FsResult<()> {
        match &self.shared {
            Some(shared) => shared.acquire((inode, family), &wanted, waiting).await,
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

/// What is locked.
type At = (Inode, LockFamily);

/// A lock with the session whose it is.
type Held = (u64, Lock);

/// What became of an attempt to take a lock.
#[derive(Debug)]
enum Attempt {
    /// It is held. `is_new`: nothing of the range was before.
    Given { is_new: bool },
    /// These are in the way.
    Blocked(Vec<Held>),
}

/// The locks of files that other machines lock, too.
#[derive(Debug)]
struct SharedLocks {
    parts: Arc<Parts>,
    session: u64,
    engine: Arc<Preserving>,
    /// Of owners on this machine.
    waits: Mutex<Waits>,
    /// Files of which somebody here may hold locks.
    locked: Mutex<HashSet<Inode>>,
    attempts: Arc<Attempts>,
}

/// Attempts to take a lock that are under way, one of an owner at a time: one that nobody waits for any more may give
/// back what the owner asks for again. As many entries as owners ask.
#[derive(Debug, Default)]
struct Attempts(Mutex<HashMap<Attempting, Arc<AsyncMutex<()>>>>);

/// Who asks for a lock of which file.
type Attempting = (Inode, LockOwner);

impl Attempts {
    /// Returns when no other attempt of an owner is under way, nor any until the turn is dropped.
    async fn turn(self: &Arc<Self>, inode: Inode, owner: LockOwner) -> Turn {
        let at = (inode, owner);
        let mut turn = Turn {
            attempts: Arc::clone(self),
            at,
            turns: Some(Arc::clone(self.0.lock().entry(at).or_default())),
            held: None,
        };
        if let Some(turns) = turn.turns.clone() {
            turn.held = Some(turns.lock_owned().await);
        }
        turn
    }
}

/// The turn of an attempt, or a place in the line for it.
struct Turn {
    attempts: Arc<Attempts>,
    at: Attempting,
    turns: Option<Arc<AsyncMutex<()>>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held = None;
        self.turns = None;
        let mut attempts = self.attempts.0.lock();
        let is_unused = |turns: &Arc<AsyncMutex<()>>| Arc::strong_count(turns) == 1;
        if attempts.get(&self.at).is_some_and(is_unused) {
            attempts.remove(&self.at);
        }
    }
}

impl SharedLocks {
    fn machines(&self) -> FsResult<&Machines> {
        let none = || FsError::Io("the engine has no sessions".to_owned());
        let machines = self.parts.machines.as_ref().ok_or_else(none)?;
        machines.check()?;
        Ok(machines)
    }

    async fn conflict(&self, at: At, wanted: &Lock) -> FsResult<Option<Lock>> {
        loop {
            let (session, over, wanted) = (self.session, self.machines()?.over(), wanted.clone());
            // An operation sees what is held now, where a look may lag behind.
            let look = transact(&*self.engine, move |transaction| {
                let locks = living_locks(transaction, at.0, &over)?;
                Ok::<_, FsError>(blocking(&locks, at.1, (session, &wanted)))
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

    async fn acquire(&self, at: At, wanted: &Lock, waiting: Waiting) -> FsResult<()> {
        if wanted.range.is_empty() {
            return Err(FsError::InvalidArgument("an empty range cannot be locked"));
        }
        let wait = Wait::begin(self, at.0, wanted.owner)?;
        save(&self.parts, at.0).await;
        loop {
            let rings = wait.bell.notified();
            tokio::pin!(rings);
            rings.as_mut().enable();
            let blocked = match self.attempt(at, wanted).await? {
                Attempt::Given { .. } => return Ok(()),
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
                self.waits.lock().wait((wanted.owner, wait.number), own)?;
            }
            // It is looked again either way.
            let _ = clock::deadline(LOOK, rings).await;
        }
    }

    /// Takes a lock if it can be had, and catches up with those who had it. If this is dropped and the lock is given all
    /// the same, or the machine cannot catch up, it is given back.
    async fn attempt(&self, at: At, wanted: &Lock) -> FsResult<Attempt> {
        let turn = self.attempts.turn(at.0, wanted.owner).await;
        self.locked.lock().insert(at.0);
        let (told, hears) = oneshot::channel();
        let (parts, engine, wanted) = (
            Arc::clone(&self.parts),
            Arc::clone(&self.engine),
            wanted.clone(),
        );
        let (session, over) = (self.session, self.machines()?.over());
        tokio::spawn(async move {
            let _turn = turn;
            let lock = wanted.clone();
            let attempt = transact(&*engine, move |transaction| {
                take(transaction, at, (session, &lock), &over)
            });
            let attempt = attempt.await;
            let is_new = matches!(attempt, Ok(Attempt::Given { is_new: true }));
            let attempt = caught_up(&parts, attempt).await;
            let is_refused = attempt.is_err();
            let is_unheard = told.send(attempt).is_err();
            if is_new && (is_refused || is_unheard) {
                give_back(&parts, (&engine, session), at, (wanted.owner, wanted.range)).await;
            }
        });
        let ended = |_| FsError::Io("a lock ended unexpectedly".to_owned());
        let attempt = hears.await.map_err(ended)??;
        if matches!(attempt, Attempt::Given { .. }) {
            // Who waits for what an owner gave up for it.
            self.machines()?.bells.ring(at.0);
        }
        Ok(attempt)
    }

    async fn release(&self, at: At, held: (LockOwner, Range<u64>)) {
        if !self.locked.lock().contains(&at.0) {
            return;
        }
        let (parts, engine, session) = (
            Arc::clone(&self.parts),
            Arc::clone(&self.engine),
            self.session,
        );
        let released = tokio::spawn(async move {
            save(&parts, at.0).await;
            give_back(&parts, (&engine, session), at, held).await;
        });
        // It goes on if this is dropped.
        let _ = released.await;
    }

    async fn release_client(&self, client: u64) {
        let locked: Vec<_> = self.locked.lock().iter().copied().collect();
        for inode in locked {
            let session = self.session;
            let change = move |locks: &mut FileLocks| {
                for family in [LockFamily::Record, LockFamily::Whole] {
                    locks.held(family, session).drop_client(client);
                }
            };
            save(&self.parts, inode).await;
            change_until_done(&self.parts, &self.engine, inode, change).await;
        }
    }
}

/// Saves what is pending of a file. What cannot be saved is told to who syncs or closes it.
async fn save(parts: &Parts, inode: Inode) {
    if let Some(file) = parts.files.find(inode)
        && let Err(error) = parts.files.save(&file).await
    {
        tracing::debug!(inode = inode.0, %error, "a lock changes hands before what was written is saved");
    }
}

/// Whoever is given a lock sees what was saved before.
async fn caught_up(parts: &Parts, attempt: FsResult<Attempt>) -> FsResult<Attempt> {
    if matches!(attempt, Ok(Attempt::Given { .. })) {
        parts.catch_up().await?;
    }
    attempt
}

/// An owner that may wait. However its wait ends, nothing is kept of it.
struct Wait<'a> {
    locks: &'a SharedLocks,
    inode: Inode,
    owner: LockOwner,
    number: u64,
    bell: Arc<Notify>,
}

impl<'a> Wait<'a> {
    fn begin(locks: &'a SharedLocks, inode: Inode, owner: LockOwner) -> FsResult<Self> {
        Ok(Self {
            locks,
            inode,
            owner,
            number: locks.waits.lock().begin(),
            bell: locks.machines()?.bells.of(inode),
        })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.locks.waits.lock().end((self.owner, self.number));
        self.bell = Arc::default();
        if let Some(machines) = &self.locks.parts.machines {
            machines.bells.prune(self.inode);
        }
    }
}

fn read(reads: &dyn Reads, inode: Inode) -> FsResult<FileLocks> {
    let value = reads.get(&schema::locks(inode))?;
    value.map_or_else(
        || Ok(FileLocks::default()),
        |value| FileLocks::decode(&value),
    )
}

/// The locks of a file but for those of sessions that are over.
fn living_locks(reads: &dyn Reads, inode: Inode, over: &Over) -> FsResult<FileLocks> {
    let mut locks = read(reads, inode)?;
    locks.drop_sessions(|session| over.contains(&session));
    Ok(locks)
}

fn put(transaction: &mut dyn Transaction, inode: Inode, locks: &FileLocks) {
    let key = schema::locks(inode);
    match locks.len() {
        0 => transaction.delete(&key),
        _ => transaction.put(&key, locks.encode()),
    }
}

/// What keeps a session from taking a lock.
fn blocking(locks: &FileLocks, family: LockFamily, (session, wanted): (u64, &Lock)) -> Vec<Held> {
    let all = locks.of(family).iter();
    let blocking = all.flat_map(|(holder, held)| {
        let is_own = *holder == session;
        let own = is_own.then(|| held.blocking(wanted)).into_iter().flatten();
        let others = (!is_own).then(|| held.iter()).into_iter().flatten();
        let others = others.filter(|lock| lock.excludes(wanted));
        let blocking = own.chain(others);
        blocking.map(|lock| (*holder, lock.clone()))
    });
    blocking.collect()
}

/// Takes a lock, unless something is in its way.
fn take(
    transaction: &mut dyn Transaction,
    (inode, family): At,
    (session, wanted): (u64, &Lock),
    over: &Over,
) -> FsResult<Attempt> {
    let before = read(transaction, inode)?;
    let mut locks = before.clone();
    locks.drop_sessions(|session| over.contains(&session));
    let own = locks.held(family, session);
    let has = |lock: &&Lock| lock.owner == wanted.owner;
    let mut is_new = !own
        .iter()
        .filter(has)
        .any(|lock| lock.range.start < wanted.range.end && wanted.range.start < lock.range.end);
    if family == LockFamily::Whole {
        if own.iter().filter(has).any(|lock| lock.mode == wanted.mode) {
            return Ok(Attempt::Given { is_new: false });
        }
        // As flock(2) says, who has it in another mode gives it back first, and may lose it so.
        is_new |= own.cut(wanted.owner, &(0..u64::MAX));
    }
    let blocked = blocking(&locks, family, (session, wanted));
    let attempt = match blocked.is_empty() {
        true => {
            if !is_in_snapshot(inode) {
                operations::node(transaction, inode)?;
            }
            let own = locks.held(family, session);
            own.cut(wanted.owner, &wanted.range);
            own.add(wanted.clone());
            if locks.len() > LOCKS_MAX {
                return Err(FsError::LimitReached("too many locks of a file are held"));
            }
            Attempt::Given { is_new }
        }
        false => Attempt::Blocked(blocked),
    };
    if locks.encode() != before.encode() {
        put(transaction, inode, &locks);
    }
    Ok(attempt)
}

async fn give_back(
    parts: &Parts,
    (engine, session): (&Preserving, u64),
    (inode, family): At,
    (owner, range): (LockOwner, Range<u64>),
) {
    let change = move |locks: &mut FileLocks| {
        locks.held(family, session).cut(owner, &range);
    };
    change_until_done(parts, engine, inode, change).await;
}

/// Changes the locks of a file, however long the engine needs for that. Once the session is over nobody is in its way.
async fn change_until_done(
    parts: &Parts,
    engine: &Preserving,
    inode: Inode,
    change: impl Fn(&mut FileLocks) + Clone + Send + 'static,
) {
    let Some(machines) = &parts.machines else {
        return;
    };
    while machines.check().is_ok() {
        let change = change.clone();
        let changed = transact(engine, move |transaction| {
            let before = read(transaction, inode)?;
            let mut locks = before.clone();
            change(&mut locks);
            if locks.encode() != before.encode() {
                put(transaction, inode, &locks);
            }
            Ok::<_, FsError>(())
        });
        match changed.await {
            Ok(()) => break,
            Err(error) => {
                tracing::debug!(%error, "a lock is given back later");
                clock::sleep(REST).await;
            }
        }
    }
    machines.bells.ring(inode);
}

/// All sessions that hold locks.
pub(super) fn lock_holders(reads: &dyn Reads) -> FsResult<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    visit_locks(reads, &mut |_, locks| found.extend(locks.sessions()))?;
    Ok(found)
}

/// Takes the locks of some sessions away.
pub(super) fn drop_locks(
    transaction: &mut dyn Transaction,
    is_dropped: impl Fn(u64) -> bool,
) -> FsResult<()> {
    let mut left = Vec::new();
    visit_locks(transaction, &mut |inode, mut locks| {
        if locks.drop_sessions(&is_dropped) {
            left.push((inode, locks));
        }
    })?;
    for (inode, locks) in left {
        put(transaction, inode, &locks);
    }
    Ok(())
}

fn visit_locks(reads: &dyn Reads, visit: &mut dyn FnMut(Inode, FileLocks)) -> FsResult<()> {
    let mut outcome = Ok(());
    reads.scan(&[kind::LOCKS]..&[kind::LOCKS + 1], &mut |key, value| {
        let locks = FileLocks::decode(value);
        match locks.and_then(|locks| Ok((schema::inode_in(key)?, locks))) {
            Ok((inode, locks)) => visit(inode, locks),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome
}
