//! A tree of random names, sizes and depths is the same through every door, file by file.
//!
//! `make test` compares a few thousand files, `make soak` a hundred thousand.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use penstock_tests::{
    Kind, Mount,
    data::{digest, digest_of, noise},
    stream::{Rig, WAYS, files_below},
};

/// How many files there are.
const FILES_VARIABLE: &str = "PENSTOCK_TEST_TREE_FILES";
const FILES_DEFAULT: u64 = 5000;

/// Threads that compare.
const THREADS: usize = 8;

/// Seconds by which the clocks of a bucket and of its user may differ.
const CLOCK_SLACK: i64 = 2;

/// A file's content follows from these.
#[derive(Debug, Clone, Copy)]
struct Content {
    seed: u64,
    size: usize,
}

/// Objects by their keys.
type Tree = BTreeMap<String, Content>;

fn random_tree(files: u64) -> Tree {
    let mut tree = Tree::new();
    for seed in 0..files {
        let pick = noise(seed + 1, 24);
        let mut key = String::new();
        for level in 0..usize::from(pick[0] % 9) {
            key.push_str(&format!("d{}/", pick[1 + level] % 7));
        }
        let names = ["plain", "with space", "ünï", "-dash", ".hidden", "a+b%&<x>"];
        let name = names[usize::from(pick[16]) % names.len()];
        key.push_str(&format!("{name}-{seed}"));
        let of = usize::from(pick[17]);
        let size = match u16::from_le_bytes([pick[18], pick[19]]) % 500 {
            0 => of * 1999 + 100_000,
            1..50 => of * 64,
            50..100 => 0,
            _ => of * 17,
        };
        tree.insert(key, Content { seed, size });
    }
    let (seed, size) = (files, 20 << 20);
    tree.insert("large".to_owned(), Content { seed, size });
    tree
}

fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}

/// Compares names, sizes, times and bytes; returns the times.
fn compare(mount: &Mount, tree: &Tree, written: (i64, i64)) -> BTreeMap<String, (i64, i64)> {
    let mut shown = files_below(mount.path());
    shown.sort();
    let mut expected: Vec<_> = tree.keys().map(PathBuf::from).collect();
    expected.sort();
    assert!(shown == expected, "{} names are shown", shown.len());
    let files: Vec<_> = tree.iter().collect();
    let compare_share = |files: &[(&String, &Content)]| {
        let times = files.iter().map(|(key, content)| {
            let path = mount.join(key);
            let metadata = fs::metadata(&path).expect("it is listed");
            assert_eq!(metadata.len(), content.size as u64, "{key}");
            let time = metadata.mtime();
            assert!((written.0..=written.1).contains(&time), "{key}: {time}");
            let expected = digest_of(&noise(content.seed, content.size));
            assert_eq!(digest(&path).expect("readable"), expected, "{key}");
            ((*key).clone(), (time, metadata.mtime_nsec()))
        });
        times.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let shares = files.chunks(files.len().div_ceil(THREADS));
        let working: Vec<_> = shares
            .map(|share| scope.spawn(|| compare_share(share)))
            .collect();
        let done = working.into_iter().map(thread::ScopedJoinHandle::join);
        done.flat_map(|times| times.expect("all are the same"))
            .collect()
    })
}

#[test]
fn a_random_tree_is_the_same_through_every_door() {
    let given = std::env::var(FILES_VARIABLE).ok();
    let files = given.map_or(FILES_DEFAULT, |text| text.parse().expect("a whole number"));
    let tree = random_tree(files);
    let rig = Rig::new(Kind::S3);
    let begun = seconds_now() - CLOCK_SLACK;
    for (key, content) in &tree {
        rig.bucket
            .put_outside(key, &noise(content.seed, content.size));
    }
    let written = (begun, seconds_now() + CLOCK_SLACK);
    let mut times = None;
    for way in WAYS {
        let begun = Instant::now();
        let mount = rig.mount(&rig.way(way));
        let found = compare(&mount, &tree, written);
        assert!(
            *times.get_or_insert_with(|| found.clone()) == found,
            "{way}"
        );
        let refused = fs::write(mount.join("new"), "x").expect_err("read-only");
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{way}");
        mount.unmount();
        println!("{way}: {} files in {:?}", tree.len(), begun.elapsed());
    }
}
