//! Snapshots of a fileset that the kernel has mounted, and of one that nobody has.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt, symlink},
};

use penstock_tests::{Fileset, Patience};

const PATIENCE: Patience = Patience::seconds(60);

/// What `list --json` says.
#[track_caller]
fn listed(fileset: &Fileset) -> Vec<serde_json::Value> {
    let listed = fileset.snapshots("list", &["--json"]).expect_success();
    serde_json::from_str(&listed.stdout).unwrap()
}

#[test]
fn a_snapshot_is_taken_seen_listed_and_removed_while_mounted() {
    let fileset = Fileset::new("snapshots");
    let mount = fileset.mount();
    fs::create_dir(mount.join("directory")).unwrap();
    fs::write(mount.join("directory/file"), vec![1; 3_000_000]).unwrap();
    symlink("directory/file", mount.join("link")).unwrap();
    assert!(!mount.join(".snapshot/before").exists());
    let taken = fileset.snapshot("create", "before");
    assert!(mount.join(".snapshot/before").exists(), "at once");
    assert_eq!(taken.expect_success().stdout.trim(), fileset.at("before"));
    let modified = fs::metadata(mount.join("directory/file")).unwrap().mtime();
    fs::write(mount.join("directory/file"), b"changed").unwrap();
    fs::remove_file(mount.join("link")).unwrap();
    fs::rename(mount.join("directory"), mount.join("moved")).unwrap();
    let there = mount.join(".snapshot/before");
    assert!(fs::read(there.join("link")).unwrap() == vec![1; 3_000_000]);
    let file = fs::metadata(there.join("directory/file")).unwrap();
    assert_eq!((file.len(), file.mtime()), (3_000_000, modified));
    assert_eq!(fs::read(mount.join("moved/file")).unwrap(), b"changed");
    let names = fs::read_dir(mount.join("")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["moved"], "it is not listed");
    let written = fs::write(there.join("new"), b"");
    assert_eq!(written.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let written = fs::write(there.join("directory/file"), b"");
    assert_eq!(written.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let again = fileset.snapshot("create", "before");
    assert!(!again.succeeded() && again.stderr.contains("is there already"));
    let all = listed(&fileset);
    assert_eq!((all.len(), &all[0]["name"]), (1, &"before".into()));
    assert_eq!(all[0]["bytes"], 3_000_000);
    fileset.snapshot("remove", "before").expect_success();
    let gone = fs::read_dir(mount.join(".snapshot")).unwrap().count();
    assert_eq!(gone, 0);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn mkdir_and_rmdir_take_and_remove_snapshots() {
    let fileset = Fileset::new("snapshot-mkdir");
    let mount = fileset.mount();
    fs::write(mount.join("file"), b"old").unwrap();
    fs::create_dir(mount.join(".snapshot/mine")).unwrap();
    fs::write(mount.join("file"), b"new").unwrap();
    let old = mount.join(".snapshot/mine/file");
    assert_eq!(fs::read(&old).unwrap(), b"old");
    mount.kill_and_unmount();
    let mount = fileset.mount();
    let old = mount.join(".snapshot/mine/file");
    assert_eq!(fs::read(&old).unwrap(), b"old");
    fs::remove_dir(mount.join(".snapshot/mine")).unwrap();
    assert!(!mount.join(".snapshot/mine").exists());
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn a_snapshot_is_taken_and_removed_while_nobody_has_the_fileset() {
    let fileset = Fileset::made_with("snapshot-alone", &["--durability=store"]);
    let mount = fileset.mount();
    fs::write(mount.join("file"), vec![1; 10_000]).unwrap();
    mount.unmount();
    let taken = fileset.snapshots("create", &[]).expect_success();
    let name = taken.stdout.trim().split('@').nth(1).unwrap().to_owned();
    assert!(name.starts_with("20") && name.ends_with('Z') && !name.contains(':'));
    let mount = fileset.mount();
    fs::remove_file(mount.join("file")).unwrap();
    mount.unmount();
    fileset.run("check", &["--data"]).expect_success();
    assert_eq!(listed(&fileset)[0]["bytes"], 10_000);
    let held = fileset.run("gc", &["--json"]).expect_success();
    let held: serde_json::Value = serde_json::from_str(&held.stdout).unwrap();
    assert_eq!(held["held"]["objects"], 1);
    let mount = fileset.mount();
    let file = mount.join(".snapshot").join(&name).join("file");
    assert!(fs::read(file).unwrap() == vec![1; 10_000]);
    mount.unmount();
    fileset.snapshot("remove", &name).expect_success();
    let left = fileset.run("gc", &["--json"]).expect_success();
    let left: serde_json::Value = serde_json::from_str(&left.stdout).unwrap();
    assert_eq!(
        (&left["held"]["objects"], &left["live"]["objects"]),
        (&0.into(), &0.into())
    );
    assert!(listed(&fileset).is_empty());
}

#[test]
fn scheduled_snapshots_and_dumps_are_made_by_the_mount_and_a_dump_brings_the_fileset_back() {
    let fileset = Fileset::new("snapshot-schedule");
    let nothing = fileset.run("schedule", &[]).expect_success();
    assert_eq!(nothing.stdout, "nothing is done by itself\n");
    let set = fileset.run("schedule", &["--monthly=3"]).expect_success();
    assert_eq!(set.stdout, "JOB      KEEP\nmonthly  3\n");
    let mount = fileset.mount();
    // One that was set before is done when it is mounted, and one that is set now at once.
    PATIENCE.until("a snapshot", || !listed(&fileset).is_empty());
    fs::write(mount.join("file"), b"small, and on this disk").unwrap();
    let set = fileset
        .run("schedule", &["--dumps=2", "--json"])
        .expect_success();
    let set: serde_json::Value = serde_json::from_str(&set.stdout).unwrap();
    assert_eq!(set, serde_json::json!({"monthly": 3, "dumps": 2}));
    let dumps = || {
        let listed = fileset.run("dump", &["--list", "--json"]).expect_success();
        serde_json::from_str::<Vec<serde_json::Value>>(&listed.stdout).unwrap()
    };
    PATIENCE.until("a dump", || !dumps().is_empty());
    let dump = dumps()[0]["name"].as_str().unwrap().to_owned();
    let names = listed(&fileset);
    let names: Vec<_> = names
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert!(
        names[0].starts_with("monthly-2") && names[1] == format!("dump-{dump}"),
        "{names:?}"
    );
    let refused = fileset.run("schedule", &["--daily=-1"]);
    assert!(!refused.succeeded());
    mount.unmount();
    fileset.run("check", &["--data"]).expect_success();
    fileset
        .run("destroy", &["--yes", "--local-only"])
        .expect_success();
    fileset.load_latest();
    let mount = fileset.mount();
    assert_eq!(
        fs::read(mount.join("file")).unwrap(),
        b"small, and on this disk"
    );
    mount.unmount();
}

#[test]
fn a_mounted_fileset_is_dumped_by_its_mount_and_comes_back() {
    let fileset = Fileset::new("dump-mounted");
    let mount = fileset.mount();
    fs::write(mount.join("file"), b"small, and on this disk").unwrap();
    let made = fileset.run("dump", &["--json"]).expect_success();
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    assert!(made["keys"].as_u64().unwrap() > 3);
    let again = fileset.run("dump", &["--keep=1"]).expect_success();
    let name = made["name"].as_str().unwrap();
    assert!(
        again.stdout.contains(&format!("{name} is removed")),
        "{}",
        again.stdout
    );
    let refused = fileset.run("dump", &["--output=-"]);
    assert!(
        !refused.succeeded() && refused.stderr.contains("in use"),
        "{}",
        refused.stderr
    );
    mount.kill_and_unmount();
    fileset
        .run("destroy", &["--yes", "--local-only"])
        .expect_success();
    fileset.load_latest();
    let mount = fileset.mount();
    assert_eq!(
        fs::read(mount.join("file")).unwrap(),
        b"small, and on this disk"
    );
    mount.unmount();
    fileset.run("check", &["--data"]).expect_success();
}
