//! ext4 images, checked by e2fsck and by the kernel.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
};

use penstock_stream::{
    BlockAddress, BuildSummary, Ext4Settings, Ext4Writer, FileNode, ImageWriter, Permissions,
    Timestamp,
};

use crate::{
    check::check_ext4,
    mounted::{compare, time_of, walk, write_disk},
    sample::{Places, Sample},
    system::{Mount, can_mount, scratch},
};

const BLOCK: u64 = 4096;

fn settings() -> Ext4Settings {
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

/// Writes, checks, mounts and compares.
fn round_trip(sample: &Sample, settings: Ext4Settings) -> BuildSummary {
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
fn a_tree_of_many_shapes_is_what_the_kernel_shows() {
    let mut keys = BTreeSet::new();
    for number in 0..1200_u32 {
        let scattered = number.wrapping_mul(2_654_435_761);
        keys.insert(format!("wide/{scattered:08x}.jpg"));
        keys.insert(format!("many/{:03}/{number:06}", number % 150));
        if number % 20 == 0 {
            let folders = "deep/".repeat(number as usize / 20);
            keys.insert(format!("{folders}leaf-{number}"));
        }
    }
    for name in ["!", "-x", "+", " ", "\u{1}", "...", ".a", "ü", "~", "%2F"] {
        keys.insert(format!("ugly/{name}"));
        keys.insert(format!("ugly/{name}-directory/{name}"));
    }
    for length in [1, 15, 16, 17, 31, 32, 33, 100, 254, 255] {
        keys.insert(format!("long/{}", "n".repeat(length)));
        keys.extend((0..40).map(|number| format!("long{length}/{number:0length$}")));
    }
    let summary = round_trip(&Sample::of_keys(keys), settings());
    assert_eq!(summary.hidden.total(), 0);
}

#[test]
fn an_empty_volume_is_an_empty_root() {
    let summary = round_trip(&Sample::default(), settings());
    assert_eq!((summary.image.files, summary.image.directories), (0, 1));
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
fn directories_larger_than_memory_are_merged_from_files() {
    let keys = (0..4000_u32).map(|number| match number % 3 {
        0 => format!("big/{number:05}-directory/file"),
        1 => format!("big/{number:05}"),
        _ => format!("big/{:05}-directory-beside", number - 2),
    });
    let mut keys: Vec<String> = keys.collect();
    keys.sort();
    let settings = Ext4Settings {
        directories_memory: 20_000,
        ..settings()
    };
    round_trip(&Sample::of_names(keys), settings);
}

#[test]
fn owners_modes_and_times_are_those_of_the_settings_and_objects() {
    let folder = scratch();
    let device = folder.path().join("device");
    let mut sample = Sample::of_keys(["", "marked/", "marked/file", "plain/new", "plain/old"]);
    let before = Timestamp {
        seconds: -5,
        nanoseconds: 7,
    };
    sample.objects.insert(b"plain/old".to_vec(), (3, before));
    let _ = write(&device, &sample, settings());
    if !can_mount() {
        return;
    }
    let mount = mount(folder.path(), &device);
    let mut found = walk(&mount.path);
    found.insert(Vec::new(), fs::metadata(&mount.path).expect("a root"));
    for (key, metadata) in &found {
        assert_eq!((metadata.uid(), metadata.gid()), (100_001, 1002), "{key:?}");
        assert_eq!(metadata.mode() & 0o7777, 0o755, "{key:?}");
    }
    let time = |key: &[u8]| time_of(&found[key]);
    assert_eq!(time(b"marked/"), sample.objects[&b"marked/"[..]].1);
    assert_eq!(time(b"plain/"), sample.objects[&b"plain/new"[..]].1);
    assert_eq!(time(b"plain/old"), before);
    let links = |key: &[u8]| found[key].nlink();
    assert_eq!((links(b""), links(b"marked/")), (4, 2));
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
