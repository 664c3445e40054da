//! What moving bytes tells the operator.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Gauge, Registry, table};

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
            prefetched_bytes: registry.counter(&table::TRANSFER_PREFETCHED_BYTES, &[]),
            prefetch_dropped_bytes: registry.counter(&table::TRANSFER_PREFETCH_DROPPED_BYTES, &[]),
            window_bytes: registry.gauge(&table::TRANSFER_WINDOW_BYTES, &[]),
            gets_in_flight: in_flight(registry, "get"),
            uploads_in_flight: in_flight(registry, "upload"),
            read_memory_waits: memory_waits(registry, "read"),
            write_memory_waits: memory_waits(registry, "write"),
        }
    }
}

fn in_flight(registry: &Registry, direction: &str) -> Arc<Gauge> {
    registry.gauge(
        &table::TRANSFER_PARTS_IN_FLIGHT,
        &[("direction", direction)],
    )
}

fn memory_waits(registry: &Registry, direction: &str) -> Arc<Counter> {
    registry.counter(&table::TRANSFER_MEMORY_WAITS, &[("direction", direction)])
}
