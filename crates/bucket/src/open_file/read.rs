//! Reading one version of a file.
//!
//! All handles of a file read the version that its view names, and reads fail as stale when the
//! object is another one by then. Only as long as nobody has seen anything of that version may the
//! file exchange it for the newest: whoever reads a small file whose attributes were remembered gets
//! its present content.

use std::sync::{Arc, MutexGuard, PoisonError};

use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_transfer::{Reader, Transfer, TransferError};

use crate::{
    core::Core,
    errors::{Purpose, is_outdated, transfer_failure},
    open_file::FileHandle,
};

/// How often a read is begun whose version is exchanged under way.
const ATTEMPTS_MAX: usize = 3;

impl FileHandle {
    fn kept_reader(&self) -> MutexGuard<'_, Option<Arc<Reader>>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader of the file's version, or `None` if there is nothing to read.
    fn reader(&self, transfer: &Arc<Transfer>) -> FsResult<Option<Arc<Reader>>> {
        let view = self.file.view();
        if view.dirty {
            return Err(FsError::Busy(
                "the file is being written; close or fsync it first",
            ));
        }
        let version = view.version.as_ref().ok_or(FsError::Stale)?;
        if version.size == 0 {
            return Ok(None);
        }
        let mut kept = self.kept_reader();
        if let Some(reader) = kept.as_ref().filter(|reader| reader.version() == version) {
            return Ok(Some(Arc::clone(reader)));
        }
        let reader = Arc::new(transfer.reader(version.clone()));
        Ok(Some(Arc::clone(kept.insert(reader))))
    }

    /// Notes that bytes of `reader` are given out. Returns `false` if they must not be, because
    /// the file has another version by now.
    fn give_out(&self, reader: &Reader) -> bool {
        let mut view = self.file.view();
        let is_current = view.version.as_ref() == Some(reader.version());
        view.seen |= is_current;
        is_current
    }
}

impl Core {
    /// Reads up to `length` bytes at `offset`.
    pub(crate) async fn read(
        self: &Arc<Self>,
        handle: &FileHandle,
        offset: u64,
        length: u32,
    ) -> FsResult<Payload> {
        if !handle.access.reads() {
            return Err(FsError::BadHandle);
        }
        for _ in 0..ATTEMPTS_MAX {
            // Seen from before the read on, so that the content is not exchanged under way.
            let see = |_: &_| handle.file.view().seen = true;
            if let Some(staged) = &handle.file.staged
                && staged.look(see).is_ok()
            {
                match self.read_staged(handle, staged, (offset, length)).await? {
                    Some(payload) => return Ok(payload),
                    None => continue,
                }
            }
            let reader = match handle.reader(&self.transfer) {
                // Engaged since the look.
                Err(FsError::Busy(_)) if handle.file.staged.is_some() => continue,
                reader => reader?,
            };
            let Some(reader) = reader else {
                return Ok(Payload::new());
            };
            match reader.read(offset, length).await {
                Ok(payload) if handle.give_out(&reader) => return Ok(payload),
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

    /// Takes the newest version in place of the one of `outdated`, if nobody has seen that.
    async fn exchange(self: &Arc<Self>, handle: &FileHandle, outdated: &Reader) -> bool {
        let file = &handle.file;
        {
            let view = file.view();
            if view.version.as_ref() != Some(outdated.version()) {
                return true;
            }
            if view.is_seen() || !handle.direct {
                return false;
            }
        }
        self.distrust(handle);
        if self.refresh_open(file).await.is_err() {
            return false;
        }
        let tree = self.namespace.lock();
        let taken = file.take_version(tree.version(file.inode)).is_ok();
        taken && file.view().version.as_ref() != Some(outdated.version())
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
