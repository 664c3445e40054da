//! What a file system shows of its state, and of what fails while nobody waits for it.
//!
//! Gauges are asked for when somebody exports them. What fails behind the callers is tried again and told in the log alone,
//! so it is counted: an alarm needs a number that grows.

use std::sync::Arc;

use penstock_base::{
    FsError,
    metrics::{Counter, Definition, Registry, table},
};

use crate::{engine::Engine, volume::Parts};

/// How often something failed.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Saving a file.
    pub(crate) saves: Counter,
    /// Uploading an object of the spool.
    pub(crate) uploads: Counter,
    /// Scheduled snapshots and dumps, the trash, collecting.
    pub(crate) tasks: Counter,
    /// Reading bytes that are missing or do not match their checksum.
    pub(crate) damaged: Counter,
}

impl Failures {
    /// A task failed that nobody waits for and that is done again by itself; `what` says what that leaves.
    pub(crate) fn task(&self, error: &FsError, what: &str) {
        tracing::warn!(%error, "{what}; it is tried again");
        self.tasks.increment();
    }
}

/// Registers the metrics of a volume, which show nothing once it is gone.
pub(crate) fn register(registry: &Registry, parts: &Arc<Parts>) {
    let show = |metric: &'static Definition, value: fn(&Parts) -> u64| {
        let parts = Arc::downgrade(parts);
        registry.observe(metric, move || {
            parts.upgrade().map_or(0, |parts| value(&parts))
        });
    };
    show(&table::FILESET_INODES, |parts| parts.held.count() as u64);
    show(&table::FILESET_OPEN_HANDLES, |parts| {
        parts.files.open_handles() as u64
    });
    show(&table::FILESET_UNSAVED_FILES, |parts| {
        parts.files.unsaved().files
    });
    show(&table::FILESET_UNSAVED_BYTES, |parts| {
        parts.files.unsaved().bytes
    });
    show(&table::FILESET_SPOOL_OBJECTS, |parts| {
        parts.objects.on_disk_alone().1
    });
    show(&table::FILESET_SPOOL_BYTES, |parts| {
        parts.objects.on_disk_alone().0
    });
    show(&table::FILESET_INLINED_BYTES, |parts| {
        parts.objects.inlined().0
    });
    show(&table::FILESET_LOG_LAG_BYTES, |parts| {
        parts.engine.lag().bytes
    });
    show(&table::FILESET_LOG_LAG_MICROSECONDS, |parts| {
        u64::try_from(parts.engine.lag().age.as_micros()).unwrap_or(u64::MAX)
    });
    show(&table::FILESET_FAILED_LOG_PARTS, |parts| {
        parts.engine.lag().failures
    });
    show(&table::FILESET_FAILED_SAVES, |parts| {
        parts.failures.saves.value()
    });
    show(&table::FILESET_FAILED_UPLOADS, |parts| {
        parts.failures.uploads.value()
    });
    show(&table::FILESET_FAILED_TASKS, |parts| {
        parts.failures.tasks.value()
    });
    show(&table::FILESET_WRITE_LEASES, |parts| {
        parts.leases().map_or(0, |(_, leases)| leases.held() as u64)
    });
    show(&table::FILESET_RECALLED_WRITE_LEASES, |parts| {
        parts
            .leases()
            .map_or(0, |(_, leases)| leases.recalled.value())
    });
    show(&table::FILESET_DAMAGED_READS, |parts| {
        parts.failures.damaged.value()
    });
}
