//! Moves object bytes between a store and memory.
//!
//! - [`Reader`]: reads of one version of one object, with read-ahead where access is sequential.
//! - [`Writer`]: a sequential stream into one object, in one PUT or a multipart upload.
//!
//! Both draw every byte they hold from the [`BufferPool`]'s budget.

mod error;
mod reader;
mod writer;

use std::sync::Arc;

use penstock_base::BufferPool;
use penstock_object::{ETag, Key, PutOptions, Store};

pub use error::{TransferError, TransferResult};
pub use reader::Reader;
pub use writer::{Finished, WriteStart, Writer};

/// One version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object.
    pub key: Key,
    /// Its version.
    pub etag: ETag,
    /// Bytes in that version.
    pub size: u64,
}

/// What readers and writers of one mount share.
#[derive(Debug)]
pub struct Transfer {
    store: Arc<dyn Store>,
    pool: Arc<BufferPool>,
}

impl Transfer {
    /// Moves bytes of `store` through memory of `pool`.
    pub fn new(store: Arc<dyn Store>, pool: Arc<BufferPool>) -> Arc<Self> {
        Arc::new(Self { store, pool })
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The memory.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Opens one version of an object for reading. No request is made yet.
    pub fn reader(self: &Arc<Self>, version: ObjectVersion) -> Reader {
        Reader::new(Arc::clone(self), version)
    }

    /// Begins to write an object. No request is made yet.
    pub fn writer(self: &Arc<Self>, key: Key, start: WriteStart, options: PutOptions) -> Writer {
        Writer::new(Arc::clone(self), key, start, options)
    }
}
