//! The options of ossfs 2.0 up to 2.0.10, in its own order.

use super::{ForeignOption, Meaning, convert::*, switch, value};
use crate::options::table;

use Meaning::{Granted, Is, Nothing, Own};

const BUDGET: &str = "one memory budget serves everything";
const CACHE: &str = "the memory budget decides how much is cached";
const DIRECTORY: &str = "directories are listed afresh after attr_timeout";
const DISK: &str = "there is no cache on disk";
const HDFS: &str = "OSS-HDFS is not spoken";
const KERNEL_TTL: &str = "the kernel believes what the mount believes, see attr_timeout";
const LOG_ROTATION: &str = "the log file is rotated at a fixed size, or by logrotate and SIGHUP";
const PAGES: &str = "listings come in pages of 1000";
const PREFETCH: &str = "read-ahead grows with bandwidth and latency within the memory budget";
const RANDOM_WRITES: &str = "files are written from front to back; random writes are refused";
const REFRESH: &str = "credentials are refreshed before they expire";
const RUNTIME: &str = "threads follow the number of processors";
const STREAMS: &str = "sequential streams are recognised from their second read";

/// The table.
pub(super) static OPTIONS: &[ForeignOption] = &[
    // General
    value("conf", "", Own("file of flags")),
    value("c", "", Own("file of flags")),
    value("flagfile", "", Own("file of flags")),
    switch(
        "d",
        "false",
        Own("stay in the foreground and log at level debug"),
    ),
    switch("f", "false", Is(&table::FOREGROUND, same)),
    switch("nonempty", "false", Is(&table::NONEMPTY, same)),
    value("total_mem_limit", "0", Is(&table::MEMORY, ossfs2_memory)),
    value("total_rw_mem_ratio", "0.6", Nothing(BUDGET)),
    // File system
    switch("ro", "false", Is(&table::READ_ONLY, same)),
    value("uid", "", Is(&table::UID, same)),
    value("gid", "", Is(&table::GID, same)),
    value("dir_mode", "0777", Is(&table::DIR_MODE, same)),
    value("file_mode", "0777", Is(&table::FILE_MODE, same)),
    value(
        "fuse_threads",
        "128",
        Nothing("requests that wait hold no thread"),
    ),
    switch(
        "readdirplus",
        "true",
        Granted("listings always carry attributes"),
    ),
    switch("ignore_fsync", "true", Is(&table::FSYNC, inverted)),
    switch(
        "allow_mark_dir_stale_recursively",
        "false",
        Nothing(DIRECTORY),
    ),
    switch(
        "allow_rename_dir",
        "true",
        Is(&table::RENAME_LIMIT, rename_directories),
    ),
    value(
        "rename_dir_limit",
        "2000000",
        Is(&table::RENAME_LIMIT, same),
    ),
    switch("allow_other", "true", Is(&table::ALLOW_OTHER, same)),
    value("seq_read_detect_count", "3", Nothing(STREAMS)),
    switch("enable_symlink", "false", Is(&table::SYMLINKS, same)),
    switch(
        "sync_upload",
        "true",
        Granted("closing a file always waits for its upload"),
    ),
    // Bucket
    value("oss_endpoint", "", Is(&table::ENDPOINT, nonempty)),
    value("oss_bucket", "", Own("the bucket")),
    value("oss_bucket_prefix", "", Own("the prefix in the bucket")),
    value("oss_region", "", Is(&table::REGION, nonempty)),
    // Credentials
    value("oss_access_key_id", "", Is(&table::ACCESS_KEY_ID, nonempty)),
    value(
        "oss_access_key_secret",
        "",
        Is(&table::ACCESS_KEY_SECRET, nonempty),
    ),
    value("ram_role", "", Is(&table::RAM_ROLE, nonempty)),
    value(
        "credential_process",
        "",
        Is(&table::CREDENTIAL_PROCESS, nonempty),
    ),
    value("credential_refresh_interval", "0", Nothing(REFRESH)),
    switch("credential_refresh_backoff", "false", Nothing(REFRESH)),
    // Caching
    value("attr_timeout", "60", Is(&table::ATTR_TIMEOUT, seconds)),
    value(
        "negative_timeout",
        "0",
        Is(&table::NEGATIVE_TIMEOUT, seconds),
    ),
    value("fuse_attr_timeout", "-1", Nothing(KERNEL_TTL)),
    value("fuse_entry_timeout", "-1", Nothing(KERNEL_TTL)),
    value("kernel_readdir_cache_timeout", "0", Nothing(DIRECTORY)),
    switch("close_to_open", "false", Is(&table::CLOSE_TO_OPEN, same)),
    value("inode_cache_eviction_threshold", "0", Nothing(CACHE)),
    value("inode_cache_eviction_interval_ms", "30000", Nothing(CACHE)),
    value("max_inode_cache_count", "0", Nothing(CACHE)),
    value(
        "oss_negative_cache_timeout",
        "0",
        Is(&table::NEGATIVE_TIMEOUT, seconds_if_positive),
    ),
    value("oss_negative_cache_size", "10000", Nothing(CACHE)),
    value("cache_type", "standard", Nothing(CACHE)),
    value("memory_data_cache_size", "0", Nothing(CACHE)),
    value("disk_data_cache_dir", "", Nothing(DISK)),
    value("disk_data_cache_size", "0", Nothing(DISK)),
    value("disk_data_cache_io_engine", "psync", Nothing(DISK)),
    value("libaio_vcpu_count", "4", Nothing(DISK)),
    value("disk_available_space", "1073741824", Nothing(DISK)),
    value("disk_data_cache_max_file_size", "-1", Nothing(DISK)),
    // OSS client
    value(
        "upload_buffer_size",
        "8388608",
        Is(&table::PART_SIZE, part_size),
    ),
    value(
        "upload_concurrency",
        "64",
        Is(&table::UPLOAD_CONCURRENCY, same),
    ),
    value(
        "upload_copy_concurrency",
        "64",
        Nothing("copies follow the limit of requests"),
    ),
    value("prefetch_concurrency", "256", Nothing(PREFETCH)),
    value("prefetch_concurrency_per_file", "64", Nothing(PREFETCH)),
    value(
        "prefetch_chunk_size",
        "8388608",
        Is(&table::READ_PART_SIZE, part_size),
    ),
    value("prefetch_chunks", "0", Nothing(PREFETCH)),
    value(
        "min_reserved_buffer_size_per_file",
        "1048576",
        Nothing(BUDGET),
    ),
    switch("share_fd_read_buffer", "true", Granted(PREFETCH)),
    switch(
        "enable_appendable_object",
        "false",
        Is(&table::APPENDABLE, same),
    ),
    value(
        "appendable_object_autoswitch_threshold",
        "0",
        Nothing("objects keep their kind"),
    ),
    switch("enable_crc64", "true", Is(&table::CHECKSUM, checksum)),
    value("oss_vcpu_count", "8", Nothing(RUNTIME)),
    switch("use_list_obj_v2", "true", Granted(PAGES)),
    value("max_list_ret_count", "100", Nothing(PAGES)),
    value(
        "oss_request_timeout_ms",
        "60000",
        Is(&table::RETRY_TIMEOUT, milliseconds),
    ),
    value(
        "bind_ips",
        "",
        Nothing("the system chooses the local address"),
    ),
    switch(
        "set_mime_for_rename_dst",
        "false",
        Nothing("a renamed object keeps its media type"),
    ),
    switch(
        "use_auth_cache",
        "false",
        Nothing("every request is signed"),
    ),
    value(
        "rename_dir_concurrency",
        "128",
        Nothing("copies follow the limit of requests"),
    ),
    switch("enable_transmission_control", "true", Granted(PREFETCH)),
    value("tc_max_latency_threshold_us", "5000000", Nothing(PREFETCH)),
    value("http_proxy", "", Is(&table::PROXY, nonempty)),
    switch("path_style", "false", Is(&table::ADDRESSING, path_style)),
    switch("enable_ipv6", "true", Nothing("the resolver decides")),
    switch(
        "auto_create_bucket",
        "false",
        Nothing("the bucket must exist"),
    ),
    value("agentic_bucket", "", Nothing("the bucket must exist")),
    value(
        "async_task_limit",
        "1000",
        Nothing("every queue has a limit of its own"),
    ),
    // Random writes
    value("temp_dir", "", Nothing(RANDOM_WRITES)),
    value("random_write_chunk_size", "2097152", Nothing(RANDOM_WRITES)),
    value(
        "random_write_max_file_size",
        "107374182400",
        Nothing(RANDOM_WRITES),
    ),
    value("temp_dir_free_bytes", "1073741824", Nothing(RANDOM_WRITES)),
    value("temp_dir_free_percent", "0", Nothing(RANDOM_WRITES)),
    // Logging
    value(
        "log_dir",
        "/tmp/ossfs2/",
        Own("directory of the log file; /dev/stdout logs to standard error"),
    ),
    value("log_level", "info", Is(&table::LOG_LEVEL, same)),
    value("log_file_max_size", "67108864", Nothing(LOG_ROTATION)),
    value("log_file_max_count", "8", Nothing(LOG_ROTATION)),
    // Advanced
    switch("enable_photon_logs", "false", Nothing("there is one log")),
    switch(
        "skip_trim_options",
        "false",
        Nothing("values are taken as they are"),
    ),
    value("metrics_port", "0", Own("port of metrics-address")),
    value("metrics_ip", "127.0.0.1", Own("address of metrics-address")),
    switch(
        "enable_test_signal_handler",
        "false",
        Nothing("there is no test handler"),
    ),
    switch(
        "enable_admin_server",
        "true",
        Granted("the control socket is always there"),
    ),
    value(
        "fuse_device_fd",
        "-1",
        Nothing("/dev/fuse is opened by the mount itself"),
    ),
    switch(
        "default_permissions",
        "false",
        Granted("permissions are always checked"),
    ),
    switch("enable_xattr", "false", Nothing(HDFS)),
    switch("hdfs_set_owner_on_create", "false", Nothing(HDFS)),
    value("oss_hdfs_client_options", "", Nothing(HDFS)),
];
