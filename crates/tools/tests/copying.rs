//! What parcp copies, and how it goes on where it was cut off.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod copies;
mod support;

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use copies::{Mounted, copied, folder, name_on_its_way, plain, restore, set_list};
use penstock_skips::skipped;
use penstock_tools::{
    Report, Stop,
    copy::{Settings, Unchanged, copy},
};
use support::{EVERYTHING, assert_same, fill};

#[test]
fn a_random_tree_arrives_identical_and_a_second_restore_copies_nothing() {
    let (_folder, from, to) = folder();
    fill(&from, 4000, 1, EVERYTHING);
    let first = copied(&[&from], &to, &restore());
    assert_eq!(first.failures, [""; 0]);
    assert_same(&from, &to);
    let second = copied(&[&from], &to, &restore());
    assert_eq!(
        (second.files, second.bytes, second.failed),
        (0, 0, 0),
        "{second:?}"
    );
    assert_eq!(second.unchanged, first.files + first.directories);
    assert_same(&from, &to);
}

#[test]
fn verify_and_checksum_find_the_same_tree_the_same() {
    let (_folder, from, to) = folder();
    fill(&from, 300, 2, EVERYTHING);
    let verified = Settings {
        verify: true,
        ..restore()
    };
    assert_eq!(copied(&[&from], &to, &verified).failures, [""; 0]);
    let file = from.join("file");
    fs::write(&file, "one").unwrap();
    copied(&[&from], &to, &restore());
    // The same size and time, and another content: only a comparison tells.
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "two").unwrap();
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(copied(&[&from], &to, &restore()).files, 0);
    let compared = Settings {
        unchanged: Unchanged::ByContent,
        ..restore()
    };
    assert_eq!(copied(&[&from], &to, &compared).files, 1);
    assert_same(&from, &to);
}

#[test]
fn a_mirror_loses_what_its_source_lost_and_keeps_what_is_left_out() {
    let (_folder, from, to) = folder();
    fill(&from, 500, 3, EVERYTHING);
    copied(&[&from], &to, &restore());
    fs::create_dir_all(to.join("gone/deep/er")).unwrap();
    fs::write(to.join("gone/deep/file"), "x").unwrap();
    symlink("/etc", to.join("gone-link")).unwrap();
    fs::write(to.join("kept.log"), "x").unwrap();
    // A directory where the source has a file, and the other way round.
    fs::write(from.join("turns"), "file").unwrap();
    fs::create_dir_all(to.join("turns/into")).unwrap();
    fs::create_dir(from.join("becomes")).unwrap();
    symlink("/etc", to.join("becomes")).unwrap();
    let mut mirror = Settings {
        delete: true,
        ..restore()
    };
    mirror.exclude.add(b"*.log").unwrap();
    let summary = copied(&[&from], &to, &mirror);
    assert_eq!(summary.failures, [""; 0]);
    assert!(to.join("kept.log").exists() && Path::new("/etc/passwd").exists());
    fs::remove_file(to.join("kept.log")).unwrap();
    copied(&[&from], &to, &mirror);
    assert_same(&from, &to);
}

#[test]
fn patterns_leave_out_names_and_anchored_paths() {
    let (_folder, from, to) = folder();
    for path in ["a/cache/x", "cache/x", "a/b.o", "c.o", "keep"] {
        fs::create_dir_all(from.join(path).parent().unwrap()).unwrap();
        fs::write(from.join(path), "x").unwrap();
    }
    let mut settings = restore();
    settings.exclude.add(b"*.o").unwrap();
    settings.exclude.add(b"/cache").unwrap();
    copied(&[&from], &to, &settings);
    assert!(to.join("keep").exists() && to.join("a/cache/x").exists());
    assert!(!to.join("cache").exists() && !to.join("c.o").exists() && !to.join("a/b.o").exists());
}

#[test]
fn the_habits_of_cp() {
    let (folder, from, _) = folder();
    let base = folder.path();
    fs::write(from.join("file"), "content").unwrap();
    fs::set_permissions(from.join("file"), fs::Permissions::from_mode(0o755)).unwrap();
    // A new name; then over it, which keeps its mode; then into a directory.
    let to = base.join("new");
    copied(&[&from.join("file")], &to, &plain());
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(from.join("file"), "longer content").unwrap();
    copied(&[&from.join("file")], &to, &plain());
    assert_eq!(fs::read(&to).unwrap(), b"longer content");
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o600);
    fs::create_dir(base.join("into")).unwrap();
    copied(&[&to, &from.join("file")], &base.join("into"), &plain());
    assert!(base.join("into/new").exists() && base.join("into/file").exists());
    // Directories want -r, and go below what is there.
    let summary = copied(&[&from], &base.join("into"), &plain());
    assert!(
        summary.failures[0].contains("-r not specified"),
        "{summary:?}"
    );
    let recursive = Settings {
        recursive: true,
        ..plain()
    };
    copied(&[&from], &base.join("into"), &recursive);
    assert!(base.join("into/from/file").exists());
    copied(&[&from], &base.join("made"), &recursive);
    assert!(base.join("made/file").exists());
    copied(&[&from.join(".")], &base.join("into"), &recursive);
    assert!(base.join("into/file").exists());
    // A link is followed without -r.
    symlink("from/file", base.join("link")).unwrap();
    copied(&[&base.join("link")], &base.join("followed"), &plain());
    assert!(
        fs::symlink_metadata(base.join("followed"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn what_cannot_be_right_is_refused_in_one_line() {
    let (folder, from, _) = folder();
    let base = folder.path();
    fs::create_dir(from.join("inner")).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    let missing = base.join("missing");
    let cases: [(&[&Path], PathBuf, &str); 6] = [
        (&[&missing], base.join("x"), "No such file"),
        (&[&from], from.join("inner/x"), "into itself"),
        (&[&from], from.clone(), "same file"),
        (&[&from.join("file")], from.join("file"), "same file"),
        (&[&from, &missing], base.join("nowhere"), "several sources"),
        (&[&from], base.join("no/where"), "No such file"),
    ];
    for (sources, target, expected) in cases {
        let summary = copied(sources, &target, &restore());
        assert!(
            summary.failures[0].contains(expected),
            "{expected}: {summary:?}"
        );
        assert_eq!(summary.failed, 1);
    }
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    let summary = copied(&[&from.join("inner")], &from, &mirror);
    assert!(
        summary.failures[0].contains("--delete would remove it"),
        "{summary:?}"
    );
    assert!(from.join("file").exists());
}

#[test]
fn what_another_process_left_half_done_is_taken_over() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "whole").unwrap();
    let report = Report::default();
    copied(&[&from], &to, &restore());
    // The name that a cut off copy leaves is the same each time.
    let mut settings = restore();
    settings.unchanged = Unchanged::Never;
    for left in fs::read_dir(&to).unwrap() {
        assert_eq!(left.unwrap().file_name(), "file");
    }
    assert_eq!(report.failed(), 0);
    assert_eq!(copied(&[&from], &to, &settings).failed, 0);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
}

#[test]
fn large_files_go_in_ranges_and_keep_their_holes() {
    let (_folder, from, to) = folder();
    let path = from.join("large");
    let mut file = fs::File::create(&path).unwrap();
    for offset in [0, 20 << 20, 63 << 20, 100 << 20] {
        file.seek(SeekFrom::Start(offset)).unwrap();
        file.write_all(&vec![offset as u8 + 7; 3 << 20]).unwrap();
    }
    file.set_len(300 << 20).unwrap();
    fs::hard_link(&path, from.join("other name")).unwrap();
    let summary = copied(&[&from], &to, &restore());
    assert_eq!(summary.failures, [""; 0]);
    assert_same(&from, &to);
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
    assert!(blocks(&to.join("large")) <= blocks(&path) + 64);
}

#[test]
fn a_dry_run_changes_nothing_and_counts_everything() {
    let (_folder, from, to) = folder();
    fill(&from, 300, 5, EVERYTHING);
    let dry = Settings {
        dry_run: true,
        ..restore()
    };
    let told = copied(&[&from], &to, &dry);
    assert!(!to.exists());
    let done = copied(&[&from], &to, &restore());
    assert_eq!(
        (told.files, told.directories),
        (done.files, done.directories)
    );
}

#[test]
fn update_leaves_what_is_newer() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "old").unwrap();
    copied(&[&from], &to, &restore());
    fs::write(to.join("file"), "newer than its source").unwrap();
    let update = Settings {
        update: true,
        ..restore()
    };
    assert_eq!(copied(&[&from], &to, &update).files, 0);
    assert_eq!(copied(&[&from], &to, &restore()).files, 1);
}

/// A thread that puts links to another place where directories of the target are.
#[test]
fn a_target_whose_directories_become_links_leads_nowhere() {
    let (folder, from, to) = folder();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for number in 0..30 {
        fs::create_dir_all(from.join(format!("{number}/below"))).unwrap();
        fs::write(from.join(format!("{number}/below/file")), "x").unwrap();
        fs::write(from.join(format!("{number}/file")), "x").unwrap();
    }
    for _ in 0..20 {
        let _ = fs::remove_dir_all(&to);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..30).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let directory = to.join(number.to_string());
                    let aside = to.join(format!("{number}-aside"));
                    if fs::rename(&directory, &aside).is_ok() {
                        let _ = symlink(&outside, &directory);
                    }
                }
            });
            copied(&[&from], &to, &restore());
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}

#[test]
fn a_file_that_grows_while_it_is_read_is_told_and_a_next_run_sets_it_right() {
    let (_folder, from, to) = folder();
    let path = from.join("log");
    fs::write(&path, vec![b'x'; 8 << 20]).unwrap();
    let is_over = AtomicBool::new(false);
    let (begin, begun) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                file.write_all(b"more").unwrap();
                let _ = begin.send(());
            }
        });
        begun.recv().unwrap();
        // Where the processors are busy the file may not grow while it is copied.
        let told = (0..100).find_map(|_| {
            let report = Report::default();
            copy(
                std::slice::from_ref(&from),
                &to,
                &restore(),
                &report,
                &Stop::default(),
            );
            report.has_changed().then(|| report.summary().failures)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(told.unwrap()[0].contains("changed while it was read"));
    });
    assert_eq!(copied(&[&from], &to, &restore()).failures, [""; 0]);
    assert_same(&from, &to);
}

#[test]
fn delete_stays_out_of_what_is_mounted_in_the_target() {
    let (folder, from, to) = folder();
    let outside = folder.path().join("outside");
    let place = to.join("old/mounted");
    fs::create_dir_all(&place).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "stays").unwrap();
    fs::write(to.join("old/file"), "goes").unwrap();
    let outside_text = outside.to_str().unwrap();
    let Some(_mounted) = Mounted::new(&place, &["--bind", outside_text]) else {
        return;
    };
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    let summary = copied(&[&from], &to, &mirror);
    assert!(outside.join("precious").exists());
    assert!(!to.join("old/file").exists());
    assert_eq!((summary.failed, summary.removed), (1, 1), "{summary:?}");
    assert!(summary.failures[0].contains("mount point"), "{summary:?}");
}

/// It was refused as a copy into itself: a backup of `/` onto a disk that is mounted below it.
#[test]
fn a_tree_is_copied_to_another_file_system_that_is_mounted_in_it() {
    let (folder, from, _) = folder();
    let disk = from.join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(from.join("file"), "copied").unwrap();
    let Some(_mounted) = Mounted::new(&disk, &["-t", "tmpfs", "tmpfs"]) else {
        return;
    };
    let into = disk.join("copy");
    let summary = copied(&[&from], &into, &restore());
    assert!(summary.failures.is_empty(), "{summary:?}");
    assert_eq!(fs::read(into.join("file")).unwrap(), b"copied");
    assert!(
        !into.join("disk/copy").exists(),
        "what is mounted is left out"
    );
    let everywhere = Settings {
        one_file_system: false,
        ..restore()
    };
    let summary = copied(&[&from], &into, &everywhere);
    assert!(summary.failures[0].contains("into itself"), "{summary:?}");
    drop(folder);
}

#[test]
fn delete_leaves_what_patterns_name_also_in_directories_that_go() {
    let (_folder, from, to) = folder();
    fs::create_dir_all(to.join("old/inner")).unwrap();
    for name in ["old/a.keep", "old/b", "old/inner/c"] {
        fs::write(to.join(name), "x").unwrap();
    }
    let mut mirror = Settings {
        delete: true,
        ..restore()
    };
    mirror.exclude.add(b"*.keep").unwrap();
    let summary = copied(&[&from], &to, &mirror);
    assert_eq!((summary.failed, summary.removed), (0, 3), "{summary:?}");
    assert!(to.join("old/a.keep").exists() && !to.join("old/inner").exists());
    // Nor does it go where a file takes the place of its directory.
    fs::write(from.join("old"), "a file").unwrap();
    assert_eq!(copied(&[&from], &to, &mirror).failed, 1);
    assert!(to.join("old/a.keep").exists());
}

#[test]
fn a_file_with_the_name_of_a_neighbour_on_its_way_is_not_mixed_up_with_it() {
    let (_folder, from, to) = folder();
    let left = name_on_its_way("file");
    for round in 0..50 {
        fs::write(from.join("file"), format!("file {round}")).unwrap();
        fs::write(from.join(&left), "left").unwrap();
        let summary = copied(&[&from], &to, &restore());
        assert_eq!(summary.failed, 1, "{round}: {summary:?}");
        assert!(summary.failures[0].contains(".parcp-"), "{summary:?}");
        let content = fs::read_to_string(to.join("file")).unwrap();
        assert_eq!(content, format!("file {round}"));
        assert!(!to.join(&left).exists());
    }
}

#[test]
fn a_file_that_says_it_is_empty_is_copied_to_its_end() {
    let (folder, _, _) = folder();
    let to = folder.path().join("to");
    for path in ["/proc/version", "/proc/self/mountinfo"] {
        let summary = copied(&[Path::new(path)], &to, &plain());
        assert_eq!(summary.failures, [""; 0]);
        let content = fs::read(path).unwrap();
        assert_eq!(fs::read(&to).unwrap(), content, "{path}");
        assert_eq!(summary.bytes, content.len() as u64);
    }
}

#[test]
fn a_file_that_says_it_is_longer_than_it_is_gets_no_zeros() {
    let (folder, _, _) = folder();
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let to = folder.path().join("to");
    if !path.exists() {
        return skipped("no file of sysfs is there");
    }
    copied(&[path], &to, &plain());
    assert_eq!(fs::read(&to).unwrap(), fs::read(path).unwrap());
}

#[test]
fn two_sources_of_one_name_are_refused_and_none_is_lost() {
    let (folder, from, to) = folder();
    let other = folder.path().join("other");
    for directory in [&other, &to] {
        fs::create_dir(directory).unwrap();
    }
    for (directory, content) in [(&from, "first"), (&other, "second")] {
        fs::create_dir(directory.join("tree")).unwrap();
        fs::write(directory.join("tree/file"), content).unwrap();
        fs::write(directory.join("file"), content).unwrap();
    }
    let recursive = Settings {
        recursive: true,
        ..plain()
    };
    let sources = [
        &from.join("file"),
        &from.join("tree"),
        &other.join("file"),
        &other.join("tree"),
    ];
    let summary = copied(&sources.map(PathBuf::as_path), &to, &recursive);
    assert_eq!(summary.failed, 2, "{summary:?}");
    for file in ["file", "tree/file"] {
        assert_eq!(fs::read(to.join(file)).unwrap(), b"first");
    }
}

#[test]
fn a_file_that_is_swapped_is_copied_with_its_own_mode_or_told() {
    let (folder, from, _) = folder();
    for (name, mode) in [("public", 0o644), ("secret", 0o600)] {
        fs::write(from.join(name), name).unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let to = folder.path().join("to");
    thread::scope(|scope| {
        let swapping = scope
            .spawn(|| support::swap_until(&is_over, &from.join("public"), &from.join("secret")));
        for _ in 0..3000 {
            copied(&[&from.join("public")], &to, &restore());
            let Ok(content) = fs::read(&to) else {
                continue;
            };
            let mode = fs::metadata(&to).unwrap().mode();
            fs::remove_file(&to).unwrap();
            let expected = if content == b"secret" { 0o600 } else { 0o644 };
            if mode & 0o777 != expected {
                is_over.store(true, Ordering::Relaxed);
                swapping.join().unwrap();
                panic!("{:?} has mode {mode:o}", String::from_utf8_lossy(&content));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_stop_ends_the_removal_of_a_tree_from_a_mirror() {
    let (_folder, from, to) = folder();
    for number in 0..500 {
        fs::create_dir_all(to.join(format!("gone/{number}/below"))).unwrap();
    }
    let stop = Stop::default();
    let heard = stop.clone();
    let report = Report::telling(Box::new(move |line| {
        if line.contains("gone") {
            heard.set();
        }
    }));
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    copy(&[from], &to, &mirror, &report, &stop);
    assert_eq!(report.summary().failures, [""; 0]);
    assert!(fs::read_dir(to.join("gone")).unwrap().count() > 400);
}

/// Such as the late requests of a copy that was killed.
#[test]
fn links_that_appear_in_a_new_directory_meanwhile_are_replaced() {
    const LINKS: usize = 3000;
    let (_folder, from, to) = folder();
    let link = |directory: &Path, number: usize| directory.join(format!("link {number:04}"));
    for number in 0..LINKS {
        symlink("right", link(&from, number)).unwrap();
    }
    let made = thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !to.exists() {
                thread::yield_now();
            }
            (0..LINKS)
                .filter(|number| symlink("wrong", link(&to, *number)).is_ok())
                .count()
        });
        let summary = copied(&[&from], &to, &restore());
        assert_eq!(summary.failures, [""; 0]);
        other.join().unwrap()
    });
    assert!(made > 0, "nothing was in the way");
    for number in 0..LINKS {
        let leads_to = fs::read_link(link(&to, number)).unwrap();
        assert_eq!(leads_to, Path::new("right"));
    }
}

/// A copy that was killed may have written the content under another name of the file than the next one does.
#[test]
fn what_a_killed_copy_left_of_another_name_of_a_file_goes() {
    let (_folder, from, to) = folder();
    fs::create_dir(&to).unwrap();
    for name in ["a", "b", "c"] {
        match name {
            "a" => fs::write(from.join(name), "content").unwrap(),
            _ => fs::hard_link(from.join("a"), from.join(name)).unwrap(),
        }
        fs::write(to.join(name_on_its_way(name)), "content").unwrap();
    }
    assert_eq!(copied(&[&from], &to, &restore()).failures, [""; 0]);
    assert_same(&from, &to);
}

#[test]
fn what_cannot_be_cleared_from_the_way_of_a_name_keeps_nothing_from_taking_it() {
    let (_folder, from, to) = folder();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("a"), "content").unwrap();
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    for name in ["a", "b"] {
        symlink("b", from.join(format!("{name} link"))).unwrap();
        fs::create_dir(to.join(name_on_its_way(&format!("{name} link")))).unwrap();
    }
    assert_eq!(copied(&[&from], &to, &restore()).failures, [""; 0]);
    assert_eq!(fs::read_link(to.join("a link")).unwrap(), Path::new("b"));
}

/// The kernel may carry out the last rename of a copy that was killed when the next one has already begun to write the same
/// file, and is killed, too.
#[test]
fn what_a_killed_copy_left_of_a_file_that_is_there_and_the_same_goes() {
    let (_folder, from, to) = folder();
    fs::create_dir(from.join("d")).unwrap();
    fs::write(from.join("d/file"), "content").unwrap();
    assert_eq!(copied(&[&from], &to, &restore()).failures, [""; 0]);
    let left = to.join("d").join(name_on_its_way("file"));
    fs::write(&left, "content").unwrap();
    let foreign = to.join("d").join(name_on_its_way("another"));
    fs::write(&foreign, "content").unwrap();
    let summary = copied(&[&from], &to, &restore());
    assert_eq!((summary.files, summary.failures), (0, Vec::new()));
    assert!(!left.exists() && foreign.exists());
}

/// The file and all beside it were gone, and nothing was copied.
#[test]
fn a_mirror_of_a_file_that_lies_in_its_target_is_refused_and_removes_nothing() {
    let (folder, from, _) = folder();
    for name in ["file", "other"] {
        fs::write(from.join(name), name).unwrap();
    }
    symlink("file", from.join("link")).unwrap();
    fs::write(folder.path().join("apart"), "apart").unwrap();
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    for source in [
        from.join("file"),
        from.join("link"),
        folder.path().join("apart"),
    ] {
        let summary = copied(&[&source], &from, &mirror);
        assert_eq!(summary.failed, 1, "{summary:?}");
        assert!(summary.failures[0].contains("--delete"), "{summary:?}");
        assert_eq!(fs::read(from.join("file")).unwrap(), b"file");
        assert_eq!(fs::read(from.join("other")).unwrap(), b"other");
    }
}

/// The mirror was replaced by the link.
#[test]
fn a_slash_behind_a_link_leads_through_it() {
    let (folder, from, to) = folder();
    let [link, other_link] = ["link", "other"].map(|name| folder.path().join(name));
    fs::create_dir(&to).unwrap();
    fs::write(from.join("a"), "a").unwrap();
    fs::write(to.join("b"), "b").unwrap();
    symlink("from", &link).unwrap();
    symlink("to", &other_link).unwrap();
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    let through = |link: &Path| PathBuf::from(format!("{}/", link.display()));
    let summary = copied(&[&through(&link)], &through(&other_link), &mirror);
    assert_eq!((summary.failed, summary.removed), (0, 1), "{summary:?}");
    assert!(fs::symlink_metadata(&other_link).unwrap().is_symlink());
    assert!(fs::symlink_metadata(&to).unwrap().is_dir());
    assert_same(&from, &to);
    // Into a directory it goes under the name that it was given.
    let into = Settings {
        exact: false,
        ..restore()
    };
    assert_eq!(copied(&[&through(&link)], &to, &into).failed, 0);
    assert!(fs::symlink_metadata(to.join("link")).unwrap().is_dir());
}

/// One that could not be removed kept all others behind it, and the source was named.
#[test]
fn what_cannot_be_removed_keeps_nothing_else_in_a_mirror() {
    let (folder, from, to) = folder();
    let outside = folder.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    fs::create_dir_all(to.join("old/inner")).unwrap();
    let names = (0..40).map(|number| format!("x{number}"));
    let names: Vec<String> = names
        .chain((0..40).map(|number| format!("old/inner/y{number}")))
        .collect();
    for name in &names {
        fs::write(to.join(name), "x").unwrap();
    }
    let held = ["x20", "old/inner/y20"]
        .map(|name| Mounted::new(&to.join(name), &["--bind", outside.to_str().unwrap()]));
    if held.iter().any(Option::is_none) {
        return;
    }
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    let summary = copied(&[&from], &to, &mirror);
    let left: Vec<&String> = names.iter().filter(|name| to.join(name).exists()).collect();
    assert_eq!(left, ["x20", "old/inner/y20"], "{summary:?}");
    assert_eq!(summary.failed, 2, "{summary:?}");
    for failure in &summary.failures {
        assert!(failure.contains("20' of the target"), "{failure}");
    }
}

#[test]
fn a_copy_with_more_names_than_its_source_is_not_changed_under_the_others() {
    let (_folder, from, to) = folder();
    fs::write(from.join("a"), "x").unwrap();
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    copied(&[&from], &to, &restore());
    let time = fs::metadata(from.join("a")).unwrap().modified().unwrap();
    fs::remove_file(from.join("b")).unwrap();
    fs::write(from.join("b"), "x").unwrap();
    fs::set_permissions(from.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::open(from.join("b"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    let second = copied(&[&from], &to, &restore());
    assert_eq!(second.failed, 0, "{second:?}");
    assert_same(&from, &to);
    assert_eq!(copied(&[&from], &to, &restore()).files, 0);
}

#[test]
fn a_new_directory_inherits_its_group_where_it_is_inherited() {
    let (_folder, from, to) = folder();
    fs::create_dir(from.join("sticky")).unwrap();
    fs::set_permissions(from.join("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o2755)).unwrap();
    let recursive = Settings {
        recursive: true,
        ..plain()
    };
    assert_eq!(copied(&[&from], &to, &recursive).failed, 0);
    let mode = |path: &str| fs::metadata(to.join(path)).unwrap().mode() & 0o7777;
    assert_eq!([mode("from"), mode("from/sticky")], [0o2755, 0o3755]);
}

/// The bits of a group show the mask of a list: whoever got the mode without the list let the group write.
#[test]
fn a_group_gets_no_rights_from_a_list_that_is_not_kept() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        skipped("there is no setfacl");
        return;
    }
    let (folder, from, to) = folder();
    let file = from.join("file");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    set_list(&file);
    let lists = |path: &Path| {
        let mut buffer = vec![0; 4096];
        let size = rustix::fs::getxattr(path, "system.posix_acl_access", &mut buffer[..]);
        size.map(|size| buffer[..size].to_vec()).ok()
    };
    // A mode is kept with its list.
    let mut mode_alone = plain();
    mode_alone.preserve.mode = true;
    assert_eq!(copied(&[&file], &to, &mode_alone).failed, 0);
    assert_eq!(lists(&to), lists(&file));
    // What is replaced keeps its own.
    fs::write(&file, "other").unwrap();
    assert_eq!(copied(&[&file], &to, &plain()).failed, 0);
    assert_eq!(
        (fs::read(&to).unwrap(), lists(&to)),
        (b"other".to_vec(), lists(&file))
    );
    // A file system without lists gives the group what is the group's.
    let place = folder.path().join("ramfs");
    fs::create_dir(&place).unwrap();
    let Some(_mounted) = Mounted::new(&place, &["-t", "ramfs", "ramfs"]) else {
        return;
    };
    let summary = copied(&[&from], &place.join("copy"), &restore());
    assert_eq!(
        (summary.failed, summary.remarks.len()),
        (0, 1),
        "{summary:?}"
    );
    assert!(summary.remarks[0].contains("access lists"), "{summary:?}");
    let mode = fs::metadata(place.join("copy/file")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

/// It was "Device or resource busy", which could be a mount.
#[test]
fn a_file_that_another_copy_writes_is_told_as_that() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "x").unwrap();
    fs::create_dir(&to).unwrap();
    let on_its_way = fs::File::create(to.join(name_on_its_way("file"))).unwrap();
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&on_its_way, lock).unwrap();
    let summary = copied(&[&from], &to, &restore());
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(
        summary.failures[0].contains("another process"),
        "{summary:?}"
    );
    drop(on_its_way);
    assert_eq!(copied(&[&from], &to, &restore()).failed, 0);
}

/// A capability vouches for the program that it was given to.
#[test]
fn what_takes_the_place_of_a_program_has_none_of_its_capabilities() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "other").unwrap();
    fs::write(&to, "program").unwrap();
    // CAP_NET_RAW, permitted and effective (`linux/capability.h`, version 2).
    let mut capability = [0_u8; 20];
    capability[..6].copy_from_slice(&[1, 0, 0, 2, 0, 0x20]);
    let (name, flags) = ("security.capability", rustix::fs::XattrFlags::empty());
    if rustix::fs::setxattr(&to, name, &capability, flags).is_err() {
        skipped("capabilities of files cannot be set");
        return;
    }
    assert_eq!(copied(&[&from.join("file")], &to, &plain()).failed, 0);
    assert_eq!(fs::read(&to).unwrap(), b"other");
    assert!(rustix::fs::getxattr(&to, name, &mut [0_u8; 64][..]).is_err());
}
