//! Ugly lists of keys: whatever a bucket holds, the image is valid.

use proptest::prelude::*;

use penstock_stream::{ErofsSettings, Ext4Settings, Ext4Writer};

use crate::{
    check::{blank_disks, check_ext4, fsck_erofs},
    ext4::add_data,
    sample::Sample,
    system::scratch,
};

/// Each case runs a program.
const CASES: u32 = 48;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn no_list_of_keys_makes_an_invalid_image(
        keys in proptest::collection::btree_set(key(), 0..400),
        directories_memory in prop_oneof![Just(100_usize), Just(usize::MAX)],
    ) {
        let folder = scratch();
        let image = folder.path().join("image");
        let settings = ErofsSettings { directories_memory, ..ErofsSettings::default() };
        let sample = Sample::of_keys(&keys);
        let (summary, _) = sample.write(&image, settings);
        fsck_erofs(&image, &blank_disks(folder.path(), 1));
        let device = folder.path().join("device");
        let settings = Ext4Settings { directories_memory, ..Ext4Settings::default() };
        let writer = Ext4Writer::create(&device, settings).expect("a new image");
        let (ext4, places) = sample.write_with(Box::new(writer), 1);
        add_data(&device, (&sample, &places), ext4.disk_blocks[0]);
        check_ext4(&device);
        prop_assert_eq!(ext4.image.files, summary.image.files);
        prop_assert_eq!(ext4.image.directories, summary.image.directories);
        prop_assert!(summary.image.files + summary.hidden.total() <= keys.len() as u64);
    }
}
