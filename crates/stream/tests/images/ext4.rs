//! ext4 images, checked by e2fsck and by the kernel.

use std::{
    fs::{self, File},
    path::Path,
};

use penstock_stream::{
    BlockAddress, BuildSummary, Ext4Settings, Ext4Writer, FileNode, ImageWriter, Permissions,
    Timestamp,
};

use crate::{
    check::check_ext4,
    mounted::{compare, walk, write_disk},
    sample::{Places, Sample},
    system::{Mount, can_mount, scratch},
};

const BLOCK: u64 = 4096;

pub(crate) fn settings() -> Ext4Settings {
    Ext4Settings {
        permissions: Permissions::with_umask(100_001, 1002, 0o022),
        volume_name: "sample".to_owned(),
        ..Ext4Settings::default()
    }
}

/// Appends the data disk to an image.
pub(crate) fn add_data(device: &Path, objects: (&Sample, &Places), blocks: u64) {
    let file = File::options().write(true).open(device).expect("an image");
    let first = file.metadata().expect("an image").len() / BLOCK;
    file.set_len((first + blocks) * BLOCK).expect("room");
    write_disk((&file, first), 0, objects);
}

fn write(device: &Path, sample: &Sample, settings: Ext4Settings) -> (BuildSummary, Places) {
    let writer = Ext4Writer::create(device, settings).expect("a new image");
    let (summary, places) = sample.write_with(Box::new(writer), 1);
    let length = fs::metadata(device).expect("an image").len();
    assert_eq!(length, summary.image.bytes);
    add_data(device, (sample, &places), summary.disk_blocks[0]);
    check_ext4(device);
    (summary, places)
}

pub(crate) fn mount(folder: &Path, device: &Path) -> Mount {
    let options = |_: &[_]| "ro,noload".to_owned();
    Mount::new("ext4", (device, &[]), &folder.join("mount"), options)
}

/// Writes and mounts it; none where nothing can be mounted.
pub(crate) fn mounted(folder: &Path, sample: &Sample) -> Option<Mount> {
    let device = folder.join("device");
    let _ = write(&device, sample, settings());
    can_mount().then(|| mount(folder, &device))
}

/// Writes, checks, mounts and compares.
pub(crate) fn round_trip(sample: &Sample, settings: Ext4Settings) -> BuildSummary {
    let folder = scratch();
    let device = folder.path().join("device");
    let (summary, places) = write(&device, sample, settings);
    if can_mount() {
        let mount = mount(folder.path(), &device);
        let directories = compare(&mount.path, sample, &places);
        assert_eq!(directories as u64 + 1, summary.image.directories);
    }
    summary
}

#[test]
fn each_fill_of_a_directory_block_is_right() {
    let mut keys = Vec::new();
    for count in 165..=175 {
        keys.extend((0..count).map(|number| format!("{count}/{number:014}")));
    }
    for last in 1..=40 {
        keys.extend((0..168).map(|number| format!("last{last:02}/{number:014}")));
        keys.push(format!("last{last:02}/{}", "z".repeat(last)));
    }
    keys.sort();
    round_trip(&Sample::of_names(keys), settings());
}

#[test]
fn an_index_of_two_levels_finds_its_names() {
    let mut sample = Sample::default();
    for number in 0..9000 {
        sample.add(format!("{number:05}{}", "x".repeat(240)).as_bytes(), 0);
    }
    round_trip(&sample, settings());
}

#[test]
fn hidden_objects_leave_gaps_that_nobody_uses() {
    let mut sample = Sample::default();
    for key in [
        "a", "a-x", "a-x/y", "a.txt", "a/b", "c", "c-", "d/", "d//", "e",
    ] {
        sample.add(key.as_bytes(), 5000);
    }
    let summary = round_trip_shown(&sample);
    assert_eq!(summary.hidden.total(), 3);
}

/// Like [`round_trip`] where hidden objects and markers are no files.
fn round_trip_shown(sample: &Sample) -> BuildSummary {
    let folder = scratch();
    let device = folder.path().join("device");
    let (summary, _) = write(&device, sample, settings());
    if can_mount() {
        let mount = mount(folder.path(), &device);
        let found = walk(&mount.path);
        let files = found.keys().filter(|key| !key.ends_with(b"/")).count();
        assert_eq!(files as u64, summary.image.files);
    }
    summary
}

#[test]
fn files_are_large_and_empty() {
    let mut sample = Sample::default();
    sample.add(b"4 GiB", 4 << 30);
    sample.add(b"50 GB and a little", 50_000_000_001);
    sample.add(b"400 MB", 400_000_000);
    sample.add(b"empty", 0);
    sample.add(b"one byte", 1);
    sample.add(b"one block", 4096);
    sample.add(b"one block and a byte", 4097);
    round_trip(&sample, settings());
}

#[test]
fn many_files_without_bytes_have_groups_for_their_inodes() {
    let mut sample = Sample::default();
    for number in 0..40_000 {
        sample.add(format!("{}/{number:05}", number / 4000).as_bytes(), 0);
    }
    round_trip(&sample, settings());
}

#[test]
fn what_is_larger_than_ext4_is_refused() {
    let folder = scratch();
    let mut writer =
        Ext4Writer::create(&folder.path().join("image"), settings()).expect("a writer");
    let mut node = FileNode {
        size: 16 << 40,
        modified: Timestamp::default(),
        start: BlockAddress { disk: 0, block: 0 },
    };
    let error = writer.file(b"a", &node).expect_err("too large");
    assert!(error.to_string().contains("use EROFS"), "{error}");
    node.size -= 1 << 20;
    writer.file(b"a", &node).expect("just fits a file");
    let blocks = [node.size / BLOCK];
    let result = Box::new(writer).finish(Timestamp::default(), &blocks);
    let error = result.expect_err("metadata and data are too large together");
    assert!(error.to_string().contains("use EROFS"), "{error}");
}

#[test]
fn symbolic_links_lead_where_they_say() {
    let folder = scratch();
    let device = folder.path().join("device");
    let mut writer = Ext4Writer::create(&device, settings()).expect("a writer");
    let targets = [1, 59, 60, 61, 4095].map(|length| "t".repeat(length));
    for target in &targets {
        let name = format!("to-{}", target.len());
        writer
            .symlink(name.as_bytes(), target.as_bytes(), Timestamp::default())
            .expect("written");
    }
    Box::new(writer)
        .finish(Timestamp::default(), &[0])
        .expect("finished");
    check_ext4(&device);
    if !can_mount() {
        return;
    }
    let mount = mount(folder.path(), &device);
    for target in &targets {
        let link = mount.path.join(format!("to-{}", target.len()));
        assert_eq!(fs::read_link(link).expect("a link"), Path::new(target));
    }
}

#[test]
fn the_same_objects_make_the_same_bytes() {
    let folder = scratch();
    let [first, second] = ["first", "second"].map(|name| {
        let path = folder.path().join(name);
        let _ = write(&path, &Sample::of_keys(["a/b", "a/c", "d"]), settings());
        fs::read(&path).expect("an image")
    });
    assert!(first == second);
}
