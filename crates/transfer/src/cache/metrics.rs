//! What a cache tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry};

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
        let reads = |outcome| {
            registry.counter(
                "cache_reads_total",
                "Reads of pinned versions: hits asked the store for nothing.",
                &[("outcome", outcome)],
            )
        };
        let counter = |name, help| registry.counter(name, help, &[]);
        let gauge = |name, help| registry.gauge(name, help, &[]);
        Self {
            hits: reads("hit"),
            misses: reads("miss"),
            lent: counter(
                "cache_lent_total",
                "Opens for which the kernel may read the cached file by itself.",
            ),
            read_bytes: counter("cache_read_bytes_total", "Bytes read from the disk cache."),
            written_bytes: counter("cache_written_bytes_total", "Bytes written to it."),
            skipped_bytes: counter(
                "cache_skipped_bytes_total",
                "Bytes that were not cached because disk, memory or room was short.",
            ),
            evicted_bytes: counter(
                "cache_evicted_bytes_total",
                "Bytes that made room for others.",
            ),
            evicted_objects: counter(
                "cache_evicted_objects_total",
                "Versions that made room for others.",
            ),
            corrupt_blocks: counter(
                "cache_corrupt_blocks_total",
                "Blocks that did not match their checksum and were fetched again.",
            ),
            disk_errors: counter(
                "cache_disk_errors_total",
                "Writes to the cache that the disk refused.",
            ),
            waiting_bytes: gauge(
                "cache_waiting_bytes",
                "Bytes in memory that are about to be written to it.",
            ),
            used_bytes: gauge("cache_used_bytes", "Bytes that the cache occupies."),
            limit_bytes: gauge("cache_limit_bytes", "Bytes that it may occupy."),
            objects: gauge("cache_objects", "Versions of objects that it has."),
        }
    }
}
