//! What partar writes and reads, beside GNU tar and bsdtar, and what it refuses.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod archives;
mod support;

use std::{
    fs,
    io::Cursor,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use archives::{
    ARCHIVABLE, PLAIN, careful, created, creating, extracted, extracting, folder, made,
};
use penstock_skips::skipped;
use penstock_tools::{
    Report, Stop,
    archive::{Compression, ExtractSettings, Format, Selection, list},
};
use support::assert_same;

#[test]
fn a_random_tree_comes_back_identical_from_each_compression_and_twice_the_same() {
    let (folder, tree, _) = folder(1500, 11, ARCHIVABLE);
    let large = vec![7; 5 << 20];
    fs::write(tree.join("large"), large).unwrap();
    for (number, compression) in [
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Xz,
    ]
    .into_iter()
    .enumerate()
    {
        let settings = creating(Format::Pax, compression);
        let (archive, summary) = created(folder.path(), &settings);
        assert_eq!(summary.failures, [""; 0]);
        let to = folder.path().join(format!("to-{number}"));
        let summary = extracted(&archive, &to, &extracting());
        assert_eq!(summary.failures, [""; 0], "{compression:?}");
        assert_same(&tree, &to.join("tree"));
        // Extracted over itself it is the same once more.
        if number == 0 {
            assert_eq!(created(folder.path(), &settings).0, archive);
            extracted(&archive, &to, &extracting());
            assert_same(&tree, &to.join("tree"));
        }
    }
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(format_args!("{program} is not installed"));
    }
    found
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
}

/// Times to the second, for formats that keep no more.
fn round_times(tree: &Path) {
    let mut waiting = vec![tree.to_path_buf()];
    while let Some(path) = waiting.pop() {
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let time = rustix::fs::Timespec {
            tv_sec: 1_000_000_007,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
    }
}

#[test]
fn gnu_tar_and_bsdtar_read_what_we_write() {
    for (program, format) in [
        ("tar", Format::Pax),
        ("tar", Format::Gnu),
        ("bsdtar", Format::Pax),
        ("bsdtar", Format::Gnu),
    ] {
        if !has(program) {
            continue;
        }
        let (folder, tree, to) = folder(600, 12, PLAIN);
        round_times(&tree);
        let (archive, summary) = created(folder.path(), &creating(format, Compression::None));
        assert_eq!(summary.failures, [""; 0]);
        let file = folder.path().join("archive");
        fs::write(&file, archive).unwrap();
        fs::create_dir(&to).unwrap();
        let paths = (file.to_str().unwrap(), to.to_str().unwrap());
        run(
            program,
            &["-xpf", paths.0, "-C", paths.1, "--numeric-owner"],
        );
        assert_same(&tree, &to.join("tree"));
    }
}

#[test]
fn we_read_what_gnu_tar_and_bsdtar_write() {
    for (program, format, sparse) in [
        ("tar", "gnu", "-S"),
        ("tar", "posix", "-S"),
        ("tar", "posix", "--sparse-version=0.0"),
        ("tar", "posix", "--sparse-version=0.1"),
        ("bsdtar", "pax", "--acls"),
        ("bsdtar", "gnutar", "--acls"),
    ] {
        if !has(program) {
            continue;
        }
        let (folder, tree, to) = folder(600, 13, PLAIN);
        round_times(&tree);
        let file = folder.path().join("archive");
        let base = folder.path().to_str().unwrap();
        let format = format!("--format={format}");
        let extra = if sparse.contains("version") {
            "-S"
        } else {
            "-p"
        };
        let archive = file.to_str().unwrap();
        run(
            program,
            &["-cf", archive, "-C", base, &format, sparse, extra, "tree"],
        );
        let summary = extracted(&fs::read(&file).unwrap(), &to, &extracting());
        assert_eq!(summary.failures, [""; 0], "{program} {format} {sparse}");
        assert_same(&tree, &to.join("tree"));
    }
}

/// An archive with one file that says what holes it has, but not how long it is with them, so many times.
fn without_real_size(times: usize) -> Vec<u8> {
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n";
    let mut content = b"1\n0\n512\n".to_vec();
    content.resize(1024, 0);
    let members = [
        ("records", b'x', "", &records[..]),
        ("a", b'0', "", &content),
    ];
    made(&members.repeat(times))
}

#[test]
fn a_member_that_was_refused_is_not_waited_for_by_the_next_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let archive = without_real_size(2);
        done.send(extracted(&archive, &to, &extracting())).unwrap();
    });
    let summary = ended.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(summary.unwrap().failed, 2);
}

#[test]
fn hostile_members_are_refused_with_a_line_each_and_others_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "precious").unwrap();
    let to = folder.path().join("to");
    let archive = made(&[
        ("/absolute", b'0', "", b"x"),
        ("../up", b'0', "", b"x"),
        ("a/../../up", b'0', "", b"x"),
        ("out", b'2', "../outside", b""),
        ("absolute-link", b'2', "/etc/passwd", b""),
        ("inner", b'2', "good", b""),
        ("inner/through", b'0', "", b"x"),
        ("hard", b'1', "../outside/file", b""),
        ("hard-absolute", b'1', "/etc/passwd", b""),
        ("strange", b'Z', "", b""),
        ("good/file", b'0', "", b"content"),
    ]);
    let summary = extracted(&archive, &to, &careful());
    assert_eq!(summary.failed, 9, "{summary:?}");
    assert_eq!(fs::read(to.join("good/file")).unwrap(), b"content");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!folder.path().join("up").exists());
    // With links out of the tree, members still do not go through them.
    let archive = made(&[
        ("out", b'2', "../outside", b""),
        ("out/file", b'0', "", b"evil"),
    ]);
    let summary = extracted(&archive, &to, &extracting());
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
}

#[test]
fn bombs_are_left() {
    let (folder, tree, to) = folder(0, 0, PLAIN);
    fs::write(tree.join("zeros"), vec![0; 8 << 20]).unwrap();
    fs::write(tree.join("zz"), "after").unwrap();
    let (archive, _) = created(folder.path(), &creating(Format::Pax, Compression::Gzip));
    let mut settings = extracting();
    settings.bytes_max = Some(1 << 20);
    let summary = extracted(&archive, &to, &settings);
    assert_eq!(summary.failed, 1);
    assert!(summary.failures[0].contains("--max-bytes"), "{summary:?}");
    assert!(!to.join("tree/zeros").exists());
    let mut settings = extracting();
    settings.members_max = 2;
    let summary = extracted(&archive, &to, &settings);
    assert!(summary.failures[0].contains("--max-members"), "{summary:?}");
}

#[test]
fn cut_and_damaged_archives_are_told_in_one_line_and_nothing_half_stays() {
    let (folder, tree, _) = folder(0, 0, PLAIN);
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), vec![b'x'; 3 << 20]).unwrap();
    }
    let (archive, _) = created(folder.path(), &creating(Format::Gnu, Compression::None));
    for cut in [archive.len() - 1024, archive.len() / 2, 700, 513, 100] {
        let to = folder.path().join(format!("cut-{cut}"));
        let summary = extracted(&archive[..cut], &to, &extracting());
        assert_eq!(summary.failed, 1, "{cut}: {summary:?}");
        assert!(summary.failures[0].contains("cut off"), "{summary:?}");
        for name in ["a", "b", "c"] {
            let size =
                fs::metadata(to.join("tree").join(name)).map_or(3 << 20, |found| found.len());
            assert_eq!(size, 3 << 20);
        }
    }
    // A damaged header: what is behind the next one arrives.
    let mut damaged = archive.clone();
    damaged[512 + 10] ^= 0xff;
    let to = folder.path().join("damaged");
    let summary = extracted(&damaged, &to, &extracting());
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(!to.join("tree/a").exists() && to.join("tree/b").exists());
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        let (archive, _) = created(folder.path(), &creating(Format::Pax, compression));
        let to = folder.path().join(format!("{compression:?}"));
        let summary = extracted(&archive[..archive.len() / 2], &to, &extracting());
        assert_eq!(summary.failed, 1, "{compression:?}: {summary:?}");
    }
}

#[test]
fn members_are_chosen_excluded_and_stripped() {
    let (folder, tree, to) = folder(0, 0, PLAIN);
    for path in ["a/x.o", "a/x.c", "b/y.c"] {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), "x").unwrap();
    }
    let (archive, _) = created(folder.path(), &creating(Format::Pax, Compression::None));
    let mut settings = extracting();
    settings.strip = 1;
    settings.selection.members = vec![b"tree/a".to_vec(), b"missing".to_vec()];
    settings.selection.exclude.add(b"*.o").unwrap();
    let summary = extracted(&archive, &to, &settings);
    assert_eq!(summary.failures, ["'missing' is not in the archive"]);
    assert!(to.join("a/x.c").exists() && !to.join("a/x.o").exists() && !to.join("b").exists());
    let names = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&names);
    let report = Report::telling(Box::new(move |line| {
        heard.lock().unwrap().push(line.to_owned());
    }));
    let input = Box::new(Cursor::new(archive));
    list(input, &Selection::default(), &report, &Stop::default());
    let expected = [
        "tree/",
        "tree/a/",
        "tree/a/x.c",
        "tree/a/x.o",
        "tree/b/",
        "tree/b/y.c",
    ];
    assert_eq!(*names.lock().unwrap(), expected);
}

#[test]
fn links_that_lead_out_through_another_link_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = made(&[
        ("d", b'2', ".", b""),
        ("l", b'2', "d/d/d/../../../etc", b""),
        ("a/b/up", b'2', "../../x", b""),
        ("hard", b'1', "a/b/up", b""),
        ("a/c", b'1', "a/b/up", b""),
        ("a/b/same", b'1', "a/b/up", b""),
    ]);
    let summary = extracted(&archive, folder.path(), &careful());
    assert_eq!(summary.failed, 3, "{summary:?}");
    let is_there = |name| fs::symlink_metadata(folder.path().join(name)).is_ok();
    for (name, expected) in [
        ("d", true),
        ("a/b/same", true),
        ("l", false),
        ("hard", false),
        ("a/c", false),
    ] {
        assert_eq!(is_there(name), expected, "{name}");
    }
}

/// The member `name` with these extensions in front of it.
fn extended<'a>(
    count: usize,
    records: &'a [u8],
    name: &'a str,
) -> Vec<(&'a str, u8, &'a str, &'a [u8])> {
    let mut members = vec![("records", b'x', "", records); count];
    members.push((name, b'0', "", b"content"));
    members
}

#[test]
fn extensions_of_a_member_have_a_limit_together_and_what_follows_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let value = "v".repeat(1 << 20);
    let record = format!("comment={value}\n");
    let length = record.len() + 8;
    let record = format!("{length} {record}");
    assert_eq!(record.len(), length);
    let members = [
        extended(3, record.as_bytes(), "few"),
        extended(5, record.as_bytes(), "many"),
        extended(0, b"", "after"),
    ];
    let summary = extracted(&made(&members.concat()), folder.path(), &extracting());
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(
        summary.failures[0].contains("longer than 4 MiB"),
        "{summary:?}"
    );
    for name in ["few", "after"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
}

#[test]
fn a_file_that_is_swapped_is_archived_with_its_own_mode_or_told() {
    let (folder, tree, to) = folder(0, 0, PLAIN);
    for (name, mode) in [("public", 0o644), ("secret", 0o600)] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let settings = creating(Format::Pax, Compression::None);
    let found = thread::scope(|scope| {
        scope.spawn(|| support::swap_until(&is_over, &tree.join("public"), &tree.join("secret")));
        let found = (0..1000).find_map(|_| {
            let (archive, _) = created(folder.path(), &settings);
            extracted(&archive, &to, &extracting());
            let wrong = mixed_up(&to.join("tree"));
            fs::remove_dir_all(&to).unwrap();
            wrong
        });
        is_over.store(true, Ordering::Relaxed);
        found
    });
    assert_eq!(found, None);
}

/// A file with the secret that others may read.
fn mixed_up(directory: &Path) -> Option<PathBuf> {
    let names = ["public", "secret"].map(|name| directory.join(name));
    names.into_iter().find(|path| {
        let is_secret = fs::read(path).is_ok_and(|content| content == b"secret");
        is_secret && fs::metadata(path).unwrap().permissions().mode() & 0o077 != 0
    })
}

#[test]
fn the_root_of_an_archive_gives_the_target_its_mode_and_time_and_a_volume_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let archive = made(&[
        ("volume", b'V', "", b""),
        ("./", b'5', "", b""),
        ("file", b'0', "", b"x"),
    ]);
    let summary = extracted(&archive, &to, &extracting());
    assert_eq!(summary.failures, [""; 0]);
    let found = fs::metadata(&to).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o644);
    assert_eq!(found.modified().unwrap(), std::time::UNIX_EPOCH);
    assert!(to.join("file").exists() && !to.join("volume").exists());
}

#[test]
fn a_file_whose_first_name_no_format_takes_is_whole_under_the_next() {
    let (folder, tree, to) = folder(0, 0, PLAIN);
    let long = "long".repeat(60);
    fs::write(tree.join(&long), "content").unwrap();
    for name in ["next", "third"] {
        fs::hard_link(tree.join(&long), tree.join(name)).unwrap();
    }
    let (archive, summary) = created(folder.path(), &creating(Format::Ustar, Compression::None));
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert_eq!(extracted(&archive, &to, &extracting()).failures, [""; 0]);
    for name in ["next", "third"] {
        assert_eq!(fs::read(to.join("tree").join(name)).unwrap(), b"content");
    }
}

#[test]
fn a_link_that_is_swapped_does_not_give_another_file_away() {
    if !support::is_root() {
        return skipped("only root gives files away");
    }
    let (folder, tree, to) = folder(0, 0, PLAIN);
    let precious = folder.path().join("precious");
    fs::write(&precious, "root's").unwrap();
    for number in 0..200 {
        let link = tree.join(number.to_string());
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(7), Some(7)).unwrap();
    }
    let (archive, _) = created(folder.path(), &creating(Format::Pax, Compression::None));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..200).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let link = to.join("tree").join(number.to_string());
                if fs::remove_file(&link).is_ok() {
                    let _ = fs::hard_link(&precious, &link);
                }
            }
        });
        for _ in 0..60 {
            extracted(&archive, &to, &extracting());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::metadata(&precious).unwrap().uid(), 0);
}

#[test]
fn a_file_gives_way_to_a_directory_and_an_empty_directory_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    for directory in ["file", "full"] {
        fs::create_dir_all(to.join(directory)).unwrap();
    }
    fs::write(to.join("full/kept"), "kept").unwrap();
    fs::write(to.join("directory"), "goes").unwrap();
    std::os::unix::fs::symlink("full", to.join("link")).unwrap();
    let archive = made(&[
        ("directory/", b'5', "", b""),
        ("directory/x", b'0', "", b"x"),
        ("file", b'0', "", b"x"),
        ("full", b'0', "", b"x"),
        ("link/", b'5', "", b""),
    ]);
    let kept = ExtractSettings {
        keep: true,
        ..extracting()
    };
    assert_eq!(extracted(&archive, &to, &kept).failed, 5);
    let summary = extracted(&archive, &to, &extracting());
    assert_eq!(summary.failed, 2, "{summary:?}");
    assert!(to.join("directory/x").is_file() && to.join("file").is_file());
    assert!(to.join("full/kept").exists() && to.join("link").is_symlink());
}

/// Such as a file of sysfs: it was filled with zeros in silence.
#[test]
fn a_file_that_holds_less_than_it_says_is_told() {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let Some(content) = fs::read(path).ok() else {
        return skipped("no file of sysfs is there");
    };
    let (above, name) = (path.parent().unwrap(), "enabled");
    let settings = creating(Format::Pax, Compression::None);
    let (archive, summary) = archives::created_of((above, name), &settings);
    assert_eq!(summary.failures.len(), 1, "{summary:?}");
    assert!(summary.failures[0].contains("changed"), "{summary:?}");
    let to = tempfile::tempdir().unwrap();
    assert_eq!(extracted(&archive, to.path(), &extracting()).failed, 0);
    assert!(
        fs::read(to.path().join(name))
            .unwrap()
            .starts_with(&content)
    );
}
