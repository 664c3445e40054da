//! What partar tells of an archive that is damaged, and what it keeps of what is there.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod archives;
mod support;

use std::{
    fs,
    io::{Cursor, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use archives::{
    PLAIN, created, created_of, creating, extracted, extracting, folder, listed, made, seal,
};
use penstock_tools::{
    Patterns, Report, Stop,
    archive::{Compression, ExtractSettings, Format, extract},
    direct::Place,
};

const COMPRESSIONS: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Xz];

/// Bytes that no compression makes fewer of.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn an_archive_whose_checksum_does_not_fit_or_is_cut_off_is_told_in_one_line() {
    let (folder, tree, _) = folder(0, 0, PLAIN);
    fs::write(tree.join("noise"), noise(1 << 20)).unwrap();
    for compression in COMPRESSIONS {
        let (archive, _) = created(folder.path(), &creating(Format::Pax, compression));
        let mut flipped = archive.clone();
        flipped[archive.len() / 2] ^= 1;
        // The end of the members can be among the bytes that are cut off.
        let cut = archive[..archive.len() - 6].to_vec();
        for (damaged, words) in [(flipped, "may be wrong"), (cut, "cut off")] {
            let to = tempfile::tempdir().unwrap();
            for summary in [
                extracted(&damaged, to.path(), &extracting()),
                listed(&damaged),
            ] {
                assert_eq!(summary.failed, 1, "{compression:?}: {summary:?}");
                let line = &summary.failures[0];
                assert!(line.contains(words), "{line}");
            }
        }
    }
}

#[test]
fn what_lies_behind_a_compressed_archive_is_no_fault_and_a_second_stream_is_read() {
    let (folder, tree, _) = folder(0, 0, PLAIN);
    fs::write(tree.join("noise"), noise(1 << 20)).unwrap();
    let (plain, _) = created(folder.path(), &creating(Format::Pax, Compression::None));
    for compression in COMPRESSIONS {
        let (archive, _) = created(folder.path(), &creating(Format::Pax, compression));
        let zeros = [&archive[..], &[0; 10240]].concat();
        let garbage = [&archive[..], b"garbage behind it"].concat();
        let (begin, end) = plain.split_at(plain.len() / 2);
        let two = [compressed(begin, compression), compressed(end, compression)].concat();
        for archive in [zeros, garbage, two] {
            let to = tempfile::tempdir().unwrap();
            let summary = extracted(&archive, to.path(), &extracting());
            assert_eq!(summary.failures, [""; 0], "{compression:?}");
            support::assert_same(&tree, &to.path().join("tree"));
            assert_eq!(listed(&archive).failures, [""; 0], "{compression:?}");
        }
    }
}

/// One stream with this content.
fn compressed(content: &[u8], compression: Compression) -> Vec<u8> {
    let output = match compression {
        Compression::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(content).unwrap();
            encoder.finish()
        }
        Compression::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
            encoder.write_all(content).unwrap();
            encoder.finish()
        }
        _ => zstd::encode_all(content, 1),
    };
    output.unwrap()
}

#[test]
fn a_link_is_made_of_what_was_there_before_a_later_member_takes_the_name_of_its_source() {
    let pairs: Vec<[String; 2]> = (0..20)
        .map(|number| [format!("a{number}"), format!("b{number}")])
        .collect();
    let members: Vec<_> = pairs
        .iter()
        .flat_map(|[first, link]| {
            [
                (first.as_str(), b'0', "", &b"old"[..]),
                (link.as_str(), b'1', first.as_str(), b""),
                (first.as_str(), b'0', "", b"new"),
            ]
        })
        .collect();
    let archive = made(&members);
    for _ in 0..200 {
        let to = tempfile::tempdir().unwrap();
        let summary = extracted(&archive, to.path(), &extracting());
        assert_eq!(summary.failures, [""; 0]);
        for [first, link] in &pairs {
            assert_eq!(fs::read(to.path().join(first)).unwrap(), b"new");
            assert_eq!(fs::read(to.path().join(link)).unwrap(), b"old");
        }
    }
}

#[test]
fn what_is_there_stays_until_what_replaces_it_is_whole() {
    let (folder, tree, to) = folder(0, 0, PLAIN);
    fs::write(tree.join("large"), noise(5 << 20)).unwrap();
    let (archive, _) = created(folder.path(), &creating(Format::Pax, Compression::None));
    fs::create_dir_all(to.join("tree")).unwrap();
    let (large, other) = (to.join("tree/large"), to.join("other"));
    fs::write(&other, "other").unwrap();
    let put_file = || fs::write(&large, "old").unwrap();
    let put_link = || symlink(&other, &large).unwrap();
    for (put, content) in [(&put_file as &dyn Fn(), "old"), (&put_link, "other")] {
        put();
        let summary = extracted(&archive[..archive.len() / 2], &to, &extracting());
        assert_eq!(summary.failed, 1, "{summary:?}");
        assert_eq!(fs::read_to_string(&large).unwrap(), content);
        let summary = extracted(&archive, &to, &extracting());
        assert_eq!(summary.failures, [""; 0]);
        support::assert_same(&tree, &to.join("tree"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        fs::remove_file(&large).unwrap();
    }
}

#[test]
fn directories_and_links_that_are_there_stay_as_they_are_where_nothing_is_to_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    fs::create_dir_all(to.join("there")).unwrap();
    fs::write(to.join("file"), "file").unwrap();
    symlink("mine", to.join("link")).unwrap();
    symlink("mine", to.join("hard")).unwrap();
    let modes = || {
        [".", "there"].map(|name| {
            let found = fs::metadata(to.join(name)).unwrap();
            (
                found.permissions().mode() & 0o7777,
                found.modified().unwrap(),
            )
        })
    };
    for name in ["there", "."] {
        fs::set_permissions(to.join(name), fs::Permissions::from_mode(0o751)).unwrap();
    }
    let before = modes();
    let archive = made(&[
        ("./", b'5', "", b""),
        ("there/", b'5', "", b""),
        ("link", b'2', "theirs", b""),
        ("hard", b'1', "file", b""),
    ]);
    let kept = ExtractSettings {
        keep: true,
        ..extracting()
    };
    let summary = extracted(&archive, &to, &kept);
    for name in ["link", "hard"] {
        assert_eq!(fs::read_link(to.join(name)).unwrap().to_str(), Some("mine"));
    }
    assert_eq!(summary.failed, 2, "{summary:?}");
    assert_eq!(modes(), before);
    // Directories that the archive brings are as it says, also where something in them came first.
    let archive = made(&[
        ("new/file", b'0', "", b""),
        ("new/", b'5', "", b""),
        ("other/", b'5', "", b""),
        ("other/", b'5', "", b""),
    ]);
    let summary = extracted(&archive, &to, &kept);
    assert_eq!(summary.failures, [""; 0]);
    for name in ["new", "other"] {
        let found = fs::metadata(to.join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o644);
        assert_eq!(found.modified().unwrap(), std::time::UNIX_EPOCH);
    }
}

#[test]
fn a_pattern_with_a_slash_begins_where_the_paths_of_an_archive_do_however_they_are_written() {
    let (_folder, tree, _) = folder(0, 0, PLAIN);
    for path in ["cache/a", "kept/cache/b", "kept/only"] {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), path).unwrap();
    }
    let mut settings = creating(Format::Pax, Compression::None);
    settings.exclude.add(b"/cache").unwrap();
    settings.exclude.add(b"/kept/only").unwrap();
    for path in [".", "./", "./."] {
        let to = tempfile::tempdir().unwrap();
        let (archive, _) = created_of((&tree, path), &settings);
        let summary = extracted(&archive, to.path(), &extracting());
        assert_eq!(summary.failures, [""; 0]);
        let is_there = |name| to.path().join(name).exists();
        assert!(!is_there("cache") && !is_there("kept/only"), "{path}");
        assert!(is_there("kept/cache/b"), "{path}");
    }
    // What everything fits leaves out what is below the base, and not the base.
    settings.exclude = Patterns::default();
    settings.exclude.add(b"*").unwrap();
    let (archive, _) = created_of((&tree, "."), &settings);
    let summary = listed(&archive);
    assert_eq!((summary.directories, summary.files), (1, 0));
}

#[test]
fn a_member_whose_mode_is_no_number_is_told_and_the_next_one_arrives() {
    let to = tempfile::tempdir().unwrap();
    let mut archive = made(&[
        ("bad", b'0', "", b"content"),
        ("good", b'0', "", b"content"),
    ]);
    archive[100..108].copy_from_slice(b"00x0644\0");
    seal(&mut archive[..512]);
    let summary = extracted(&archive, to.path(), &extracting());
    assert_eq!(summary.failed, 1, "{summary:?}");
    assert!(
        summary.failures[0].contains("a mode is no number"),
        "{summary:?}"
    );
    assert!(!to.path().join("bad").exists() && to.path().join("good").exists());
}

#[test]
fn records_for_all_members_hold_until_others_of_the_same_key_come() {
    let to = tempfile::tempdir().unwrap();
    let archive = made(&[
        ("first", b'g', "", b"12 mtime=10\n14 comment=ab\n"),
        ("second", b'g', "", b"14 comment=cd\n"),
        ("a", b'0', "", b""),
        ("third", b'g', "", b"12 mtime=20\n"),
        ("b", b'0', "", b""),
        ("fourth", b'g', "", b"9 mtime=\n"),
        ("c", b'0', "", b""),
    ]);
    let summary = extracted(&archive, to.path(), &extracting());
    assert_eq!(summary.failures, [""; 0]);
    for (name, seconds) in [("a", 10), ("b", 20), ("c", 0)] {
        let found = fs::metadata(to.path().join(name)).unwrap();
        assert_eq!(found.mtime(), seconds, "{name}");
    }
}

#[test]
fn an_empty_directory_gives_way_to_a_link_or_a_pipe_as_it_does_to_a_file() {
    let to = tempfile::tempdir().unwrap();
    for name in ["symbolic", "hard", "pipe", "full/kept"] {
        fs::create_dir_all(to.path().join(name)).unwrap();
    }
    let archive = made(&[
        ("file", b'0', "", b"content"),
        ("symbolic", b'2', "file", b""),
        ("hard", b'1', "file", b""),
        ("pipe", b'6', "", b""),
        ("full", b'2', "file", b""),
    ]);
    let summary = extracted(&archive, to.path(), &extracting());
    assert_eq!(summary.failed, 1, "{summary:?}");
    for name in ["symbolic", "hard"] {
        assert_eq!(fs::read(to.path().join(name)).unwrap(), b"content");
    }
    assert!(!to.path().join("pipe").is_dir() && to.path().join("full/kept").exists());
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 5);
}

/// It was gone once the neighbour that is written under that name was there.
#[test]
fn a_member_with_the_name_of_a_neighbour_on_its_way_is_refused() {
    let to = tempfile::tempdir().unwrap();
    let archive = made(&[
        (".parcp-0123456789abcdef", b'0', "", b"x"),
        (".parcp-0123456789abcdef/below", b'0', "", b"x"),
        ("file", b'0', "", b"content"),
        ("link", b'1', ".parcp-0123456789abcdef", b""),
    ]);
    fs::write(to.path().join(".parcp-0123456789abcdef"), "half").unwrap();
    let summary = extracted(&archive, to.path(), &extracting());
    assert_eq!(summary.failed, 3, "{summary:?}");
    for failure in &summary.failures {
        assert!(failure.contains("on their way"), "{failure}");
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 2);
}

/// They were closed to all but their owner for good.
#[test]
fn directories_of_an_archive_that_was_cut_off_are_open_when_the_next_run_keeps_them() {
    let to = tempfile::tempdir().unwrap();
    let mut archive = made(&[
        ("d/", b'5', "", b""),
        ("d/one", b'0', "", b""),
        ("d/two", b'0', "", b""),
    ]);
    archive[100..108].copy_from_slice(b"0000750\0");
    seal(&mut archive[..512]);
    let stop = Stop::default();
    let heard = stop.clone();
    let report = Report::telling(Box::new(move |line| {
        if line == "d/one" {
            heard.set();
        }
    }));
    let input = Box::new(Cursor::new(archive.clone()));
    let place = Place::Local(to.path().to_owned());
    extract(input, &place, &extracting(), &report, &stop);
    let kept = ExtractSettings {
        keep: true,
        ..extracting()
    };
    extracted(&archive, to.path(), &kept);
    let found = fs::metadata(to.path().join("d")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o750);
    assert!(to.path().join("d/two").exists());
}
