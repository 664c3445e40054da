//! Every mistake gives one line with cause and remedy, an exit code other than 0, and that soon.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{fs, net::TcpListener, path::Path, process::Command, time::Duration};

use penstock_devserver::{Fault, FaultRule, Operation};
use support::{BUCKET, Scratch, is_mounted, run, strict_server, with_access};

/// The longest that a user waits for bad news.
const NEWS_DEADLINE: Duration = Duration::from_secs(10);

/// Runs a mount that must fail with one line that has `cause` and a remedy with `remedy`.
#[track_caller]
fn refused(command: &mut Command, cause: &str, remedy: &str) {
    let ended = run(command);
    assert!(matches!(ended.code, Some(1..=3)), "{ended:#?}");
    assert!(ended.took < NEWS_DEADLINE, "{ended:#?}");
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    let line = ended.err.trim_end();
    assert!(line.starts_with("penstock: "), "{line}");
    let (said, done) = line.split_once("; ").expect("cause; remedy");
    assert!(said.contains(cause), "{line}");
    assert!(done.contains(remedy), "{line}");
    for secret in [support::SECRET, "anotherSecret"] {
        assert!(!line.contains(secret), "{line}");
    }
}

fn mount(scratch: &Scratch, source: &str, mountpoint: &Path) -> Command {
    let mut command = scratch.penstock();
    command.args(["mount", source]).arg(mountpoint);
    command
}

fn source() -> String {
    format!("s3://{BUCKET}")
}

/// The first of them was told, and the others were not looked at.
#[test]
fn sync_tells_of_each_path() {
    let scratch = Scratch::new();
    let mut command = scratch.penstock();
    command.arg("sync").args(["missing-one", "missing-two"]);
    refused(
        &mut command,
        "`missing-one` is not in the store",
        "penstock unsaved",
    );
    refused(
        &mut command,
        "`missing-two` is not in the store",
        "penstock unsaved",
    );
}

#[test]
fn wrong_endpoint() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    let closed = {
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", probe.local_addr().expect("bound"))
    };
    // Listens but never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("http://{}", silent.local_addr().expect("bound"));
    for (endpoint, cause) in [
        (closed.as_str(), "cannot be reached"),
        (silent.as_str(), ""),
        ("http://no-such-host.invalid", "cannot be reached"),
    ] {
        let mut command = mount(&scratch, &source(), &mountpoint);
        command.args(["--endpoint", endpoint, "--anonymous"]);
        refused(&mut command, cause, "--endpoint");
    }
    assert!(!is_mounted(&mountpoint));
}

#[test]
fn an_endpoint_that_is_none() {
    let scratch = Scratch::new();
    let mut command = mount(&scratch, &source(), &scratch.folder("mnt"));
    command.args(["--endpoint", "ftp://x", "--anonymous"]);
    refused(&mut command, "endpoint", "help");
}

#[test]
fn wrong_key() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    for scheme in ["s3", "oss"] {
        for (name, value) in [
            ("PENSTOCK_ACCESS_KEY_ID", "nobody"),
            ("PENSTOCK_ACCESS_KEY_SECRET", "anotherSecret"),
        ] {
            let mut command = mount(&scratch, &format!("{scheme}://{BUCKET}"), &mountpoint);
            with_access(&mut command, &server).env(name, value);
            refused(
                &mut command,
                "refuses the credentials",
                "check the access key",
            );
        }
    }
}

#[test]
fn no_key() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mut command = mount(&scratch, &source(), &scratch.folder("mnt"));
    command
        .args(["--endpoint", &server.url()])
        .args(["--region", support::REGION]);
    refused(&mut command, "no credentials", "--anonymous");
    let ended = run(&mut command);
    assert_eq!(ended.err.matches("anonymous").count(), 1, "{}", ended.err);
    assert_eq!(
        ended.err.matches("no credentials").count(),
        1,
        "{}",
        ended.err
    );
}

#[test]
fn half_a_key() {
    let scratch = Scratch::new();
    let mut command = mount(&scratch, &source(), &scratch.folder("mnt"));
    command.env("PENSTOCK_ACCESS_KEY_ID", "x");
    refused(&mut command, "only one of", "give both");
}

#[test]
fn wrong_region() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    for scheme in ["s3", "oss"] {
        let mut command = mount(&scratch, &format!("{scheme}://{BUCKET}"), &mountpoint);
        with_access(&mut command, &server).env("PENSTOCK_REGION", "eu-west-9");
        refused(&mut command, "region", "--region");
    }
}

#[test]
fn clock_skew() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let skewed = Fault::Status {
        status: 403,
        code: "RequestTimeTooSkewed".to_owned(),
    };
    server.faults().add(FaultRule::new(skewed));
    let mountpoint = scratch.folder("mnt");
    for scheme in ["s3", "oss"] {
        let mut command = mount(&scratch, &format!("{scheme}://{BUCKET}"), &mountpoint);
        with_access(&mut command, &server);
        refused(&mut command, "clock", "set it");
    }
}

#[test]
fn no_such_bucket() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    for scheme in ["s3", "oss"] {
        let mut command = mount(&scratch, &format!("{scheme}://no-such-bucket"), &mountpoint);
        with_access(&mut command, &server);
        refused(&mut command, "no such bucket", "check its name");
    }
    let missing = format!("file://{}", scratch.path("missing").display());
    refused(
        &mut mount(&scratch, &missing, &mountpoint),
        "no such directory",
        "mkdir -p",
    );
    let ended = run(&mut mount(&scratch, &missing, &mountpoint));
    assert!(!ended.err.contains("endpoint"), "{}", ended.err);
}

#[test]
fn no_permission_to_list() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let lists = [Operation::ListObjects, Operation::ListObjectsV2];
    server.faults().add(FaultRule::new(denied).on(&lists));
    let mountpoint = scratch.folder("mnt");
    for scheme in ["s3", "oss"] {
        let mut command = mount(&scratch, &format!("{scheme}://{BUCKET}"), &mountpoint);
        with_access(&mut command, &server);
        refused(&mut command, "may not", "grant");
    }
}

/// An empty one.
fn bucket(scratch: &Scratch) -> String {
    format!("file://{}", scratch.folder("bucket").display())
}

#[test]
fn a_mount_point_that_cannot_be_used() {
    let scratch = Scratch::new();
    let fails = |mountpoint: &Path, cause: &str, remedy: &str| {
        refused(
            &mut mount(&scratch, &bucket(&scratch), mountpoint),
            cause,
            remedy,
        );
    };
    fails(&scratch.path("missing"), "does not exist", "create");
    fails(&scratch.file("file", ""), "is not a directory", "directory");
    let full = scratch.folder("full");
    scratch.file("full/entry", "");
    fails(&full, "is not empty", "nonempty");
    let busy = scratch.folder("busy");
    let mounted = run(&mut mount(&scratch, &bucket(&scratch), &busy));
    assert_eq!(mounted.code, Some(0), "{mounted:#?}");
    let cause = format!("is busy: `{}` is mounted there", bucket(&scratch));
    fails(&busy, &cause, "unmount");
    assert_eq!(
        run(scratch.penstock().arg("umount").arg(&busy)).code,
        Some(0)
    );
}

#[test]
fn a_malformed_configuration() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    for (text, cause) in [
        ("memory = ", ":1: "),
        ("\nmemry = 1", ":2: `memry` is not an option"),
        ("memory = \"1KiB\"", "`memory` cannot be `1KiB` (from "),
        ("fsync = \"perhaps\"", "`fsync` cannot be `perhaps` (from "),
    ] {
        let file = scratch.file("p.toml", text);
        let mut command = mount(&scratch, &bucket(&scratch), &mountpoint);
        command.arg("--config").arg(&file);
        refused(&mut command, cause, "");
    }
    let mut command = mount(&scratch, &bucket(&scratch), &mountpoint);
    command.args(["--config", "/no/such/file"]);
    refused(&mut command, "/no/such/file", "check the path");
}

#[test]
fn a_malformed_command_line() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    for (options, cause, remedy) in [
        (&["--memory", "1"][..], "`--memory` cannot be `1`", "64MiB"),
        (&["--no-such"], "--no-such", ""),
        (&["-o", "allow_others"], "allow_others", "allow-other"),
        (
            &["--access-key-secret", "anotherSecret"],
            "every user",
            "PENSTOCK_ACCESS_KEY_SECRET",
        ),
        (
            &["-o", "access_key_id=x"],
            "every user",
            "PENSTOCK_ACCESS_KEY_ID",
        ),
    ] {
        refused(
            mount(&scratch, &bucket(&scratch), &mountpoint).args(options),
            cause,
            remedy,
        );
    }
    refused(
        &mut mount(&scratch, "bucket", &mountpoint),
        "`bucket` is no source",
        "s3://",
    );
    refused(
        &mut mount(&scratch, "s3://A", &mountpoint),
        "no bucket name",
        "",
    );
}

#[test]
fn a_directory_inside_itself_and_a_log_inside_the_mount() {
    let scratch = Scratch::new();
    let bucket = scratch.folder("bucket");
    let source = format!("file://{}", bucket.display());
    let inside = scratch.folder("bucket/mnt");
    refused(
        &mut mount(&scratch, &source, &inside),
        "contain one another",
        "outside",
    );
    let mountpoint = scratch.folder("mnt");
    let mut command = mount(&scratch, &source, &mountpoint);
    command.arg("--log-file").arg(mountpoint.join("log"));
    refused(&mut command, "inside the mount point", "elsewhere");
    let mut command = mount(&scratch, &source, &mountpoint);
    command.arg("--cache-dir").arg(scratch.path("bucket/cache"));
    refused(&mut command, "inside the bucket's directory", "elsewhere");
    assert!(!scratch.path("bucket/cache").exists());
}

#[test]
fn a_port_for_metrics_that_is_taken() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let mut command = mount(&scratch, &bucket(&scratch), &mountpoint);
    command.args(["--metrics-address", &address]);
    refused(&mut command, "cannot listen", "another port");
    assert!(!is_mounted(&mountpoint));
    assert!(fs::read_dir(&mountpoint).expect("there").next().is_none());
}

#[test]
fn staging_options_of_a_mount_that_stages_nothing() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    let source = format!("file://{}", bucket.display());
    for option in [
        "staging-dir=/tmp/nowhere",
        "staging-size=1GiB",
        "save=behind",
        "save-after=1s",
        "unsaved-age=1s",
    ] {
        let name = option.split('=').next().expect("named");
        let mut command = mount(&scratch, &source, &mountpoint);
        refused(command.arg(format!("--{option}")), name, "--mode=staged");
        assert!(!is_mounted(&mountpoint));
    }
}

#[test]
fn staging_among_the_objects() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    let source = format!("file://{}", bucket.display());
    let mut command = mount(&scratch, &source, &mountpoint);
    let inside = bucket.join("not/there/yet");
    command
        .arg("--mode=staged")
        .arg(format!("--staging-dir={}", inside.display()));
    refused(
        &mut command,
        "inside the bucket's directory",
        "--staging-dir",
    );
    assert!(!is_mounted(&mountpoint));
    assert!(!inside.exists());
}

#[test]
fn a_place_with_a_stream_volume() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    fs::write(bucket.join("file"), "x").expect("room");
    let source = format!("file://{}", bucket.display());
    let stream = || {
        let mut command = scratch.penstock();
        command
            .args(["stream", "--transport=loop", &source])
            .arg(&mountpoint);
        command
    };
    if run(&mut stream()).code != Some(0) {
        return penstock_skips::skipped("volumes need root and loop devices");
    }
    for word in ["--refresh", "--nonempty"] {
        refused(
            stream().arg(word),
            &format!("is busy: `{source}` is mounted there"),
            "penstock umount",
        );
    }
    let mut command = mount(&scratch, &source, &mountpoint);
    refused(&mut command, "is busy", "penstock umount");
    support::succeed(scratch.penstock().arg("umount").arg(&mountpoint));
}

#[test]
fn fsync_to_the_journal_without_files_that_are_saved_behind() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    let source = format!("file://{}", bucket.display());
    let modes: [&[&str]; 3] = [&[], &["--mode=staged"], &["--mode=staged", "--save=close"]];
    for mode in modes {
        let mut command = mount(&scratch, &source, &mountpoint);
        command.args(mode).arg("--fsync=journal");
        let remedy = "--mode=staged --save=behind";
        refused(&mut command, "needs files that are saved behind", remedy);
        assert!(!is_mounted(&mountpoint));
    }
}
