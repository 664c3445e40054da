use std::fs;

use super::*;

fn request(source: &str) -> ImageRequest {
    ImageRequest {
        source: source.to_owned(),
        variant: "erofs".to_owned(),
    }
}

fn listing(number: u8) -> ListingDigest {
    ListingDigest([number; 32])
}

fn store(folder: &Path, limits: KeptLimits) -> KeptImages {
    KeptImages::open(folder, limits).expect("a folder")
}

/// Builds an image of ten bytes.
fn keep(images: &KeptImages, source: &str, number: u8) -> Kept {
    let new = images.begin(&request(source)).expect("begun");
    fs::write(new.image_path(), [number; 10]).expect("written");
    fs::write(new.objects_path(), b"").expect("written");
    new.keep(&listing(number)).expect("kept")
}

fn newest(images: &KeptImages, source: &str, refresh: Refresh) -> Option<u8> {
    let image = images
        .newest(&request(source), refresh)
        .expect("readable")?;
    Some(fs::read(image.image_path()).expect("an image")[0])
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn an_image_is_found_again_for_the_same_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    assert_eq!(newest(&images, "s3://a", Refresh::Never), None);
    assert!(matches!(keep(&images, "s3://a", 1), Kept::New(_)));
    let again = store(folder.path(), KeptLimits::default());
    assert_eq!(newest(&again, "s3://a", Refresh::Never), Some(1));
    assert_eq!(newest(&again, "s3://b", Refresh::Never), None);
    assert_eq!(newest(&again, "s3://a", Refresh::Always), None);
    let hour = Refresh::OlderThan(Duration::from_secs(3600));
    assert_eq!(newest(&again, "s3://a", hour), Some(1));
    assert_eq!(again.list().expect("readable")[0].source, "s3://a");
}

#[test]
fn an_unchanged_listing_leaves_the_image_in_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    let first = keep(&images, "s3://a", 1).into_image();
    let second = keep(&images, "s3://a", 1);
    assert!(matches!(second, Kept::Unchanged(_)));
    assert_eq!(second.into_image().image_path(), first.image_path());
    assert_eq!(names(folder.path()), 1, "nothing is left of the second");
}

#[test]
fn the_image_that_was_listed_last_is_the_newest() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    for number in [1, 2] {
        let image = keep(&images, "s3://a", number).into_image();
        let mut about = image.about().clone();
        about.listed_at -= u64::from(number) * 1000;
        about.write(&image.path).expect("written");
    }
    assert_eq!(newest(&images, "s3://a", Refresh::Never), Some(1));
    let young = Refresh::OlderThan(Duration::from_secs(500));
    assert_eq!(newest(&images, "s3://a", young), None);
}

#[test]
fn what_is_not_kept_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    let new = images.begin(&request("s3://a")).expect("begun");
    fs::write(new.image_path(), b"half").expect("written");
    drop(new);
    assert_eq!(names(folder.path()), 0);
}

#[test]
fn what_a_crash_left_is_removed_and_what_another_builds_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    let left = folder.path().join(".new-1234");
    fs::create_dir(&left).expect("made");
    fs::write(left.join("lock"), b"").expect("written");
    let young = folder.path().join(".new-5678");
    fs::create_dir(&young).expect("made");
    let first = images.begin(&request("s3://a")).expect("begun");
    let second = images.begin(&request("s3://a")).expect("begun");
    assert!(!left.exists(), "nobody holds it");
    assert!(young.exists(), "somebody may be about to lock it");
    fs::write(first.image_path(), b"x").expect("still there");
    fs::write(second.image_path(), b"x").expect("still there");
}

#[test]
fn images_used_last_stay_and_those_in_use_anyway() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = KeptLimits {
        images: 2,
        ..KeptLimits::default()
    };
    let images = store(folder.path(), limits);
    let held = keep(&images, "s3://a", 1).into_image();
    for (source, number) in [("s3://b", 2), ("s3://c", 3)] {
        let _ = keep(&images, source, number);
    }
    let found = ["s3://a", "s3://b", "s3://c"].map(|one| newest(&images, one, Refresh::Never));
    assert_eq!(found, [Some(1), None, Some(3)]);
    drop(held);
    assert_eq!(newest(&images, "s3://c", Refresh::Never), Some(3));
    let _ = keep(&images, "s3://d", 4);
    let found = ["s3://a", "s3://c", "s3://d"].map(|one| newest(&images, one, Refresh::Never));
    assert_eq!(found, [None, Some(3), Some(4)]);
}

#[test]
fn bytes_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = KeptLimits {
        bytes: 1,
        ..KeptLimits::default()
    };
    let images = store(folder.path(), limits);
    drop(keep(&images, "s3://a", 1));
    let second = keep(&images, "s3://b", 2);
    assert_eq!(names(folder.path()), 1, "one in use may be larger");
    drop(second);
    images.evict().expect("evicted");
    assert_eq!(names(folder.path()), 0);
}

#[test]
fn a_process_that_goes_on_holds_the_image_that_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = store(folder.path(), KeptLimits::default());
    let path = keep(&images, "s3://a", 1).into_image().image_path();
    let again = images.again(&path).expect("still there");
    assert_eq!(again.image_path(), path);
    let other = tempfile::tempdir().expect("a folder");
    assert!(images.again(&other.path().join("x/image")).is_none());
    assert!(images.again(&folder.path().join("gone/image")).is_none());
}

mod changes {
    use proptest::prelude::*;

    use super::*;
    use crate::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};
    use std::collections::BTreeMap;

    struct Listed {
        objects: Vec<(String, u64)>,
        given: usize,
    }

    impl Listed {
        fn of(objects: &BTreeMap<String, u64>) -> Self {
            let objects = objects.iter().map(|(key, size)| (key.clone(), *size));
            Self {
                objects: objects.collect(),
                given: 0,
            }
        }
    }

    impl ObjectSource for Listed {
        fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
            let object = self
                .objects
                .get(self.given)
                .map(|(key, size)| SnapshotObject {
                    key: key.as_bytes(),
                    size: *size,
                    modified: Timestamp::default(),
                    etag: "v",
                    target: "",
                });
            self.given += 1;
            Ok(object)
        }
    }

    #[test]
    fn markers_and_hidden_keys_are_not_counted() {
        let files = BTreeMap::from([("a/b".to_owned(), 1), ("c".to_owned(), 2)]);
        let mut listed = files.clone();
        for key in ["a/", "", "a//b", "../x", "b/", "/"] {
            listed.insert(key.to_owned(), 0);
        }
        let none = Changes {
            unchanged: 2,
            ..Changes::default()
        };
        for (old, new) in [(&files, &listed), (&listed, &files)] {
            let found = compare(&mut Listed::of(old), &mut Listed::of(new));
            assert_eq!(found.expect("readable"), none);
        }
    }

    proptest! {
        #[test]
        fn are_what_sets_say(
            old in proptest::collection::btree_map("[ab]{1,3}", 0_u64..2, 0..12),
            new in proptest::collection::btree_map("[ab]{1,3}", 0_u64..2, 0..12),
        ) {
            let both = || old.iter().filter_map(|(key, size)| Some((size, new.get(key)?)));
            let same = both().filter(|(old, new)| old == new).count();
            let expected = Changes {
                added: new.keys().filter(|key| !old.contains_key(*key)).count() as u64,
                removed: old.keys().filter(|key| !new.contains_key(*key)).count() as u64,
                changed: (both().count() - same) as u64,
                unchanged: same as u64,
            };
            let found = compare(&mut Listed::of(&old), &mut Listed::of(&new));
            prop_assert_eq!(found.expect("readable"), expected);
            prop_assert_eq!(expected.is_empty(), old == new);
        }
    }
}

#[test]
fn an_image_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let bystander = folder.path().join("bystander");
    fs::create_dir(&bystander).expect("made");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    };
    open(&bystander);
    let images = store(&folder.path().join("made"), KeptLimits::default());
    assert_eq!(mode(&folder.path().join("made")), 0o700);
    drop(images);
    let images = store(folder.path(), KeptLimits::default());
    let image = keep(&images, "s3://a", 1).into_image();
    assert_eq!(mode(&image.path), 0o700);
    for name in [about::ABOUT, folder::LOCK] {
        assert_eq!(mode(&image.path.join(name)), 0o600, "{name}");
    }
    // As older versions made them.
    open(&image.path);
    drop(image);
    store(folder.path(), KeptLimits::default());
    let image = newest_image(&images);
    assert_eq!(mode(&image.path), 0o700);
    assert_eq!(mode(&bystander), 0o755, "of somebody else's");
}

fn newest_image(images: &KeptImages) -> KeptImage {
    let found = images.newest(&request("s3://a"), Refresh::Never);
    found.expect("readable").expect("kept")
}
