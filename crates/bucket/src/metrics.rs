//! What a bucket volume counts, and what it says only once per mount.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use penstock_base::metrics::{Counter, Registry};

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
        let counter = |name, help| registry.counter(name, help, &[]);
        let hidden = |reason| {
            let help = "Entries of listings that cannot be shown as files.";
            registry.counter("bucket_hidden_entries_total", help, &[("reason", reason)])
        };
        let lookups = |answer| {
            let help = "Names that were looked up.";
            registry.counter("bucket_lookups_total", help, &[("answer", answer)])
        };
        Self {
            hidden_names: hidden("name"),
            hidden_files: hidden("directory_of_same_name"),
            ignored_changes: counter(
                "bucket_ignored_changes_total",
                "Changes of mode or owner that were accepted without effect.",
            ),
            stale_reads: counter(
                "bucket_stale_reads_total",
                "Reads that failed because the object was replaced or removed.",
            ),
            lookups_remembered: lookups("remembered"),
            lookups_asked: lookups("asked"),
            failed_uploads: counter(
                "bucket_failed_uploads_total",
                "Files that could not be uploaded.",
            ),
            refused_writes: counter(
                "bucket_refused_writes_total",
                "Writes refused because they were not at the end of the file.",
            ),
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
