//! A store whose objects are encrypted: whoever has the key sees plaintext, with its sizes and ranges; the store below has
//! objects of the format that `frames` describes.
//!
//! What the store below can see: names, sizes, times, and which ranges are read. Sizes that it tells in listings and HEADs are
//! believed until bytes are read.

mod frames;
mod keys;
mod sink;

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::{Payload, run_blocking};
use tokio::sync::{Semaphore, SemaphorePermit};

pub use frames::{FRAME_PLAIN, plain_length, sealed_length};
pub use keys::{DataKey, KEY_LENGTH, NoKey, NoRandom, UnwrapError, UserKey, WrappedKey};

use crate::{
    Ability, Below, BodySink, Capabilities, DeleteFailure, ErrorKind, GetOptions, Got, HeadOptions,
    Key, ListOptions, ListPage, ListedObject, ObjectError, ObjectInfo, ObjectResult, Operation,
    PutOptions, Store, Stored,
};
use sink::{Unsealing, broken, plain_info};

/// What memory for bodies is counted in.
const MEMORY_UNIT: u64 = 1 << 10;

/// Seals what is written to a store, and opens what is read.
///
/// What needs several requests for an object, or one for two (parts, appends, copies, links), fails with `Unsupported`.
#[derive(Debug)]
pub struct Sealed {
    inner: Arc<dyn Store>,
    key: DataKey,
    /// Without and with the knowledge that writes are refused where something is.
    capabilities: [Capabilities; 2],
    /// Memory for bodies that are being written: each is there a second time, sealed.
    memory: Semaphore,
    memory_units: u32,
}

impl Sealed {
    /// `inner` as whoever has `key` sees it. Bodies that are being written take `memory` bytes at most, beside what
    /// their writers hold; one that is larger than that is alone. It waits for no memory but this, so that writers who
    /// wait for each other's memory are not waited for.
    pub fn new(inner: Arc<dyn Store>, key: DataKey, memory: u64) -> Self {
        let capabilities = [false, true].map(|write_if_absent| Capabilities {
            append: false,
            symlinks: false,
            write_if_absent,
            ..inner.capabilities().clone()
        });
        let memory_units = (memory / MEMORY_UNIT).clamp(1, Semaphore::MAX_PERMITS as u64);
        let memory_units = u32::try_from(memory_units).unwrap_or(u32::MAX);
        Self {
            inner,
            key,
            capabilities,
            memory: Semaphore::new(memory_units as usize),
            memory_units,
        }
    }

    /// Memory for the sealed form of a body.
    async fn room(&self, body: &Payload) -> Option<SemaphorePermit<'_>> {
        let units = sealed_length(body.len() as u64).div_ceil(MEMORY_UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // It is never closed.
        self.memory
            .acquire_many(units.min(self.memory_units))
            .await
            .ok()
    }

    fn sealed(&self, key: &Key, body: &Payload) -> ObjectResult<Payload> {
        let sealed = run_blocking(|| frames::seal(&self.key, key.as_str(), body));
        let sealed = sealed.map_err(|error| {
            ObjectError::new(ErrorKind::Unavailable, Operation::Put, error.to_string()).about(key)
        })?;
        Ok(Payload::from(sealed))
    }
}

/// What no body becomes has no size of plaintext; reading it fails.
fn listed(object: ListedObject) -> ListedObject {
    ListedObject {
        size: plain_length(object.size).unwrap_or(0),
        ..object
    }
}

#[async_trait]
impl Store for Sealed {
    fn below(&self) -> Below<'_> {
        Below::Service(self.capabilities())
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities[usize::from(self.inner.capabilities().write_if_absent)]
    }

    fn abilities(&self) -> Vec<Ability> {
        self.inner.abilities()
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let info = self.inner.head(key, options).await?;
        let size = plain_length(info.size).ok_or_else(|| broken(key, Operation::Head))?;
        Ok(plain_info(info, size))
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let wanted = options.range.clone();
        let options = GetOptions {
            range: options.range.as_ref().map(frames::covering),
            ..options
        };
        let mut sink = Unsealing::new(sink, &self.key, (key, wanted));
        let got = self.inner.get(key, options, &mut sink).await;
        sink.finish(got)
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let _room = self.room(&body).await;
        let sealed = self.sealed(key, &body)?;
        drop(body);
        let stored = self.inner.put(key, sealed, options).await?;
        Ok(Stored {
            checksum: None,
            ..stored
        })
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.inner.delete(key).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        self.inner.delete_many(keys).await
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let page = self.inner.list(options).await?;
        Ok(ListPage {
            objects: page.objects.into_iter().map(listed).collect(),
            ..page
        })
    }
}
