//! The objects of a file system in its bucket.
//!
//! Between its PUT and the operation that refers to it an object is *uncommitted*: nothing in the metadata says that it
//! is needed, or one of the files in it came and went already while others are on their way. Who stores something
//! holds an [`Uncommitted`] until its operation is made, and nobody deletes what is held. Who wants to delete asks
//! [`Objects::uncommitted`] *before* it looks at the metadata: an object that is not held then is referred to by
//! then, or never will be.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult, Mutex, Payload, random};
use penstock_object::{DELETE_MANY_MAX, ETag, Key, PutOptions};
use penstock_transfer::{Grains, ObjectVersion, Transfer};

use super::{ObjectId, pack::Pack};
use crate::{
    errors::{object_failure, transfer_failure},
    schema::{Extent, GRAIN, Stored, damaged},
};

/// Objects that are held.
type Held = Arc<Mutex<HashSet<ObjectId>>>;

/// An object to which the metadata does not refer yet. It is not deleted as long as somebody has this.
#[derive(Debug)]
pub(crate) struct Uncommitted {
    object: ObjectId,
    held: Held,
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        self.held.lock().remove(&self.object);
    }
}

/// A run that is in the bucket.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) chunk: u64,
    pub(crate) extent: Extent,
    /// Until the metadata refers to it.
    pub(super) _object: Arc<Uncommitted>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Objects {
    transfer: Arc<Transfer>,
    writer: u64,
    last: AtomicU64,
    held: Held,
}

impl Objects {
    /// The objects behind `transfer`; new ones are those of a new writer.
    pub(crate) fn new(transfer: Arc<Transfer>) -> Self {
        Self {
            transfer,
            writer: random::number(),
            last: AtomicU64::new(0),
            held: Held::default(),
        }
    }

    /// Stores a pack as an object, and returns where its runs are.
    pub(super) async fn put(&self, pack: &Pack) -> FsResult<Vec<Placed>> {
        let object = self.new_object();
        // Summed up before they are sent: what happens to them on the way is noticed.
        let extents = pack.extents(object.object);
        let store = self.transfer.store();
        store
            .put(&key(object.object)?, pack.payload(), PutOptions::default())
            .await
            .map_err(|error| object_failure(&error))?;
        let object = Arc::new(object);
        let placed = extents.into_iter().map(|(chunk, extent)| Placed {
            chunk,
            extent,
            _object: Arc::clone(&object),
        });
        Ok(placed.collect())
    }

    fn new_object(&self) -> Uncommitted {
        let object = ObjectId {
            writer: self.writer,
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
        };
        self.held.lock().insert(object);
        Uncommitted {
            object,
            held: Arc::clone(&self.held),
        }
    }

    /// Objects that must not be deleted whatever the metadata says. Asked for before looking there.
    pub(crate) fn uncommitted(&self) -> HashSet<ObjectId> {
        self.held.lock().clone()
    }

    /// Receives a range of a run, counted from the beginning of the run.
    pub(crate) async fn fetch(
        &self,
        stored: &Stored,
        range: std::ops::Range<u32>,
    ) -> FsResult<Payload> {
        let version = version(stored)?;
        let start = u64::from(stored.offset) + u64::from(range.start);
        let length = u64::from(range.end - range.start);
        let memory = self.transfer.read_memory(Transfer::cost(length)).await;
        let memory = memory.map_err(|error| transfer_failure(&error))?;
        let fetched = self.transfer.fetch(version, start..start + length, memory);
        fetched.await.map_err(|error| transfer_failure(&error))
    }

    /// Deletes objects. Those that could not be are returned.
    pub(crate) async fn delete(&self, objects: &[ObjectId]) -> FsResult<Vec<ObjectId>> {
        let mut kept = Vec::new();
        for some in objects.chunks(DELETE_MANY_MAX) {
            let keys = some.iter().map(|object| key(*object));
            let keys = keys.collect::<FsResult<Vec<_>>>()?;
            let failed = self.transfer.store().delete_many(&keys).await;
            let failed = failed.map_err(|error| object_failure(&error))?;
            kept.extend(
                failed
                    .iter()
                    .filter_map(|one| ObjectId::of_key(one.key.as_str())),
            );
        }
        Ok(kept)
    }

    /// The way to the bucket.
    pub(crate) fn transfer(&self) -> &Arc<Transfer> {
        &self.transfer
    }
}

/// Where the bytes of an extent lie, which begin at `offset` of their file, and what they are compared with.
pub(crate) fn saved_extent(offset: u64, extent: &Extent) -> FsResult<penstock_transfer::Extent> {
    let stored = &extent.stored;
    let end = extent.skip.checked_add(extent.length);
    if extent.length == 0 || end.is_none_or(|end| end > stored.length) {
        return Err(damaged("an extent"));
    }
    let run = u64::from(stored.offset);
    Ok(penstock_transfer::Extent {
        range: offset..offset + u64::from(extent.length),
        object: Arc::new(version(stored)?),
        at: run + u64::from(extent.skip),
        grains: Some(Grains {
            run: run..run + u64::from(stored.length),
            size: u64::from(GRAIN),
            checksums: stored.checksums.as_slice().into(),
        }),
    })
}

/// Objects are never changed: no tag is needed to know which version it is.
fn version(stored: &Stored) -> FsResult<ObjectVersion> {
    Ok(ObjectVersion {
        key: key(stored.object)?,
        etag: ETag::new(""),
        size: u64::from(stored.object_length),
    })
}

fn key(object: ObjectId) -> FsResult<Key> {
    Key::new(object.key()).map_err(|_| FsError::NameTooLong)
}
