//! What a bucket volume counts, and what it says only once per mount.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use penstock_base::metrics::{Counter, Registry, table};

/// Why an entry of a listing is not shown, as `bucket_hidden_entries_total` says it: no file can have the name, or a
/// directory has it.
pub const HIDDEN_REASONS: [&str; 2] = ["name", "directory_of_same_name"];

/// Counters of one mount.
#[derive(Debug)]
pub(crate) struct BucketMetrics {
    /// Keys that no file name can express.
    pub(crate) hidden_names: Arc<Counter>,
    /// Objects `a` hidden by a directory `a/`.
    pub(crate) hidden_files: Arc<Counter>,
    /// Changes of mode or owner that were accepted without effect.
    pub(crate) ignored_changes: Arc<Counter>,
    /// Reads of an object that is another version now.
    pub(crate) stale_reads: Arc<Counter>,
    /// Lookups answered from memory.
    pub(crate) lookups_remembered: Arc<Counter>,
    /// Lookups that asked the store.
    pub(crate) lookups_asked: Arc<Counter>,
    /// Files whose upload failed.
    pub(crate) failed_uploads: Arc<Counter>,
    /// Writes refused because they were not at the end of the file.
    pub(crate) refused_writes: Arc<Counter>,
}

impl BucketMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[]);
        let hidden =
            |reason| registry.counter(&table::BUCKET_HIDDEN_ENTRIES, &[("reason", reason)]);
        let lookups = |answer| registry.counter(&table::BUCKET_LOOKUPS, &[("answer", answer)]);
        Self {
            hidden_names: hidden(HIDDEN_REASONS[0]),
            hidden_files: hidden(HIDDEN_REASONS[1]),
            ignored_changes: counter(&table::BUCKET_IGNORED_CHANGES),
            stale_reads: counter(&table::BUCKET_STALE_READS),
            lookups_remembered: lookups("remembered"),
            lookups_asked: lookups("asked"),
            failed_uploads: counter(&table::BUCKET_FAILED_UPLOADS),
            refused_writes: counter(&table::BUCKET_REFUSED_WRITES),
        }
    }
}

/// Something worth saying once per mount: the first time it is met, not the thousandth.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Whether this is the first call.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// What was said already.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) hidden_name: Once,
    pub(crate) hidden_file: Once,
    pub(crate) untold_names: Once,
    pub(crate) ignored_change: Once,
    pub(crate) ignored_sync: Once,
    pub(crate) refused_write: Once,
    pub(crate) staging_full: Once,
    pub(crate) undescribed: Once,
    pub(crate) unlistable: Once,
    pub(crate) unordered: Once,
}
