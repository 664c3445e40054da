//! EROFS images, checked by its tools and by the kernel.

use std::{
    fs,
    path::{Path, PathBuf},
};

use penstock_stream::{
    BuildSummary, ErofsSettings, ErofsWriter, ImageWriter, Permissions, Timestamp,
};

use crate::{
    check::{blank_disks, dump_erofs, fsck_erofs},
    mounted::{compare, write_disks},
    sample::Sample,
    system::{LoopDevice, Mount, can_mount, have, scratch},
};

const DISKS: u16 = 2;

pub(crate) fn settings() -> ErofsSettings {
    ErofsSettings {
        permissions: Permissions::with_umask(1001, 1002, 0o022),
        disks: DISKS,
        volume_name: "sample".to_owned(),
        ..ErofsSettings::default()
    }
}

pub(crate) fn mount(folder: &Path, image: &Path, disks: &[PathBuf]) -> Mount {
    let options = |devices: &[LoopDevice]| {
        let mut options = "ro".to_owned();
        for device in devices {
            options += &format!(",device={}", device.0.display());
        }
        options
    };
    Mount::new("erofs", (image, disks), &folder.join("mount"), options)
}

/// Writes and mounts it; none where nothing can be mounted.
pub(crate) fn mounted(folder: &Path, sample: &Sample) -> Option<Mount> {
    let image = folder.join("image");
    let (summary, places) = sample.write(&image, settings());
    let disks = write_disks(folder, (sample, &places), &summary.disk_blocks);
    can_mount().then(|| mount(folder, &image, &disks))
}

/// Writes, checks, mounts and compares.
pub(crate) fn round_trip(sample: &Sample, settings: ErofsSettings) -> BuildSummary {
    let folder = scratch();
    let image = folder.path().join("image");
    let (summary, places) = sample.write(&image, settings);
    let disks = write_disks(folder.path(), (sample, &places), &summary.disk_blocks);
    fsck_erofs(&image, &disks);
    assert_eq!(
        fs::metadata(&image).expect("an image").len(),
        summary.image.bytes
    );
    if can_mount() {
        let mount = mount(folder.path(), &image, &disks);
        let directories = compare(&mount.path, sample, &places);
        assert_eq!(directories as u64 + 1, summary.image.directories);
    }
    summary
}

#[test]
fn the_root_itself_may_be_large() {
    let keys = (0..5000).map(|number| format!("{number:05}{}", "-name".repeat(number % 9)));
    round_trip(&Sample::of_names(keys), settings());
}

#[test]
fn each_fill_of_a_directory_block_is_right() {
    // Around the sizes where the end of a directory does not fit behind the inode any more, and
    // where it fills a block.
    let mut keys = Vec::new();
    for count in 138..=160 {
        keys.extend((0..count).map(|number| format!("{count}/{number:015}")));
    }
    for last in 1..=60 {
        keys.extend((0..149).map(|number| format!("last{last:02}/{number:015}")));
        keys.push(format!("last{last:02}/{}", "z".repeat(last)));
    }
    keys.sort();
    round_trip(&Sample::of_names(keys), settings());
}

#[test]
fn files_are_large_and_empty() {
    let mut sample = Sample::default();
    sample.add(b"4 GiB", 4 << 30);
    sample.add(b"5 GB and a little", 5_000_000_001);
    sample.add(b"empty", 0);
    sample.add(b"one byte", 1);
    sample.add(b"one block", 4096);
    sample.add(b"one block and a byte", 4097);
    round_trip(&sample, settings());
}

#[test]
fn one_object_of_five_terabytes_lies_on_one_disk() {
    let mut sample = Sample::default();
    sample.add(b"large", 5 << 40);
    sample.add(b"nine", (9 << 40) + 5);
    sample.add(b"small", 9000);
    // Tests may lie on a file system without files of this size: they are not made.
    let folder = scratch();
    let image = folder.path().join("image");
    let (summary, places) = sample.write(&image, settings());
    fsck_erofs(&image, &blank_disks(folder.path(), DISKS));
    assert_eq!(summary.disk_blocks, [(5 << 28) + 3, (9 << 28) + 1]);
    assert_eq!(places.0[&b"small"[..]].block, 5 << 28);
}

#[test]
fn a_disk_of_more_than_sixteen_terabytes_is_refused() {
    let folder = scratch();
    let mut writer =
        ErofsWriter::create(&folder.path().join("image"), settings()).expect("a writer");
    let node = penstock_stream::FileNode {
        size: 1 << 40,
        modified: Timestamp::default(),
        start: penstock_stream::BlockAddress {
            disk: 0,
            block: (1 << 32) - 5,
        },
    };
    let error = writer.file(b"a", &node).expect_err("too far");
    assert!(error.to_string().contains("use more disks"), "{error}");
}

#[test]
fn symbolic_links_lead_where_they_say() {
    let folder = scratch();
    let image = folder.path().join("image");
    let mut writer = ErofsWriter::create(&image, settings()).expect("a writer");
    let targets = [1, 10, 4031, 4032, 4033, 4095].map(|length| "t".repeat(length));
    for target in &targets {
        let name = format!("to-{}", target.len());
        writer
            .symlink(name.as_bytes(), target.as_bytes(), Timestamp::default())
            .expect("written");
    }
    for target in ["", &"t".repeat(4096), "a\0"] {
        let result = writer.symlink(b"x", target.as_bytes(), Timestamp::default());
        assert!(result.is_err());
    }
    Box::new(writer)
        .finish(Timestamp::default(), &[0, 0])
        .expect("finished");
    let disks = write_disks(
        folder.path(),
        (&Sample::default(), &<_>::default()),
        &[0, 0],
    );
    fsck_erofs(&image, &disks);
    if !can_mount() {
        return;
    }
    let mount = mount(folder.path(), &image, &disks);
    for target in &targets {
        let link = mount.path.join(format!("to-{}", target.len()));
        assert_eq!(fs::read_link(link).expect("a link"), Path::new(target));
    }
}

#[test]
fn the_same_objects_make_the_same_bytes_and_others_another_uuid() {
    let folder = scratch();
    let write = |name: &str, sample: &Sample, settings: ErofsSettings| {
        let path = folder.path().join(name);
        let _ = sample.write(&path, settings);
        let bytes = fs::read(&path).expect("an image");
        let uuid = bytes[1072..1088].to_vec();
        (bytes, uuid)
    };
    let sample = Sample::of_keys(["a/b", "a/c", "d"]);
    let first = write("first", &sample, settings());
    assert_eq!(first, write("second", &sample, settings()));
    let renamed = Sample::of_keys(["a/b", "a/c", "e"]);
    assert_ne!(first.1, write("renamed", &renamed, settings()).1);
    let umask = ErofsSettings {
        permissions: Permissions::with_umask(1001, 1002, 0o077),
        ..settings()
    };
    assert_ne!(first.1, write("umask", &sample, umask).1);
    let image = folder.path().join("first");
    let disks = blank_disks(folder.path(), DISKS);
    if let Some(found) = dump_erofs((&image, &disks), "Filesystem UUID") {
        let digits = found.replace('-', "");
        let expected: String = first.1.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, expected);
    }
    if let Some(features) = dump_erofs((&image, &disks), "Filesystem features") {
        for feature in ["sb_csum", "mtime", "chunked_file", "device_table"] {
            assert!(features.contains(feature), "{features}");
        }
    }
}

#[test]
fn a_hundred_disks_have_their_table_behind_the_root() {
    let settings = ErofsSettings {
        disks: 100,
        ..settings()
    };
    let keys = (0..300).map(|number| format!("{number:03}"));
    let folder = scratch();
    let image = folder.path().join("image");
    let sample = Sample::of_keys(keys);
    let (summary, places) = sample.write(&image, settings);
    let disks = write_disks(folder.path(), (&sample, &places), &summary.disk_blocks);
    fsck_erofs(&image, &disks);
}

#[test]
fn the_checker_notices_damage() {
    let folder = scratch();
    let image = folder.path().join("image");
    let _ = Sample::of_keys(["a/b", "c"]).write(&image, settings());
    let disks = blank_disks(folder.path(), DISKS);
    fsck_erofs(&image, &disks);
    let mut bytes = fs::read(&image).expect("an image");
    // The number of the root's entry `.`, behind its inode in the second block.
    bytes[4096 + 64] ^= 1;
    fs::write(&image, bytes).expect("written");
    let mut command = std::process::Command::new("fsck.erofs");
    for disk in &disks {
        command.arg(format!("--device={}", disk.display()));
    }
    if have("fsck.erofs") {
        let output = command.arg(&image).output().expect("the program is there");
        assert!(
            !output.status.success(),
            "a wrong `.` is no valid directory"
        );
    }
}

#[test]
fn names_that_no_file_can_have_are_refused() {
    let folder = scratch();
    let mut writer =
        ErofsWriter::create(&folder.path().join("image"), settings()).expect("a writer");
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert!(writer.enter(name).is_err(), "{name:?}");
    }
    assert!(writer.leave(Timestamp::default()).is_err());
}
