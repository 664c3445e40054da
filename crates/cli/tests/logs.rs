//! What a log says, and what it must not.

mod support;

use std::{os::unix::fs::PermissionsExt, process::Command};

use penstock_devserver::Server;
use support::{BUCKET, KEY_ID, SECRET, Scratch, run, strict_server};

/// The program at the level debug, which leads to `server`.
fn verbose(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Command {
    let mut command = scratch.penstock();
    command.args(arguments).args(["--log-level", "debug"]);
    support::with_access(&mut command, server);
    command
}

#[test]
fn the_level_debug_has_a_line_for_each_request() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server
        .data()
        .put(BUCKET, "there", b"12345")
        .expect("memory");
    for (key, status) in [("there", "status=200"), ("missing", "status=404")] {
        let source = format!("s3://{BUCKET}/{key}");
        let ended = run(&mut verbose(&scratch, &server, &["stat", &source]));
        let line = ended.err.lines().find(|line| line.contains("HEAD"));
        let line = line.unwrap_or_else(|| panic!("no line: {ended:#?}"));
        for part in [status, &format!("`{key}`"), "time=", "operation=\"head\""] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let lower = ended.err.to_lowercase();
        for secret in [SECRET, KEY_ID, "Signature", "Authorization"] {
            assert!(!lower.contains(&secret.to_lowercase()), "{secret}");
        }
    }
}

#[test]
fn names_of_objects_write_no_lines_of_their_own() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}/a\n2000-01-01 ERROR forged\u{1b}[2J");
    let ended = run(&mut verbose(&scratch, &server, &["stat", &source]));
    assert!(
        ended.err.contains("a\\n2000-01-01 ERROR forged\\"),
        "{ended:#?}"
    );
    assert!(!ended.err.contains('\u{1b}'), "{ended:#?}");
    assert!(!ended.err.contains("\n2000-01-01"), "{ended:#?}");
}

#[test]
fn arguments_of_a_program_that_prints_credentials_are_not_logged() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let text = format!(
        "#!/bin/sh\necho '{{\"Version\":1,\"AccessKeyId\":\"{KEY_ID}\",\"SecretAccessKey\":\"{SECRET}\"}}'\n"
    );
    let program = scratch.file("print", &text);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("changed");
    let profile = format!(
        "[default]\ncredential_process = {} hunter2\n",
        program.display()
    );
    let profile = scratch.file("config", &profile);
    let source = format!("s3://{BUCKET}");
    let mut command = verbose(&scratch, &server, &["ls", &source]);
    command.env_remove("PENSTOCK_ACCESS_KEY_ID");
    command.env_remove("PENSTOCK_ACCESS_KEY_SECRET");
    command.env("AWS_CONFIG_FILE", &profile);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.err.contains("the program"), "{ended:#?}");
    assert!(!ended.err.contains("hunter2"), "{ended:#?}");
}

#[test]
fn a_small_staging_disk_that_bounds_what_the_kernel_sends_is_told() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    let disk = scratch.folder("disk");
    let mut tmpfs = Command::new("mount");
    tmpfs
        .args(["-t", "tmpfs", "-o", "size=100m", "none"])
        .arg(&disk);
    if run(&mut tmpfs).code != Some(0) {
        return penstock_skips::skipped("only root can mount");
    }
    let mut command = scratch.penstock();
    command
        .args(["mount", "--mode=staged", "--memory=64MiB"])
        .arg(format!("--staging-dir={}", disk.join("staging").display()))
        .arg(format!("file://{}", bucket.display()))
        .arg(&mountpoint);
    assert_eq!(run(&mut command).code, Some(0));
    support::succeed(scratch.penstock().arg("umount").arg(&mountpoint));
    let log = scratch.log();
    let line = log.lines().find(|line| line.contains("max-background"));
    let line = line.unwrap_or_else(|| panic!("no line in {log}"));
    for part in ["WARN", "the staging disk", "wanted=512", "granted="] {
        assert!(line.contains(part), "{line}");
    }
}
