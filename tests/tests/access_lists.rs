//! Access lists of a fileset, as the kernel and the programs of acl(5) see them.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
    rc::Rc,
};

use penstock_skips::skipped;
use penstock_tests::{Fileset, Finished, Mount, NfsMount, Patience, penstock, run_within};

const NOBODY: u32 = 65534;
/// Somebody whom no list names.
const STRANGER: u32 = 65533;

/// Whether the programs are here.
fn is_possible() -> bool {
    let there = ["setfacl", "getfacl"].map(|program| {
        let asked = Command::new(program).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    });
    if there.contains(&false) {
        skipped("setfacl is missing: install the package acl");
    }
    !there.contains(&false)
}

fn mounted_for_all(fileset: &Fileset) -> Mount {
    let mount = fileset.mount_with(&fileset.options().option("allow-other", "on"));
    fs::set_permissions(mount.join(""), fs::Permissions::from_mode(0o755)).unwrap();
    mount
}

/// Runs a script in a directory, as root.
fn sh(directory: &Path, script: &str) -> Finished {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(directory);
    run_within(Patience::seconds(60), &mut command)
}

/// The same as a user without further groups.
fn sh_as(uid: u32, directory: &Path, script: &str) -> Finished {
    let uid = uid.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
        .args(["sh", "-c", script])
        .current_dir(directory);
    run_within(Patience::seconds(60), &mut command)
}

/// What `getfacl` says of a file, a line each.
#[track_caller]
fn acl(directory: &Path, file: &str) -> Vec<String> {
    let said = sh(directory, &format!("getfacl -cnp {file}")).expect_success();
    let lines = said.stdout.lines().filter(|line| !line.is_empty());
    // The effect of the mask stands behind a tab.
    let plain = lines.map(|line| line.split('\t').next().unwrap_or_default().to_owned());
    plain.collect()
}

fn mode(directory: &Path, file: &str) -> u32 {
    fs::metadata(directory.join(file)).unwrap().mode() & 0o7777
}

#[test]
fn the_kernel_lets_in_whom_a_list_names_and_nobody_else() {
    if !is_possible() {
        return;
    }
    let fileset = Fileset::new("acl");
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "mkdir -m 700 private && echo secret > private/file && chmod 600 private/file",
    )
    .expect_success();
    assert!(!sh_as(NOBODY, &top, "ls private").succeeded());
    sh(
        &top,
        "setfacl -m u:65534:rwx private && setfacl -m u:65534:r private/file",
    )
    .expect_success();
    assert_eq!(
        acl(&top, "private/file"),
        [
            "user::rw-",
            "user:65534:r--",
            "group::---",
            "mask::r--",
            "other::---"
        ]
    );
    assert_eq!(mode(&top, "private/file"), 0o640);
    assert_eq!(sh_as(NOBODY, &top, "cat private/file").stdout, "secret\n");
    assert!(!sh_as(NOBODY, &top, "echo more >> private/file").succeeded());
    sh_as(NOBODY, &top, "echo own > private/own").expect_success();
    assert!(!sh_as(STRANGER, &top, "cat private/file").succeeded());
    assert!(!sh_as(NOBODY, &top, "setfacl -m u:65534:rw private/file").succeeded());
    // The mask, by the mode.
    sh(&top, "chmod g= private/file").expect_success();
    assert_eq!(acl(&top, "private/file")[3], "mask::---");
    assert!(!sh_as(NOBODY, &top, "cat private/file").succeeded());
    sh(&top, "setfacl -b private/file private").expect_success();
    assert_eq!(
        acl(&top, "private/file"),
        ["user::rw-", "group::---", "other::---"]
    );
    assert_eq!(mode(&top, "private"), 0o700);
    assert!(!sh_as(NOBODY, &top, "ls private").succeeded());
    // Its owner may, who is not root, and loses the bit of a group that is not his.
    sh(&top, "mkdir -m 777 open").expect_success();
    sh_as(
        NOBODY,
        &top,
        "touch open/his && chmod 600 open/his && setfacl -m u:65533:rw open/his",
    )
    .expect_success();
    sh_as(STRANGER, &top, "echo his >> open/his").expect_success();
    sh(&top, "chgrp 0 open/his && chmod g+s open/his").expect_success();
    sh_as(NOBODY, &top, "setfacl -m u:65533:rwx open/his").expect_success();
    assert_eq!(mode(&top, "open/his") & 0o2000, 0);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn the_umask_counts_where_no_list_is_handed_down() {
    let fileset = Fileset::new("acl-umask");
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "umask 077; mkdir plain && touch plain/file && mkfifo plain/pipe && mkdir plain/below",
    )
    .expect_success();
    let modes = ["plain", "plain/file", "plain/pipe", "plain/below"].map(|file| mode(&top, file));
    assert_eq!(modes, [0o700, 0o600, 0o600, 0o700]);
    mount.unmount();
}

#[test]
fn a_default_list_is_handed_down_and_stands_for_the_umask() {
    if !is_possible() {
        return;
    }
    let fileset = Fileset::new("acl-default");
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "mkdir shared && setfacl -d -m u::rwx,g::r-x,o::---,u:65534:rwx shared",
    )
    .expect_success();
    sh(&top, "umask 077; cd shared; touch file; mkdir below; mkfifo pipe; ln -s file link; touch below/deep").expect_success();
    let inherited = [
        "user::rw-",
        "user:65534:rwx",
        "group::r-x",
        "mask::rw-",
        "other::---",
    ];
    for file in ["shared/file", "shared/pipe", "shared/below/deep"] {
        assert_eq!(acl(&top, file), inherited, "{file}");
        assert_eq!(mode(&top, file), 0o660, "{file}");
    }
    let below = acl(&top, "shared/below");
    assert_eq!(
        below[..5],
        [
            "user::rwx",
            "user:65534:rwx",
            "group::r-x",
            "mask::rwx",
            "other::---"
        ]
    );
    assert_eq!(
        below[5..],
        [
            "default:user::rwx",
            "default:user:65534:rwx",
            "default:group::r-x",
            "default:mask::rwx",
            "default:other::---"
        ]
    );
    assert_eq!(mode(&top, "shared/below"), 0o770);
    sh(&top, "chmod 755 shared").expect_success();
    sh_as(
        NOBODY,
        &top,
        "echo x > shared/file && echo x > shared/below/new",
    )
    .expect_success();
    assert!(!sh_as(STRANGER, &top, "ls shared/below").succeeded());
    sh(
        &top,
        "setfacl -k shared && (umask 027; touch shared/masked)",
    )
    .expect_success();
    assert_eq!(mode(&top, "shared/masked"), 0o640);
    // They are there after a kill, and in a snapshot of then.
    fileset.snapshot("create", "then").expect_success();
    mount.kill_and_unmount();
    let mount = mounted_for_all(&fileset);
    assert_eq!(acl(&mount.join(""), "shared/file"), inherited);
    assert_eq!(acl(&mount.join(".snapshot/then"), "shared/file"), inherited);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn who_is_not_the_owner_reads_snapshots_and_links_as_lists_let_him() {
    if !is_possible() {
        return;
    }
    let fileset = Fileset::new("acl-snapshots");
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "mkdir -m 750 private && echo secret > private/file && chmod 640 private/file && echo open > open \
         && ln -s private/file link && setfacl -m u:65534:rx private && setfacl -m u:65534:r private/file",
    )
    .expect_success();
    fileset.snapshot("create", "then").expect_success();
    sh(&top, "setfacl -b private private/file").expect_success();
    let then = mount.join(".snapshot/then");
    assert_eq!(sh_as(NOBODY, &then, "cat open").stdout, "open\n");
    let shown = sh_as(NOBODY, &then, "ls ..").expect_success();
    assert_eq!(shown.stdout, "then\n");
    assert_eq!(sh_as(NOBODY, &then, "cat link").stdout, "secret\n");
    assert!(!sh_as(STRANGER, &then, "cat link").succeeded());
    assert!(!sh_as(NOBODY, &top, "cat link").succeeded());
    mount.unmount();
}

#[test]
fn copies_and_archives_keep_access_lists() {
    if !is_possible() {
        return;
    }
    let fileset = Fileset::new("acl-tools");
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "mkdir -p from/below to && echo x > from/below/file && mkfifo from/pipe \
         && setfacl -m u:65534:rw from/below/file from/pipe && setfacl -d -m u:65534:rwx from/below",
    )
    .expect_success();
    let tool = |arguments: &[&str]| {
        let mut command = penstock();
        command.args(arguments).current_dir(&top);
        run_within(Patience::seconds(60), &mut command).expect_success();
    };
    fs::create_dir(top.join("to/extracted")).unwrap();
    tool(&["as", "parcp", "-a", "from", "to/copy"]);
    tool(&["as", "partar", "-cf", "archive.tar", "from"]);
    tool(&["as", "partar", "-xf", "archive.tar", "-C", "to/extracted"]);
    for copy in ["to/copy", "to/extracted/from"] {
        for file in ["below", "below/file", "pipe"] {
            let (wanted, there) = (format!("from/{file}"), format!("{copy}/{file}"));
            assert_eq!(acl(&top, &there), acl(&top, &wanted), "{there}");
            assert_eq!(mode(&top, &there), mode(&top, &wanted), "{there}");
        }
    }
    mount.unmount();
}

#[test]
fn a_mount_target_checks_access_lists() {
    if !is_possible() || !NfsMount::is_possible() {
        return;
    }
    let fileset = Rc::new(Fileset::new("acl-nfs"));
    let mount = mounted_for_all(&fileset);
    let top = mount.join("");
    sh(
        &top,
        "mkdir -m 700 private && echo secret > private/file && chmod 600 private/file \
         && setfacl -m u:65534:rx private && setfacl -m u:65534:r private/file",
    )
    .expect_success();
    mount.unmount();
    let served = Rc::clone(&fileset);
    let mounted = NfsMount::new(move || served.command("serve"));
    let top = mounted.path();
    assert_eq!(sh_as(NOBODY, top, "cat private/file").stdout, "secret\n");
    assert!(!sh_as(NOBODY, top, "echo more >> private/file").succeeded());
    assert!(!sh_as(NOBODY, top, "touch private/new").succeeded());
    assert!(!sh_as(STRANGER, top, "cat private/file").succeeded());
}
