//! Locks of volumes that have some. Of all others the kernel keeps them itself.
//!
//! A lock of flock(2) belongs to what is open, which is a handle here. The owner that the kernel names for it, and for
//! `F_OFD_SETLK`, is no name of it: the next file that is opened may have the same while the end of this one, of which
//! the kernel tells late and waits for no answer, is still under way.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_base::FsError;
use penstock_vfs::{HandleId, Inode, Lock, LockFamily, LockMode, LockOwner, Locks, Waiting};
use tokio::{runtime::Handle, sync::Notify};

use super::{Adapter, Answer, Outcome, Serving, Undo, answer::Unlock};
use crate::{
    errno::{Errno, errno_of},
    protocol::{DescriptorTable, LockRequest, encode},
};

/// F_GETLK.
pub(super) async fn get(adapter: Adapter, inode: Inode, request: LockRequest) -> Outcome {
    let wanted = adapter.lock(&request)?;
    let locks = adapter.locks()?;
    let conflict = locks.conflict(inode, family(&request), &wanted).await?;
    Ok(Answer::body(|body| encode::lock(body, conflict.as_ref())))
}

/// F_SETLK, F_SETLKW and flock(2).
pub(super) async fn set(
    adapter: Adapter,
    inode: Inode,
    request: LockRequest,
    waits: bool,
) -> Outcome {
    let locks = adapter.locks()?;
    let family = family(&request);
    if request.kind == libc::F_UNLCK {
        let held = (adapter.owner(&request), request.start..end(&request));
        locks.release(inode, family, held).await;
    } else {
        let waiting = if waits { Waiting::Yes } else { Waiting::No };
        let wanted = adapter.lock(&request)?;
        let (owner, range) = (wanted.owner, wanted.range.clone());
        let note_owner = || {
            if family == LockFamily::Record {
                adapter.record_owners.note(request.handle, request.owner);
            }
        };
        note_owner();
        adapter.endings.over(inode).await;
        let acquired = locks.acquire(inode, family, wanted, waiting).await;
        acquired.map_err(|error| match error {
            FsError::LimitReached(_) => Errno(libc::ENOLCK),
            error => errno_of(&error),
        })?;
        // Its process may have closed the descriptor while it waited; the end of the handle is all that follows then.
        note_owner();
        let given = Given {
            adapter,
            lock: Some(Unlock {
                inode,
                family,
                owner,
                range,
            }),
        };
        return Ok(given.answer().await);
    }
    Ok(Answer::done())
}

/// A lock of which the kernel has not heard yet. It is given back if this is dropped.
struct Given {
    adapter: Adapter,
    lock: Option<Unlock>,
}

impl Given {
    /// The answer, once the kernel keeps nothing that others changed before.
    async fn answer(mut self) -> Answer {
        if self.adapter.features.changes_elsewhere {
            self.adapter.notifier.told().await;
        }
        let undo = self.lock.take().map_or(Undo::Nothing, Undo::Unlock);
        Answer::done().or_undo(undo)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.adapter.clone().undo(Undo::Unlock(lock)));
        }
    }
}

/// Who locked records through each handle and has not closed it. A process that closes its descriptor says so; a
/// lock that belongs to what is open (`F_OFD_SETLK`) has an owner of its own, whose end is that of the handle.
#[derive(Debug, Default)]
pub(super) struct RecordOwners(Mutex<HashMap<HandleId, HashSet<DescriptorTable>>>);

impl RecordOwners {
    fn note(&self, handle: HandleId, owner: DescriptorTable) {
        lock(&self.0).entry(handle).or_default().insert(owner);
    }

    /// A process closed a descriptor of the handle.
    fn closed(&self, handle: HandleId, owner: DescriptorTable) {
        if let Some(owners) = lock(&self.0).get_mut(&handle) {
            owners.remove(&owner);
        }
    }

    /// The handle is gone: those who are left have gone with it, but for who came since under the same name.
    fn released(&self, handle: HandleId) -> HashSet<DescriptorTable> {
        let mut handles = lock(&self.0);
        let mut gone = handles.remove(&handle).unwrap_or_default();
        gone.retain(|owner| !handles.values().any(|owners| owners.contains(owner)));
        gone
    }
}

/// Files of which locks are being given back because a handle is gone. Who asks for one waits for that: to the program
/// the lock was free when its close returned.
#[derive(Debug, Default)]
pub(super) struct Endings {
    under_way: Mutex<HashMap<Inode, usize>>,
    over: Notify,
}

impl Endings {
    fn begin(&self, inode: Inode) -> Ending<'_> {
        *lock(&self.under_way).entry(inode).or_default() += 1;
        Ending {
            endings: self,
            inode,
        }
    }

    /// Returns when none of a file is under way.
    async fn over(&self, inode: Inode) {
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            if !lock(&self.under_way).contains_key(&inode) {
                return;
            }
            over.await;
        }
    }
}

/// One that is under way, until this is dropped.
struct Ending<'a> {
    endings: &'a Endings,
    inode: Inode,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = lock(&self.endings.under_way).entry(self.inode) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.endings.over.notify_waiters();
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Serving {
    fn locks(&self) -> Result<&dyn Locks, FsError> {
        self.volume
            .locks()
            .ok_or(FsError::Unsupported("this volume has no locks"))
    }

    fn owner(&self, request: &LockRequest) -> LockOwner {
        match family(request) {
            LockFamily::Whole => self.whole_owner(request.handle),
            LockFamily::Record => self.record_owner(request.owner),
        }
    }

    fn whole_owner(&self, HandleId(owner): HandleId) -> LockOwner {
        let client = self.client;
        LockOwner { client, owner }
    }

    fn record_owner(&self, DescriptorTable(owner): DescriptorTable) -> LockOwner {
        let client = self.client;
        LockOwner { client, owner }
    }

    fn lock(&self, request: &LockRequest) -> Result<Lock, Errno> {
        let mode = match request.kind {
            libc::F_RDLCK => LockMode::Shared,
            libc::F_WRLCK => LockMode::Exclusive,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(Lock {
            mode,
            range: request.start..end(request),
            owner: self.owner(request),
            process: request.process,
        })
    }

    /// Gives back what a process that closed a descriptor of a file has locked of it.
    pub(super) async fn unlock_closed(
        &self,
        inode: Inode,
        handle: HandleId,
        table: DescriptorTable,
    ) {
        self.unlock(inode, LockFamily::Record, self.record_owner(table))
            .await;
        self.record_owners.closed(handle, table);
    }

    /// Gives back what belongs to a handle that is gone. `whole`: it had a lock of flock(2) once.
    pub(super) async fn unlock_released(&self, inode: Inode, handle: HandleId, whole: bool) {
        let gone = self.record_owners.released(handle);
        if gone.is_empty() && !whole {
            return;
        }
        let _ending = self.endings.begin(inode);
        for table in gone {
            self.unlock(inode, LockFamily::Record, self.record_owner(table))
                .await;
        }
        if whole {
            self.unlock(inode, LockFamily::Whole, self.whole_owner(handle))
                .await;
        }
    }

    async fn unlock(&self, inode: Inode, family: LockFamily, owner: LockOwner) {
        if let Some(locks) = self.volume.locks() {
            locks.release(inode, family, (owner, 0..u64::MAX)).await;
        }
    }
}

fn family(request: &LockRequest) -> LockFamily {
    if request.whole {
        LockFamily::Whole
    } else {
        LockFamily::Record
    }
}

/// One behind the last byte; the last one that there can be stands for the end of the file.
fn end(request: &LockRequest) -> u64 {
    if request.last >= encode::LOCK_END {
        u64::MAX
    } else {
        request.last + 1
    }
}
