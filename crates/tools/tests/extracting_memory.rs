//! The memory that partar takes to extract, in a process of its own.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod archives;
mod support;

use std::fs;

use archives::{extracted, extracting, made};

/// Directories in one another.
const DEPTH: usize = 400;
const DIRECTORIES: usize = 4000;
/// Bytes that the archive and its directories may take.
const GROWTH_MAX: usize = 48 << 20;

/// The most memory that this process ever took.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<usize>().unwrap() << 10
}

#[test]
fn a_directory_takes_memory_for_its_path_and_not_for_each_part_of_it() {
    let to = tempfile::tempdir().unwrap();
    let above = "d/".repeat(DEPTH);
    let paths: Vec<String> = (0..DIRECTORIES)
        .map(|number| format!("{above}{number}\0"))
        .collect();
    let members: Vec<_> = paths
        .iter()
        .flat_map(|path| {
            [
                ("long", b'L', "", path.as_bytes()),
                ("short", b'5', "", &b""[..]),
            ]
        })
        .collect();
    let archive = made(&members);
    let before = peak();
    let summary = extracted(&archive, to.path(), &extracting());
    assert_eq!(summary.failures, [""; 0]);
    assert_eq!(summary.directories as usize, DIRECTORIES);
    let growth = peak() - before;
    assert!(growth < GROWTH_MAX, "{growth} bytes");
}
