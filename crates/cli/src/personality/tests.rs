//! Other programs' command lines, as their users write them.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::{collector::Collector, flags, *};
use crate::options::{Origin, Values, table};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn ossfs2(line: &str) -> crate::failure::Outcome<crate::commands::mount::MountRequest> {
    let parsed = flags::parse_arguments(&ossfs2::PROGRAM, &words(line))?;
    ossfs2::request(parsed, &Environment::default())
}

fn goofys(line: &str) -> crate::failure::Outcome<crate::commands::mount::MountRequest> {
    goofys::request(goofys::parse(&words(line))?, &Environment::default())
}

fn ossfs(line: &str) -> crate::failure::Outcome<crate::commands::mount::MountRequest> {
    ossfs::request(&ossfs::parse(&words(line))?, &Environment::default())
}

/// Values of a line of settings, and the warnings that it causes.
fn collect(program: &'static Program, line: &str) -> (Values, Vec<String>) {
    let parsed = flags::parse_arguments(program, &words(line)).expect("understood");
    let mut collector = Collector::new(program);
    collector.extend(parsed.settings).expect("accepted");
    let (given, warnings) = collector.into_parts();
    (Values::resolve(given).expect("valid"), warnings)
}

#[test]
fn options_of_a_program_are_listed_once() {
    for program in PROGRAMS {
        let mut names: Vec<_> = program.options.iter().map(|option| option.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}", program.name);
    }
}

#[test]
fn the_defaults_of_a_program_are_valid_and_cause_no_warning() {
    for program in PROGRAMS {
        let mut collector = Collector::new(program);
        let settings = program.options.iter().filter(|option| {
            !option.default.is_empty() && !matches!(option.meaning, Meaning::Refused(_))
        });
        let settings = settings.map(|option| flags::Setting {
            name: option.name.to_owned(),
            text: option.default.to_owned(),
            origin: Origin::CommandLine,
        });
        collector.extend(settings.collect()).expect("accepted");
        let (given, warnings) = collector.into_parts();
        assert_eq!(warnings, Vec::<String>::new(), "{}", program.name);
        Values::resolve(given).expect(program.name);
    }
}

#[test]
fn the_mount_command_of_the_ossfs2_benchmark() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("ossfs2.conf");
    let text = "# Endpoint of the bucket's region\n\
                --oss_endpoint=https://oss-cn-hangzhou-internal.aliyuncs.com\n\n\
                # Bucket\n--oss_bucket=bucket-test\n\n\
                --oss_access_key_id=yourAccessKeyID\n\
                --oss_access_key_secret=yourAccessKeySecret\n\n\
                # Bytes\n--upload_buffer_size=33554432\n";
    fs::write(&file, text).expect("written");
    let request = ossfs2(&format!("/mnt/ossfs2/ -c {}", file.display())).expect("understood");
    let values = &request.values;
    assert_eq!(request.source, "oss://bucket-test");
    assert_eq!(request.mountpoint, Path::new("/mnt/ossfs2/"));
    assert_eq!(values.size(&table::PART_SIZE), Some(32 << 20));
    assert_eq!(
        values.text(&table::ENDPOINT),
        Some("https://oss-cn-hangzhou-internal.aliyuncs.com")
    );
    let secret = values.secret(&table::ACCESS_KEY_SECRET).expect("given");
    assert_eq!(secret.expose(), "yourAccessKeySecret");
    assert_eq!(values.mode(&table::FILE_MODE), 0o777);
    assert!(values.flag(&table::ALLOW_OTHER) && values.choice(&table::FSYNC) == "off");
}

#[test]
fn the_mount_command_of_the_goofys_benchmark() {
    let request = goofys(
        "--endpoint https://oss-cn-hangzhou-internal.aliyuncs.com --subdomain bucket-test \
         --stat-cache-ttl 60s --type-cache-ttl 30s /mnt/goofys",
    );
    let request = request.expect("understood");
    let values = &request.values;
    assert_eq!(request.source, "s3://bucket-test");
    assert_eq!(request.mountpoint, Path::new("/mnt/goofys"));
    assert_eq!(values.choice(&table::ADDRESSING), "auto");
    assert_eq!(values.duration(&table::ATTR_TIMEOUT).as_secs(), 30);
    assert_eq!(values.mode(&table::DIR_MODE), 0o755);
}

#[test]
fn the_mount_command_of_the_ossfs_benchmark() {
    let request = ossfs(
        "bucket-test /mnt/ossfs -ourl=https://oss-cn-hangzhou-internal.aliyuncs.com \
         -odirect_read -oreaddir_optimize",
    );
    let request = request.expect("understood");
    assert_eq!(request.source, "oss://bucket-test");
    assert_eq!(request.mountpoint, Path::new("/mnt/ossfs"));
    assert_eq!(
        request.values.text(&table::ENDPOINT),
        Some("https://oss-cn-hangzhou-internal.aliyuncs.com")
    );
}

#[test]
fn ossfs_takes_a_path_in_the_bucket_and_lists_of_words() {
    let line = "b:/a/c/ /mnt -o url=oss.example,allow_other,umask=0022,_netdev -f";
    let request = ossfs(line).expect("understood");
    let values = &request.values;
    assert_eq!(request.source, "oss://b/a/c");
    assert_eq!(values.text(&table::ENDPOINT), Some("http://oss.example"));
    assert_eq!(values.mode(&table::FILE_MODE), 0o755);
    assert!(values.flag(&table::ALLOW_OTHER) && values.flag(&table::FOREGROUND));
    assert!(ossfs("b:a /mnt").is_err());
    assert!(ossfs("b /mnt -onosuch").is_err());
}

#[test]
fn fstab_lines_reach_ossfs2_and_goofys() {
    let list = "rw,_netdev,oss_endpoint=http://e,attr_timeout=5,ro";
    let parsed = ossfs2::from_fstab("b", "/mnt", list);
    let request = ossfs2::request(parsed, &Environment::default()).expect("understood");
    assert_eq!(request.source, "oss://b");
    assert!(request.values.flag(&table::READ_ONLY));
    assert_eq!(request.values.duration(&table::ATTR_TIMEOUT).as_secs(), 5);

    let request = goofys("b:p/q /mnt -o _netdev,allow_other,--file-mode=0600,--dir-mode=0700");
    let request = request.expect("understood");
    assert_eq!(request.source, "s3://b/p/q");
    assert!(request.values.flag(&table::ALLOW_OTHER));
    assert_eq!(request.values.mode(&table::FILE_MODE), 0o600);
}

#[test]
fn flags_may_be_written_in_every_way() {
    for line in [
        "--attr_timeout=5 --noallow_other --ro",
        "-attr_timeout 5 -allow_other=false -ro=true",
        "--attr_timeout '5' --allow_other=0 --ro",
    ] {
        let line = line.replace("'5'", "5");
        let (values, warnings) = collect(&ossfs2::PROGRAM, &line);
        assert_eq!(values.duration(&table::ATTR_TIMEOUT).as_secs(), 5, "{line}");
        assert!(!values.flag(&table::ALLOW_OTHER) && values.flag(&table::READ_ONLY));
        assert_eq!(warnings, Vec::<String>::new());
    }
}

#[test]
fn what_has_no_meaning_is_named_in_one_warning() {
    let line = "--prefetch_chunks=9 --temp_dir=/tmp --sync_upload=false --fuse_threads=128";
    let (_, warnings) = collect(&ossfs2::PROGRAM, line);
    assert_eq!(warnings.len(), 1);
    for name in ["prefetch_chunks (", "temp_dir (", "sync_upload ("] {
        assert!(warnings[0].contains(name), "{}", warnings[0]);
    }
    // Set to the program's own default, it changes nothing.
    assert!(!warnings[0].contains("fuse_threads"), "{}", warnings[0]);
}

#[test]
fn mistakes_are_errors_with_their_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("c");
    for (text, message) in [
        (
            "--oss_bucket=b\noss_endpoint=e\n",
            ":2: the line does not begin with `--`",
        ),
        (
            "\n--no_such_option=1\n",
            ":2: ossfs2 has no option `--no_such_option`",
        ),
        ("--attr_timeout\n", ":1: `--attr_timeout` has no value"),
        (
            "--attr_timeout=soon\n",
            "`attr_timeout` cannot be `soon` (from ",
        ),
        ("--oss_bucket=b\n", "`oss_endpoint` is not set"),
        ("--oss_endpoint=e\n", "`oss_bucket` is not set"),
    ] {
        fs::write(&file, text).expect("written");
        let failure = ossfs2(&format!("/mnt -c {}", file.display()));
        let failure = failure.expect_err(text).to_string();
        assert!(failure.contains(message), "{failure}");
    }
}

#[test]
fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    for line in ["--oss_access_key_id=id", "--oss_access_key_secret=hunter2"] {
        let parsed = flags::parse_arguments(&ossfs2::PROGRAM, &words(line)).expect("understood");
        let mut collector = Collector::new(&ossfs2::PROGRAM);
        let refused = collector.extend(parsed.settings).expect_err(line);
        let refused = refused.to_string();
        assert!(refused.contains("configuration file"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn encryption_with_keys_of_ones_own_is_never_passed_over() {
    for line in ["--sse-c key b /mnt", "--sse-kms=id b /mnt"] {
        assert!(goofys(line).is_err(), "{line}");
    }
}

proptest! {
    #[test]
    fn files_of_flags_never_panic(text: String) {
        let _ = flags::parse_file(&ossfs2::PROGRAM, Path::new("/c"), &text);
    }

    #[test]
    fn command_lines_never_panic(arguments: Vec<String>) {
        let _ = flags::parse_arguments(&goofys::PROGRAM, &arguments);
        let _ = flags::parse_arguments(&ossfs2::PROGRAM, &arguments);
        let _ = ossfs::parse(&arguments)
            .and_then(|parsed| ossfs::request(&parsed, &Environment::default()));
    }

    #[test]
    fn every_option_takes_or_refuses_every_text(text in "[a-z0-9:/ -]{0,12}") {
        for program in PROGRAMS {
            for option in program.options {
                let setting = flags::Setting {
                    name: option.name.to_owned(),
                    text: text.clone(),
                    origin: Origin::CommandLine,
                };
                let _ = Collector::new(program).extend(vec![setting]);
            }
        }
    }
}
