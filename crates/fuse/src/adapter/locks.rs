//! Locks of volumes that have some. Of all others the kernel keeps them itself.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_base::FsError;
use penstock_vfs::{HandleId, Inode, Lock, LockFamily, LockMode, LockOwner, Locks, Waiting};
use tokio::runtime::Handle;

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
        let held = (adapter.owner(request.owner), request.start..end(&request));
        locks.release(inode, family, held).await;
    } else {
        let waiting = if waits { Waiting::Yes } else { Waiting::No };
        let wanted = adapter.lock(&request)?;
        let (owner, range) = (wanted.owner, wanted.range.clone());
        if family == LockFamily::Record {
            adapter.record_owners.note(request.handle, request.owner);
        }
        let acquired = locks.acquire(inode, family, wanted, waiting).await;
        acquired.map_err(|error| match error {
            FsError::LimitReached(_) => Errno(libc::ENOLCK),
            error => errno_of(&error),
        })?;
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
        self.lock().entry(handle).or_default().insert(owner);
    }

    /// A process closed a descriptor of the handle.
    pub(super) fn closed(&self, handle: HandleId, owner: DescriptorTable) {
        if let Some(owners) = self.lock().get_mut(&handle) {
            owners.remove(&owner);
        }
    }

    /// The handle is gone: those who are left have gone with it.
    pub(super) fn released(&self, handle: HandleId) -> HashSet<DescriptorTable> {
        self.lock().remove(&handle).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HandleId, HashSet<DescriptorTable>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serving {
    fn locks(&self) -> Result<&dyn Locks, FsError> {
        self.volume
            .locks()
            .ok_or(FsError::Unsupported("this volume has no locks"))
    }

    fn owner(&self, table: DescriptorTable) -> LockOwner {
        LockOwner {
            client: self.client,
            owner: table.0,
        }
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
            owner: self.owner(request.owner),
            process: request.process,
        })
    }

    /// Gives back what a process that closed a file, or an open file that is gone, has locked of it.
    pub(super) async fn unlock(&self, inode: Inode, family: LockFamily, table: DescriptorTable) {
        if let Some(locks) = self.volume.locks() {
            let held = (self.owner(table), 0..u64::MAX);
            locks.release(inode, family, held).await;
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
