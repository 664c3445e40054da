//! Dumps in the bucket of a file system, as objects `dump/NAME`; a name is when it was begun, so that names sort.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_object::{ETag, ErrorKind, GetOptions, Key, ListOptions, PutOptions, Store};
use penstock_transfer::{Transfer, WriteStart, Writer};

use super::{
    DUMPS,
    format::{Sink, Source},
};
use crate::errors::{object_failure, transfer_failure};

/// Bytes of a dump that are read at once.
const READ: u64 = 4 << 20;

/// A dump in the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is called.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
}

/// All dumps that are whole, the oldest first.
pub async fn list(store: &dyn Store) -> FsResult<Vec<Kept>> {
    let mut options = ListOptions {
        prefix: DUMPS.to_owned(),
        ..ListOptions::default()
    };
    let mut found = Vec::new();
    loop {
        let page = store.list(options.clone()).await;
        let page = page.map_err(|error| object_failure(&error))?;
        found.extend(page.objects.into_iter().map(|object| Kept {
            name: object.key[DUMPS.len()..].to_owned(),
            bytes: object.size,
        }));
        if page.continuation.is_none() {
            return Ok(found);
        }
        options.continuation = page.continuation;
    }
}

/// Removes a dump.
pub async fn remove(store: &dyn Store, name: &str) -> FsResult<()> {
    let removed = store.delete(&key(name)?).await;
    removed.map_err(|error| object_failure(&error))
}

fn key(name: &str) -> FsResult<Key> {
    Key::new(format!("{DUMPS}{name}"))
        .map_err(|_| FsError::InvalidArgument("this is no name for a dump"))
}

/// A dump on its way into the bucket, which has it when [`DumpObject::finish`] returns. One that is dropped leaves nothing.
pub struct DumpObject(Writer);

impl DumpObject {
    /// Begins one.
    pub fn create(transfer: &Arc<Transfer>, name: &str) -> FsResult<Self> {
        let writer = transfer.writer(key(name)?, WriteStart::Empty, PutOptions::default());
        Ok(Self(writer))
    }

    /// All was written.
    pub async fn finish(self) -> FsResult<()> {
        let finished = self.0.finish().await;
        finished.map(drop).map_err(|error| transfer_failure(&error))
    }
}

#[async_trait]
impl Sink for DumpObject {
    async fn write(&mut self, bytes: Bytes) -> FsResult<()> {
        let written = self.0.write(bytes).await;
        written.map_err(|error| transfer_failure(&error))
    }
}

/// A dump that is read from the bucket, one and the same version of it.
pub struct DumpObjectSource {
    store: Arc<dyn Store>,
    key: Key,
    at: u64,
    /// Of the version, and how long it is, once something was read.
    version: Option<(ETag, u64)>,
}

impl DumpObjectSource {
    /// Of this name.
    pub fn open(store: &Arc<dyn Store>, name: &str) -> FsResult<Self> {
        Ok(Self {
            store: Arc::clone(store),
            key: key(name)?,
            at: 0,
            version: None,
        })
    }
}

#[async_trait]
impl Source for DumpObjectSource {
    async fn read(&mut self) -> FsResult<Option<Bytes>> {
        if self
            .version
            .as_ref()
            .is_some_and(|(_, size)| self.at >= *size)
        {
            return Ok(None);
        }
        let options = GetOptions {
            range: Some(self.at..self.at + READ),
            if_match: self.version.as_ref().map(|(etag, _)| etag.clone()),
            ..GetOptions::default()
        };
        let mut bytes = Vec::new();
        let got = self.store.get(&self.key, options, &mut bytes).await;
        let got = got.map_err(|error| match error.kind {
            ErrorKind::NotFound => FsError::NotFound,
            _ => object_failure(&error),
        })?;
        self.at += bytes.len() as u64;
        self.version = Some((got.info.etag, got.info.size));
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}
