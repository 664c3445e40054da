//! What parcp does with what is there: copies that were cut off, newer ones, and those that others share.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod copies;
mod support;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use copies::{
    Mounted, copied, date, folder, mode, name_on_its_way, plain, recursive, restore, set_list,
    set_mode,
};
use penstock_skips::skipped;
use penstock_tools::{
    Report, Stop,
    copy::{Settings, Unchanged, copy},
};
use support::{as_user, assert_same};

/// They were closed to all but their owner for good.
#[test]
fn directories_of_a_copy_that_was_cut_off_are_open_to_whom_they_are_for() {
    let (_folder, from, to) = folder();
    fs::create_dir(from.join("d")).unwrap();
    fs::write(from.join("d/file"), "x").unwrap();
    let stop = Stop::default();
    let heard = stop.clone();
    let report = Report::telling(Box::new(move |line| {
        if line.contains("file") {
            heard.set();
        }
    }));
    copy(
        std::slice::from_ref(&from),
        &to,
        &recursive(),
        &report,
        &stop,
    );
    for _ in 0..2 {
        assert_eq!([mode(&to), mode(&to.join("d"))], [0o755; 2]);
        assert_eq!(copied(&[&from], &to, &recursive()).failed, 0);
    }
}

#[test]
fn update_leaves_what_is_newer_under_each_name_of_a_file() {
    let (folder, from, to) = folder();
    let update = Settings {
        update: true,
        ..restore()
    };
    for name in ["a", "b", "c"] {
        match name {
            "a" => fs::write(from.join(name), "source").unwrap(),
            _ => fs::hard_link(from.join("a"), from.join(name)).unwrap(),
        }
    }
    date(&from.join("a"), 1000);
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    for edited in ["a", "b"] {
        fs::create_dir(&to).unwrap();
        fs::write(to.join(edited), "edited").unwrap();
        let summary = copied(&[&from], &to, &update);
        assert_eq!((summary.failed, summary.files), (0, 2), "{summary:?}");
        let others: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .filter(|name| *name != edited)
            .collect();
        assert_eq!(fs::read(to.join(edited)).unwrap(), b"edited");
        for name in &others {
            assert_eq!(fs::read(to.join(name)).unwrap(), b"source", "{edited}");
        }
        assert_eq!(inode(to.join(others[0])), inode(to.join(others[1])));
        // What is the same is linked to.
        fs::remove_file(to.join(others[1])).unwrap();
        assert_eq!(copied(&[&from], &to, &update).failed, 0);
        assert_eq!(
            inode(to.join(others[0])),
            inode(to.join(others[1])),
            "{edited}"
        );
        fs::remove_dir_all(&to).unwrap();
    }
    drop(folder);
}

/// A tree, its copy, and a snapshot of that by hard links.
fn snapshot(of: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(of).unwrap() {
        let entry = entry.unwrap();
        fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn no_mode_list_or_time_changes_under_the_other_names_of_a_copy() {
    let (folder, from, first) = folder();
    let second = folder.path().join("second");
    let by_content = Settings {
        unchanged: Unchanged::ByContent,
        ..restore()
    };
    let list = |path: &Path| {
        let _ = rustix::fs::setxattr(path, "user.kept", b"other", rustix::fs::XattrFlags::empty());
    };
    // Without how many names it has.
    let described = |directory: &Path| {
        let words = support::describe(directory)[&b"file"[..]].clone();
        words.split(" first=").next().map(str::to_owned)
    };
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(Change<'_>, &Settings); 5] = [
        (&|path| set_mode(path, 0o604), &restore()),
        (&|path| set_mode(path, 0o4755), &restore()),
        (&|path| date(path, 5000), &by_content),
        (&list, &restore()),
        (
            &|path| std::os::unix::fs::chown(path, None, Some(1001)).unwrap_or_default(),
            &restore(),
        ),
    ];
    for (change, settings) in changes {
        fs::write(from.join("file"), "content").unwrap();
        set_mode(&from.join("file"), 0o644);
        date(&from.join("file"), 1000);
        assert_eq!(copied(&[&from], &first, &restore()).failed, 0);
        snapshot(&first, &second);
        let before = described(&first);
        change(&from.join("file"));
        assert_eq!(copied(&[&from], &second, settings).failed, 0);
        assert_eq!(described(&first), before);
        assert_eq!(described(&second), described(&from));
        for directory in [&first, &second] {
            fs::remove_dir_all(directory).unwrap();
        }
        fs::remove_file(from.join("file")).unwrap();
    }
}

/// Who may not give a file its owner would copy it anew each time.
#[test]
fn what_cannot_be_set_is_no_reason_to_copy_a_file_of_a_snapshot_anew() {
    let (folder, from, first) = folder();
    let second = folder.path().join("second");
    fs::write(from.join("file"), "content").unwrap();
    set_mode(&from.join("file"), 0o4755);
    std::os::unix::fs::chown(folder.path(), Some(1001), Some(1001)).unwrap_or_default();
    let done = as_user(1001, || {
        assert_eq!(copied(&[&from], &first, &restore()).failed, 0);
        snapshot(&first, &second);
        let summary = copied(&[&from], &second, &restore());
        assert_eq!((summary.failed, summary.files), (0, 0), "{summary:?}");
    });
    if done.is_some() {
        let inode = |path: &Path| fs::metadata(path.join("file")).unwrap().ino();
        assert_eq!(inode(&first), inode(&second));
    }
}

/// As where it is written into.
#[test]
fn new_content_lends_no_rights_of_an_owner_who_wrote_it() {
    let (folder, from, to) = folder();
    fs::write(from.join("file"), "new").unwrap();
    fs::write(&to, "old").unwrap();
    for path in [folder.path(), &to] {
        std::os::unix::fs::chown(path, Some(1001), Some(1001)).unwrap_or_default();
    }
    set_mode(&to, 0o6755);
    if as_user(1001, || copied(&[&from.join("file")], &to, &plain()).failed) == Some(0) {
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert_eq!(mode(&to), 0o755);
    }
}

#[test]
fn what_may_not_be_read_keeps_its_list_and_the_loss_of_the_rest_is_told() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return skipped("there is no setfacl");
    }
    let (folder, from, to) = folder();
    fs::write(from.join("file"), "new").unwrap();
    fs::write(&to, "old").unwrap();
    set_mode(&to, 0o600);
    set_list(&to);
    std::os::unix::fs::chown(folder.path(), Some(1002), None).unwrap_or_default();
    let summary = as_user(1002, || copied(&[&from.join("file")], &to, &plain()));
    let Some(summary) = summary else {
        return;
    };
    let mut list = [0_u8; 256];
    let size = rustix::fs::getxattr(&to, "system.posix_acl_access", &mut list[..]);
    assert!(size.is_ok_and(|size| size > 0), "{summary:?}");
    assert_eq!(summary.remarks.len(), 1, "{summary:?}");
}

/// A file of another user could not be locked and was taken for one that nobody writes.
#[test]
fn what_another_user_may_be_writing_is_not_taken_over() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "new").unwrap();
    fs::create_dir(&to).unwrap();
    let on_its_way = to.join(name_on_its_way("file"));
    fs::write(&on_its_way, "half").unwrap();
    set_mode(&on_its_way, 0o600);
    set_mode(&to, 0o777);
    for path in [to.parent().unwrap(), &from] {
        set_mode(path, 0o755);
    }
    let Some(summary) = as_user(1001, || copied(&[&from.join("file")], &to, &plain())) else {
        return;
    };
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(summary.failures[0].contains("another user"), "{summary:?}");
    assert_eq!(fs::read(&on_its_way).unwrap(), b"half");
}

/// As each object of git is, which has its mode before its name.
#[test]
fn what_this_user_left_of_a_file_that_nobody_may_write_is_taken_over() {
    let (_folder, from, to) = folder();
    fs::write(from.join("file"), "new").unwrap();
    fs::create_dir(&to).unwrap();
    let on_its_way = to.join(name_on_its_way("file"));
    set_mode(&to, 0o777);
    for path in [to.parent().unwrap(), &from] {
        set_mode(path, 0o755);
    }
    let copied_again = || {
        fs::write(&on_its_way, "half").unwrap();
        set_mode(&on_its_way, 0o444);
        copied(&[&from.join("file")], &to, &plain())
    };
    let Some(summary) = as_user(1001, copied_again) else {
        return;
    };
    assert_eq!(summary.failures, [""; 0]);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"new");
    assert!(!on_its_way.exists());
}

/// Says whether a program could be run and did well.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn names_that_differ_in_case_alone_are_told_where_case_does_not_count() {
    let (folder, from, _) = folder();
    let [image, place] = ["image", "place"].map(|name| folder.path().join(name));
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    fs::create_dir(&place).unwrap();
    let made = ["-q", "-O", "casefold", "-E", "encoding=utf8"];
    let image = image.to_str().unwrap();
    if !runs("mkfs.ext4", &[&made[..], &[image]].concat()) {
        return skipped("no file system without case can be made");
    }
    let Some(_mounted) = Mounted::new(&place, &["-o", "loop", image]) else {
        return;
    };
    let to = place.join("to");
    fs::create_dir(&to).unwrap();
    if !runs("chattr", &["+F", to.to_str().unwrap()]) {
        return skipped("case counts everywhere");
    }
    for name in ["file", "File"] {
        fs::write(from.join(name), name).unwrap();
    }
    for name in ["directory", "Directory"] {
        fs::create_dir(from.join(name)).unwrap();
    }
    // New, and over what is there.
    for _ in 0..2 {
        let summary = copied(&[&from], &to, &recursive());
        assert_eq!(summary.failed, 2, "{summary:?}");
    }
}

/// It was opened by the mode that the source has now.
#[test]
fn a_directory_that_a_copy_closed_is_written_into_when_its_source_was_opened() {
    let (folder, from, to) = folder();
    fs::create_dir(from.join("d")).unwrap();
    fs::write(from.join("d/one"), "one").unwrap();
    for path in ["from/d/one", "from/d", "from", ""] {
        let path = folder.path().join(path);
        std::os::unix::fs::chown(path, Some(1001), Some(1001)).unwrap_or_default();
    }
    set_mode(&from.join("d"), 0o555);
    as_user(1001, || {
        assert_eq!(copied(&[&from], &to, &restore()).failed, 0);
        assert_eq!(mode(&to.join("d")), 0o555);
        set_mode(&from.join("d"), 0o755);
        fs::write(from.join("d/two"), "two").unwrap();
        let second = copied(&[&from], &to, &restore());
        assert_eq!(second.failures, [""; 0]);
        assert_same(&from, &to);
    });
}

/// A second line said that a directory has the name of the copy.
#[test]
fn a_directory_that_could_not_be_removed_is_told_once() {
    let (folder, from, to) = folder();
    fs::write(from.join("name"), "a file").unwrap();
    fs::create_dir_all(to.join("name")).unwrap();
    for file in [folder.path().join("outside"), to.join("name/held")] {
        fs::write(file, "x").unwrap();
    }
    let outside = folder.path().join("outside");
    let bound = ["--bind", outside.to_str().unwrap()];
    let Some(_mounted) = Mounted::new(&to.join("name/held"), &bound) else {
        return;
    };
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    let summary = copied(&[&from], &to, &mirror);
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(summary.failures[0].contains("name/held"), "{summary:?}");
}

/// It listed while it removed, which some file services answer with names left out.
#[test]
fn a_mirror_lists_a_directory_to_its_end_before_it_removes() {
    const NAMES: usize = 5000;
    let (_folder, from, to) = folder();
    fs::create_dir(&to).unwrap();
    for number in 0..NAMES {
        fs::write(to.join(format!("old {number}")), "").unwrap();
    }
    let (place, is_first) = (to.clone(), std::sync::Once::new());
    let report = Report::telling(Box::new(move |_| {
        is_first.call_once(|| {
            for number in 0..NAMES {
                fs::write(place.join(format!("new {number}")), "").unwrap();
            }
        });
    }));
    let mirror = Settings {
        delete: true,
        ..restore()
    };
    copy(&[from], &to, &mirror, &report, &Stop::default());
    assert_eq!(report.summary().removed as usize, NAMES);
}
