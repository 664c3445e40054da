//! What parrm removes, and what it leaves.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use penstock_tools::{
    Report, Stop, Summary, Threads,
    remove::{Settings, remove},
};

fn settings() -> Settings {
    Settings {
        recursive: true,
        directories: false,
        force: false,
        root: false,
        one_file_system: false,
        mounts: false,
        threads: Threads::Fixed(8),
    }
}

fn removed(path: &Path, settings: &Settings) -> Summary {
    let report = Report::default();
    remove(&[path.to_path_buf()], settings, &report, &Stop::default());
    report.summary()
}

#[test]
fn a_random_tree_goes_and_what_its_links_lead_to_stays() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "here").unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    support::fill(&tree, 3000, 7, support::EVERYTHING);
    symlink(&kept, tree.join("leads-out")).unwrap();
    let summary = removed(&tree, &settings());
    assert_eq!(summary.failures, [""; 0]);
    assert_eq!(summary.files + summary.directories, 3002);
    assert!(!tree.exists() && kept.join("file").exists());
}

#[test]
fn a_deep_tree_goes() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let mut path = tree.clone();
    (0..300).for_each(|_| path.push("directory"));
    fs::create_dir_all(&path).unwrap();
    let summary = removed(&tree, &settings());
    assert_eq!((summary.directories, summary.failed), (301, 0));
}

#[test]
fn directories_stay_without_r_and_missing_names_are_told_without_f() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("directory");
    fs::create_dir(&path).unwrap();
    let plain = Settings {
        recursive: false,
        ..settings()
    };
    let summary = removed(&path, &plain);
    assert!(
        summary.failures[0].contains("Is a directory"),
        "{summary:?}"
    );
    let empty = Settings {
        directories: true,
        ..plain.clone()
    };
    assert_eq!(removed(&path, &empty).failed, 0);
    let summary = removed(&path, &plain);
    assert!(summary.failures[0].contains("No such file"), "{summary:?}");
    let forced = Settings {
        force: true,
        ..plain
    };
    assert_eq!(removed(&path, &forced).failed, 0);
}

#[test]
fn the_root_and_where_one_stands_are_refused() {
    for path in ["/", "//", "/usr/..", ".", "..", "/proc"] {
        let summary = removed(Path::new(path), &settings());
        assert_eq!(
            (summary.failed, summary.files),
            (1, 0),
            "{path}: {summary:?}"
        );
    }
    let summary = removed(Path::new("/proc"), &settings());
    assert!(summary.failures[0].contains("mount point"), "{summary:?}");
}

#[test]
fn a_link_named_by_the_user_goes_and_not_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let link = folder.path().join("link");
    symlink(&target, &link).unwrap();
    assert_eq!(removed(&link, &settings()).files, 1);
    assert!(target.exists() && !link.exists());
}

#[test]
fn one_failure_is_not_the_end_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    let report = Report::default();
    let paths = [missing, there.clone()];
    remove(&paths, &settings(), &report, &Stop::default());
    assert_eq!(report.failed(), 1);
    assert!(!there.exists());
}

/// A thread that swaps directories for links to a place outside while the tree is removed.
#[test]
fn directories_that_become_links_meanwhile_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    fs::create_dir_all(outside.join("precious")).unwrap();
    fs::write(outside.join("precious/file"), "stays").unwrap();
    for round in 0..20 {
        let tree = folder.path().join(format!("tree-{round}"));
        for number in 0..40 {
            let directory = tree.join(format!("{number}/precious"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "goes").unwrap();
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| swap_until(&is_over, &tree, &outside));
            let forced = Settings {
                force: true,
                ..settings()
            };
            removed(&tree, &forced);
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(outside.join("precious/file")).unwrap(), b"stays");
    }
}

fn swap_until(is_over: &AtomicBool, tree: &Path, outside: &Path) {
    for number in (0..40).cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let directory = tree.join(number.to_string());
        let aside: PathBuf = tree.join(format!("{number}-aside"));
        if fs::rename(&directory, &aside).is_ok() {
            let _ = symlink(outside, &directory);
            let _ = fs::remove_file(&directory);
            let _ = fs::rename(&aside, &directory);
        }
    }
}

#[test]
fn a_stop_ends_it_and_says_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    support::fill(&tree, 200, 9, support::EVERYTHING);
    let report = Report::default();
    let stop = Stop::default();
    stop.set();
    remove(std::slice::from_ref(&tree), &settings(), &report, &stop);
    assert!(tree.exists());
    assert_eq!(report.failed(), 0);
}

#[test]
fn a_name_with_a_slash_behind_it_is_a_directory_or_nothing_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(folder.path().join("file"), "stays").unwrap();
    symlink("directory", folder.path().join("link")).unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    for name in ["file", "link", "dangling"] {
        let path = folder.path().join(name);
        let summary = removed(&path.join(""), &settings());
        assert_eq!(summary.failed, 1, "{name}");
        assert!(
            summary.failures[0].ends_with("Not a directory"),
            "{summary:?}"
        );
        assert!(fs::symlink_metadata(path).is_ok(), "{name}");
    }
    let forced = Settings {
        force: true,
        ..settings()
    };
    let missing = removed(&folder.path().join("file/"), &forced);
    assert_eq!((missing.failed, missing.files), (0, 0));
    assert_eq!(removed(&folder.path().join("link/"), &forced).failed, 1);
    assert_eq!(removed(&directory.join(""), &settings()).failed, 0);
    assert!(!directory.exists());
}
