//! Locks of volumes that have some. Of all others the kernel keeps them itself.
//!
//! A lock of flock(2) belongs to what is open, which is a handle here. The owner that the kernel names for it, and for
//! `F_OFD_SETLK`, is no name of it: the next file that is opened may have the same while the end of this one, of which
//! the kernel tells late and waits for no answer, is still under way.

mod endings;
mod records;

use std::time::Duration;

use penstock_base::{FsError, clock};
use penstock_vfs::{HandleId, Inode, Lock, LockFamily, LockMode, LockOwner, Locks, Waiting};
use tokio::runtime::Handle;
use tracing::warn;

use super::{Adapter, Answer, Outcome, Serving, Undo};
use crate::{
    errno::{Errno, errno_of},
    protocol::{DescriptorTable, LockRequest, encode},
};

use endings::{Ending, Of};

pub(super) use endings::Endings;
pub(super) use records::RecordLocks;

/// How long a request waits until locks are back that are being given back.
const ENDING_MAX: Duration = Duration::from_secs(60);

/// F_GETLK.
pub(super) async fn get(adapter: Adapter, inode: Inode, request: LockRequest) -> Outcome {
    let wanted = adapter.lock(&request)?;
    let locks = adapter.locks()?;
    adapter.endings_over(inode, wanted.owner).await?;
    let conflict = locks.conflict(inode, family(&request), &wanted).await;
    let conflict = conflict.map_err(|error| lock_failure(&error))?;
    Ok(Answer::body(|body| encode::lock(body, conflict.as_ref())))
}

/// F_SETLK, F_SETLKW and flock(2).
pub(super) async fn set(
    adapter: Adapter,
    inode: Inode,
    request: LockRequest,
    waits: bool,
) -> Outcome {
    if request.kind == libc::F_UNLCK {
        return adapter.unlock(inode, &request).await;
    }
    adapter.endings_over(inode, adapter.owner(&request)).await?;
    adapter.take(inode, &request, waits).await
}

impl Serving {
    async fn unlock(&self, inode: Inode, request: &LockRequest) -> Outcome {
        let (family, owner) = (family(request), self.owner(request));
        let range = request.start..end(request);
        if family == LockFamily::Record {
            let records = &self.record_locks;
            if records.breaks_too_much(inode, (owner, &range)) {
                return Err(Errno(libc::ENOLCK).into());
            }
            records.gave_back(inode, owner, &range);
        }
        self.locks()?.release(inode, family, (owner, range)).await;
        Ok(Answer::done())
    }

    /// Takes a lock, which its owner has once the kernel has heard the answer.
    async fn take(&self, inode: Inode, request: &LockRequest, waits: bool) -> Outcome {
        let (family, wanted) = (family(request), self.lock(request)?);
        let waiting = if waits { Waiting::Yes } else { Waiting::No };
        let acquired = self
            .locks()?
            .acquire(inode, family, wanted.clone(), waiting);
        let given = acquired.await.map_err(|error| lock_failure(&error))?;
        if family == LockFamily::Record {
            // Its process may have closed the descriptor while it waited; the end of the handle is all that follows then.
            self.record_locks.given(inode, request.handle, wanted);
        }
        // The kernel keeps nothing that others changed before.
        if self.features.changes_elsewhere {
            self.notifier.told().await;
        }
        Ok(Answer::done().or_undo(Undo::Unlock(given)))
    }

    /// Returns when what an owner waits for of a file was given back.
    async fn endings_over(&self, inode: Inode, owner: LockOwner) -> Result<(), Errno> {
        let over = self.endings.over(inode, owner);
        let late = |_| Errno(libc::ENOLCK);
        clock::deadline(ENDING_MAX, over).await.map_err(late)
    }

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

    /// Gives back what belongs to a handle that is gone. `whole`: it had a lock of flock(2) once.
    pub(super) async fn unlock_released(&self, inode: Inode, handle: HandleId, whole: bool) {
        let gone = self.record_locks.released(inode, handle);
        let whole = whole.then(|| (LockFamily::Whole, (self.whole_owner(handle), 0..u64::MAX)));
        let records = gone.into_iter().map(|held| (LockFamily::Record, held));
        let mut held = records.chain(whole).peekable();
        if held.peek().is_none() {
            return;
        }
        let Some(locks) = self.volume.locks() else {
            return;
        };
        let _ending = self.endings.begin(Of::Anybody(inode));
        for (family, held) in held {
            locks.release(inode, family, held).await;
        }
    }
}

impl Adapter {
    /// A process closes a descriptor of a file, and what it has locked of it goes.
    pub(super) fn unlocking(&self, inode: Inode, table: DescriptorTable) -> Unlocking {
        let owner = self.record_owner(table);
        let has_locks = self.volume.locks().is_some();
        Unlocking(has_locks.then(|| Closed {
            ending: self.endings.begin(Of::Owner(inode, owner)),
            adapter: self.clone(),
            inode,
            owner,
        }))
    }
}

/// What a process has locked of a file is given back when this is dropped, at the latest: a signal may end its close, and
/// others may have the file open still.
pub(super) struct Unlocking(Option<Closed>);

struct Closed {
    adapter: Adapter,
    inode: Inode,
    owner: LockOwner,
    /// The next process may be called as this one.
    ending: Ending,
}

impl Unlocking {
    pub(super) async fn unlock(mut self) {
        if let Some(closed) = self.0.take() {
            closed.unlock().await;
        }
    }
}

impl Drop for Unlocking {
    fn drop(&mut self) {
        if let Some(closed) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(closed.unlock());
        }
    }
}

impl Closed {
    async fn unlock(self) {
        let (all, adapter) = (0..u64::MAX, &self.adapter);
        let had = adapter.record_locks.gave_back(self.inode, self.owner, &all);
        if had && let Some(locks) = adapter.volume.locks() {
            let held = (self.owner, all);
            locks.release(self.inode, LockFamily::Record, held).await;
        }
        drop(self.ending);
    }
}

/// What fcntl(2) says of a lock that cannot be had. Logs what fails elsewhere.
fn lock_failure(error: &FsError) -> Errno {
    match error {
        FsError::TimedOut(_) | FsError::Io(_) => {
            warn!(%error, "a file cannot be locked");
            Errno(libc::ENOLCK)
        }
        FsError::LimitReached(_) => Errno(libc::ENOLCK),
        error => errno_of(error),
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
