//! What a REST store counts.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Registry};

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
        let counter = |name, help| registry.counter(name, help, &[]);
        Self {
            verified: counter(
                "checksums_verified_total",
                "Bodies whose checksum was compared with the store's and was equal.",
            ),
            unverified: counter(
                "checksums_missing_total",
                "Writes for which the store told no checksum to compare with.",
            ),
            mismatched: counter(
                "checksums_mismatched_total",
                "Bodies whose checksum differed from the store's.",
            ),
        }
    }
}
