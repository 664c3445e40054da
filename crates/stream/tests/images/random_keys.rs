//! Ugly lists of keys: whatever a bucket holds, the image is valid.

use proptest::prelude::*;

use penstock_stream::{BuildSummary, ErofsSettings, Ext4Settings, Ext4Writer};

use crate::{
    check::{blank_disks, check_ext4, fsck_erofs},
    erofs, ext4,
    mounted::walk,
    sample::Sample,
    system::{Mount, can_mount, scratch},
};

/// Each case runs two checkers and mounts twice.
const CASES: u32 = 32;

/// Names that are hard in one way or another.
fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[ab!.-]{0,4}".prop_map(String::into_bytes),
        2 => "[a-z]{5,30}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
        1 => (250_usize..260).prop_map(|length| vec![b'n'; length]),
    ]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(component(), 1..6).prop_map(|parts| parts.join(&b'/'))
}

/// An EROFS image of the objects passes its checker and is what the kernel shows.
fn check_erofs(sample: &Sample, directories_memory: usize) -> BuildSummary {
    let folder = scratch();
    let image = folder.path().join("image");
    let settings = ErofsSettings {
        directories_memory,
        ..ErofsSettings::default()
    };
    let (summary, _) = sample.write(&image, settings);
    let disks = blank_disks(folder.path(), 1);
    fsck_erofs(&image, &disks);
    if can_mount() {
        let mount = erofs::mount(folder.path(), &image, &disks);
        assert_shown(&mount, &summary);
    }
    summary
}

/// The same with ext4.
fn check_ext4_image(sample: &Sample, directories_memory: usize) -> BuildSummary {
    let folder = scratch();
    let device = folder.path().join("device");
    let settings = Ext4Settings {
        directories_memory,
        ..Ext4Settings::default()
    };
    let writer = Ext4Writer::create(&device, settings).expect("a new image");
    let (summary, places) = sample.write_with(Box::new(writer), 1);
    ext4::add_data(&device, (sample, &places), summary.disk_blocks[0]);
    check_ext4(&device);
    if can_mount() {
        let mount = ext4::mount(folder.path(), &device);
        assert_shown(&mount, &summary);
    }
    summary
}

/// The kernel lists as many names as there are, and finds each.
fn assert_shown(mount: &Mount, summary: &BuildSummary) {
    let found = walk(&mount.path);
    let directories = found.keys().filter(|key| key.ends_with(b"/")).count() as u64;
    assert_eq!(directories + 1, summary.image.directories);
    assert_eq!(found.len() as u64 - directories, summary.image.files);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn no_list_of_keys_makes_an_invalid_image(
        keys in proptest::collection::btree_set(key(), 0..400),
        directories_memory in prop_oneof![Just(100_usize), Just(usize::MAX)],
    ) {
        let sample = Sample::of_keys(&keys);
        let erofs = check_erofs(&sample, directories_memory);
        let ext4 = check_ext4_image(&sample, directories_memory);
        prop_assert_eq!(&ext4.hidden, &erofs.hidden);
        prop_assert_eq!(ext4.image.files, erofs.image.files);
        prop_assert_eq!(ext4.image.directories, erofs.image.directories);
        prop_assert!(erofs.image.files + erofs.hidden.total() <= keys.len() as u64);
    }
}
