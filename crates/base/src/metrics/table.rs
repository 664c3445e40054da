//! Every metric, once: docs/metrics.md is made of this.

use super::{Definition, Kind, Unit};

/// Upper bounds of durations: from what a cache takes to what nobody waits for.
const DURATIONS: Kind = Kind::Histogram(&[
    1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000,
]);

const COUNTER: Kind = Kind::Counter;
const GAUGE: Kind = Kind::Gauge;

macro_rules! definitions {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $unit:ident $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $constant: Definition = Definition {
                name: $name,
                kind: $kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// Every definition, in the order of the page.
        pub static ALL: &[&Definition] = &[$(&$constant),*];
    };
}

definitions! {
    MEMORY_TOTAL_BYTES = GAUGE "memory_total_bytes" [] Bytes "Memory that may be reserved.";
    MEMORY_USED_BYTES = GAUGE "memory_used_bytes" [] Bytes "Memory reserved now.";
    MEMORY_PEAK_BYTES = GAUGE "memory_peak_bytes" [] Bytes "Most memory reserved at once.";
    PROCESS_RESIDENT_BYTES = GAUGE "process_resident_bytes" [] Bytes "Memory that the process occupies.";

    FUSE_REQUESTS = COUNTER "fuse_requests_total" ["operation"] Count "Requests answered.";
    FUSE_ERRORS = COUNTER "fuse_errors_total" ["operation"] Count "Requests answered with an error.";
    FUSE_REQUEST_MICROSECONDS = COUNTER "fuse_request_microseconds_total" ["operation"] Microseconds
        "Time from receiving a request to its reply.";
    FUSE_REPLY_BYTES = COUNTER "fuse_reply_bytes_total" ["operation"] Bytes
        "Bytes of file content and listings in replies.";
    FUSE_INTERRUPTS = COUNTER "fuse_interrupts_total" [] Count "Requests whose caller got a signal.";
    FUSE_REQUESTS_WAITING = GAUGE "fuse_requests_waiting" [] Count "Requests that wait for the volume.";
    FUSE_REQUESTS_DEFERRED = COUNTER "fuse_requests_deferred_total" [] Count
        "Requests that were not answered at once and became a task.";
    FUSE_REQUESTS_QUEUED = COUNTER "fuse_requests_queued_total" [] Count
        "Requests that stood in line, because too many were under way.";
    FUSE_WRITES_SHORTENED = COUNTER "fuse_writes_shortened_total" [] Count
        "Writes of which only the beginning was handled, for want of memory.";
    FUSE_WRITES_SPILLED = COUNTER "fuse_writes_spilled_total" [] Count
        "Writes that waited on the disk, for want of memory.";

    NFS_CALLS = COUNTER "nfs_calls_total" ["procedure"] Count "Calls of NFS answered.";
    NFS_ERRORS = COUNTER "nfs_errors_total" ["procedure"] Count "Calls of NFS answered with an error.";
    NFS_CALL_MICROSECONDS = COUNTER "nfs_call_microseconds_total" ["procedure"] Microseconds
        "Time from receiving a call to having its answer.";
    NFS_CONTENT_BYTES = COUNTER "nfs_content_bytes_total" ["procedure"] Bytes
        "Bytes of file content read and written through NFS.";
    NFS_CONNECTIONS = GAUGE "nfs_connections" [] Count "Connections of NFS clients.";
    NFS_WAITING_LOCKS = GAUGE "nfs_waiting_locks" [] Count "Locks that NFS clients wait for.";
    NFS_GRANTED_CALLS = COUNTER "nfs_granted_calls_total" ["outcome"] Count
        "Calls to NFS clients that a lock for which they waited is theirs: `taken`, `refused` by the client, or `failed`.";
    NFS_REFUSED = COUNTER "nfs_refused_total" [] Count
        "Calls and connections of NFS clients that were refused before anything was looked at.";
    NFS_REPEATED = COUNTER "nfs_repeated_total" [] Count
        "Calls of NFS that came again and were given the first answer.";
    NFS_BACKEND_OPERATIONS = COUNTER "nfs_backend_operations_total" [] Count
        "Operations that calls of NFS cost, as types of mount targets count them.";
    NFS_THROTTLED = COUNTER "nfs_throttled_total" [] Count
        "Calls of NFS that waited since the type of the mount target delivers no more.";
    NFS_THROTTLED_MICROSECONDS = COUNTER "nfs_throttled_microseconds_total" [] Microseconds
        "Time that calls of NFS waited for that.";

    BUCKET_INODES = GAUGE "bucket_inodes" [] Count "Files and directories that somebody holds.";
    BUCKET_IDLE_DIRECTORIES = GAUGE "bucket_idle_directories" [] Count
        "Directories that nobody holds and that stay for what they remember.";
    BUCKET_REMEMBERED_NAMES = GAUGE "bucket_remembered_names" [] Count
        "Names remembered though nobody holds them.";
    BUCKET_UNSAVED_FILES = GAUGE "bucket_unsaved_files" [] Count
        "Open files whose content is not in the store yet.";
    BUCKET_UNSAVED_BYTES = GAUGE "bucket_unsaved_bytes" [] Bytes
        "Bytes of open files whose content is not in the store yet.";
    BUCKET_OPEN_HANDLES = GAUGE "bucket_open_handles" [] Count "Open files and directories.";
    BUCKET_STAGED_BYTES = GAUGE "bucket_staged_bytes" [] Bytes "Bytes in the staging directory.";
    BUCKET_RECOVERING_FILES = GAUGE "bucket_recovering_files" [] Count
        "Files that an earlier mount left unsaved and that are not saved yet.";
    BUCKET_RECOVERING_BYTES = GAUGE "bucket_recovering_bytes" [] Bytes
        "Bytes of these files that the store lacks.";
    BUCKET_RECOVERED_FILES = GAUGE "bucket_recovered_files" [] Count
        "Files that an earlier mount left unsaved and this one saved.";
    BUCKET_HIDDEN_ENTRIES = COUNTER "bucket_hidden_entries_total" ["reason"] Count
        "Entries of listings that cannot be shown as files.";
    BUCKET_LOOKUPS = COUNTER "bucket_lookups_total" ["answer"] Count "Names that were looked up.";
    BUCKET_IGNORED_CHANGES = COUNTER "bucket_ignored_changes_total" [] Count
        "Changes of mode or owner that were accepted without effect.";
    BUCKET_STALE_READS = COUNTER "bucket_stale_reads_total" [] Count
        "Reads that failed because the object was replaced or removed.";
    BUCKET_FAILED_UPLOADS = COUNTER "bucket_failed_uploads_total" [] Count
        "Files that could not be uploaded.";
    BUCKET_REFUSED_WRITES = COUNTER "bucket_refused_writes_total" [] Count
        "Writes refused because they were not at the end of the file.";

    FILESET_INODES = GAUGE "fileset_inodes" [] Count "Files and directories of a fileset that somebody holds.";
    FILESET_OPEN_HANDLES = GAUGE "fileset_open_handles" [] Count "Open files of a fileset.";
    FILESET_UNSAVED_FILES = GAUGE "fileset_unsaved_files" [] Count
        "Files of which something written is in memory alone.";
    FILESET_UNSAVED_BYTES = GAUGE "fileset_unsaved_bytes" [] Bytes "Bytes written that are in memory alone.";
    FILESET_SPOOL_OBJECTS = GAUGE "fileset_spool_objects" [] Count
        "Objects that are on this machine's disk and not in the bucket yet.";
    FILESET_SPOOL_BYTES = GAUGE "fileset_spool_bytes" [] Bytes "Bytes of these objects.";
    FILESET_INLINED_BYTES = GAUGE "fileset_inlined_bytes" [] Bytes
        "Bytes of files that are in the log alone, which are brought into objects of their own.";
    FILESET_LOG_LAG_BYTES = GAUGE "fileset_log_lag_bytes" [] Bytes
        "Bytes of the log of metadata that the bucket lacks, where it has the log.";
    FILESET_LOG_LAG_MICROSECONDS = GAUGE "fileset_log_lag_microseconds" [] Microseconds
        "How long the oldest change of metadata has waited that the bucket lacks, where it has the log.";
    FILESET_FAILED_LOG_PARTS = COUNTER "fileset_failed_log_parts_total" [] Count
        "Parts of the log that the bucket did not take, which are sent again.";
    FILESET_FAILED_SAVES = COUNTER "fileset_failed_saves_total" [] Count
        "Saves of files that failed; what was written is kept and saved again.";
    FILESET_FAILED_UPLOADS = COUNTER "fileset_failed_uploads_total" [] Count
        "Uploads of what small files left on this machine's disk or in the log that failed and are made again.";
    FILESET_FAILED_TASKS = COUNTER "fileset_failed_tasks_total" [] Count
        "Scheduled snapshots and dumps, emptyings of the trash and collections that failed and are made again.";
    FILESET_WRITE_LEASES = GAUGE "fileset_write_leases" [] Count
        "Files that this machine may write to without asking others, with strict coherence.";
    FILESET_RECALLED_WRITE_LEASES = COUNTER "fileset_recalled_write_leases_total" [] Count
        "Write leases that were given back because another machine looked at the file or changed it.";
    FILESET_DAMAGED_READS = COUNTER "fileset_damaged_reads_total" [] Count
        "Reads that failed because bytes in the bucket are missing or do not match their checksum.";

    STREAM_CACHE_HITS = COUNTER "stream_cache_hits_total" [] Count
        "Reads that found their small object in memory.";
    STREAM_CACHE_MISSES = COUNTER "stream_cache_misses_total" [] Count
        "Reads that began to fetch a small object.";
    STREAM_SHARED_GETS = COUNTER "stream_shared_gets_total" [] Count
        "Reads that waited for an object that was on its way already.";
    STREAM_CACHE_BYTES = GAUGE "stream_cache_bytes" [] Bytes "Bytes kept of small objects.";
    STREAM_PREFETCHED_OBJECTS = COUNTER "stream_prefetched_objects_total" [] Count
        "Objects that were fetched before anybody read them.";
    STREAM_PREFETCHED_BYTES = COUNTER "stream_prefetched_bytes_total" [] Bytes
        "Bytes of the objects that were fetched before anybody read them.";
    STREAM_PREFETCH_WASTED_OBJECTS = COUNTER "stream_prefetch_wasted_objects_total" [] Count
        "Prefetched objects that were dropped without having been read.";
    STREAM_CHANGED_OBJECTS = COUNTER "stream_changed_objects_total" [] Count
        "Reads that failed because the object is not the one in the snapshot any more.";
    STREAM_FAILED_READS = COUNTER "stream_failed_reads_total" [] Count
        "Reads that failed for another reason.";

    TRANSFER_PREFETCHED_BYTES = COUNTER "transfer_prefetched_bytes_total" [] Bytes
        "Bytes asked for before anybody read them.";
    TRANSFER_PREFETCH_DROPPED_BYTES = COUNTER "transfer_prefetch_dropped_bytes_total" [] Bytes
        "Prefetched bytes that were dropped without having been read.";
    TRANSFER_WINDOW_BYTES = GAUGE "transfer_window_bytes" [] Bytes
        "Bytes that all sequential streams want ahead of their readers.";
    TRANSFER_PARTS_IN_FLIGHT = GAUGE "transfer_parts_in_flight" ["direction"] Count
        "Parts that are being received, uploaded or copied.";
    TRANSFER_MEMORY_WAITS = COUNTER "transfer_memory_waits_total" ["direction"] Count
        "Reads and writes that had to wait for memory.";

    CACHE_READS = COUNTER "cache_reads_total" ["outcome"] Count
        "Reads of pinned versions: hits asked the store for nothing.";
    CACHE_LENT = COUNTER "cache_lent_total" [] Count
        "Opens for which the kernel may read the cached file by itself.";
    CACHE_READ_BYTES = COUNTER "cache_read_bytes_total" [] Bytes "Bytes read from the disk cache.";
    CACHE_WRITTEN_BYTES = COUNTER "cache_written_bytes_total" [] Bytes "Bytes written to it.";
    CACHE_SKIPPED_BYTES = COUNTER "cache_skipped_bytes_total" [] Bytes
        "Bytes that were not cached because disk, memory or room was short.";
    CACHE_EVICTED_BYTES = COUNTER "cache_evicted_bytes_total" [] Bytes
        "Bytes that made room for others.";
    CACHE_EVICTED_OBJECTS = COUNTER "cache_evicted_objects_total" [] Count
        "Versions that made room for others.";
    CACHE_CORRUPT_BLOCKS = COUNTER "cache_corrupt_blocks_total" [] Count
        "Blocks that did not match their checksum and were fetched again.";
    CACHE_DISK_ERRORS = COUNTER "cache_disk_errors_total" [] Count
        "Writes to the cache that the disk refused.";
    CACHE_WAITING_BYTES = GAUGE "cache_waiting_bytes" [] Bytes
        "Bytes in memory that are about to be written to it.";
    CACHE_USED_BYTES = GAUGE "cache_used_bytes" [] Bytes "Bytes that the cache occupies.";
    CACHE_LIMIT_BYTES = GAUGE "cache_limit_bytes" [] Bytes "Bytes that it may occupy.";
    CACHE_OBJECTS = GAUGE "cache_objects" [] Count "Versions of objects that it has.";

    MEMORY_CACHE_READS = COUNTER "memory_cache_reads_total" ["outcome"] Count
        "Short ranges of a fileset's objects that were in memory or on their way (hit), and that were not (miss).";
    MEMORY_CACHE_AHEAD_BYTES = COUNTER "memory_cache_ahead_bytes_total" [] Bytes
        "Bytes fetched behind such a range, for who reads on.";
    MEMORY_CACHE_USELESS_BYTES = COUNTER "memory_cache_useless_bytes_total" [] Bytes
        "Bytes of those that were dropped and that nobody had asked for.";

    OBJECT_OPERATIONS = COUNTER "object_operations_total" ["operation", "outcome"] Count
        "Operations on the object store by outcome, retries not counted.";
    OBJECT_OPERATION_MICROSECONDS = COUNTER "object_operation_microseconds_total" ["operation"] Microseconds
        "Time spent in operations on the object store, retries included.";
    OBJECT_OPERATION_DURATION = DURATIONS "object_operation_duration_microseconds" ["operation"] Microseconds
        "How long operations on the object store took, retries included.";
    OBJECT_OPERATIONS_IN_FLIGHT = GAUGE "object_operations_in_flight" [] Count
        "Operations on the object store under way.";
    OBJECT_SENT_BYTES = COUNTER "object_sent_bytes_total" [] Bytes
        "Bytes of objects written to the store.";
    OBJECT_RECEIVED_BYTES = COUNTER "object_received_bytes_total" [] Bytes
        "Bytes of objects read from the store.";
    OBJECT_RETRIES = COUNTER "object_retries_total" [] Count
        "Requests to the object store that were repeated.";
    OBJECT_RESUMED_READS = COUNTER "object_resumed_reads_total" [] Count
        "Reads that went on where a body was cut.";
    OBJECT_READ_ENDPOINT_BYPASSED = COUNTER "object_read_endpoint_bypassed_total" [] Count
        "Reads that the main endpoint answered in place of the read endpoint.";
    CHECKSUMS_VERIFIED = COUNTER "checksums_verified_total" [] Count
        "Bodies whose checksum was compared with the store's and was equal.";
    CHECKSUMS_MISSING = COUNTER "checksums_missing_total" [] Count
        "Writes for which the store told no checksum to compare with.";
    CHECKSUMS_MISMATCHED = COUNTER "checksums_mismatched_total" [] Count
        "Bodies whose checksum differed from the store's.";
    HTTP_CONNECTIONS_OPENED = COUNTER "http_connections_opened_total" [] Count "Connections opened.";
    HTTP_CONNECTIONS_REUSED = COUNTER "http_connections_reused_total" [] Count
        "Requests sent on a connection that was open already.";
    HTTP_CONNECTIONS_REPLACED = COUNTER "http_connections_replaced_total" [] Count
        "Idle connections that were found dead and replaced.";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_tell_unit_and_kind() {
        let names: HashSet<_> = ALL.iter().map(|definition| definition.name).collect();
        assert_eq!(names.len(), ALL.len());
        for definition in ALL {
            let Definition {
                name, kind, unit, ..
            } = definition;
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            let stem = name.strip_suffix("_total").unwrap_or(name);
            assert!(stem.ends_with(unit.word()), "{name}");
            assert!(definition.help.ends_with('.'), "{name}");
        }
    }
}
