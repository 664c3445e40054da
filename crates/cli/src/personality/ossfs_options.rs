//! The options of ossfs 1.91, in groups of its own.

use super::{ForeignOption, Meaning, convert::*, switch, value};
use crate::options::table;

use Meaning::{Granted, Is, Nothing, Own, Refused};

const COPIES: &str = "copies are cut as the store asks";
const EXPOSED: &str = "put credentials into a passwd_file or the environment";
const KERNEL: &str = "what the kernel can do is asked of it";
const LIBRARIES: &str = "shared libraries are not loaded; use credential_process";
const NETWORK: &str = "names and sessions are cached by the system and per connection";
const PAGES: &str = "cached pages live as long as the object's version";
const XATTR: &str = "`use-xattr`, which is off unless this asks for it";

/// The table.
pub(super) static OPTIONS: &[ForeignOption] = &[
    // Bucket and endpoint
    value("url", "", Is(&table::ENDPOINT, endpoint_http)),
    value("host", "", Is(&table::ENDPOINT, endpoint_http)),
    value(
        "read_endpoint",
        "",
        Is(&table::READ_ENDPOINT, endpoint_http),
    ),
    value("bucket", "", Own("the bucket")),
    switch(
        "profile",
        "",
        Own("`ack`: the defaults of the build for container services"),
    ),
    value(
        "servicepath",
        "/",
        Nothing("requests have no path before the bucket"),
    ),
    value("endpoint", "", Is(&table::REGION, nonempty)),
    value("region", "", Is(&table::REGION, nonempty)),
    switch(
        "sigv1",
        "true",
        Own("`signature` v1; without it, version 4 is used where the region is known"),
    ),
    switch(
        "sigv4",
        "false",
        Own("`signature` v4, which needs a region"),
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
    switch(
        "listobjectsv2",
        "false",
        Granted("listings use version 2 of the request"),
    ),
    value(
        "list_object_max_keys",
        "1000",
        Nothing("pages have 1000 names, the most that the store gives"),
    ),
    switch("requester_pays", "false", Is(&table::REQUESTER_PAYS, same)),
    switch(
        "noxmlns",
        "false",
        Granted("names are read with and without a namespace"),
    ),
    switch("noua", "false", Nothing("requests name the program")),
    switch("public_bucket", "0", Is(&table::ANONYMOUS, same)),
    // Credentials
    value("passwd_file", "", Is(&table::PASSWORD_FILE, nonempty)),
    switch("ram_role", "", Own("`ram-role`")),
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
    value("credlib", "", Refused(LIBRARIES)),
    value("credlib_opts", "", Refused(LIBRARIES)),
    switch(
        "use_session_token",
        "false",
        Own("insists on OSSSESSIONTOKEN in the environment"),
    ),
    value("accessKeyId", "", Refused(EXPOSED)),
    value("secretAccessKey", "", Refused(EXPOSED)),
    // Attributes of objects
    value("default_acl", "default", Is(&table::DEFAULT_ACL, oss_acl)),
    value(
        "storage_class",
        "Standard",
        Is(&table::STORAGE_CLASS, oss_storage_class),
    ),
    switch("use_sse", "", Is(&table::USE_SSE, ossfs_encryption)),
    switch(
        "use_rrs",
        "false",
        Nothing("the storage class says how objects are kept"),
    ),
    value("mime", "/etc/mime.types", Is(&table::MIME, nonempty)),
    value(
        "ahbe_conf",
        "",
        Nothing("no headers are added by file name"),
    ),
    switch(
        "enable_content_md5",
        "false",
        Granted("uploads are checked, by CRC-64"),
    ),
    switch(
        "enable_unsigned_payload",
        "false",
        Granted("payloads are not signed but checked by CRC-64"),
    ),
    value(
        "upload_traffic_limit",
        "0",
        Is(&table::UPLOAD_TRAFFIC_LIMIT, traffic_limit),
    ),
    value(
        "download_traffic_limit",
        "0",
        Is(&table::DOWNLOAD_TRAFFIC_LIMIT, traffic_limit),
    ),
    switch("use_xattr", "0", Own(XATTR)),
    switch("noxattr", "false", Is(&table::USE_XATTR, inverted)),
    // Ownership and permissions
    value("uid", "", Is(&table::UID, same)),
    value("gid", "", Is(&table::GID, same)),
    value(
        "umask",
        "0000",
        Own("`file-mode` and `dir-mode`: what the mask leaves of 0777"),
    ),
    value("mp_umask", "0000", Is(&table::MP_UMASK, octal_mask)),
    switch("allow_other", "false", Is(&table::ALLOW_OTHER, same)),
    switch("nonempty", "false", Is(&table::NONEMPTY, same)),
    switch("complement_stat", "true", Granted("every file has a mode")),
    switch(
        "notsup_compat_dir",
        "false",
        Is(&table::NOTSUP_COMPAT_DIR, same),
    ),
    switch(
        "use_wtf8",
        "false",
        Nothing("names that are not UTF-8 are refused"),
    ),
    // Cache of attributes
    value(
        "max_stat_cache_size",
        "100000",
        Is(&table::MAX_STAT_CACHE_SIZE, ossfs_stat_cache_size),
    ),
    value(
        "stat_cache_expire",
        "900",
        Own("`attr-timeout`, at most a day"),
    ),
    value(
        "stat_cache_interval_expire",
        "900",
        Own("`attr-timeout`, counted from when they were learnt"),
    ),
    switch(
        "enable_noobj_cache",
        "true",
        Granted("the absence of names is believed for `negative-timeout`"),
    ),
    switch(
        "disable_noobj_cache",
        "false",
        Own("`negative-timeout` of 0"),
    ),
    switch(
        "skip_clean_statcache_on_ro_flush",
        "false",
        Granted("closing a file that was read forgets nothing"),
    ),
    switch(
        "simulate_mtime_ns_with_crc64",
        "false",
        Granted("the store's own version of an object decides what is fresh"),
    ),
    // Disk
    value("tmpdir", "/tmp", Is(&table::STAGING_DIR, nonempty)),
    value(
        "use_cache",
        "",
        Own("`cache-dir`, in a directory of the bucket below"),
    ),
    switch(
        "check_cache_dir_exist",
        "false",
        Own("insists on the directory of use_cache"),
    ),
    switch("del_cache", "false", Own("`cache-discard`")),
    value(
        "ensure_diskfree",
        "0",
        Own("`cache-free-space`, at least multipart_size, and no `cache-free-ratio`"),
    ),
    value("free_space_ratio", "0", Own("`cache-free-ratio`")),
    switch(
        "set_check_cache_sigusr1",
        "",
        Nothing(
            "blocks are checked whenever they are read; SIGUSR1 writes the counters, the cache's too, into the log",
        ),
    ),
    value(
        "fake_diskfree",
        "",
        Nothing("for tests of the program itself"),
    ),
    value(
        "fd_page_size",
        "",
        Nothing("files have no pages of a fixed size"),
    ),
    switch("f2", "false", Nothing("for tests of the program itself")),
    // Transfer
    value("parallel_count", "5", Is(&table::UPLOAD_CONCURRENCY, same)),
    value("parallel_upload", "5", Is(&table::UPLOAD_CONCURRENCY, same)),
    value("multireq_max", "20", Is(&table::MULTIREQ_MAX, count)),
    value(
        "multipart_size",
        "10",
        Is(&table::PART_SIZE, ossfs_part_size),
    ),
    value("multipart_copy_size", "512", Nothing(COPIES)),
    value(
        "multipart_threshold",
        "25",
        Is(&table::MULTIPART_THRESHOLD, ossfs_part_threshold),
    ),
    value("singlepart_copy_limit", "512", Nothing(COPIES)),
    value(
        "max_dirty_data",
        "5120",
        Is(&table::MAX_DIRTY_DATA, ossfs_dirty_data),
    ),
    switch(
        "nomultipart",
        "false",
        Nothing(
            "files of up to `multipart_threshold` are sent in one request, and larger ones cannot be",
        ),
    ),
    switch(
        "nomixupload",
        "false",
        Nothing(
            "a store that cannot copy parts is noticed at the first one, and gets the bytes sent",
        ),
    ),
    switch(
        "nocopyapi",
        "false",
        Nothing(
            "a store that cannot copy parts is noticed at the first one, and gets the bytes sent; one that copies nothing refuses renames",
        ),
    ),
    switch(
        "norenameapi",
        "false",
        Nothing("a rename is a copy inside the store; one that copies nothing refuses it"),
    ),
    switch(
        "noshallowcopyapi",
        "false",
        Nothing("an object is copied in one request where the store's limit allows it"),
    ),
    value("retries", "5", Is(&table::RETRY_ATTEMPTS, same)),
    value(
        "connect_timeout",
        "300",
        Own("`connect-timeout`, at most a minute"),
    ),
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
        Granted("host names are verified"),
    ),
    switch("nodnscache", "false", Nothing(NETWORK)),
    switch("nosscache", "false", Nothing(NETWORK)),
    value(
        "cipher_suites",
        "",
        Nothing("only strong suites are offered"),
    ),
    // Listing
    switch(
        "readdir_optimize",
        "false",
        Is(&table::READDIR_OPTIMIZE, same),
    ),
    value(
        "readdir_check_size",
        "0",
        Is(&table::READDIR_CHECK_SIZE, count),
    ),
    switch(
        "symlink_in_meta",
        "false",
        Is(&table::SYMLINK_IN_META, same),
    ),
    // Reading without staging
    switch(
        "direct_read",
        "false",
        Granted("reads never touch a disk, unless there is a cache"),
    ),
    value(
        "direct_read_prefetch_thread",
        "64",
        Nothing("no thread waits for a request: `max-requests` bounds how many are under way"),
    ),
    value(
        "direct_read_chunk_size",
        "4",
        Is(&table::READ_PART_SIZE, ossfs_chunk_size),
    ),
    value(
        "direct_read_prefetch_chunks",
        "32",
        Is(&table::PREFETCH_PARTS, ossfs_prefetch_chunks),
    ),
    value(
        "direct_read_prefetch_limit",
        "1024",
        Is(&table::PREFETCH_LIMIT, ossfs_prefetch_limit),
    ),
    value(
        "direct_read_backward_chunks",
        "1",
        Nothing(
            "the kernel keeps what was read, and 32MiB behind a reader stay until they are read",
        ),
    ),
    value(
        "direct_read_local_file_cache_size_mb",
        "0",
        Nothing("no beginning of a file is kept on a disk"),
    ),
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
    // Words for FUSE and mount(8) that are not ours by name
    switch("ro", "false", Is(&table::READ_ONLY, same)),
    switch("noexec", "false", Is(&table::NOEXEC, same)),
    switch("kernel_cache", "false", Granted(PAGES)),
    switch("auto_cache", "false", Granted(PAGES)),
    switch("noauto_cache", "false", Nothing(PAGES)),
    switch("direct_io", "false", Nothing(PAGES)),
    switch("big_writes", "false", Granted("writes are big")),
    switch("large_read", "false", Granted("reads are big")),
    switch(
        "async_read",
        "false",
        Granted("reads do not wait for one another"),
    ),
    switch("sync_read", "false", Nothing(KERNEL)),
    switch(
        "atomic_o_trunc",
        "false",
        Granted("opening truncates in one step"),
    ),
    switch("hard_remove", "false", Granted("no hidden files are left")),
    switch("intr", "false", Granted("calls can be interrupted")),
    switch("use_ino", "false", Nothing(KERNEL)),
    switch("readdir_ino", "false", Nothing(KERNEL)),
    switch(
        "auto_unmount",
        "false",
        Nothing("a mount removes a dead one in its place"),
    ),
    switch(
        "allow_root",
        "false",
        Nothing("allow_other lets all other users in"),
    ),
    value(
        "attr_timeout",
        "",
        Is(&table::ATTR_TIMEOUT, decimal_seconds),
    ),
    value(
        "entry_timeout",
        "",
        Nothing("names are believed as long as attributes, see attr_timeout"),
    ),
    value(
        "ac_attr_timeout",
        "",
        Nothing("names are believed as long as attributes, see attr_timeout"),
    ),
    value(
        "negative_timeout",
        "",
        Is(&table::NEGATIVE_TIMEOUT, decimal_seconds),
    ),
    value("max_background", "", Is(&table::MAX_BACKGROUND, same)),
    value("congestion_threshold", "", Nothing(KERNEL)),
    value("max_read", "", Nothing(KERNEL)),
    value("max_write", "", Nothing(KERNEL)),
    value(
        "max_readahead",
        "",
        Nothing("see the read-ahead of `penstock mount`"),
    ),
    value("fsname", "", Nothing("the mount table names the bucket")),
    value("subtype", "", Nothing("the mount table names the program")),
    switch(
        "no_remote_lock",
        "false",
        Granted("locks hold on this machine"),
    ),
    value("ca_file", "", Is(&table::CA_FILE, nonempty)),
];
