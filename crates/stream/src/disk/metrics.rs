//! What reading objects tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry, table};

/// Counters of one [`super::DataPath`].
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Reads that found the object in memory.
    pub(crate) cache_hits: Arc<Counter>,
    /// Reads that began a GET of a small object.
    pub(crate) cache_misses: Arc<Counter>,
    /// Reads that waited for a GET that was on its way already.
    pub(crate) shared_gets: Arc<Counter>,
    /// Bytes that are kept.
    pub(crate) cache_bytes: Arc<Gauge>,
    /// Objects that were fetched ahead.
    pub(crate) prefetched_objects: Arc<Counter>,
    /// Bytes of those.
    pub(crate) prefetched_bytes: Arc<Counter>,
    /// Those of them that went away without having been read.
    pub(crate) wasted_objects: Arc<Counter>,
    /// Reads of objects that are not what the snapshot saw.
    pub(crate) changed_objects: Arc<Counter>,
    /// Reads that failed for another reason.
    pub(crate) failed_reads: Arc<Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[]);
        Self {
            cache_hits: counter(&table::STREAM_CACHE_HITS),
            cache_misses: counter(&table::STREAM_CACHE_MISSES),
            shared_gets: counter(&table::STREAM_SHARED_GETS),
            cache_bytes: registry.gauge(&table::STREAM_CACHE_BYTES, &[]),
            prefetched_objects: counter(&table::STREAM_PREFETCHED_OBJECTS),
            prefetched_bytes: counter(&table::STREAM_PREFETCHED_BYTES),
            wasted_objects: counter(&table::STREAM_PREFETCH_WASTED_OBJECTS),
            changed_objects: counter(&table::STREAM_CHANGED_OBJECTS),
            failed_reads: counter(&table::STREAM_FAILED_READS),
        }
    }
}
