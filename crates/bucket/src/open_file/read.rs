//! Reading one version of a file.

use std::sync::{Arc, PoisonError};

use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_object::ErrorKind;
use penstock_transfer::{ObjectVersion, Reader, Transfer, TransferError};

use crate::{
    core::Core,
    errors::{Purpose, transfer_failure},
    open_file::{FileHandle, View},
};

/// What a handle reads.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The pinned version; `None` if the file was not in the store at that time.
    version: Option<ObjectVersion>,
    /// The view's generation when the version was pinned.
    generation: u64,
    /// Made at the first read.
    reader: Option<Arc<Reader>>,
}

impl Reading {
    /// Pins the newest version.
    pub(super) fn of(view: &View) -> Self {
        Self {
            version: view.version.clone(),
            generation: view.generation,
            reader: None,
        }
    }
}

impl FileHandle {
    /// The reader of the pinned version, or `None` if there is nothing to read.
    fn reader(&self, transfer: &Arc<Transfer>) -> FsResult<Option<Arc<Reader>>> {
        let view = self.file.view();
        if view.dirty {
            return Err(FsError::Busy(
                "the file is being written; close or fsync it first",
            ));
        }
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if reading.generation != view.generation {
            *reading = Reading::of(&view);
        }
        let version = reading.version.clone().ok_or(FsError::Stale)?;
        if version.size == 0 {
            return Ok(None);
        }
        let reader = reading
            .reader
            .get_or_insert_with(|| Arc::new(transfer.reader(version)));
        Ok(Some(Arc::clone(reader)))
    }
}

impl Core {
    /// Reads up to `length` bytes at `offset`.
    pub(crate) async fn read(
        &self,
        handle: &FileHandle,
        offset: u64,
        length: u32,
    ) -> FsResult<Payload> {
        if !handle.access.reads() {
            return Err(FsError::BadHandle);
        }
        let Some(reader) = handle.reader(&self.transfer)? else {
            return Ok(Payload::new());
        };
        let read = reader.read(offset, length).await;
        read.map_err(|error| self.failed_read(handle, &error))
    }

    fn failed_read(&self, handle: &FileHandle, error: &TransferError) -> FsError {
        let changed = |kind| {
            let kinds = [
                ErrorKind::PreconditionFailed,
                ErrorKind::NotFound,
                ErrorKind::InvalidRange,
            ];
            kinds.contains(&kind)
        };
        match error {
            TransferError::Object(error) if changed(error.kind) => {
                self.metrics.stale_reads.increment();
                self.distrust(handle);
                let path = self.namespace.lock().path(handle.file.inode);
                tracing::warn!(
                    "{error}: `{path}` was replaced or removed in the store after it was opened; \
                     open it again to read the new version"
                );
                FsError::Stale
            }
            error => transfer_failure(error, Purpose::Read),
        }
    }

    /// Makes the next open of the handle's file ask the store.
    fn distrust(&self, handle: &FileHandle) {
        if let Ok(node) = self.namespace.lock().node_mut(handle.file.inode) {
            node.distrust(clock::now());
        }
    }
}
