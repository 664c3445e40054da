//! Mounts behave as the model says, whatever programs do in whatever order.

use std::{cell::RefCell, fs, path::PathBuf};

use penstock_tests::{
    Bucket, Kind, Mount,
    model::{Rules, Settings, check},
};

/// Hands out new directories of one mount, and mounts again when the mount is dead, so that a
/// crash is found and shrunk like any other difference.
struct Folders {
    bucket: Bucket,
    mount: RefCell<Mount>,
    count: u32,
}

impl Folders {
    fn new(kind: Kind) -> Self {
        let bucket = Bucket::new(kind);
        let mount = RefCell::new(bucket.mount());
        Self {
            bucket,
            mount,
            count: 0,
        }
    }

    fn next(&mut self) -> PathBuf {
        if !self.mount.get_mut().is_alive() {
            self.mount.replace(self.bucket.mount());
        }
        self.count += 1;
        let path = self.mount.get_mut().join(format!("case-{}", self.count));
        fs::create_dir(&path).expect("mkdir in a live mount");
        path
    }
}

#[track_caller]
fn check_kind(kind: Kind, cases: u32) {
    let settings = Settings {
        rules: Rules::Streaming,
        cases,
        length: 40,
        regressions: Some("proptest-regressions/model.txt"),
    };
    let mut folders = Folders::new(kind);
    check(&settings, || folders.next());
    folders.mount.into_inner().unmount();
}

#[test]
fn a_local_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::Local, 100);
}

#[test]
fn an_s3_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::S3, 60);
}

#[test]
fn an_oss_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::Oss, 60);
}
