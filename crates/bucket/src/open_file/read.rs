//! Reading one version of a file.
//!
//! A handle pins the version that was known when it was opened, and reads fail as stale when the
//! object is another one by then. Only as long as nothing was given out, and the door keeps
//! nothing of what is read, the handle may still exchange the pinned version for the newest:
//! whoever reads a small file whose attributes were remembered gets its present content.

use std::sync::{Arc, MutexGuard, PoisonError};

use penstock_base::{Contents, FsError, FsResult, clock};
use penstock_transfer::{ObjectVersion, Reader, Transfer, TransferError};

use crate::{
    core::Core,
    errors::{Purpose, is_outdated, transfer_failure},
    open_file::{FileHandle, View},
};

/// How often a read is begun whose version is exchanged under way.
const ATTEMPTS_MAX: usize = 3;

/// What a handle reads.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The pinned version; `None` if the file was not in the store at that time.
    version: Option<ObjectVersion>,
    /// The view's generation when the version was pinned.
    generation: u64,
    /// Made at the first read.
    reader: Option<Arc<Reader>>,
    /// Bytes of this version were given out.
    given_out: bool,
}

impl Reading {
    /// Pins the newest version.
    pub(super) fn of(view: &View) -> Self {
        Self::pin(view.version.clone(), view.generation)
    }

    fn pin(version: Option<ObjectVersion>, generation: u64) -> Self {
        Self {
            version,
            generation,
            reader: None,
            given_out: false,
        }
    }

    /// Whether nobody has seen anything of the pinned version, of a handle that is `direct` or not.
    fn may_exchange(&self, direct: bool) -> bool {
        direct && !self.given_out
    }

    fn is_by(&self, reader: &Arc<Reader>) -> bool {
        let current = self.reader.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(current, reader))
    }
}

impl FileHandle {
    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader of the pinned version, or `None` if there is nothing to read.
    fn reader(&self, transfer: &Arc<Transfer>) -> FsResult<Option<Arc<Reader>>> {
        let view = self.file.view();
        if view.dirty {
            return Err(FsError::Busy(
                "the file is being written; close or fsync it first",
            ));
        }
        let mut reading = self.reading();
        if reading.generation != view.generation {
            *reading = Reading::of(&view);
        }
        self.follow(&mut reading, &view)?;
        let version = reading.version.clone().ok_or(FsError::Stale)?;
        if version.size == 0 {
            return Ok(None);
        }
        let reader = reading
            .reader
            .get_or_insert_with(|| Arc::new(transfer.reader_for_kernel(version)));
        Ok(Some(Arc::clone(reader)))
    }

    /// Somebody opened the version of another client meanwhile, upon which the door dropped its pages: those
    /// that it gets from now on are kept for that one.
    fn follow(&self, reading: &mut Reading, view: &View) -> FsResult<()> {
        if self.file.staged.is_some() || reading.version == view.version {
            return Ok(());
        }
        if !reading.may_exchange(self.direct) {
            return Err(FsError::Stale);
        }
        *reading = Reading::of(view);
        Ok(())
    }

    /// Notes that bytes of `reader` are given out. Returns `false` if they must not be, because
    /// the handle reads another version by now.
    fn give_out(&self, reader: &Arc<Reader>) -> bool {
        let mut reading = self.reading();
        let current = reading.is_by(reader);
        reading.given_out |= current;
        current
    }
}

impl Core {
    /// Reads up to `length` bytes at `offset`.
    pub(crate) async fn read(
        self: &Arc<Self>,
        handle: &FileHandle,
        offset: u64,
        length: u32,
    ) -> FsResult<Contents> {
        if !handle.access.reads() {
            return Err(FsError::BadHandle);
        }
        for _ in 0..ATTEMPTS_MAX {
            if let Some(staged) = handle.file.staged.as_ref().filter(|file| file.is_engaged()) {
                match self.read_staged(handle, staged, (offset, length)).await? {
                    Some(payload) => return Ok(payload.into()),
                    None => continue,
                }
            }
            let reader = match handle.reader(&self.transfer) {
                // Engaged since the look.
                Err(FsError::Busy(_)) if handle.file.staged.is_some() => continue,
                reader => reader?,
            };
            let Some(reader) = reader else {
                return Ok(Contents::new());
            };
            match reader.contents(offset, length).await {
                Ok(contents) if handle.give_out(&reader) => return Ok(contents),
                Ok(_) => {}
                Err(error) if is_outdated(&error) => {
                    if !self.exchange(handle, &reader).await {
                        return Err(self.stale(handle, &error));
                    }
                }
                Err(error) => return Err(transfer_failure(&error, Purpose::Read)),
            }
        }
        Err(FsError::Stale)
    }

    /// Pins the newest version in place of the one of `outdated`, if nothing was given out.
    async fn exchange(self: &Arc<Self>, handle: &FileHandle, outdated: &Arc<Reader>) -> bool {
        {
            let reading = handle.reading();
            if !reading.is_by(outdated) {
                return true;
            }
            if !reading.may_exchange(handle.direct) {
                return false;
            }
        }
        let inode = handle.file.inode;
        self.distrust(handle);
        if self.refresh(inode).await.is_err() {
            return false;
        }
        let newest = self.namespace.lock().version(inode);
        if handle.file.staged.is_none() {
            handle.file.take_version(newest.clone());
        }
        let mut reading = handle.reading();
        if !reading.is_by(outdated) {
            return true;
        }
        if !reading.may_exchange(handle.direct) || newest.is_none() || newest == reading.version {
            return false;
        }
        *reading = Reading::pin(newest, reading.generation);
        true
    }

    fn stale(&self, handle: &FileHandle, error: &TransferError) -> FsError {
        self.metrics.stale_reads.increment();
        self.distrust(handle);
        let path = self.namespace.lock().path(handle.file.inode);
        tracing::warn!(
            "{error}: `{path}` was replaced or removed in the store after it was opened; open it \
             again to read the new version"
        );
        FsError::Stale
    }

    /// Makes the next open of the handle's file ask the store.
    fn distrust(&self, handle: &FileHandle) {
        if let Ok(node) = self.namespace.lock().node_mut(handle.file.inode) {
            node.distrust(clock::now());
        }
    }
}
