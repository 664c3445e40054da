//! What a cache tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry, table};

/// Counters of one cache.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) hits: Arc<Counter>,
    pub(super) misses: Arc<Counter>,
    pub(super) lent: Arc<Counter>,
    pub(super) read_bytes: Arc<Counter>,
    pub(super) written_bytes: Arc<Counter>,
    pub(super) skipped_bytes: Arc<Counter>,
    pub(super) evicted_bytes: Arc<Counter>,
    pub(super) evicted_objects: Arc<Counter>,
    pub(super) corrupt_blocks: Arc<Counter>,
    pub(super) disk_errors: Arc<Counter>,
    pub(super) waiting_bytes: Arc<Gauge>,
    pub(super) used_bytes: Arc<Gauge>,
    pub(super) limit_bytes: Arc<Gauge>,
    pub(super) objects: Arc<Gauge>,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let reads = |outcome| registry.counter(&table::CACHE_READS, &[("outcome", outcome)]);
        let counter = |metric| registry.counter(metric, &[]);
        let gauge = |metric| registry.gauge(metric, &[]);
        Self {
            hits: reads("hit"),
            misses: reads("miss"),
            lent: counter(&table::CACHE_LENT),
            read_bytes: counter(&table::CACHE_READ_BYTES),
            written_bytes: counter(&table::CACHE_WRITTEN_BYTES),
            skipped_bytes: counter(&table::CACHE_SKIPPED_BYTES),
            evicted_bytes: counter(&table::CACHE_EVICTED_BYTES),
            evicted_objects: counter(&table::CACHE_EVICTED_OBJECTS),
            corrupt_blocks: counter(&table::CACHE_CORRUPT_BLOCKS),
            disk_errors: counter(&table::CACHE_DISK_ERRORS),
            waiting_bytes: gauge(&table::CACHE_WAITING_BYTES),
            used_bytes: gauge(&table::CACHE_USED_BYTES),
            limit_bytes: gauge(&table::CACHE_LIMIT_BYTES),
            objects: gauge(&table::CACHE_OBJECTS),
        }
    }
}
