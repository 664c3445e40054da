//! The cache as a store around a store.

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::{BufferPool, LocalFile, run_blocking};
use penstock_object::{
    Below, BodySink, ETag, GetOptions, Got, Key, ObjectResult, Store, layers::Layer,
};
use tokio::sync::Semaphore;

use super::{delivery::Delivery, name::VersionName, shared::Shared, version::Version};
use crate::forgetting::{Forgets, Forgetting};

/// Reads that are at the disk at once; others wait, as tasks, for their turn.
const DISK_READS_MAX: usize = 32;

/// A store whose reads of one version, or of what has no other, come from the disk where they can.
#[derive(Debug)]
pub(super) struct CachedStore {
    pub(super) inner: Arc<dyn Store>,
    /// The same, for what is passed on.
    forgetting: Layer<Forgetting<Versions>>,
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<BufferPool>,
    versions: Arc<Versions>,
    pub(super) places: Semaphore,
}

/// What the cache has of one store.
#[derive(Debug)]
struct Versions {
    identity: String,
    shared: Arc<Shared>,
}

impl CachedStore {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        identity: String,
        shared: Arc<Shared>,
        pool: Arc<BufferPool>,
    ) -> Self {
        let versions = Arc::new(Versions {
            identity,
            shared: Arc::clone(&shared),
        });
        Self {
            forgetting: Forgetting::around(Arc::clone(&inner), Arc::clone(&versions)),
            inner,
            shared,
            pool,
            versions,
            places: Semaphore::new(DISK_READS_MAX),
        }
    }
}

impl Forgets for Versions {
    /// None of them is the present one.
    fn forget(&self, key: &Key) {
        let (first, last) = VersionName::all_of(&self.identity, key.as_str());
        run_blocking(|| self.shared.forget(first..=last));
    }
}

#[async_trait]
impl Store for CachedStore {
    fn below(&self) -> Below<'_> {
        Below::Store(&self.forgetting)
    }

    fn local_copy(&self, key: &Key, etag: &ETag) -> Option<Arc<dyn LocalFile>> {
        let version = Version::new(&self.versions.identity, key, Some(etag));
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
        if options.fresh && options.unchanging {
            // What was kept is not what was put there.
            self.versions.forget(key);
        }
        let etag = options.if_match.as_ref();
        if options.fresh || etag.is_none() && !options.unchanging {
            return self.inner.get(key, options, sink).await;
        }
        let version = Version::new(&self.versions.identity, key, etag);
        let delivery = Delivery::new(self, version, sink);
        delivery.run(options.range).await
    }
}
