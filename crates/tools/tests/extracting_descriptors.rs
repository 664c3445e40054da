//! What partar does where few files may be open. The limit is the process's, so this test has one to itself.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod archives;
mod support;

use std::fs;

use archives::{extracted, extracting, made};
use penstock_tools::{Threads, archive::ExtractSettings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// It kept 256 directories open, and failed where no more files may be.
#[test]
fn an_archive_may_have_more_directories_than_files_may_be_open() {
    const DIRECTORIES: usize = 300;
    let names: Vec<[String; 2]> = (0..DIRECTORIES)
        .map(|number| [format!("{number}/"), format!("{number}/file")])
        .collect();
    let members: Vec<_> = names
        .iter()
        .flat_map(|[directory, file]| {
            let directory = (directory.as_str(), b'5', "", &b""[..]);
            [directory, (file.as_str(), b'0', "", b"content")]
        })
        .collect();
    let archive = made(&members);
    let to = tempfile::tempdir().unwrap();
    let few = Rlimit {
        current: Some(64),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let settings = ExtractSettings {
        threads: Threads::Fixed(2),
        ..extracting()
    };
    let summary = extracted(&archive, to.path(), &settings);
    assert_eq!(summary.failures, [""; 0]);
    for [_, file] in &names {
        assert_eq!(fs::read(to.path().join(file)).unwrap(), b"content");
    }
}
