//! What holds for images of either kind.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt, path::Path};

use penstock_stream::{BuildSummary, ErofsSettings, Ext4Settings, Permissions, Timestamp};

use crate::{
    erofs, ext4,
    mounted::{time_of, walk},
    sample::Sample,
    system::{Mount, scratch},
};

/// Writes, checks, mounts and compares an image of each kind.
fn round_trips(sample: &Sample) -> [BuildSummary; 2] {
    [
        erofs::round_trip(sample, erofs::settings()),
        ext4::round_trip(sample, ext4::settings()),
    ]
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
    for summary in round_trips(&Sample::of_keys(keys)) {
        assert_eq!(summary.hidden.total(), 0);
    }
}

#[test]
fn an_empty_volume_is_an_empty_root() {
    for summary in round_trips(&Sample::default()) {
        assert_eq!((summary.image.files, summary.image.directories), (0, 1));
    }
}

#[test]
fn directories_larger_than_memory_are_merged_from_files() {
    const MEMORY: usize = 20_000;
    let keys = (0..4000_u32).map(|number| match number % 3 {
        0 => format!("big/{number:05}-directory/file"),
        1 => format!("big/{number:05}"),
        _ => format!("big/{:05}-directory-beside", number - 2),
    });
    let sample = Sample::of_names(keys.collect::<BTreeSet<_>>());
    let settings = ErofsSettings {
        directories_memory: MEMORY,
        ..erofs::settings()
    };
    erofs::round_trip(&sample, settings);
    let settings = Ext4Settings {
        directories_memory: MEMORY,
        ..ext4::settings()
    };
    ext4::round_trip(&sample, settings);
}

#[test]
fn owners_modes_and_times_are_those_of_the_settings_and_objects() {
    type Mounted = fn(&Path, &Sample) -> Option<Mount>;
    let kinds: [(Mounted, Permissions); 2] = [
        (erofs::mounted, erofs::settings().permissions),
        (ext4::mounted, ext4::settings().permissions),
    ];
    for (mounted, permissions) in kinds {
        let folder = scratch();
        let mut sample = Sample::of_keys(["", "marked/", "marked/file", "plain/new", "plain/old"]);
        let before = Timestamp {
            seconds: -5,
            nanoseconds: 7,
        };
        sample.objects.insert(b"plain/old".to_vec(), (3, before));
        let Some(mount) = mounted(folder.path(), &sample) else {
            return;
        };
        let mut found = walk(&mount.path);
        found.insert(Vec::new(), fs::metadata(&mount.path).expect("a root"));
        let owner = (permissions.uid, permissions.gid);
        for (key, metadata) in &found {
            assert_eq!((metadata.uid(), metadata.gid()), owner, "{key:?}");
            assert_eq!(metadata.mode() & 0o7777, 0o755, "{key:?}");
        }
        let time = |key: &[u8]| time_of(&found[key]);
        for marker in ["", "marked/"] {
            assert_eq!(time(marker.as_bytes()), sample.objects[marker.as_bytes()].1);
        }
        assert_eq!(time(b"plain/"), sample.objects[&b"plain/new"[..]].1);
        assert_eq!(time(b"plain/old"), before);
        let links = |key: &[u8]| found[key].nlink();
        assert_eq!((links(b""), links(b"marked/")), (4, 2));
    }
}
