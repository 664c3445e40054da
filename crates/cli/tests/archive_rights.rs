//! Rights of archives that take the place of others.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use support::{Scratch, succeed};

#[test]
fn an_archive_gives_its_group_no_more_than_the_access_list_did_that_it_replaces() {
    let scratch = Scratch::new();
    let (archive, file) = (scratch.file("a.tar", "old"), scratch.file("f", "text"));
    fs::set_permissions(&archive, fs::Permissions::from_mode(0o600)).unwrap();
    let given = Command::new("setfacl")
        .args(["-m", "u:1:rw,g::---,m::rw"])
        .arg(&archive)
        .status();
    if !given.is_ok_and(|status| status.success()) {
        return penstock_skips::skipped("there is no setfacl, or no access list here");
    }
    let mut command = scratch.penstock();
    succeed(command.args(["tar", "-c", "-f"]).arg(&archive).arg(&file));
    let listed = Command::new("getfacl")
        .arg("-c")
        .arg(&archive)
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("group::---"), "{listed}");
}
