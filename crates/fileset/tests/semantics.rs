//! What docs/semantics/fileset.md says, a test a row.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::join;
use penstock_base::FsError;
use penstock_fileset::{
    BLOCK_SIZE,
    check::{check, check_data},
    engine::{EngineError, Transaction, transact},
};
use penstock_object::{ErrorKind, Key, ListOptions, Operation, PutOptions};
use penstock_object_testing::Fault;
use penstock_vfs::{
    Allocation, AttributeChanges, Detail, Device, Exclusivity, FileKind, Identity, ListFrom, New,
    NewKind, OpenOptions, RemoveKind, RenameMode, Seek, SpecialFile, TimeChange, WritePlace,
    XattrMode,
};

use support::{Place, ROOT, directory, file, name, user};

#[tokio::test]
async fn a_lookup_finds_what_is_there_and_who_may_not_search_finds_nothing() {
    let place = Place::new().await;
    let private = place.make(ROOT, "private", directory(0o700)).await.unwrap();
    let inside = place.make(private, "inside", file(0o644)).await.unwrap();
    assert_eq!(place.find(private, "inside").await.unwrap().inode, inside);
    let stranger = place.by(user(7));
    assert_eq!(
        stranger.find(private, "inside").await,
        Err(FsError::PermissionDenied)
    );
    assert_eq!(
        place.find(inside, "below").await,
        Err(FsError::NotADirectory)
    );
    place.is_whole().await;
}

#[tokio::test]
async fn a_file_belongs_to_who_made_it_and_to_the_directory_that_hands_its_group_on() {
    let place = Place::new().await;
    let shared = place.make(ROOT, "shared", directory(0o3777)).await.unwrap();
    let group = AttributeChanges {
        gid: Some(50),
        ..Default::default()
    };
    place.change(shared, group).await.unwrap();
    let mode = AttributeChanges {
        permissions: Some(0o3777),
        ..Default::default()
    };
    place.change(shared, mode).await.unwrap();
    let by = place.by(user(7));
    let made = by.make(shared, "file", file(0o640)).await.unwrap();
    let made = place.attributes(made).await;
    assert_eq!((made.uid, made.gid, made.permissions), (7, 50, 0o640));
    let below = by
        .make(shared, "directory", directory(0o755))
        .await
        .unwrap();
    assert_eq!(place.attributes(below).await.permissions, 0o2755);
    place.is_whole().await;
}

#[tokio::test]
async fn who_may_not_write_a_directory_makes_and_removes_nothing_there() {
    let place = Place::new().await;
    place.make(ROOT, "kept", file(0o666)).await.unwrap();
    let stranger = place.by(user(7));
    let denied = Err(FsError::PermissionDenied);
    assert_eq!(stranger.make(ROOT, "new", file(0o644)).await, denied);
    assert_eq!(
        stranger.remove(ROOT, "kept", RemoveKind::File).await,
        Err(FsError::PermissionDenied)
    );
    let moved = stranger
        .rename((ROOT, "kept"), (ROOT, "moved"), RenameMode::Replace)
        .await;
    assert_eq!(moved, Err(FsError::PermissionDenied));
    place.is_whole().await;
}

#[tokio::test]
async fn an_exclusive_create_is_repeated_by_who_has_its_number() {
    let place = Place::new().await;
    let verified = |number| New {
        exclusivity: Exclusivity::Verified(number),
        ..file(0o644)
    };
    let made = place.make(ROOT, "once", verified(5)).await.unwrap();
    assert_eq!(place.make(ROOT, "once", verified(5)).await, Ok(made));
    assert_eq!(
        place.make(ROOT, "once", verified(6)).await,
        Err(FsError::AlreadyExists)
    );
    assert_eq!(
        place.make(ROOT, "once", file(0o644)).await,
        Err(FsError::AlreadyExists)
    );
    let mode = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    place.change(made, mode).await.unwrap();
    assert_eq!(
        place.make(ROOT, "once", verified(5)).await,
        Err(FsError::AlreadyExists),
        "who made it has heard of it"
    );
}

#[tokio::test]
async fn special_files_and_links_are_what_they_were_made() {
    let place = Place::new().await;
    let special = |special| New {
        kind: NewKind::Special(special),
        ..file(0o600)
    };
    let block = SpecialFile::BlockDevice(Device(0x1234));
    for (text, kind) in [
        ("pipe", SpecialFile::Pipe),
        ("socket", SpecialFile::Socket),
        ("block", block),
    ] {
        let made = place.make(ROOT, text, special(kind)).await.unwrap();
        assert_eq!(place.attributes(made).await.kind, FileKind::Special(kind));
        let opened = place.open(made, OpenOptions::READ).await;
        assert!(matches!(opened, Err(FsError::InvalidArgument(_))));
    }
    let public = place.make(ROOT, "public", directory(0o777)).await.unwrap();
    let other = place.by(user(7));
    let made = other.make(public, "block", special(block)).await;
    assert!(matches!(made, Err(FsError::NotPermitted(_))), "{made:?}");
    let pipe = special(SpecialFile::Pipe);
    assert!(other.make(public, "pipe", pipe).await.is_ok());
    let target = [b'x', 0xff, b'/'].repeat(300);
    let link = New {
        kind: NewKind::Symlink(&target),
        ..file(0o777)
    };
    let link = place.make(ROOT, "link", link).await.unwrap();
    assert_eq!(place.read_symlink(link).await.unwrap(), target);
    assert_eq!(place.attributes(link).await.size, 900);
    place.is_whole().await;
}

#[tokio::test]
async fn names_of_a_file_are_counted() {
    let place = Place::new().await;
    let made = place.make(ROOT, "one", file(0o644)).await.unwrap();
    place.link(made, (ROOT, "two")).await.unwrap();
    assert_eq!(place.attributes(made).await.links, 2);
    assert_eq!(
        place.link(made, (ROOT, "one")).await,
        Err(FsError::AlreadyExists)
    );
    let below = place
        .make(ROOT, "directory", directory(0o755))
        .await
        .unwrap();
    assert!(matches!(
        place.link(below, (ROOT, "x")).await,
        Err(FsError::NotPermitted(_))
    ));
    place.remove(ROOT, "one", RemoveKind::File).await.unwrap();
    assert_eq!(place.attributes(made).await.links, 1);
    place.is_whole().await;
}

#[tokio::test]
async fn directories_count_those_in_them() {
    let place = Place::new().await;
    let outer = place.make(ROOT, "outer", directory(0o755)).await.unwrap();
    assert_eq!(place.attributes(outer).await.links, 2);
    for text in ["a", "b"] {
        place.make(outer, text, directory(0o755)).await.unwrap();
    }
    place.make(outer, "file", file(0o644)).await.unwrap();
    assert_eq!(place.attributes(outer).await.links, 4);
    place
        .rename((outer, "a"), (ROOT, "a"), RenameMode::Replace)
        .await
        .unwrap();
    place
        .remove(outer, "b", RemoveKind::Directory)
        .await
        .unwrap();
    assert_eq!(place.attributes(outer).await.links, 2);
    assert_eq!(place.attributes(ROOT).await.links, 4);
    assert_eq!(
        place.remove(ROOT, "outer", RemoveKind::Directory).await,
        Err(FsError::DirectoryNotEmpty)
    );
    place.is_whole().await;
}

#[tokio::test]
async fn a_file_without_a_name_lives_until_it_is_given_back() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"still here").await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    place.remove(ROOT, "file", RemoveKind::File).await.unwrap();
    assert_eq!(place.read(handle, 0, 100).await.unwrap(), b"still here");
    assert_eq!(place.attributes(inode).await.links, 0);
    assert_eq!(
        place.link(inode, (ROOT, "back")).await,
        Err(FsError::NotFound)
    );
    place.close(handle).await.unwrap();
    place.forget_all(inode);
    place
        .until(|| async { place.is_gone(inode).await && place.objects().await.is_empty() })
        .await;
    place.is_whole().await;
}

#[tokio::test]
async fn files_without_a_name_whose_holder_died_are_collected() {
    let mut place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let _held = place.open(inode, OpenOptions::READ).await.unwrap();
    place.remove(ROOT, "file", RemoveKind::File).await.unwrap();
    // A crash may take what no sync followed.
    place.sync_directory(ROOT).await.unwrap();
    place.crash().await;
    place
        .until(|| async { place.is_gone(inode).await && place.objects().await.is_empty() })
        .await;
    place.is_whole().await;
}

#[tokio::test]
async fn a_removed_directory_takes_no_names() {
    let place = Place::new().await;
    let gone = place.make(ROOT, "gone", directory(0o755)).await.unwrap();
    place
        .remove(ROOT, "gone", RemoveKind::Directory)
        .await
        .unwrap();
    assert_eq!(
        place.make(gone, "new", file(0o644)).await,
        Err(FsError::NotFound)
    );
    assert_eq!(place.attributes(gone).await.links, 0);
}

#[tokio::test]
async fn a_sticky_directory_keeps_the_files_of_others() {
    let place = Place::new().await;
    let shared = place.make(ROOT, "tmp", directory(0o1777)).await.unwrap();
    let mode = AttributeChanges {
        permissions: Some(0o1777),
        ..Default::default()
    };
    place.change(shared, mode).await.unwrap();
    place
        .by(user(7))
        .make(shared, "mine", file(0o666))
        .await
        .unwrap();
    let other = place.by(user(8));
    let removed = other.remove(shared, "mine", RemoveKind::File).await;
    assert!(matches!(removed, Err(FsError::NotPermitted(_))));
    let moved = other
        .rename((shared, "mine"), (shared, "x"), RenameMode::Replace)
        .await;
    assert!(matches!(moved, Err(FsError::NotPermitted(_))));
    place
        .by(user(7))
        .remove(shared, "mine", RemoveKind::File)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_rename_replaces_at_once() {
    let place = Place::new().await;
    place.store(ROOT, "new", b"new").await.unwrap();
    place.store(ROOT, "old", b"old").await.unwrap();
    let old = place.find(ROOT, "old").await.unwrap().inode;
    let handle = place.open(old, OpenOptions::READ).await.unwrap();
    place
        .rename((ROOT, "new"), (ROOT, "old"), RenameMode::Replace)
        .await
        .unwrap();
    assert_eq!(place.content(ROOT, "old").await.unwrap(), b"new");
    assert_eq!(place.read(handle, 0, 10).await.unwrap(), b"old");
    assert_eq!(place.find(ROOT, "new").await, Err(FsError::NotFound));
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn a_rename_that_must_not_replace_does_not() {
    let place = Place::new().await;
    place.store(ROOT, "a", b"a").await.unwrap();
    place.store(ROOT, "b", b"b").await.unwrap();
    let moved = place
        .rename((ROOT, "a"), (ROOT, "b"), RenameMode::NoReplace)
        .await;
    assert_eq!(moved, Err(FsError::AlreadyExists));
    place
        .rename((ROOT, "a"), (ROOT, "c"), RenameMode::NoReplace)
        .await
        .unwrap();
    assert_eq!(place.content(ROOT, "c").await.unwrap(), b"a");
    place.is_whole().await;
}

#[tokio::test]
async fn a_rename_swaps_files_and_directories() {
    let place = Place::new().await;
    let below = place
        .make(ROOT, "directory", directory(0o755))
        .await
        .unwrap();
    let inner = place.make(below, "inner", directory(0o755)).await.unwrap();
    place.store(ROOT, "file", b"file").await.unwrap();
    place
        .rename((ROOT, "file"), (below, "inner"), RenameMode::Exchange)
        .await
        .unwrap();
    assert_eq!(place.content(below, "inner").await.unwrap(), b"file");
    assert_eq!(place.find(ROOT, "file").await.unwrap().inode, inner);
    assert_eq!(place.parent(inner).await, ROOT);
    assert_eq!(
        (
            place.attributes(below).await.links,
            place.attributes(ROOT).await.links
        ),
        (2, 4)
    );
    let absent = place
        .rename((ROOT, "file"), (ROOT, "absent"), RenameMode::Exchange)
        .await;
    assert_eq!(absent, Err(FsError::NotFound));
    place.is_whole().await;
}

#[tokio::test]
async fn a_directory_is_not_moved_into_itself() {
    let place = Place::new().await;
    let outer = place.make(ROOT, "outer", directory(0o755)).await.unwrap();
    let inner = place.make(outer, "inner", directory(0o755)).await.unwrap();
    let moved = place
        .rename((ROOT, "outer"), (inner, "x"), RenameMode::Replace)
        .await;
    assert!(matches!(moved, Err(FsError::InvalidArgument(_))));
    let swapped = place
        .rename((outer, "inner"), (ROOT, "outer"), RenameMode::Exchange)
        .await;
    assert!(matches!(swapped, Err(FsError::InvalidArgument(_))));
    place.is_whole().await;
}

#[tokio::test]
async fn times_of_a_directory_are_those_of_its_last_change() {
    let place = Place::new().await;
    let below = place.make(ROOT, "below", directory(0o755)).await.unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let touched = AttributeChanges {
        modified: Some(TimeChange::To(long_ago)),
        ..Default::default()
    };
    place.change(below, touched).await.unwrap();
    assert_eq!(place.attributes(below).await.modified, long_ago);
    place.make(below, "x", file(0o644)).await.unwrap();
    let first = place.attributes(below).await;
    assert!(first.modified > long_ago);
    place.remove(below, "x", RemoveKind::File).await.unwrap();
    let second = place.attributes(below).await;
    assert!(second.modified > first.modified, "each change shows");
    assert_eq!(second.changed, second.modified);
}

#[tokio::test]
async fn a_write_by_somebody_takes_set_id_bits_away() {
    let place = Place::new().await;
    let made = place.make(ROOT, "program", file(0o6777)).await.unwrap();
    let by = place.by(user(7));
    let handle = by.open(made, OpenOptions::WRITE).await.unwrap();
    by.write(handle, WritePlace::At(0), b"x").await.unwrap();
    by.close(handle).await.unwrap();
    assert_eq!(place.attributes(made).await.permissions, 0o777);
}

#[tokio::test]
async fn what_is_written_is_read_before_and_after_it_is_saved() {
    let place = Place::new().await;
    let length = 2 * BLOCK_SIZE as usize + 12_345;
    let mut expected: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(0), &expected)
        .await
        .unwrap();
    assert!(place.read_all(handle, length).await == expected, "before");
    place.sync(handle).await.unwrap();
    let over = vec![9; 300_000];
    let at = BLOCK_SIZE as usize - 100_000;
    place
        .write(handle, WritePlace::At(at as u64), &over)
        .await
        .unwrap();
    expected[at..at + over.len()].copy_from_slice(&over);
    assert!(
        place.read_all(handle, length).await == expected,
        "over what is saved"
    );
    place.close(handle).await.unwrap();
    assert!(
        place.content(ROOT, "file").await.unwrap() == expected,
        "after"
    );
    place.is_whole().await;
}

#[tokio::test]
async fn appends_go_to_the_end_wherever_that_is() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"begin ").await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handles = [
        place.open(inode, OpenOptions::WRITE).await.unwrap(),
        place.open(inode, OpenOptions::WRITE).await.unwrap(),
    ];
    for (handle, text) in handles.into_iter().zip([b"one ", b"two "]) {
        place.write(handle, WritePlace::End(0), text).await.unwrap();
    }
    for handle in handles {
        place.close(handle).await.unwrap();
    }
    assert_eq!(
        place.content(ROOT, "file").await.unwrap(),
        b"begin one two "
    );
}

#[tokio::test]
async fn small_writes_all_over_a_file_share_an_object() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    for number in 0..500_u64 {
        let at = number.wrapping_mul(2_654_435_761) % (1 << 30);
        place
            .write(handle, WritePlace::At(at), &number.to_le_bytes())
            .await
            .unwrap();
    }
    place.sync(handle).await.unwrap();
    assert_eq!(place.objects().await.len(), 1);
    for number in 0..500_u64 {
        let at = number.wrapping_mul(2_654_435_761) % (1 << 30);
        assert_eq!(
            place.read(handle, at, 8).await.unwrap(),
            number.to_le_bytes()
        );
    }
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn what_is_overwritten_is_deleted_from_the_bucket() {
    let place = Place::new().await;
    for round in 0..3_u8 {
        place.store(ROOT, "file", &[round; 100_000]).await.unwrap();
    }
    place
        .store(ROOT, "other", b"rings the collector")
        .await
        .unwrap();
    let other = place.find(ROOT, "other").await.unwrap().inode;
    place.remove(ROOT, "other", RemoveKind::File).await.unwrap();
    place.forget_all(other);
    place
        .until(|| async { place.objects().await.len() == 1 })
        .await;
    assert_eq!(place.content(ROOT, "file").await.unwrap(), [2; 100_000]);
    place.is_whole().await;
}

#[tokio::test]
async fn holes_read_as_zeros_and_are_found() {
    let place = Place::new().await;
    let made = place.make(ROOT, "sparse", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    let far = 1_u64 << 62;
    place
        .write(handle, WritePlace::At(far), b"end")
        .await
        .unwrap();
    place
        .write(handle, WritePlace::At(1 << 20), b"middle")
        .await
        .unwrap();
    assert_eq!(
        place.read(handle, (1 << 20) - 3, 12).await.unwrap(),
        b"\0\0\0middle\0\0\0"
    );
    assert_eq!(place.seek(handle, 0, Seek::Data).await, Ok(1 << 20));
    assert_eq!(
        place.seek(handle, 1 << 20, Seek::Hole).await,
        Ok((1 << 20) + 6)
    );
    assert_eq!(place.seek(handle, 2 << 20, Seek::Data).await, Ok(far));
    assert_eq!(place.seek(handle, far, Seek::Hole).await, Ok(far + 3));
    assert_eq!(
        place.seek(handle, far + 3, Seek::Data).await,
        Err(FsError::NoSuchPlace)
    );
    let attributes = place.attributes(made).await;
    assert_eq!((attributes.size, attributes.allocated), (far + 3, 9));
    let beyond = place
        .write(handle, WritePlace::At(i64::MAX as u64), b"x")
        .await;
    assert_eq!(beyond, Err(FsError::FileTooLarge));
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn a_file_is_cut_and_grows_with_zeros() {
    let place = Place::new().await;
    place.store(ROOT, "file", &[7; 100]).await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(90), &[8; 100])
        .await
        .unwrap();
    for size in [95, 50, 120] {
        let changes = AttributeChanges {
            size: Some(size),
            ..Default::default()
        };
        assert_eq!(place.change(inode, changes).await.unwrap().size, size);
    }
    let expected = [vec![7; 50], vec![0; 70]].concat();
    assert_eq!(place.read(handle, 0, 1000).await.unwrap(), expected);
    place.close(handle).await.unwrap();
    assert_eq!(place.content(ROOT, "file").await.unwrap(), expected);
    place.is_whole().await;
}

#[tokio::test]
async fn a_long_file_is_cut_in_steps() {
    let place = Place::new().await;
    let made = place.make(ROOT, "long", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    for chunk in 0..2500_u64 {
        place
            .write(handle, WritePlace::At(chunk * BLOCK_SIZE), b"x")
            .await
            .unwrap();
    }
    place.sync(handle).await.unwrap();
    let changes = AttributeChanges {
        size: Some(BLOCK_SIZE + 1),
        ..Default::default()
    };
    place.change(made, changes).await.unwrap();
    let attributes = place.attributes(made).await;
    assert_eq!((attributes.size, attributes.allocated), (BLOCK_SIZE + 1, 2));
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn ranges_are_reserved_punched_and_zeroed() {
    let place = Place::new().await;
    place.store(ROOT, "file", &[7; 100]).await.unwrap();
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    place
        .allocate(handle, 10..20, Allocation::PunchHole)
        .await
        .unwrap();
    place
        .allocate(handle, 90..110, Allocation::ZeroRange { keep_size: false })
        .await
        .unwrap();
    place
        .allocate(handle, 0..500, Allocation::Reserve { keep_size: true })
        .await
        .unwrap();
    let expected = [vec![7; 10], vec![0; 10], vec![7; 70], vec![0; 20]].concat();
    assert_eq!(place.read(handle, 0, 1000).await.unwrap(), expected);
    place
        .allocate(handle, 0..150, Allocation::Reserve { keep_size: false })
        .await
        .unwrap();
    assert_eq!(place.attributes(inode).await.size, 150);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn what_was_synced_is_there_after_a_crash() {
    let mut place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(0), b"synced")
        .await
        .unwrap();
    place.sync(handle).await.unwrap();
    place.store(ROOT, "closed", b"closed").await.unwrap();
    place
        .write(handle, WritePlace::At(6), b" and not")
        .await
        .unwrap();
    place.crash().await;
    assert_eq!(place.content(ROOT, "file").await.unwrap(), b"synced");
    assert_eq!(place.content(ROOT, "closed").await.unwrap(), b"closed");
    place.is_whole().await;
}

#[tokio::test]
async fn names_are_durable_after_a_sync_of_a_directory() {
    let mut place = Place::new().await;
    place
        .make(ROOT, "directory", directory(0o755))
        .await
        .unwrap();
    place.sync_directory(ROOT).await.unwrap();
    place.crash().await;
    assert!(place.find(ROOT, "directory").await.is_ok());
}

#[tokio::test]
async fn a_save_that_fails_is_told_and_tried_again() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(0), b"kept")
        .await
        .unwrap();
    let fault = Fault::fail(ErrorKind::Unavailable);
    place.faults.queue(Operation::Put, [fault]);
    assert!(matches!(place.sync(handle).await, Err(FsError::Io(_))));
    assert_eq!(place.read(handle, 0, 10).await.unwrap(), b"kept");
    place.sync(handle).await.unwrap();
    place.close(handle).await.unwrap();
    assert_eq!(place.content(ROOT, "file").await.unwrap(), b"kept");
    place.is_whole().await;
}

/// A save that was under way set the time of what it saved over the one that was set meanwhile.
#[tokio::test]
async fn a_time_that_is_set_while_a_save_is_under_way_stays() {
    let mut place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), &[1; 1000]).await;
    written.unwrap();
    let slow = Fault::Delay(Duration::from_millis(200));
    place.faults.rate(Some(Operation::Put), 1.0, slow);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let seen = place.attributes(made).await.modified;
    let set = async {
        place
            .until(|| async { place.faults.calls(Operation::Put) == 1 })
            .await;
        assert_eq!(place.attributes(made).await.modified, seen);
        let changes = AttributeChanges {
            modified: Some(TimeChange::To(long_ago)),
            ..AttributeChanges::default()
        };
        place.change(made, changes).await.unwrap();
    };
    let (synced, ()) = join(place.sync(handle), set).await;
    synced.unwrap();
    assert_eq!(place.attributes(made).await.modified, long_ago);
    place.sync(handle).await.unwrap();
    place.crash().await;
    assert_eq!(place.attributes(made).await.modified, long_ago);
    place.is_whole().await;
}

#[tokio::test]
async fn a_removed_file_that_cannot_be_cleared_away_keeps_no_other() {
    let place = Place::new().await;
    let mut removed = Vec::new();
    for name in ["first", "damaged", "last"] {
        place.store(ROOT, name, &[1; 100]).await.unwrap();
        removed.push(place.find(ROOT, name).await.unwrap().inode);
    }
    let key = [&b"C"[..], &removed[1].0.to_be_bytes(), &[0; 8]].concat();
    let damage = move |transaction: &mut dyn Transaction| -> Result<(), EngineError> {
        transaction.put(&key, Bytes::from_static(b"?"));
        Ok(())
    };
    transact(&*place.engine, damage).await.unwrap();
    for (name, inode) in ["first", "damaged", "last"].iter().zip(&removed) {
        place.remove(ROOT, name, RemoveKind::File).await.unwrap();
        place.forget_all(*inode);
    }
    place
        .until(|| async { place.objects().await.len() == 1 })
        .await;
}

#[tokio::test]
async fn damaged_and_missing_blocks_are_errors_and_never_wrong_bytes() {
    let mut place = Place::new().await;
    place.store(ROOT, "damaged", &[5; 200_000]).await.unwrap();
    let damaged = place.objects().await.remove(0);
    place.store(ROOT, "missing", &[6; 10]).await.unwrap();
    let missing = place
        .objects()
        .await
        .into_iter()
        .find(|key| *key != damaged)
        .unwrap();
    let mut bytes = vec![5; 200_000];
    bytes[150_000] = 4;
    let key = |text: &str| Key::new(text).unwrap();
    place
        .bucket
        .put(&key(&damaged), bytes.into(), PutOptions::default())
        .await
        .unwrap();
    place.bucket.delete(&key(&missing)).await.unwrap();
    place.crash().await;
    assert!(matches!(
        place.content(ROOT, "damaged").await,
        Err(FsError::Corrupt(_))
    ));
    assert!(matches!(
        place.content(ROOT, "missing").await,
        Err(FsError::Corrupt(_))
    ));
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].contains("is missing"), "{report:?}");
    let report = check_data(&*place.engine, place.transfer(), None)
        .await
        .unwrap();
    let told = |text: &str| report.findings.iter().any(|line| line.contains(text));
    assert_eq!(report.findings.len(), 3, "{report:?}");
    assert!(told("are not those that were written"), "{report:?}");
}

#[tokio::test]
async fn a_check_of_the_data_reads_each_byte() {
    let place = Place::new().await;
    place.store(ROOT, "large", &[5; 6 << 20]).await.unwrap();
    for number in 0..20 {
        let name = format!("small-{number}");
        place.store(ROOT, &name, &[number; 100]).await.unwrap();
    }
    let report = check_data(&*place.engine, place.transfer(), None)
        .await
        .unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.compared, (6 << 20) + 2000);
}

#[tokio::test]
async fn extended_attributes_have_namespaces_and_limits() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o600)).await.unwrap();
    let set = async |place: &Place, name: &str, length: usize| {
        place
            .set_xattr(made, name, &vec![1; length], XattrMode::Set)
            .await
    };
    for name in ["user.x", "trusted.x", "security.x"] {
        set(&place, name, 10).await.unwrap();
    }
    assert_eq!(place.xattrs(made).await.unwrap().len(), 3);
    assert!(matches!(
        set(&place, "system.other", 10).await,
        Err(FsError::Unsupported(_))
    ));
    assert_eq!(
        set(&place, "user.long", 70_000).await,
        Err(FsError::NoSpace)
    );
    let stranger = place.by(user(7));
    assert_eq!(
        set(&stranger, "user.y", 1).await,
        Err(FsError::PermissionDenied)
    );
    assert!(matches!(
        set(&stranger, "trusted.y", 1).await,
        Err(FsError::NotPermitted(_))
    ));
    place.is_whole().await;
}

#[tokio::test]
async fn a_listing_goes_on_while_the_directory_changes() {
    let place = Place::new().await;
    for number in 0..100 {
        place
            .make(ROOT, &format!("f{number:03}"), file(0o644))
            .await
            .unwrap();
    }
    let handle = place.open_directory(ROOT).await;
    let some = place
        .list(handle, ListFrom::Position(0), (50, Detail::Names))
        .await;
    assert_eq!(some.last().unwrap().0, "f049");
    place.remove(ROOT, "f049", RemoveKind::File).await.unwrap();
    place.make(ROOT, "a-before", file(0o644)).await.unwrap();
    let from = ListFrom::Position(some.last().unwrap().1);
    let rest = place.list(handle, from, (100, Detail::Names)).await;
    let names: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[49]), (50, "f050", "f099"));
}

#[tokio::test]
async fn a_listing_goes_on_at_a_position_of_another_handle() {
    let place = Place::new().await;
    for number in 0..10 {
        place
            .make(ROOT, &format!("f{number}"), file(0o644))
            .await
            .unwrap();
    }
    let first = place.open_directory(ROOT).await;
    let some = place
        .list(first, ListFrom::Position(0), (5, Detail::Names))
        .await;
    let second = place.open_directory(ROOT).await;
    let rest = place
        .list(second, ListFrom::Position(some[4].1), (100, Detail::Names))
        .await;
    assert_eq!(rest[0].0, "f5");
    let after = name("f7");
    let rest = place
        .list(second, ListFrom::After(&after), (100, Detail::Names))
        .await;
    assert_eq!(rest[0].0, "f8");
}

#[tokio::test]
async fn what_is_in_use_is_counted() {
    let place = Place::new().await;
    let before = place.statistics().await;
    place.store(ROOT, "file", &[1; 8192]).await.unwrap();
    let after = place.statistics().await;
    assert_eq!(before.files_free - after.files_free, 1);
    assert_eq!(before.blocks_free - after.blocks_free, 2);
}

#[tokio::test]
async fn a_check_finds_what_does_not_fit() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"x").await.unwrap();
    let key = Key::new("data/01/00000000000000ff-0000000000000001").unwrap();
    place
        .bucket
        .put(&key, vec![1].into(), PutOptions::default())
        .await
        .unwrap();
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert!(report.is_clean() && report.leaked == 1, "{report:?}");
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let gone = [&b"I"[..], &inode.0.to_be_bytes()].concat();
    let broken = penstock_fileset::engine::transact(&*place.engine, move |transaction| {
        transaction.delete(&gone);
        Ok::<_, FsError>(())
    });
    broken.await.unwrap();
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert!(
        report
            .findings
            .iter()
            .any(|line| line.contains("is missing")),
        "{report:?}"
    );
    let listed = place.bucket.list(ListOptions::default()).await.unwrap();
    assert_eq!(listed.objects.len(), 2, "a check changes nothing");
}

#[tokio::test]
async fn an_identity_that_is_trusted_was_checked_before() {
    let place = Place::new().await;
    let private = place.make(ROOT, "private", directory(0o700)).await.unwrap();
    let trusted = place.by(Identity::trusted(7, 7));
    trusted.make(private, "file", file(0o644)).await.unwrap();
}
