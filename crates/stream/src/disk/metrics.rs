//! What reading objects tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry};

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
        let counter = |name, help| registry.counter(name, help, &[]);
        let (bytes, bytes_help) = ("stream_cache_bytes", "Bytes kept of small objects.");
        Self {
            cache_hits: counter(
                "stream_cache_hits_total",
                "Reads that found their small object in memory.",
            ),
            cache_misses: counter(
                "stream_cache_misses_total",
                "Reads that began to fetch a small object.",
            ),
            shared_gets: counter(
                "stream_shared_gets_total",
                "Reads that waited for an object that was on its way already.",
            ),
            cache_bytes: registry.gauge(bytes, bytes_help, &[]),
            prefetched_objects: counter(
                "stream_prefetched_objects_total",
                "Objects that were fetched before anybody read them.",
            ),
            prefetched_bytes: counter(
                "stream_prefetched_bytes_total",
                "Bytes of the objects that were fetched before anybody read them.",
            ),
            wasted_objects: counter(
                "stream_prefetch_wasted_objects_total",
                "Prefetched objects that were dropped without having been read.",
            ),
            changed_objects: counter(
                "stream_changed_objects_total",
                "Reads that failed because the object is not the one in the snapshot any more.",
            ),
            failed_reads: counter(
                "stream_failed_reads_total",
                "Reads that failed for another reason.",
            ),
        }
    }
}
