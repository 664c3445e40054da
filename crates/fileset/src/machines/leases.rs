//! Write leases: with strict coherence each read sees every write that ended before it, on whatever machine.
//!
//! ```text
//!  a write ──► the machine has the lease of the file ──► accepted, saved later
//!  a look  ──► the engine catches up ──► another machine has the lease ──► that saves and gives it back ──► shown
//! ```
//!
//! A key `w` of a file names the one session that may have writes of it that are not saved. Who changes the file's bytes takes
//! the lease first and keeps it until another machine wants it: so a machine that has a file for itself writes as fast as
//! without, and pays one operation when it begins; it gives the lease back when it has closed the file. Who looks takes nothing. It catches up with the engine; where
//! no other session has the lease then, what the engine says is all that was written; else it marks the lease as wanted and
//! waits until that grant is over. The holder hears of the mark with the changes that it follows, lets no further write begin,
//! saves, and ends the grant. A holder that died is found to be over as that of a lock is.
//!
//! A grant has a session and a number, so a grant that ended is not taken for the next one of the same machine: who looks is
//! content that all was saved once since it began, and so a machine that writes all the time keeps nobody from reading.
//!
//! | of a file on this machine | |
//! |---|---|
//! | `Slot::turn` | who takes the lease or gives it back; waited for by tasks, held across requests |
//! | `Slot::state` | whether it is held, and how many changes are under way; work in memory alone |

mod keys;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::{FsError, FsResult, Mutex, clock, metrics::Counter};
use penstock_vfs::Inode;
use tokio::{
    sync::{Notify, OwnedMutexGuard},
    time::Instant,
};

pub(super) use self::keys::{drop_leases, visit_leases};
use super::{Machines, follower::passes, locks::Listener};
use crate::{
    engine::{EngineError, query, transact},
    schema::{WriteLease, is_in_snapshot},
    volume::Parts,
};

/// How long a machine keeps leases of files that it does not have open any more.
const KEPT: Duration = Duration::from_millis(200);
/// How many of them are given back in one operation.
const BATCH: usize = 256;
/// How long who waits hears of nothing before it looks again.
const LOOK: Duration = Duration::from_millis(20);
/// How long a machine that was asked for a lease lets others go first.
const GRACE: Duration = Duration::from_millis(40);
/// How often who waits asks whether the holder lives.
const LIVES: Duration = Duration::from_secs(1);
/// How long anybody waits for a lease, or for what its holder wrote: longer than a machine that died keeps it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long nothing is tried again that store or engine did not do.
const REST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// Changes may begin.
    is_held: bool,
    /// The metadata may say that this machine holds it.
    is_granted: bool,
    /// Changes under way.
    changes: usize,
    /// Others go first until then.
    rests_until: Option<Instant>,
}

/// What this machine has of the lease of one file.
#[derive(Debug, Default)]
struct Slot {
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    /// Rings when no change is under way any more.
    is_unused: Notify,
}

impl Slot {
    /// Begins a change, if the lease is held.
    fn enter(self: &Arc<Self>) -> Option<Changing> {
        let mut state = self.state.lock();
        state.is_held.then(|| {
            state.changes += 1;
            Changing(Arc::clone(self))
        })
    }

    fn is_held(&self) -> bool {
        self.state.lock().is_held
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.is_granted && state.changes == 0
    }

    fn is_granted(&self) -> bool {
        self.state.lock().is_granted
    }

    fn set_granted(&self, is_granted: bool) {
        self.state.lock().is_granted = is_granted;
    }

    /// Nobody needs to know of it.
    fn is_forgettable(&self) -> bool {
        let state = self.state.lock();
        let rests = state.rests_until.is_some_and(|until| until > clock::now());
        !state.is_granted && !rests
    }

    /// Lets no change begin, and returns when none is under way.
    async fn leave(&self) {
        self.state.lock().is_held = false;
        loop {
            let unused = self.is_unused.notified();
            if self.state.lock().changes == 0 {
                return;
            }
            unused.await;
        }
    }

    /// Returns when others had the time to go first.
    async fn rest(&self) {
        let until = self.state.lock().rests_until;
        if let Some(until) = until {
            clock::sleep(until.saturating_duration_since(clock::now())).await;
        }
    }
}

/// A change of a file's bytes that is under way: the machine keeps the lease until this goes.
#[must_use]
#[derive(Debug)]
pub(crate) struct Changing(Arc<Slot>);

impl Drop for Changing {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.changes -= 1;
        if state.changes == 0 {
            self.0.is_unused.notify_waiters();
        }
    }
}

/// A lease that nobody needs, with the turn to give it back.
type Idle = (Inode, Arc<Slot>, OwnedMutexGuard<()>);

/// The leases of this machine.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    slots: Mutex<HashMap<Inode, Arc<Slot>>>,
    last_number: AtomicU64,
    /// A task gives back what nobody needs.
    is_returning: AtomicBool,
    /// Nothing is saved for others any more.
    is_closing: AtomicBool,
    /// How often another machine asked for one.
    pub(crate) recalled: Counter,
}

impl Leases {
    fn slot(&self, inode: Inode) -> Arc<Slot> {
        Arc::clone(self.slots.lock().entry(inode).or_default())
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        let slots = self.slots.lock();
        slots.values().filter(|slot| slot.is_held()).count()
    }

    /// All files whose lease the metadata may say that this machine holds.
    pub(super) fn all(&self) -> BTreeSet<Inode> {
        let slots = self.slots.lock();
        let granted = slots.iter().filter(|(_, slot)| slot.is_granted());
        granted.map(|(inode, _)| *inode).collect()
    }

    fn may_be_granted(&self, inode: Inode) -> bool {
        let slots = self.slots.lock();
        slots.get(&inode).is_some_and(|slot| slot.is_granted())
    }

    /// Whether this machine may have writes of a file that are not saved, and no other one.
    pub(crate) fn has(&self, inode: Inode) -> bool {
        let slots = self.slots.lock();
        slots.get(&inode).is_some_and(|slot| slot.is_held())
    }

    /// Leases of files that `is_open` knows nothing of and nobody changes, with the turn of each.
    fn idle(&self, is_open: impl Fn(Inode) -> bool) -> Vec<Idle> {
        let slots = self.slots.lock();
        let idle = slots
            .iter()
            .filter(|(inode, slot)| slot.is_idle() && !is_open(**inode));
        let idle = idle.filter_map(|(inode, slot)| {
            let turn = Arc::clone(&slot.turn).try_lock_owned().ok()?;
            Some((*inode, Arc::clone(slot), turn))
        });
        idle.take(BATCH).collect()
    }

    /// The machine leaves: what could not be saved for others is lost to them, too.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    fn forget_unused(&self) {
        let mut slots = self.slots.lock();
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || !slot.is_forgettable());
    }
}

/// Who waits for the end of a grant.
struct Wait<'a> {
    machines: &'a Machines,
    listener: Listener<'a>,
    asked_at: Instant,
}

impl<'a> Wait<'a> {
    fn begin(machines: &'a Machines, inode: Inode) -> Self {
        Self {
            machines,
            listener: machines.bells.listen(inode),
            asked_at: clock::now(),
        }
    }

    /// Waits for a moment, or until what `look` found in the way may be gone: it is asked while who rings is heard.
    async fn until_gone(
        &mut self,
        look: impl Future<Output = FsResult<Option<WriteLease>>>,
    ) -> FsResult<bool> {
        let rings = self.listener.bell.notified();
        tokio::pin!(rings);
        rings.as_mut().enable();
        let Some(held) = look.await? else {
            return Ok(true);
        };
        if self.asked_at.elapsed() >= LIVES {
            self.asked_at = clock::now();
            let holder = BTreeSet::from([held.session]);
            if self.machines.are_over(holder).await? {
                return Ok(false);
            }
        }
        // It is looked again either way.
        let _ = clock::deadline(LOOK, rings).await;
        Ok(false)
    }
}

fn late<T>(_: T) -> FsError {
    FsError::TimedOut(
        "another machine did not save in time what was written to the file".to_owned(),
    )
}

fn ended<T>(_: T) -> FsError {
    FsError::Io("a write lease ended unexpectedly".to_owned())
}

impl Machines {
    /// Begins a change of a file's bytes: until it ends no other machine has writes of the file that are not saved.
    pub(crate) async fn to_change(
        &self,
        (leases, parts): (&Leases, &Arc<Parts>),
        inode: Inode,
    ) -> FsResult<Changing> {
        let slot = leases.slot(inode);
        let entered = clock::deadline(WAIT_MAX, async {
            loop {
                if let Some(changing) = slot.enter() {
                    return Ok(changing);
                }
                let turn = Arc::clone(&slot.turn).lock_owned().await;
                if !slot.is_held() {
                    return_idle(parts);
                    let (parts, slot) = (Arc::clone(parts), Arc::clone(&slot));
                    // It goes on if this is dropped, and the lease is there for the next one.
                    let taken = tokio::spawn(async move {
                        let _turn = turn;
                        take(&parts, inode, &slot).await
                    });
                    return taken.await.map_err(ended)?;
                }
            }
        });
        entered.await.map_err(late)?
    }

    /// Returns when queries see all that ended before the call of changes of a file, on any machine. They see what was applied
    /// before it already.
    pub(crate) async fn see_writes(&self, inode: Inode) -> FsResult<()> {
        if is_in_snapshot(inode) {
            return Ok(());
        }
        let held = query(&*self.engine, |reads| keys::lease(reads, inode)).await?;
        let session = self.session();
        match held.filter(|held| held.session != session) {
            None => Ok(()),
            Some(held) => {
                let waited = clock::deadline(WAIT_MAX, self.saved_by(inode, held)).await;
                waited.map_err(late)??;
                self.see_all().await
            }
        }
    }

    /// Returns when a grant is over.
    async fn saved_by(&self, inode: Inode, held: WriteLease) -> FsResult<()> {
        let mut wait = Wait::begin(self, inode);
        loop {
            let look = async {
                let over = self.over();
                let asked = transact(&*self.engine, move |transaction| {
                    keys::ask(transaction, inode, &held, &over)
                });
                Ok(asked.await?.then_some(held))
            };
            if wait.until_gone(look).await? {
                return Ok(());
            }
        }
    }

    /// Returns when a grant is this machine's.
    async fn granted(&self, inode: Inode, slot: &Slot, wanted: WriteLease) -> FsResult<()> {
        let mut wait = Wait::begin(self, inode);
        loop {
            self.check()?;
            let over = self.over();
            let look = async {
                slot.set_granted(true);
                let taken = transact(&*self.engine, move |transaction| {
                    keys::take(transaction, inode, wanted, &over)
                });
                let other = taken.await?;
                slot.set_granted(other.is_none());
                Ok(other)
            };
            if wait.until_gone(look).await? {
                return Ok(());
            }
        }
    }

    /// The lease of a file changed elsewhere: it is given back if it is this machine's and wanted.
    pub(super) async fn lease_changed(&self, parts: &Arc<Parts>, inode: Inode) -> FsResult<()> {
        self.bells.ring(inode);
        let leases = self.leases.as_ref();
        let may_be_own = leases.is_some_and(|leases| leases.may_be_granted(inode));
        if may_be_own && self.is_wanted(inode).await? {
            let parts = Arc::clone(parts);
            tokio::spawn(async move { give_back(&parts, inode).await });
        }
        Ok(())
    }

    async fn is_wanted(&self, inode: Inode) -> FsResult<bool> {
        let lease = query(&*self.engine, |reads| keys::lease(reads, inode)).await?;
        let session = self.session();
        Ok(lease.is_some_and(|lease| lease.session == session && lease.is_wanted))
    }

    /// Fails once the session is over, or the machine leaves: nothing is done for others any more.
    fn check_leases(&self) -> FsResult<()> {
        let leases = self.leases.as_ref();
        match leases.is_none_or(|leases| leases.is_closing.load(Ordering::SeqCst)) {
            true => Err(ended(())),
            false => self.check(),
        }
    }

    /// Ends leases in the metadata, however long the engine needs for that. Nothing comes of it once the session is over, or
    /// where what is kept of a lease is damaged. Returns whether they are ended.
    async fn end_leases(&self, inodes: Vec<Inode>) -> bool {
        let (session, inodes) = (self.session(), Arc::new(inodes));
        while self.check_leases().is_ok() {
            let inodes = Arc::clone(&inodes);
            let ended = transact(&*self.engine, move |transaction| {
                let given = keys::give_back(transaction, &inodes, session);
                given.map_err(|error| EngineError::Corrupt(error.to_string()))
            });
            match ended.await {
                Err(error) if passes(&error) => {
                    tracing::debug!(%error, "a write lease is given back later");
                    clock::sleep(REST).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a write lease cannot be given back");
                    return false;
                }
                Ok(()) => return true,
            }
        }
        false
    }
}

/// Takes the lease of a file, and sees what was saved by who had it before.
async fn take(parts: &Arc<Parts>, inode: Inode, slot: &Arc<Slot>) -> FsResult<Changing> {
    let (machines, leases) = parts.leases().ok_or_else(|| ended(()))?;
    slot.rest().await;
    let wanted = WriteLease {
        session: machines.session(),
        number: leases.last_number.fetch_add(1, Ordering::Relaxed) + 1,
        is_wanted: false,
    };
    let taken = clock::deadline(WAIT_MAX, machines.granted(inode, slot, wanted));
    taken.await.map_err(late)??;
    machines.settle().await?;
    slot.state.lock().is_held = true;
    slot.enter().ok_or_else(|| ended(()))
}

/// Saves what was written to a file and gives its lease back, if another machine wants it.
async fn give_back(parts: &Arc<Parts>, inode: Inode) {
    let Some((machines, leases)) = parts.leases() else {
        return;
    };
    let slot = leases.slot(inode);
    let _turn = slot.turn.lock().await;
    if machines.is_wanted(inode).await == Ok(false) {
        return;
    }
    leases.recalled.increment();
    slot.leave().await;
    if save(parts, machines, inode).await.is_ok() && machines.end_leases(vec![inode]).await {
        {
            let mut state = slot.state.lock();
            state.is_granted = false;
            state.rests_until = Some(clock::now() + GRACE);
        }
        machines.bells.ring(inode);
    }
}

/// Saves what is pending of a file, however long that needs. Fails once the session is over, or the machine leaves.
async fn save(parts: &Arc<Parts>, machines: &Machines, inode: Inode) -> FsResult<()> {
    while let Some(file) = parts.files.find(inode) {
        match parts.files.save(&file).await {
            // One that is gone nobody looks at.
            Ok(()) | Err(FsError::Stale) => break,
            Err(error) => {
                tracing::debug!(inode = inode.0, %error, "another machine waits for what cannot be saved yet");
            }
        }
        machines.check_leases()?;
        clock::sleep(REST).await;
    }
    machines.check()
}

/// Has a task give back, in a while, the leases of files that nobody here has open then.
pub(crate) fn return_idle(parts: &Arc<Parts>) {
    let Some((_, leases)) = parts.leases() else {
        return;
    };
    if !leases.is_returning.swap(true, Ordering::SeqCst) {
        let parts = Arc::downgrade(parts);
        tokio::spawn(async move {
            clock::sleep(KEPT).await;
            if let Some(parts) = parts.upgrade() {
                give_back_all_idle(&parts).await;
            }
        });
    }
}

async fn give_back_all_idle(parts: &Arc<Parts>) {
    let Some((machines, leases)) = parts.leases() else {
        return;
    };
    // Who closes a file from now on has another task look at it.
    leases.is_returning.store(false, Ordering::SeqCst);
    loop {
        let idle = leases.idle(|inode| parts.files.find(inode).is_some());
        if idle.is_empty() {
            break;
        }
        if !give_back_idle(parts, machines, idle).await {
            return;
        }
    }
    leases.forget_unused();
    // A change or a save of a file that nobody has open is under way, and nobody closes that file behind it.
    let open = parts.files.with_handles();
    if leases.all().iter().any(|inode| !open.contains(inode)) {
        return_idle(parts);
    }
}

/// Returns whether the leases are given back.
async fn give_back_idle(parts: &Arc<Parts>, machines: &Machines, idle: Vec<Idle>) -> bool {
    let mut left = Vec::with_capacity(idle.len());
    for (inode, slot, turn) in idle {
        let was_held = slot.is_held();
        slot.leave().await;
        match parts.files.find(inode) {
            // It was opened since, and is given back when it is closed.
            Some(_) => slot.state.lock().is_held = was_held,
            None => left.push((inode, slot, turn)),
        }
    }
    let inodes = left.iter().map(|(inode, ..)| *inode);
    let are_ended = machines.end_leases(inodes.collect()).await;
    for (_, slot, _) in left.iter().filter(|_| are_ended) {
        slot.set_granted(false);
    }
    are_ended
}
