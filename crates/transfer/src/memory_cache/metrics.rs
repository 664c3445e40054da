//! What a cache in memory tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Registry, table};

/// Counters of one cache.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) hits: Arc<Counter>,
    pub(super) misses: Arc<Counter>,
    pub(super) ahead_bytes: Arc<Counter>,
    pub(super) useless_bytes: Arc<Counter>,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Arc<Self> {
        let reads = |outcome| registry.counter(&table::MEMORY_CACHE_READS, &[("outcome", outcome)]);
        let counter = |metric| registry.counter(metric, &[]);
        Arc::new(Self {
            hits: reads("hit"),
            misses: reads("miss"),
            ahead_bytes: counter(&table::MEMORY_CACHE_AHEAD_BYTES),
            useless_bytes: counter(&table::MEMORY_CACHE_USELESS_BYTES),
        })
    }
}
