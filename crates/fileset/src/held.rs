//! Who holds which inode.
//!
//! A file without a name stays as long as a door has a reference or a handle of it. When the last one is given back
//! the file is collected by a task of its own ([`crate::collector`]), so that giving back never waits. It counts for
//! quotas until then, so who finds no room waits for it.
//!
//! A file in the trash shows as one without a name to those who hold it from before, and with its name there to those who
//! found it in the trash.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use penstock_base::{FsError, FsResult, Mutex, clock};
use penstock_vfs::{Attributes, Inode};
use tokio::sync::Notify;

/// How long who finds no room waits for files that are being collected.
const COLLECT_WAIT: Duration = Duration::from_secs(2);

/// How a file in the trash came to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InTrash {
    /// It was removed here meanwhile, or was found by its number since.
    Removed,
    /// It was found in the trash.
    Found,
}

#[derive(Debug, Default)]
struct State {
    /// References and handles.
    counts: HashMap<Inode, u64>,
    /// Held files without a name.
    orphans: HashSet<Inode>,
    /// Those that lost it on another machine, until they are gone here.
    others: HashSet<Inode>,
    /// Held files in the trash, and how they came to be held.
    trash: HashMap<Inode, InTrash>,
    /// Files without a name that nobody holds: nobody may hold them again.
    collected: HashSet<Inode>,
    /// Those of them that the collector has not seen.
    waiting: Vec<Inode>,
}

impl State {
    /// A file has no name any more, also if it had one in the trash.
    fn orphaned(&mut self, inode: Inode) {
        self.orphans.insert(inode);
        self.trash.remove(&inode);
    }

    fn settle(&mut self, inode: Inode) -> bool {
        let is_over = !self.counts.contains_key(&inode) && self.orphans.remove(&inode);
        if is_over {
            self.collected.insert(inode);
            self.waiting.push(inode);
        }
        is_over
    }
}

/// A reference that somebody has just taken. It is given back when this goes, unless it is kept: a call may be given up
/// before it is answered.
#[must_use]
pub(crate) struct Taken<'a> {
    held: &'a Held,
    inode: Inode,
}

impl Taken<'_> {
    /// The door hears of it, and gives it back.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.held.give_back(self.inode, 1);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    state: Mutex<State>,
    /// Rings when something waits to be collected.
    pub(crate) bell: Notify,
    /// Wakes who waits until files are gone.
    leaving: Notify,
}

impl Held {
    /// Takes a reference. Fails with `Stale` if the file is being collected.
    pub(crate) fn take(&self, inode: Inode) -> FsResult<()> {
        let mut state = self.state.lock();
        if state.collected.contains(&inode) {
            return Err(FsError::Stale);
        }
        *state.counts.entry(inode).or_default() += 1;
        Ok(())
    }

    /// A reference that was taken.
    pub(crate) fn taken(&self, inode: Inode) -> Taken<'_> {
        Taken { held: self, inode }
    }

    /// Whether somebody has a reference or a handle. The root is everybody's.
    pub(crate) fn has(&self, inode: Inode) -> bool {
        inode == Inode::ROOT || self.state.lock().counts.contains_key(&inode)
    }

    /// How many somebody has.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().counts.len()
    }

    /// All that somebody has.
    pub(crate) fn all(&self) -> Vec<Inode> {
        let state = self.state.lock();
        let held = state.counts.keys().copied();
        held.chain([Inode::ROOT]).collect()
    }

    /// Gives references back.
    pub(crate) fn give_back(&self, inode: Inode, count: u64) {
        let mut state = self.state.lock();
        let Some(held) = state.counts.get_mut(&inode) else {
            return;
        };
        *held = held.saturating_sub(count);
        if *held == 0 {
            state.counts.remove(&inode);
            state.trash.remove(&inode);
            if state.settle(inode) {
                self.bell.notify_one();
            }
        }
    }

    /// A file lost its last name.
    pub(crate) fn orphaned(&self, inode: Inode) {
        let mut state = self.state.lock();
        state.orphaned(inode);
        if state.settle(inode) {
            self.bell.notify_one();
        }
    }

    /// A file was put into the trash here.
    pub(crate) fn trashed(&self, inode: Inode) {
        let mut state = self.state.lock();
        if state.counts.contains_key(&inode) {
            state.trash.insert(inode, InTrash::Removed);
        }
    }

    /// A file to which the caller has a reference was found in the trash.
    pub(crate) fn found_in_trash(&self, inode: Inode) {
        self.state.lock().trash.insert(inode, InTrash::Found);
    }

    /// A file in the trash to which the caller has a reference was found by its number.
    pub(crate) fn found_by_number(&self, inode: Inode) {
        let mut state = self.state.lock();
        if state.counts.get(&inode) == Some(&1) {
            state.trash.entry(inode).or_insert(InTrash::Removed);
        }
    }

    /// Whether whoever opens a file in the trash knows that it is there, or removed it: else it has an old name for it.
    pub(crate) fn knows_trashed(&self, inode: Inode) -> bool {
        self.state.lock().trash.contains_key(&inode)
    }

    /// Lets a file in the trash have the name by which it was found there.
    pub(crate) fn show(&self, attributes: &mut Attributes) {
        let is_found = || self.state.lock().trash.get(&attributes.inode) == Some(&InTrash::Found);
        if attributes.links == 0 && is_found() {
            attributes.links = 1;
        }
    }

    /// A file lost its last name elsewhere. Returns whether somebody here holds it.
    pub(crate) fn hold_orphan(&self, inode: Inode) -> bool {
        let mut state = self.state.lock();
        let is_held = state.counts.contains_key(&inode);
        if is_held {
            state.orphaned(inode);
            state.others.insert(inode);
        }
        is_held
    }

    /// Whether a file is held that is known to have no name.
    pub(crate) fn is_orphan(&self, inode: Inode) -> bool {
        self.state.lock().orphans.contains(&inode)
    }

    /// Whether a file that is not gone lost its last name elsewhere.
    pub(crate) fn is_others(&self, inode: Inode) -> bool {
        self.state.lock().others.contains(&inode)
    }

    /// What waits to be collected.
    pub(crate) fn waiting(&self) -> Vec<Inode> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    /// A file is gone.
    pub(crate) fn gone(&self, inode: Inode) {
        {
            let mut state = self.state.lock();
            state.collected.remove(&inode);
            state.others.remove(&inode);
        }
        self.leaving.notify_waiters();
    }

    /// Makes an attempt at what takes room. Where there is none it makes another one once those files are gone that
    /// nobody held by then, or have not been collected in time.
    pub(crate) async fn with_room<T, A>(&self, attempt: impl Fn() -> A) -> FsResult<T>
    where
        A: Future<Output = FsResult<T>>,
    {
        match attempt().await {
            Err(FsError::QuotaExceeded | FsError::NoSpace) if self.until_gone().await => {
                attempt().await
            }
            outcome => outcome,
        }
    }

    /// Waits for files that are being collected. Returns whether there were any.
    async fn until_gone(&self) -> bool {
        let leaving = self.state.lock().collected.clone();
        let is_gone = || leaving.is_disjoint(&self.state.lock().collected);
        let wait = async {
            loop {
                let left = self.leaving.notified();
                if is_gone() {
                    return;
                }
                left.await;
            }
        };
        // Those that take longer have room for a later attempt.
        let _ = clock::deadline(COLLECT_WAIT, wait).await;
        !leaving.is_empty()
    }

    /// A file could not be collected, and waits again.
    pub(crate) fn put_back(&self, inode: Inode) {
        self.state.lock().waiting.push(inode);
    }
}
