use penstock_vfs::{Identity, NewKind};
use penstock_vfs_conformance::MemoryVolume;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{Summary, Threads};

/// A volume in memory with `tree/` of `directories` with `files` in each, a link out of it, and a neighbour.
fn volume(directories: usize, files: usize) -> (Runtime, VolumeTree) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let volume = Arc::new(MemoryVolume::new());
    let tree = VolumeTree::new(volume, Identity::root(), runtime.handle().clone());
    let root = tree.root().unwrap();
    let top = root.make_directory(c"tree", 0o755).unwrap();
    for directory in 0..directories {
        let directory = top.make_directory(&number(directory), 0o755).unwrap();
        for file in 0..files {
            directory
                .make(&number(file), NewKind::Regular, 0o644)
                .unwrap();
        }
    }
    let kept = root.make_directory(c"treetop", 0o755).unwrap();
    kept.make(c"file", NewKind::Regular, 0o644).unwrap();
    top.make_symlink(c"link", b"../treetop").unwrap();
    (runtime, tree)
}

fn number(number: usize) -> CString {
    CString::new(number.to_string()).unwrap()
}

fn settings() -> Settings {
    Settings {
        recursive: true,
        directories: false,
        force: false,
        root: false,
        one_file_system: false,
        mounts: false,
        threads: Threads::Fixed(4),
    }
}

fn removed(tree: &VolumeTree, path: &[&str], settings: &Settings) -> Summary {
    let report = Report::default();
    let names = path.iter().map(|name| CString::new(*name).unwrap());
    let path = VolumePath {
        tree: tree.clone(),
        path: names.collect(),
        is_directory: false,
        shown: format!("fileset://home/{}", path.join("/")).into(),
    };
    remove_in_volumes(&[path], settings, &report, &Stop::default());
    report.summary()
}

fn names(tree: &VolumeTree) -> Vec<CString> {
    let root = InVolume::new(tree.root().unwrap());
    let mut names: Vec<_> = root.next_names().unwrap();
    names.sort_by(|one, other| one.name.cmp(&other.name));
    names.into_iter().map(|named| named.name).collect()
}

#[test]
fn a_tree_goes_and_what_a_link_in_it_leads_to_stays() {
    let (_runtime, tree) = volume(20, 1100);
    let summary = removed(&tree, &["tree"], &settings());
    assert_eq!(summary.failures, [""; 0]);
    assert_eq!((summary.files, summary.directories), (22_001, 21));
    assert_eq!(names(&tree), [c"treetop".to_owned()]);
    let kept = tree.root().unwrap().open_in(c"treetop").unwrap();
    assert!(kept.stat(c"file").is_ok());
}

#[test]
fn what_is_no_tree_is_told() {
    let (_runtime, tree) = volume(1, 1);
    let plain = Settings {
        recursive: false,
        ..settings()
    };
    for (path, settings, why) in [
        (&["tree"][..], &plain, "Is a directory"),
        (&["none"], &settings(), "No such file or directory"),
        (&["tree", "link", "file"], &settings(), "Not a directory"),
        (&[], &settings(), "--no-preserve-root"),
    ] {
        let failures = removed(&tree, path, settings).failures;
        assert!(failures[0].contains(why), "{path:?}: {failures:?}");
    }
    let force = Settings {
        force: true,
        ..settings()
    };
    assert_eq!(removed(&tree, &["none"], &force).failed, 0);
    assert_eq!(names(&tree).len(), 2);
    assert_eq!(removed(&tree, &["tree", "0", "0"], &plain).files, 1);
}

#[test]
fn everything_goes_where_that_is_said_and_the_root_stays() {
    let (_runtime, tree) = volume(3, 10);
    let root = Settings {
        root: true,
        ..settings()
    };
    let summary = removed(&tree, &[], &root);
    assert_eq!((summary.failed, summary.directories), (0, 5));
    assert!(names(&tree).is_empty());
}
