//! Times of access, and set-id bits.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_fileset::AccessTimes;
use penstock_vfs::{Allocation, Attributes, Inode, New, NewKind, OpenOptions, Volume, WritePlace};

use support::{Place, ROOT, directory, file, user};

/// What was accessed when of what is there: the directory, the file and the link.
async fn accesses(place: &Place, inodes: [Inode; 3]) -> [Attributes; 3] {
    let [directory, file, link] = inodes;
    [
        place.attributes(directory).await,
        place.attributes(file).await,
        place.attributes(link).await,
    ]
}

async fn read_all_kinds(place: &Place, [directory, file, link]: [Inode; 3]) {
    let listing = place.open_directory(directory).await;
    place.volume.release_directory(listing).await;
    let handle = place.open(file, OpenOptions::READ).await.unwrap();
    place.close(handle).await.unwrap();
    place.read_symlink(link).await.unwrap();
}

#[tokio::test]
async fn reading_sets_the_time_of_an_access_as_the_mode_says() {
    let plain = Place::new().await;
    let below = plain.make(ROOT, "below", directory(0o755)).await.unwrap();
    let read = plain.make(below, "file", file(0o644)).await.unwrap();
    let target = New {
        kind: NewKind::Symlink(b"file"),
        ..file(0o777)
    };
    let link = plain.make(below, "link", target).await.unwrap();
    let all = [below, read, link];
    let made = accesses(&plain, all).await;
    read_all_kinds(&plain, all).await;
    assert_eq!(accesses(&plain, all).await, made, "by default it sets none");

    let relative = plain.noting(AccessTimes::Relative).await;
    let mut expected = made.clone();
    read_all_kinds(&relative, all).await;
    let first = accesses(&relative, all).await;
    for (before, after) in expected.iter_mut().zip(&first) {
        assert!(after.accessed > before.accessed, "{before:?}");
        before.accessed = after.accessed;
    }
    assert_eq!(first, expected, "nothing else changes");
    read_all_kinds(&relative, all).await;
    assert_eq!(accesses(&relative, all).await, first, "they say it already");
    let handle = relative.open(read, OpenOptions::WRITE).await.unwrap();
    relative
        .write(handle, WritePlace::At(0), b"x")
        .await
        .unwrap();
    let unsaved = relative.attributes(read).await;
    assert_eq!(unsaved.accessed, first[1].accessed, "writing is no reading");
    read_all_kinds(&relative, all).await;
    let second = relative.attributes(read).await;
    assert!(second.accessed > first[1].accessed, "it was changed since");
    assert_eq!(second.modified, unsaved.modified);
    relative.close(handle).await.unwrap();

    let strict = plain.noting(AccessTimes::Always).await;
    let before = accesses(&strict, all).await;
    let unnoted = OpenOptions {
        unnoted: true,
        ..OpenOptions::READ
    };
    let handle = strict.open(read, unnoted).await.unwrap();
    strict.close(handle).await.unwrap();
    assert_eq!(accesses(&strict, all).await, before);
    read_all_kinds(&strict, all).await;
    let after = accesses(&strict, all).await;
    for (before, after) in before.iter().zip(&after) {
        assert!(after.accessed > before.accessed, "{before:?}");
    }
    strict.is_whole().await;
}

#[tokio::test]
async fn an_allocation_by_somebody_takes_set_id_bits_away() {
    let place = Place::new().await;
    for how in [
        Allocation::Reserve { keep_size: true },
        Allocation::PunchHole,
        Allocation::ZeroRange { keep_size: false },
    ] {
        let text = format!("{how:?}");
        let made = place.make(ROOT, &text, file(0o6777)).await.unwrap();
        let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
        place.allocate(handle, 0..10, how).await.unwrap();
        assert_eq!(place.attributes(made).await.permissions, 0o6777, "root may");
        let by = place.by(user(7));
        by.allocate(handle, 0..10, how).await.unwrap();
        assert_eq!(place.attributes(made).await.permissions, 0o777, "{text}");
        place.close(handle).await.unwrap();
    }
}

#[tokio::test]
async fn an_open_by_somebody_that_empties_a_file_takes_set_id_bits_away() {
    let place = Place::new().await;
    let made = place.make(ROOT, "program", file(0o6777)).await.unwrap();
    let empties = OpenOptions {
        truncate: true,
        ..OpenOptions::WRITE
    };
    let handle = place.open(made, empties).await.unwrap();
    place.close(handle).await.unwrap();
    assert_eq!(place.attributes(made).await.permissions, 0o6777, "root may");
    let by = place.by(user(7));
    let handle = by.open(made, empties).await.unwrap();
    by.close(handle).await.unwrap();
    assert_eq!(place.attributes(made).await.permissions, 0o777);
}
