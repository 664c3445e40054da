//! What every store must do, done by a store behind a cache in memory.

use std::sync::Arc;

use penstock_base::{MIB, MemoryBudget};
use penstock_object::Store;
use penstock_object_testing::{MemoryStore, conformance_tests};
use penstock_transfer::MemoryCache;

async fn open() -> ((), Arc<dyn Store>) {
    let budget = MemoryBudget::new(64 * MIB);
    let store = MemoryCache::around(Arc::new(MemoryStore::new()), &budget);
    ((), store)
}

conformance_tests!(open);
