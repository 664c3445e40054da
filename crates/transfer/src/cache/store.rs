//! The cache as a store around a store.

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::{BufferPool, LocalFile, Payload, run_blocking};
use penstock_object::{
    Appended, Below, BodySink, CompleteOptions, CopyOptions, DeleteFailure, ETag, GetOptions, Got,
    Key, ObjectResult, Part, PutOptions, Store, Stored, UploadId,
};
use tokio::sync::Semaphore;

use super::{delivery::Delivery, name::VersionName, shared::Shared, version::Version};

/// Reads that are at the disk at once; others wait, as tasks, for their turn.
const DISK_READS_MAX: usize = 32;

/// A store whose pinned reads come from the disk where they can.
#[derive(Debug)]
pub(super) struct CachedStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<BufferPool>,
    identity: String,
    pub(super) places: Semaphore,
}

impl CachedStore {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        identity: String,
        shared: Arc<Shared>,
        pool: Arc<BufferPool>,
    ) -> Self {
        Self {
            inner,
            shared,
            pool,
            identity,
            places: Semaphore::new(DISK_READS_MAX),
        }
    }

    /// Drops every version of `key`, which was written or may have been: none of them is the
    /// present one.
    fn forget(&self, key: &Key) {
        let (first, last) = VersionName::all_of(&self.identity, key.as_str());
        run_blocking(|| self.shared.forget(first..=last));
    }
}

#[async_trait]
impl Store for CachedStore {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    fn local_copy(&self, key: &Key, etag: &ETag) -> Option<Arc<dyn LocalFile>> {
        let version = Version::new(&self.identity, key, etag);
        let found = run_blocking(|| {
            let entry = self
                .shared
                .find(version.name, |header| version.is_in(header))?;
            entry.is_whole().then_some(entry)
        })?;
        self.shared.metrics.lent.increment();
        Some(found)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        match &options.if_match {
            Some(etag) if !options.fresh => {
                let version = Version::new(&self.identity, key, etag);
                let delivery = Delivery::new(self, version, sink);
                delivery.run(options.range).await
            }
            _ => self.inner.get(key, options, sink).await,
        }
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let stored = self.inner.put(key, body, options).await;
        self.forget(key);
        stored
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let appended = self.inner.append(key, position, body, options).await;
        self.forget(key);
        appended
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let stored = self.inner.copy(source, target, options).await;
        self.forget(target);
        stored
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let deleted = self.inner.delete(key).await;
        self.forget(key);
        deleted
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let deleted = self.inner.delete_many(keys).await;
        keys.iter().for_each(|key| self.forget(key));
        deleted
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let completed = self.inner.complete_upload(key, upload, parts, options);
        let stored = completed.await;
        self.forget(key);
        stored
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let stored = self.inner.put_symlink(key, target, options).await;
        self.forget(key);
        stored
    }
}
