//! Copies within a fileset, by the programs that make them: no byte of a file goes to the bucket or comes from there.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::Command,
};

use penstock_tests::{Fileset, Patience, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(120);
/// Bytes in the large file.
const LARGE: usize = 96 << 20;
/// Bytes in all that [`fill`] makes.
const ALL: u64 = LARGE as u64 + 5000 + 4;
/// Bytes that the bucket may get of a copy, and give: the log of the metadata, of which each large file has some kilobytes.
const LOG_MAX: u64 = 1 << 20;

/// A fileset whose bucket has all that was closed.
fn fileset(what: &str) -> Fileset {
    Fileset::made_with(what, &["--durability", "store"])
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 251) as u8).collect()
}

/// A directory with a large file, a small one and one with holes.
fn fill(directory: &Path) {
    fs::create_dir(directory).unwrap();
    fs::write(directory.join("large"), content(LARGE)).unwrap();
    fs::write(directory.join("small"), content(5000)).unwrap();
    let sparse = fs::File::create(directory.join("sparse")).unwrap();
    sparse.write_all_at(b"data", 20 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
}

fn is_same(one: &Path, other: &Path) {
    for name in ["large", "small", "sparse"] {
        let (one, other) = (one.join(name), other.join(name));
        let allocated = [&one, &other].map(|path| fs::metadata(path).unwrap().blocks());
        assert_eq!(allocated[0], allocated[1], "{name}");
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{name}");
    }
}

/// Fails if `work` brings bytes of files to the bucket, or from there.
#[track_caller]
fn moves_nothing(fileset: &Fileset, work: impl FnOnce()) {
    let before = fileset.counters();
    work();
    let after = fileset.counters();
    let sent = after.bytes_in - before.bytes_in;
    let received = after.bytes_out - before.bytes_out;
    assert!(sent.max(received) < LOG_MAX, "{sent} and {received} bytes");
}

/// Bytes in all objects of files, once nothing goes on.
fn stored(fileset: &Fileset) -> u64 {
    fileset.run("check", &["--data"]).expect_success();
    fileset.run("gc", &[]).expect_success();
    let collected = fileset.run("gc", &["--json"]).expect_success();
    let found: serde_json::Value = serde_json::from_str(&collected.stdout).unwrap();
    found["live"]["bytes"].as_u64().unwrap()
}

fn run(program: &str, arguments: &[&str], ends: [&Path; 2]) {
    let mut command = Command::new(program);
    command.args(arguments).args(ends);
    run_within(PATIENCE, &mut command).expect_success();
}

fn parcp(ends: [&Path; 2]) {
    let mut command = penstock();
    command.args(["as", "parcp", "-a"]).args(ends);
    run_within(PATIENCE, &mut command).expect_success();
}

#[test]
fn programs_copy_within_a_mount_without_moving_bytes() {
    let fileset = fileset("copies");
    let mount = fileset.mount();
    let source = mount.join("source");
    fill(&source);
    // The kernel has nothing of it, so who reads it asks the bucket.
    mount.unmount();
    let mount = fileset.mount();
    let source = mount.join("source");
    let copies = ["cp", "reflink", "parcp"].map(|name| mount.join(name));
    moves_nothing(&fileset, || {
        run("cp", &["-a"], [&source, &copies[0]]);
        run("cp", &["-r", "--reflink=auto"], [&source, &copies[1]]);
        parcp([&source, &copies[2]]);
    });
    for copy in &copies {
        is_same(&source, copy);
    }
    // Both go their own ways.
    let copy = fs::OpenOptions::new()
        .write(true)
        .open(copies[0].join("large"));
    copy.unwrap().write_all_at(b"over", 4_194_302).unwrap();
    is_same(&source, &copies[1]);
    let mut expected = content(LARGE);
    expected[4_194_302..4_194_306].copy_from_slice(b"over");
    assert!(fs::read(copies[0].join("large")).unwrap() == expected);
    fs::remove_dir_all(&source).unwrap();
    mount.unmount();
    // What is written over, and twice the data of the file with holes: coreutils 9.1 reads and writes that.
    let stored = stored(&fileset);
    assert!((ALL + 4..=ALL + 12).contains(&stored), "{stored}");
    let mount = fileset.mount();
    assert!(fs::read(mount.join("parcp/large")).unwrap() == content(LARGE));
    mount.unmount();
}

#[test]
fn a_copy_between_paths_of_a_fileset_moves_no_bytes() {
    let fileset = fileset("direct-copies");
    let mount = fileset.mount();
    fill(&mount.join("source"));
    mount.unmount();
    let url = |path: &str| format!("fileset://{}/{path}", fileset.name());
    moves_nothing(&fileset, || {
        let mut command = penstock();
        command.args(["as", "parcp", "-a", &url("source"), &url("copy")]);
        fileset.options().apply(&mut command);
        run_within(PATIENCE, &mut command).expect_success();
    });
    assert_eq!(stored(&fileset), ALL);
    let mount = fileset.mount();
    is_same(&mount.join("source"), &mount.join("copy"));
    mount.unmount();
}

#[test]
fn a_directory_of_a_snapshot_becomes_a_writable_clone() {
    let fileset = fileset("clones");
    let mount = fileset.mount();
    fill(&mount.join("home"));
    fs::create_dir(mount.join(".snapshot/then")).unwrap();
    fs::remove_dir_all(mount.join("home")).unwrap();
    mount.unmount();
    let mount = fileset.mount();
    let kept = mount.join(".snapshot/then/home");
    moves_nothing(&fileset, || {
        parcp([&kept, &mount.join("clone")]);
    });
    is_same(&kept, &mount.join("clone"));
    let clone = fs::OpenOptions::new()
        .write(true)
        .open(mount.join("clone/large"));
    clone.unwrap().write_all_at(b"mine", 0).unwrap();
    assert!(fs::read(kept.join("large")).unwrap() == content(LARGE));
    // It needs no snapshot.
    fs::remove_dir(mount.join(".snapshot/then")).unwrap();
    mount.unmount();
    assert_eq!(stored(&fileset), ALL + 4);
    let mount = fileset.mount();
    let mut expected = content(LARGE);
    expected[..4].copy_from_slice(b"mine");
    assert!(fs::read(mount.join("clone/large")).unwrap() == expected);
    mount.unmount();
}
