//! The options of ossfs 1.91, in groups of its own.

use super::{ForeignOption, Meaning, convert::*, switch, value};
use crate::options::table;

use Meaning::{Granted, Is, Nothing, Own, Refused};

const DISK: &str = "nothing is staged on disk";
const FEATURES: &str = "what the store can do is known from its dialect";
const LISTING: &str = "listings carry attributes and ask for no single object";
const METADATA: &str = "modes and owners are the same for every file";
const NETWORK: &str = "names and sessions are cached by the system and per connection";
const PREFETCH: &str = "read-ahead grows with bandwidth and latency within the memory budget";
const STAT_CACHE: &str = "the memory budget decides how much is cached";

/// The table.
pub(super) static OPTIONS: &[ForeignOption] = &[
    // Bucket and endpoint
    value("url", "", Is(&table::ENDPOINT, endpoint_http)),
    value("host", "", Is(&table::ENDPOINT, endpoint_http)),
    value("bucket", "", Own("the bucket")),
    value(
        "servicepath",
        "/",
        Nothing("the endpoint's URL may hold a path"),
    ),
    value("endpoint", "", Is(&table::REGION, nonempty)),
    value("region", "", Is(&table::REGION, nonempty)),
    switch(
        "sigv1",
        "true",
        Granted("version 1 is used when no region is given"),
    ),
    switch(
        "sigv4",
        "false",
        Own("signature version 4, which a region selects"),
    ),
    value(
        "cloudbox_id",
        "",
        Refused("CloudBox endpoints are not supported"),
    ),
    switch(
        "use_path_request_style",
        "false",
        Is(&table::ADDRESSING, path_style),
    ),
    switch("listobjectsv2", "true", Granted(LISTING)),
    value("list_object_max_keys", "1000", Nothing(LISTING)),
    switch("requester_pays", "false", Is(&table::REQUESTER_PAYS, same)),
    switch(
        "noxmlns",
        "false",
        Nothing("names are read with and without a namespace"),
    ),
    switch("noua", "false", Nothing("requests name the program")),
    switch("public_bucket", "0", Is(&table::ANONYMOUS, same)),
    // Credentials
    value("passwd_file", "", Is(&table::PASSWORD_FILE, nonempty)),
    switch("ram_role", "", Own("ram-role")),
    switch(
        "disable_imdsv2",
        "false",
        Nothing("the metadata service is asked for a token first"),
    ),
    value(
        "credential_process",
        "",
        Is(&table::CREDENTIAL_PROCESS, nonempty),
    ),
    value(
        "credlib",
        "",
        Refused("shared libraries are not loaded; use credential_process"),
    ),
    value(
        "credlib_opts",
        "",
        Refused("shared libraries are not loaded; use credential_process"),
    ),
    switch(
        "use_session_token",
        "false",
        Granted("a session token is used when there is one"),
    ),
    value(
        "accessKeyId",
        "",
        Refused("put credentials into a passwd_file or the environment"),
    ),
    value(
        "secretAccessKey",
        "",
        Refused("put credentials into a passwd_file or the environment"),
    ),
    // Attributes of objects
    value(
        "default_acl",
        "default",
        Nothing("new objects follow the bucket"),
    ),
    value(
        "storage_class",
        "Standard",
        Nothing("the bucket's default class is used"),
    ),
    switch(
        "use_sse",
        "",
        Nothing("the bucket's default encryption is used"),
    ),
    value(
        "mime",
        "/etc/mime.types",
        Nothing("the media type is left to the store"),
    ),
    value(
        "ahbe_conf",
        "",
        Nothing("no headers are added by file name"),
    ),
    switch(
        "enable_content_md5",
        "false",
        Granted("uploads are checked by CRC-64"),
    ),
    switch(
        "enable_unsigned_payload",
        "false",
        Nothing("uploads are checked by CRC-64"),
    ),
    value(
        "upload_traffic_limit",
        "0",
        Nothing("bandwidth is not limited per request"),
    ),
    value(
        "download_traffic_limit",
        "0",
        Nothing("bandwidth is not limited per request"),
    ),
    switch(
        "use_xattr",
        "0",
        Nothing("there are no extended attributes"),
    ),
    // Ownership and permissions
    value("uid", "", Is(&table::UID, same)),
    value("gid", "", Is(&table::GID, same)),
    value(
        "umask",
        "0000",
        Own("file-mode and dir-mode: what the mask leaves of 0777"),
    ),
    value(
        "mp_umask",
        "0000",
        Nothing("the mount point looks like every directory"),
    ),
    switch("allow_other", "false", Is(&table::ALLOW_OTHER, same)),
    switch("nonempty", "false", Is(&table::NONEMPTY, same)),
    switch("complement_stat", "true", Granted(METADATA)),
    switch(
        "notsup_compat_dir",
        "false",
        Nothing("directories need no objects of their own"),
    ),
    switch(
        "use_wtf8",
        "false",
        Nothing("names are bytes and stay as they are"),
    ),
    // Cache of attributes
    value("max_stat_cache_size", "100000", Nothing(STAT_CACHE)),
    value("stat_cache_expire", "900", Own("attr-timeout")),
    value("stat_cache_interval_expire", "900", Own("attr-timeout")),
    switch(
        "enable_noobj_cache",
        "true",
        Granted("see negative-timeout"),
    ),
    switch("disable_noobj_cache", "false", Own("negative-timeout of 0")),
    switch(
        "skip_clean_statcache_on_ro_flush",
        "false",
        Nothing(STAT_CACHE),
    ),
    switch(
        "simulate_mtime_ns_with_crc64",
        "false",
        Granted("the store's own version decides"),
    ),
    // Disk
    value("tmpdir", "/tmp", Nothing(DISK)),
    value("use_cache", "", Nothing(DISK)),
    switch("check_cache_dir_exist", "false", Nothing(DISK)),
    switch("del_cache", "false", Nothing(DISK)),
    value("ensure_diskfree", "0", Nothing(DISK)),
    value("free_space_ratio", "0", Nothing(DISK)),
    switch("set_check_cache_sigusr1", "", Nothing(DISK)),
    value("fake_diskfree", "", Nothing(DISK)),
    // Transfer
    value("parallel_count", "5", Is(&table::UPLOAD_CONCURRENCY, same)),
    value("parallel_upload", "5", Is(&table::UPLOAD_CONCURRENCY, same)),
    value("multireq_max", "20", Nothing(LISTING)),
    value("multipart_size", "10", Is(&table::PART_SIZE, mebibytes)),
    value(
        "multipart_copy_size",
        "512",
        Nothing("copies are cut as the store asks"),
    ),
    value(
        "multipart_threshold",
        "25",
        Nothing("a file of one part is sent in one request"),
    ),
    value(
        "singlepart_copy_limit",
        "512",
        Nothing("copies are cut as the store asks"),
    ),
    value(
        "max_dirty_data",
        "5120",
        Nothing("bytes are sent as they are written"),
    ),
    switch("nomultipart", "false", Nothing(FEATURES)),
    switch("nomixupload", "false", Nothing(FEATURES)),
    switch("nocopyapi", "false", Nothing(FEATURES)),
    switch("norenameapi", "false", Nothing(FEATURES)),
    switch("noshallowcopyapi", "false", Nothing(FEATURES)),
    value("retries", "5", Nothing("see retry-timeout")),
    value("connect_timeout", "300", Own("connect-timeout")),
    value(
        "readwrite_timeout",
        "120",
        Is(&table::REQUEST_TIMEOUT, seconds),
    ),
    switch(
        "no_check_certificate",
        "false",
        Refused("name the authority with -o ca_file=FILE"),
    ),
    value(
        "ssl_verify_hostname",
        "1",
        Nothing("host names are always verified"),
    ),
    switch("nodnscache", "false", Nothing(NETWORK)),
    switch("nosscache", "false", Nothing(NETWORK)),
    value(
        "cipher_suites",
        "",
        Nothing("only strong suites are offered"),
    ),
    // Listing
    switch("readdir_optimize", "false", Granted(LISTING)),
    value("readdir_check_size", "0", Nothing(LISTING)),
    switch(
        "symlink_in_meta",
        "false",
        Nothing("links are the store's own"),
    ),
    // Reading without staging
    switch("direct_read", "false", Granted("reads never touch a disk")),
    value("direct_read_prefetch_thread", "64", Nothing(PREFETCH)),
    value(
        "direct_read_chunk_size",
        "4",
        Is(&table::READ_PART_SIZE, mebibytes),
    ),
    value("direct_read_prefetch_chunks", "32", Nothing(PREFETCH)),
    value("direct_read_prefetch_limit", "1024", Nothing(PREFETCH)),
    value("direct_read_backward_chunks", "1", Nothing(PREFETCH)),
    value("direct_read_local_file_cache_size_mb", "0", Nothing(DISK)),
    // Logging
    value("logfile", "", Is(&table::LOG_FILE, nonempty)),
    value("dbglevel", "err", Is(&table::LOG_LEVEL, ossfs_level)),
    switch("curldbg", "", Is(&table::LOG_LEVEL, |_| same("debug"))),
    switch(
        "no_time_stamp_msg",
        "false",
        Nothing("messages always have a time"),
    ),
    value(
        "instance_name",
        "",
        Nothing("each mount has a log file of its own"),
    ),
    // Creation of buckets
    switch(
        "auto_create_bucket",
        "false",
        Nothing("the bucket must exist"),
    ),
    value("agentic_bucket", "", Nothing("the bucket must exist")),
    // Words for FUSE that are not ours by name
    switch("ro", "false", Is(&table::READ_ONLY, same)),
    switch("noexec", "false", Is(&table::NOEXEC, same)),
    switch(
        "kernel_cache",
        "false",
        Granted("cached pages live as long as the object's version"),
    ),
    switch(
        "auto_cache",
        "false",
        Granted("cached pages live as long as the object's version"),
    ),
    switch("big_writes", "false", Granted("writes are always big")),
    value("max_background", "", Is(&table::MAX_BACKGROUND, same)),
    value("ca_file", "", Is(&table::CA_FILE, nonempty)),
];
