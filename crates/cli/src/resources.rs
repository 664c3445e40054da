//! What all volumes and doors of a process share: one account of memory, one registry of metrics.

use std::sync::Arc;

use penstock_base::{BufferPool, MemoryBudget, metrics::Registry};

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
        registry.observe(
            "memory_total_bytes",
            "Memory that may be reserved.",
            move || total,
        );
        let (used, peak) = (Arc::clone(&budget), budget);
        registry.observe("memory_used_bytes", "Memory reserved now.", move || {
            used.used()
        });
        registry.observe(
            "memory_peak_bytes",
            "Most memory reserved at once.",
            move || peak.peak(),
        );
        let resident = "Memory that the process occupies.";
        registry.observe("process_resident_bytes", resident, system::resident_bytes);
    }

    /// Parts of files that are on their way to the store.
    pub(crate) fn uploads_in_flight(&self) -> u64 {
        let upload = ("direction", "upload".to_owned());
        self.sum("transfer_parts_in_flight", |labels| {
            labels.contains(&upload)
        })
    }

    /// What is counted under a name, whatever the labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.sum(name, |_| true)
    }

    fn sum(&self, name: &str, wanted: impl Fn(&[(&'static str, String)]) -> bool) -> u64 {
        let samples = self.registry.samples();
        let of_name = samples.iter().filter(|sample| sample.name == name);
        let wanted = of_name.filter(|sample| wanted(&sample.labels));
        wanted.map(|sample| sample.value).sum()
    }
}
