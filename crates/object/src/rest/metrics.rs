//! What a REST store counts.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Registry, table};

/// Counters of [`super::RestStore`].
#[derive(Debug, Clone)]
pub(crate) struct RestMetrics {
    /// Bodies whose checksum was compared with the store's, and was equal.
    pub(crate) verified: Arc<Counter>,
    /// Writes for which the store told no checksum.
    pub(crate) unverified: Arc<Counter>,
    /// Bodies whose checksum differed.
    pub(crate) mismatched: Arc<Counter>,
}

impl RestMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[]);
        Self {
            verified: counter(&table::CHECKSUMS_VERIFIED),
            unverified: counter(&table::CHECKSUMS_MISSING),
            mismatched: counter(&table::CHECKSUMS_MISMATCHED),
        }
    }
}
