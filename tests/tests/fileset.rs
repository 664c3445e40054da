//! A fileset from its making to its end, mounted by the kernel.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
};

use penstock_tests::{Bucket, Finished, Kind, Mount, Patience, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(60);

/// A fileset on a bucket of its own. It is destroyed with this, also when a test fails.
struct Fileset {
    name: String,
    bucket: Bucket,
}

impl Fileset {
    fn new(what: &str) -> Self {
        let name = format!("test-{what}-{}", std::process::id());
        let bucket = Bucket::new(Kind::S3);
        let fileset = Self { name, bucket };
        let source = format!("{}/below", fileset.bucket.source());
        fileset
            .run("create", &["--store", &source])
            .expect_success();
        fileset
    }

    fn source(&self) -> String {
        format!("fileset://{}", self.name)
    }

    fn run(&self, verb: &str, more: &[&str]) -> Finished {
        let mut command = self.bucket.command_on("fileset", verb);
        run_within(PATIENCE, command.arg(&self.name).args(more))
    }

    /// Whether `penstock fileset info` shows it, which needs no store.
    fn is_shown(&self) -> bool {
        let mut command = penstock();
        run_within(PATIENCE, command.args(["fileset", "info", &self.name])).succeeded()
    }

    fn mount(&self) -> Mount {
        Mount::new(&self.source(), &self.bucket.options())
    }
}

impl Drop for Fileset {
    fn drop(&mut self) {
        self.run("destroy", &["--yes"]);
    }
}

#[test]
fn a_fileset_is_made_mounted_filled_checked_and_destroyed() {
    let fileset = Fileset::new("life");
    let again = fileset.run("create", &["--store", "file:///nowhere"]);
    assert!(!again.succeeded(), "the name is taken");
    let mount = fileset.mount();
    let content: Vec<u8> = (0..9_000_000_u32).map(|at| (at / 251) as u8).collect();
    fs::create_dir(mount.join("directory")).unwrap();
    fs::write(mount.join("directory/file"), &content).unwrap();
    fs::hard_link(mount.join("directory/file"), mount.join("second name")).unwrap();
    symlink("directory/file", mount.join("link")).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(mount.join("link"))
        .unwrap();
    file.write_all_at(b"over", 4_194_302).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(mount.join("directory"), mount.join("moved")).unwrap();
    assert!(!fileset.is_shown(), "it is in use");
    mount.unmount();
    let checked = fileset.run("check", &[]);
    checked.expect_success();
    let mount = fileset.mount();
    let mut expected = content;
    expected[4_194_302..4_194_306].copy_from_slice(b"over");
    assert!(fs::read(mount.join("second name")).unwrap() == expected);
    assert_eq!(fs::metadata(mount.join("moved/file")).unwrap().nlink(), 2);
    mount.unmount();
    fileset.run("destroy", &["--yes"]).expect_success();
    assert!(!fileset.is_shown(), "it is gone");
}

#[test]
fn what_was_closed_before_a_kill_is_there_after_it() {
    let fileset = Fileset::new("kill");
    let mount = fileset.mount();
    for number in 0..50 {
        fs::write(
            mount.join(format!("file-{number}")),
            format!("content {number}"),
        )
        .unwrap();
    }
    mount.kill_and_unmount();
    let mount = fileset.mount();
    for number in 0..50 {
        let content = fs::read_to_string(mount.join(format!("file-{number}"))).unwrap();
        assert_eq!(content, format!("content {number}"));
    }
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}
