//! The objects of a file system in its bucket.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use penstock_base::{FsError, FsResult, Payload, random};
use penstock_object::{DELETE_MANY_MAX, ETag, Key, PutOptions};
use penstock_transfer::{ObjectVersion, Transfer};
use tokio::sync::Semaphore;

use super::{ObjectId, Pack};
use crate::{
    errors::{object_failure, transfer_failure},
    schema::{Extent, Stored},
};

/// PUTs of one file system under way at once.
const PUTS_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Objects {
    transfer: Arc<Transfer>,
    writer: u64,
    last: AtomicU64,
    puts: Semaphore,
}

impl Objects {
    /// The objects behind `transfer`; new ones are those of a new writer.
    pub(crate) fn new(transfer: Arc<Transfer>) -> Self {
        Self {
            transfer,
            writer: random::number(),
            last: AtomicU64::new(0),
            puts: Semaphore::new(PUTS_MAX),
        }
    }

    /// Stores a pack as an object, and returns what is in which chunk.
    pub(crate) async fn put(&self, pack: &Pack) -> FsResult<Vec<(u64, Extent)>> {
        let object = ObjectId {
            writer: self.writer,
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let _turn = self.puts.acquire().await;
        // Summed up before they are sent: what happens to them on the way is noticed.
        let extents = pack.extents(object);
        let store = self.transfer.store();
        store
            .put(&key(object)?, pack.payload(), PutOptions::default())
            .await
            .map_err(|error| object_failure(&error))?;
        Ok(extents)
    }

    /// Receives a range of a run, counted from the beginning of the run.
    pub(super) async fn fetch(
        &self,
        stored: &Stored,
        range: std::ops::Range<u32>,
    ) -> FsResult<Payload> {
        let version = ObjectVersion {
            key: key(stored.object)?,
            etag: ETag::new(""),
            size: u64::from(stored.object_length),
        };
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

fn key(object: ObjectId) -> FsResult<Key> {
    Key::new(object.key()).map_err(|_| FsError::NameTooLong)
}
