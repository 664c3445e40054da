//! What every store must do, done by a store behind a disk cache.

use std::{sync::Arc, time::Duration};

use penstock_base::{BufferPool, MIB, MemoryBudget, metrics::Registry};
use penstock_object::Store;
use penstock_object_testing::{MemoryStore, conformance_tests};
use penstock_transfer::{CacheSettings, DiskCache};

async fn open() -> ((tempfile::TempDir, Arc<DiskCache>), Arc<dyn Store>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pool = BufferPool::new(MemoryBudget::new(64 * MIB));
    let settings = CacheSettings {
        directory: directory.path().to_owned(),
        size: Some(64 * MIB),
        ..CacheSettings::default()
    };
    let cache = DiskCache::open(&settings, &pool, &Registry::new()).expect("a free directory");
    assert!(cache.wait_until_ready(Duration::from_secs(60)));
    let store = cache.around(Arc::new(MemoryStore::new()), "memory");
    ((directory, cache), store)
}

conformance_tests!(open);
