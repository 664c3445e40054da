//! What moving bytes tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry};

/// Counters of one [`crate::Transfer`].
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Bytes asked for before anybody read them.
    pub(crate) prefetched_bytes: Arc<Counter>,
    /// Bytes of those that were dropped without having been read.
    pub(crate) prefetch_dropped_bytes: Arc<Counter>,
    /// Bytes that all sequential streams together want ahead of their readers.
    pub(crate) window_bytes: Arc<Gauge>,
    /// GETs on their way.
    pub(crate) gets_in_flight: Arc<Gauge>,
    /// Parts being uploaded or copied.
    pub(crate) uploads_in_flight: Arc<Gauge>,
    /// Reads that had to wait for memory.
    pub(crate) read_memory_waits: Arc<Counter>,
    /// Writes that had to wait for memory.
    pub(crate) write_memory_waits: Arc<Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Self {
        Self {
            prefetched_bytes: registry.counter(
                "transfer_prefetched_bytes_total",
                "Bytes asked for before anybody read them.",
                &[],
            ),
            prefetch_dropped_bytes: registry.counter(
                "transfer_prefetch_dropped_bytes_total",
                "Prefetched bytes that were dropped without having been read.",
                &[],
            ),
            window_bytes: registry.gauge(
                "transfer_window_bytes",
                "Bytes that all sequential streams want ahead of their readers.",
                &[],
            ),
            gets_in_flight: in_flight(registry, "get"),
            uploads_in_flight: in_flight(registry, "upload"),
            read_memory_waits: memory_waits(registry, "read"),
            write_memory_waits: memory_waits(registry, "write"),
        }
    }
}

fn in_flight(registry: &Registry, direction: &str) -> Arc<Gauge> {
    registry.gauge(
        "transfer_parts_in_flight",
        "Parts that are being received, uploaded or copied.",
        &[("direction", direction)],
    )
}

fn memory_waits(registry: &Registry, direction: &str) -> Arc<Counter> {
    registry.counter(
        "transfer_memory_waits_total",
        "Reads and writes that had to wait for memory.",
        &[("direction", direction)],
    )
}
