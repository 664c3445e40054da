//! Every option of ossfs 1.91: what it comes to, or that it is warned about by its name.

use std::collections::BTreeSet;

use super::ossfs;
use crate::{
    environment::Environment,
    failure::Outcome,
    options::{Given, Origin, Values, table},
};

/// What an option must come to when it stands alone after `-o`, with an unusual value.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// One of ours has this text.
    To(&'static str, &'static str),
    /// One of ours has this text, and no warning names the option.
    Quietly(&'static str, &'static str),
    /// A warning names it.
    Warned,
    /// An error names it.
    Refused,
    /// Nothing has to be done.
    Held,
}

use Comes::{Held, Quietly, Refused, To, Warned};

/// Every option that ossfs 1.91.12 has, hidden ones included, with an unusual value.
const EVERY: &[(&str, Comes)] = &[
    ("url=oss.example", To("endpoint", "http://oss.example")),
    (
        "host=https://oss.example/",
        To("endpoint", "https://oss.example"),
    ),
    ("servicepath=/x", Warned),
    ("endpoint=cn-beijing", To("region", "cn-beijing")),
    ("region=cn-beijing", To("region", "cn-beijing")),
    ("sigv1", To("signature", "v1")),
    ("sigv4,region=cn-beijing", To("signature", "v4")),
    ("sigv4", Refused),
    ("cloudbox_id=cb-1", Refused),
    ("use_path_request_style", To("addressing", "path")),
    ("listobjectsv2", Held),
    ("list_object_max_keys=2000", Warned),
    ("requester_pays", To("requester-pays", "true")),
    ("noxmlns", Held),
    ("noua", Warned),
    ("public_bucket=1", To("anonymous", "1")),
    ("passwd_file=/p", To("password-file", "/p")),
    ("ram_role", To("ram-role", "auto")),
    ("ram_role=auto", To("ram-role", "auto")),
    (
        "ram_role=http://127.0.0.1/x",
        To("ram-role", "http://127.0.0.1/x"),
    ),
    ("disable_imdsv2", Warned),
    (
        "credential_process=/bin/x",
        To("credential-process", "/bin/x"),
    ),
    ("credential_process=/bin/$x", Refused),
    ("credlib=/x.so", Refused),
    ("credlib_opts=x", Refused),
    ("use_session_token", Refused),
    ("default_acl=private", Quietly("default-acl", "private")),
    ("default_acl=nobody", Refused),
    ("storage_class=IA", Quietly("storage-class", "IA")),
    ("use_sse", Quietly("use-sse", "1")),
    ("use_sse=kmsid:id", Quietly("use-sse", "kmsid:id")),
    ("mime=/m", Quietly("mime", "/m")),
    ("ahbe_conf=/a", Warned),
    ("enable_content_md5", Held),
    ("enable_unsigned_payload", Held),
    (
        "upload_traffic_limit=819200",
        Quietly("upload-traffic-limit", "819200"),
    ),
    (
        "download_traffic_limit=819200",
        Quietly("download-traffic-limit", "819200"),
    ),
    ("upload_traffic_limit=1", Refused),
    ("use_xattr", Quietly("use-xattr", "on")),
    ("use_xattr,readdir_optimize", Refused),
    ("uid=7", To("uid", "7")),
    ("gid=7", To("gid", "7")),
    ("umask=0022", To("file-mode", "0755")),
    ("mp_umask=0022", Quietly("mp-umask", "0022")),
    ("allow_other", To("allow-other", "true")),
    ("nonempty", To("nonempty", "true")),
    ("complement_stat", Held),
    ("notsup_compat_dir", Quietly("notsup-compat-dir", "true")),
    ("use_wtf8", Warned),
    ("max_stat_cache_size=5", Quietly("max-stat-cache-size", "5")),
    ("max_stat_cache_size=0", To("attr-timeout", "0s")),
    ("stat_cache_expire=5", To("attr-timeout", "5s")),
    ("stat_cache_expire=-1", To("attr-timeout", "86400s")),
    ("stat_cache_expire=-1", Warned),
    ("stat_cache_interval_expire=5", To("attr-timeout", "5s")),
    ("disable_noobj_cache", To("negative-timeout", "0s")),
    ("enable_noobj_cache", Held),
    ("skip_clean_statcache_on_ro_flush", Held),
    ("simulate_mtime_ns_with_crc64", Held),
    ("tmpdir=/t", Quietly("staging-dir", "/t")),
    ("use_cache=/c", To("cache-dir", "/c/b.penstock")),
    ("use_cache=/no/such,check_cache_dir_exist", Refused),
    ("check_cache_dir_exist", Warned),
    ("del_cache", Warned),
    ("ensure_diskfree=20", Warned),
    ("free_space_ratio=20", Warned),
    ("use_cache=/c,del_cache", To("cache-discard", "on")),
    (
        "use_cache=/c,ensure_diskfree=20",
        To("cache-free-space", "20971520"),
    ),
    (
        "use_cache=/c,ensure_diskfree=1",
        To("cache-free-space", "10485760"),
    ),
    (
        "use_cache=/c,free_space_ratio=20",
        To("cache-free-ratio", "20"),
    ),
    ("ensure_diskfree=1,free_space_ratio=1", Refused),
    ("set_check_cache_sigusr1", Warned),
    ("set_check_cache_sigusr1=/f", Warned),
    ("fake_diskfree=1", Warned),
    ("fd_page_size=1", Warned),
    ("parallel_count=7", To("upload-concurrency", "7")),
    ("parallel_upload=7", To("upload-concurrency", "7")),
    ("multireq_max=7", Quietly("multireq-max", "7")),
    ("multipart_size=7", To("part-size", "7MiB")),
    ("multipart_size=4", Refused),
    ("multipart_copy_size=7", Warned),
    (
        "multipart_threshold=7",
        Quietly("multipart-threshold", "7MiB"),
    ),
    ("multipart_threshold=5", Refused),
    ("singlepart_copy_limit=7", Warned),
    ("max_dirty_data=70", Quietly("max-dirty-data", "70MiB")),
    ("max_dirty_data=7", Refused),
    ("nomultipart", Warned),
    ("nomixupload", Warned),
    ("nocopyapi", Warned),
    ("norenameapi", Warned),
    ("noshallowcopyapi", Warned),
    ("retries=7", To("retry-attempts", "7")),
    ("connect_timeout=7", To("connect-timeout", "7s")),
    ("connect_timeout=300", To("connect-timeout", "60s")),
    ("connect_timeout=301", Warned),
    ("readwrite_timeout=7", To("request-timeout", "7s")),
    ("no_check_certificate", Refused),
    ("ssl_verify_hostname=0", Warned),
    ("nodnscache", Warned),
    ("nosscache", Warned),
    ("cipher_suites=x", Warned),
    ("readdir_optimize", Quietly("readdir-optimize", "true")),
    ("readdir_check_size=7", Quietly("readdir-check-size", "7")),
    ("symlink_in_meta", Quietly("symlink-in-meta", "true")),
    ("direct_read", Held),
    ("direct_read_prefetch_thread=7", Warned),
    ("direct_read_chunk_size=7", To("read-part-size", "7MiB")),
    ("direct_read_chunk_size=33", Refused),
    ("direct_read_prefetch_chunks=0", To("prefetch-parts", "0")),
    ("direct_read_prefetch_chunks=-1", Refused),
    (
        "direct_read_prefetch_limit=700",
        To("prefetch-limit", "700MiB"),
    ),
    ("direct_read_prefetch_limit=127", Refused),
    ("direct_read_backward_chunks=7", Warned),
    ("direct_read_local_file_cache_size_mb=7", Warned),
    ("logfile=/l", To("log-file", "/l")),
    ("dbglevel=dbg", To("log-level", "debug")),
    ("curldbg=body", To("log-level", "debug")),
    ("no_time_stamp_msg", Warned),
    ("instance_name=x", Warned),
    ("auto_create_bucket", Warned),
    ("agentic_bucket=x", Warned),
    ("accessKeyId=x", Refused),
    ("secretAccessKey=x", Refused),
    ("ro", To("read-only", "true")),
    ("kernel_cache", Held),
    ("auto_cache", Held),
    // Beside those of the program itself.
    (
        "read_endpoint=oss.example",
        To("read-endpoint", "http://oss.example"),
    ),
    ("profile=ack", To("part-size", "30MiB")),
    ("profile=ack", To("upload-concurrency", "20")),
    ("profile=other", Refused),
    ("noxattr", To("use-xattr", "off")),
];

/// What `ossfs b /mnt -o LIST` comes to, and the warnings.
fn come(list: &str) -> Outcome<(Vec<Given>, Vec<String>)> {
    let arguments = ["b", "/mnt", "-o", list].map(str::to_owned);
    let parsed = ossfs::parse(&arguments)?;
    let (_, collector) = ossfs::bucket(&parsed, &Environment::default())?;
    Ok(collector.into_parts())
}

/// The text that the strongest place gives an option.
fn text_of(given: &[Given], name: &str) -> Option<String> {
    let spec = table::find(name)?;
    let matching = given.iter().filter(|given| given.spec.name == spec.name);
    let strongest = matching.max_by_key(|given| given.origin.rank())?;
    Some(strongest.text.clone())
}

fn warned(warnings: &[String], list: &str) -> bool {
    let name = list.split(['=', ',']).next().unwrap_or_default();
    warnings
        .iter()
        .any(|warning| warning.contains(&format!("{name} (")))
}

#[test]
fn every_option_has_an_effect_or_is_named() {
    for (list, comes) in EVERY {
        let name = list.split(['=', ',']).next().unwrap_or_default();
        let outcome = come(list);
        if let Refused = comes {
            let failure = outcome.expect_err(list).to_string();
            assert!(
                list.split(['=', ',']).any(|word| failure.contains(word)),
                "{failure}"
            );
            continue;
        }
        let (given, warnings) = outcome.expect(list);
        let is = |ours, text: &str| text_of(&given, ours).as_deref() == Some(text);
        let named = warned(&warnings, name);
        let held = match comes {
            To(ours, text) => is(ours, text),
            Quietly(ours, text) => is(ours, text) && !named,
            Warned => named,
            Held => warnings.is_empty(),
            Refused => false,
        };
        assert!(held, "{list}: {comes:?}, but {given:?} and {warnings:?}");
        Values::resolve(given).expect(list);
    }
}

#[test]
fn every_option_of_the_table_is_tried() {
    let tried: BTreeSet<&str> = EVERY
        .iter()
        .flat_map(|(list, _)| list.split(','))
        .map(|word| word.split('=').next().unwrap_or_default())
        .collect();
    // Words of the FUSE library and those without an effect of their own.
    let library = [
        "bucket",
        "use_rrs",
        "f2",
        "noexec",
        "noauto_cache",
        "direct_io",
        "big_writes",
        "large_read",
        "async_read",
        "sync_read",
        "atomic_o_trunc",
        "hard_remove",
        "intr",
        "use_ino",
        "readdir_ino",
        "auto_unmount",
        "allow_root",
        "attr_timeout",
        "entry_timeout",
        "ac_attr_timeout",
        "negative_timeout",
        "max_background",
        "congestion_threshold",
        "max_read",
        "max_write",
        "max_readahead",
        "fsname",
        "subtype",
        "no_remote_lock",
        "ca_file",
    ];
    for option in ossfs::PROGRAM.options {
        let name = option.name;
        assert!(tried.contains(name) || library.contains(&name), "{name}");
    }
    for name in tried {
        assert!(ossfs::PROGRAM.option(name).is_some(), "{name}");
    }
}

#[test]
fn defaults_are_those_of_1_91() {
    let (given, warnings) = come("ro").expect("understood");
    assert_eq!(warnings, Vec::<String>::new());
    let values = Values::resolve(given.clone()).expect("valid");
    assert_eq!(values.duration(&table::ATTR_TIMEOUT).as_secs(), 900);
    assert_eq!(values.size(&table::PART_SIZE), Some(10 << 20));
    assert_eq!(values.count(&table::UPLOAD_CONCURRENCY), Some(5));
    assert_eq!(values.choice(&table::LOG_LEVEL), "error");
    let later = [
        ("mode", "staged"),
        ("max-dirty-data", "5120MiB"),
        ("multipart-threshold", "25MiB"),
    ];
    for (name, text) in later {
        assert_eq!(text_of(&given, name).as_deref(), Some(text), "{name}");
    }
}

#[test]
fn a_profile_sets_defaults_that_options_override() {
    let line = "b /mnt --profile ack -o multipart_size=7";
    let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
    let parsed = ossfs::parse(&arguments).expect("understood");
    let (_, collector) = ossfs::bucket(&parsed, &Environment::default()).expect("understood");
    let values = Values::resolve(collector.into_parts().0).expect("valid");
    assert_eq!(values.size(&table::PART_SIZE), Some(7 << 20));
    assert_eq!(values.count(&table::UPLOAD_CONCURRENCY), Some(20));
    assert_eq!(values.choice(&table::LOG_LEVEL), "warn");
}

#[test]
fn direct_read_does_without_the_cache_and_says_so() {
    let (given, warnings) = come("use_cache=/c,direct_read").expect("understood");
    assert_eq!(text_of(&given, "cache-dir"), None);
    assert!(warned(&warnings, "use_cache"), "{warnings:?}");
}

#[test]
fn credentials_are_looked_for_where_the_program_looks() {
    for (list, order) in [
        ("ro", "fixed:environment:usual-password-files"),
        ("passwd_file=/p", "password-file"),
        ("passwd_file=/p,credential_process=/x", "process"),
    ] {
        let (given, _) = come(list).expect("understood");
        assert_eq!(text_of(&given, "credential-order").as_deref(), Some(order));
    }
    let with_token = Environment::of(&[("OSSSESSIONTOKEN", "t")]);
    let arguments = ["b", "/mnt", "-ouse_session_token"].map(str::to_owned);
    let parsed = ossfs::parse(&arguments).expect("understood");
    assert!(ossfs::bucket(&parsed, &with_token).is_ok());
}

#[test]
fn names_that_no_bucket_has_are_refused() {
    for (bucket, list, fine) in [
        ("bucket-1", "ro", true),
        ("bucket-1:/a:b", "ro", true),
        ("Bucket", "ro", false),
        ("Bucket", "use_path_request_style", true),
        ("a@b", "ro", false),
        (":/path", "ro", false),
    ] {
        let arguments = [bucket, "/mnt", "-o", list].map(str::to_owned);
        let parsed = ossfs::parse(&arguments).expect("understood");
        let found = ossfs::bucket(&parsed, &Environment::default());
        assert_eq!(found.is_ok(), fine, "{bucket} {list}");
    }
}

#[test]
fn more_messages_come_in_two_steps() {
    for (line, level, foreground) in [
        ("b /mnt -d", "info", false),
        ("b /mnt -d --debug", "debug", true),
        ("b /mnt -f -s", "error", true),
    ] {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let parsed = ossfs::parse(&arguments).expect("understood");
        let request = ossfs::request(&parsed, &Environment::default()).expect("understood");
        assert_eq!(request.values.choice(&table::LOG_LEVEL), level);
        assert_eq!(request.values.flag(&table::FOREGROUND), foreground);
        let threads = line.contains("-s").then_some(1);
        assert_eq!(request.values.count(&table::FUSE_THREADS), threads);
    }
}

#[test]
fn old_and_new_lines_of_fstab_mean_the_same() {
    let words = "_netdev,noauto,user,allow_other,url=http://e,x-systemd.automount";
    for source in ["ossfs#bucket:/a", "bucket:/a"] {
        let arguments = [source, "/mnt", "-o", words].map(str::to_owned);
        let parsed = ossfs::parse(&arguments).expect("understood");
        let request = ossfs::request(&parsed, &Environment::default()).expect("understood");
        assert_eq!(request.source, "oss://bucket/a");
        assert!(request.values.flag(&table::ALLOW_OTHER));
        let origin = request.values.origin(&table::ENDPOINT);
        assert_eq!(origin, Some(&Origin::MountWord));
    }
}
