//! What all volumes and doors of a process share: one account of memory, one registry of metrics.

use std::sync::Arc;

use penstock_base::{
    BufferPool, MemoryBudget,
    metrics::{Registry, table},
};

use crate::system;

/// The memory and the metrics of a process, however many volumes and doors it has.
#[derive(Debug, Clone)]
pub(crate) struct Resources {
    pub pool: Arc<BufferPool>,
    pub registry: Arc<Registry>,
}

impl Resources {
    /// `bytes` of memory, and metrics that so far tell how much of it is used.
    pub(crate) fn new(bytes: u64) -> Self {
        let resources = Self {
            pool: BufferPool::new(MemoryBudget::new(bytes)),
            registry: Registry::new(),
        };
        resources.observe_memory();
        resources
    }

    fn observe_memory(&self) {
        let (registry, budget) = (&self.registry, Arc::clone(self.pool.budget()));
        let total = budget.total();
        registry.observe(&table::MEMORY_TOTAL_BYTES, move || total);
        let (used, peak) = (Arc::clone(&budget), budget);
        registry.observe(&table::MEMORY_USED_BYTES, move || used.used());
        registry.observe(&table::MEMORY_PEAK_BYTES, move || peak.peak());
        registry.observe(&table::PROCESS_RESIDENT_BYTES, system::resident_bytes);
    }
}
