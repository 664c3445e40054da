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
    errors::{Purpose, is_outdated, transfer_failure},
    files::Files,
    open_file::{Body, FileHandle},
};

/// How often a read is begun whose version is exchanged under way.
const ATTEMPTS_MAX: usize = 3;

impl FileHandle {
    fn kept_reader(&self) -> MutexGuard<'_, Option<Arc<Reader>>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader of the file's version, or `None` if there is nothing to read.
    pub(crate) fn reader(&self, transfer: &Arc<Transfer>) -> FsResult<Option<Arc<Reader>>> {
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

impl Files {
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
            let read = match &handle.file.body {
                Body::Streamed(_) => {
                    let reader = handle.reader(&self.mount.transfer)?;
                    self.read_version(handle, reader, offset, length).await?
                }
                Body::Staged(body) => self.read_staged(handle, body, offset, length).await?,
            };
            if let Some(payload) = read {
                return Ok(payload);
            }
        }
        Err(FsError::Stale)
    }

    /// Reads from the version of `reader`; nothing if there is none. `None` if the file exchanged its version
    /// under way.
    pub(crate) async fn read_version(
        self: &Arc<Self>,
        handle: &FileHandle,
        reader: Option<Arc<Reader>>,
        offset: u64,
        length: u32,
    ) -> FsResult<Option<Payload>> {
        let Some(reader) = reader else {
            return Ok(Some(Payload::new()));
        };
        match reader.read(offset, length).await {
            Ok(payload) => Ok(handle.give_out(&reader).then_some(payload)),
            Err(error) if is_outdated(&error) => match self.exchange(handle, &reader).await {
                true => Ok(None),
                false => Err(self.stale(handle, &error)),
            },
            Err(error) => Err(transfer_failure(&error, Purpose::Read)),
        }
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
        if self.lookups.refresh_open(file).await.is_err() {
            return false;
        }
        let tree = self.mount.namespace.lock();
        let taken = file.take_version(tree.version(file.inode)).is_ok();
        taken && file.view().version.as_ref() != Some(outdated.version())
    }

    fn stale(&self, handle: &FileHandle, error: &TransferError) -> FsError {
        self.mount.metrics.stale_reads.increment();
        self.distrust(handle);
        let path = self.mount.namespace.lock().path(handle.file.inode);
        tracing::warn!(
            "{error}: `{path}` was replaced or removed in the store after it was opened; open it \
             again to read the new version"
        );
        FsError::Stale
    }

    /// Makes the next open of the handle's file ask the store.
    fn distrust(&self, handle: &FileHandle) {
        if let Ok(node) = self.mount.namespace.lock().node_mut(handle.file.inode) {
            node.distrust(clock::now());
        }
    }
}
