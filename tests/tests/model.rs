//! Mounts behave as the model says, whatever programs do in whatever order.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

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
        let mount = self.mount.get_mut();
        if !mount.is_alive() {
            println!("the mount died: {}", mount.last_words());
            self.mount.replace(self.bucket.mount());
        }
        self.count += 1;
        let path = self.mount.get_mut().join(format!("case-{}", self.count));
        fs::create_dir(&path).expect("mkdir in a live mount");
        path
    }
}

/// Makes long runs: multiplies how many sequences each test tries.
const EFFORT_VARIABLE: &str = "PENSTOCK_TEST_EFFORT";

fn effort() -> u32 {
    std::env::var(EFFORT_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

#[track_caller]
fn check_kind(kind: Kind, cases: u32) {
    let settings = Settings {
        rules: Rules::Streaming,
        cases: cases * effort(),
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
