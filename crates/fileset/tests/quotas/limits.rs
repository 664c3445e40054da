//! What limits hold and whom.

use std::time::Duration;

use penstock_base::{FsError, clock};
use penstock_fileset::quotas::{Change, Subject};
use penstock_object::Operation;
use penstock_object_testing::Fault;
use penstock_vfs::{Allocation, AttributeChanges, Inode, OpenOptions, RemoveKind, WritePlace};

use crate::{
    ground::{
        GROUP, USER, at_once, bytes, common, files, limit, on_each_engine, on_memory, quota, used,
    },
    support::{Place, ROOT, file, user},
};

const KIB: u64 = 1024;

on_each_engine!(
    a_write_fails_at_the_hard_limit_and_no_byte_before,
    what_is_written_over_takes_no_room,
    what_was_accepted_is_saved_whatever_is_limited_meanwhile,
    a_soft_limit_holds_after_the_grace_time,
    creates_end_at_the_limit_of_files,
    a_file_that_changes_hands_counts_for_its_new_owner,
    a_group_is_limited_as_a_user_is,
    root_is_counted_and_not_limited,
    a_file_system_is_as_large_as_its_quota,
    allocating_more_than_there_is_room_for_fails,
    a_file_without_a_name_counts_until_it_is_gone,
    what_was_removed_makes_room_for_what_comes_next,
    what_is_cut_and_punched_is_given_back,
    a_soft_limit_above_the_hard_one_is_refused,
    what_only_a_snapshot_has_counts_for_nobody,
);

/// A file of the user's in a directory that is everybody's, open.
async fn opened(place: &Place, name: &str) -> (Inode, penstock_vfs::HandleId) {
    let above = match place.find(ROOT, "common").await {
        Ok(found) => found.inode,
        Err(_) => common(place).await,
    };
    let inode = place.make(above, name, file(0o644)).await.unwrap();
    let options = OpenOptions::READ_WRITE;
    (inode, place.open(inode, options).await.unwrap())
}

async fn write(
    place: &Place,
    handle: penstock_vfs::HandleId,
    offset: u64,
    length: u64,
) -> Result<(), FsError> {
    let data = vec![1; length as usize];
    place.write(handle, WritePlace::At(offset), &data).await
}

async fn a_write_fails_at_the_hard_limit_and_no_byte_before(place: &Place) {
    common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    for step in 0..10 {
        write(&by, handle, step * 10 * KIB, 10 * KIB).await.unwrap();
    }
    assert_eq!(
        write(&by, handle, 100 * KIB, 1).await,
        Err(FsError::QuotaExceeded)
    );
    let (_, other) = opened(&by, "other").await;
    assert_eq!(write(&by, other, 0, 1).await, Err(FsError::QuotaExceeded));
    by.close(handle).await.unwrap();
    by.close(other).await.unwrap();
    assert_eq!(used(place, USER).await, (100 * KIB, 2));
    let stranger = place.by(user(8));
    let (_, free) = opened(&stranger, "free").await;
    write(&stranger, free, 0, 200 * KIB).await.unwrap();
    stranger.close(free).await.unwrap();
    place.is_whole().await;
}

async fn what_is_written_over_takes_no_room(place: &Place) {
    common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    for _ in 0..5 {
        write(&by, handle, 0, 60 * KIB).await.unwrap();
    }
    write(&by, handle, 30 * KIB, 70 * KIB).await.unwrap();
    by.sync(handle).await.unwrap();
    for _ in 0..5 {
        write(&by, handle, 0, 100 * KIB).await.unwrap();
    }
    assert_eq!(
        write(&by, handle, 1, 100 * KIB).await,
        Err(FsError::QuotaExceeded)
    );
    by.close(handle).await.unwrap();
    assert_eq!(used(place, USER).await, (100 * KIB, 1));
    place.is_whole().await;
}

async fn what_was_accepted_is_saved_whatever_is_limited_meanwhile(place: &Place) {
    common(place).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    write(&by, handle, 0, 50 * KIB).await.unwrap();
    limit(place, USER, bytes(0, 10 * KIB)).await;
    by.sync(handle).await.unwrap();
    assert_eq!(used(place, USER).await, (50 * KIB, 1));
    assert_eq!(
        write(&by, handle, 50 * KIB, 1).await,
        Err(FsError::QuotaExceeded)
    );
    by.close(handle).await.unwrap();
    place.is_whole().await;
}

async fn a_soft_limit_holds_after_the_grace_time(place: &Place) {
    common(place).await;
    limit(place, USER, bytes(10 * KIB, 100 * KIB)).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    write(&by, handle, 0, 11 * KIB).await.unwrap();
    write(&by, handle, 11 * KIB, KIB).await.unwrap();
    by.sync(handle).await.unwrap();
    let now = penstock_base::clock::wall_time();
    assert!(quota(place, USER).await.grace_ends(now)[0].unwrap() > now);
    // Who shortens the time ends it.
    limit(place, USER, at_once(bytes(10 * KIB, 100 * KIB))).await;
    assert_eq!(
        write(&by, handle, 12 * KIB, 1).await,
        Err(FsError::QuotaExceeded)
    );
    let smaller = AttributeChanges {
        size: Some(5 * KIB),
        ..Default::default()
    };
    by.change(
        by.find(above(place).await, "file").await.unwrap().inode,
        smaller,
    )
    .await
    .unwrap();
    assert_eq!(quota(place, USER).await.grace_ends(now), [None, None]);
    // Below the limit it begins anew, with one more write.
    write(&by, handle, 5 * KIB, 6 * KIB).await.unwrap();
    by.sync(handle).await.unwrap();
    assert_eq!(
        write(&by, handle, 11 * KIB, 1).await,
        Err(FsError::QuotaExceeded)
    );
    by.close(handle).await.unwrap();
    place.is_whole().await;
}

async fn above(place: &Place) -> Inode {
    place.find(ROOT, "common").await.unwrap().inode
}

async fn creates_end_at_the_limit_of_files(place: &Place) {
    let above = common(place).await;
    limit(place, USER, files(0, 3)).await;
    let by = place.by(user(7));
    for name in ["a", "b", "c"] {
        by.make(above, name, file(0o644)).await.unwrap();
    }
    let refused = by.make(above, "d", crate::support::directory(0o755)).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    let inode = by.find(above, "a").await.unwrap().inode;
    by.link(inode, (above, "another name")).await.unwrap();
    by.remove(above, "b", RemoveKind::File).await.unwrap();
    let removed = || async { used(place, USER).await == (0, 2) };
    forget_all(place, above, &["b"]).await;
    place.until(removed).await;
    by.make(above, "d", file(0o644)).await.unwrap();
    place.is_whole().await;
}

/// Nobody holds any file here.
async fn forget_all(place: &Place, _above: Inode, _names: &[&str]) {
    for inode in 1..3000 {
        place.forget_all(Inode(inode));
    }
}

async fn a_file_that_changes_hands_counts_for_its_new_owner(place: &Place) {
    let above = common(place).await;
    let by = place.by(user(7));
    by.store(above, "file", &[1; 5000]).await.unwrap();
    limit(place, USER, bytes(0, 10 * KIB)).await;
    limit(place, Subject::User(8), bytes(0, KIB)).await;
    assert_eq!(used(place, USER).await, (5000, 1));
    let inode = place.find(above, "file").await.unwrap().inode;
    let given = AttributeChanges {
        uid: Some(8),
        gid: Some(8),
        ..Default::default()
    };
    // Root gives it to somebody who may not have so much.
    place.change(inode, given).await.unwrap();
    assert_eq!(used(place, USER).await, (0, 0));
    assert_eq!(used(place, Subject::User(8)).await, (5000, 1));
    place.is_whole().await;
}

async fn a_group_is_limited_as_a_user_is(place: &Place) {
    let above = common(place).await;
    limit(place, GROUP, bytes(0, 10 * KIB)).await;
    limit(place, Subject::Group(9), bytes(0, 1)).await;
    let member = place.by(penstock_vfs::Identity::new(5, 7, [9]));
    member.store(above, "file", &[1; 5000]).await.unwrap();
    let refused = member.store(above, "more", &[1; 6000]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    assert_eq!(used(place, GROUP).await, (5000, 2));
    let inode = place.find(above, "file").await.unwrap().inode;
    let given = AttributeChanges {
        gid: Some(9),
        ..Default::default()
    };
    assert_eq!(
        member.change(inode, given).await.err(),
        Some(FsError::QuotaExceeded)
    );
    assert_eq!(place.attributes(inode).await.gid, 7);
    place.is_whole().await;
}

async fn root_is_counted_and_not_limited(place: &Place) {
    let above = common(place).await;
    let root = Subject::User(0);
    let limits = Change {
        files: files(0, 1).files,
        ..bytes(0, KIB)
    };
    limit(place, root, limits).await;
    limit(place, USER, bytes(0, KIB)).await;
    place.store(above, "file", &[1; 5000]).await.unwrap();
    assert_eq!(used(place, root).await, (5000, 3));
    let by = place.by(user(7));
    by.store(above, "own", &[1; 1000]).await.unwrap();
    let inode = place.find(above, "own").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    write(place, handle, 0, 5000).await.unwrap();
    place.close(handle).await.unwrap();
    assert_eq!(used(place, USER).await, (5000, 1));
    place.is_whole().await;
}

async fn a_file_system_is_as_large_as_its_quota(place: &Place) {
    let limits = Change {
        files: files(0, 10).files,
        ..bytes(0, 64 * KIB)
    };
    limit(place, Subject::FileSystem, limits).await;
    place.store(ROOT, "file", &[1; 8192]).await.unwrap();
    let shown = place.statistics().await;
    assert_eq!((shown.blocks, shown.blocks_free), (16, 14));
    assert_eq!((shown.files, shown.files_free), (10, 8));
    let refused = place.store(ROOT, "more", &[1; 60 << 10]).await;
    assert_eq!(refused, Err(FsError::NoSpace));
    for number in 0..7 {
        let name = number.to_string();
        place.make(ROOT, &name, file(0o644)).await.unwrap();
    }
    let refused = place.make(ROOT, "last", file(0o644)).await;
    assert_eq!(refused, Err(FsError::NoSpace));
    place
        .volume
        .remove_quota(Subject::FileSystem)
        .await
        .unwrap();
    place.make(ROOT, "last", file(0o644)).await.unwrap();
    assert_eq!(place.statistics().await.files, 1 << 40);
    place.is_whole().await;
}

async fn allocating_more_than_there_is_room_for_fails(place: &Place) {
    common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    write(&by, handle, 0, 50 * KIB).await.unwrap();
    let reserve = |keep_size| Allocation::Reserve { keep_size };
    by.allocate(handle, 0..100 * KIB, reserve(false))
        .await
        .unwrap();
    let refused = by.allocate(handle, 0..101 * KIB, reserve(true)).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    by.close(handle).await.unwrap();
    assert_eq!(used(place, USER).await, (50 * KIB, 1));
    place.is_whole().await;
}

async fn what_was_removed_makes_room_for_what_comes_next(place: &Place) {
    let above = common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    limit(place, USER, files(0, 1)).await;
    let by = place.by(user(7));
    let content = vec![1; 90 << 10];
    for round in 0..5 {
        let name = round.to_string();
        by.store(above, &name, &content).await.unwrap();
        let inode = by.find(above, &name).await.unwrap().inode;
        by.remove(above, &name, RemoveKind::File).await.unwrap();
        place.forget_all(inode);
    }
    let (_, handle) = opened(&by, "large").await;
    write(&by, handle, 0, 90 * KIB).await.unwrap();
    limit(place, USER, files(0, 0)).await;
    let (_, second) = opened(&by, "second").await;
    by.sync(handle).await.unwrap();
    by.close(handle).await.unwrap();
    let inode = by.find(above, "large").await.unwrap().inode;
    by.remove(above, "large", RemoveKind::File).await.unwrap();
    place.forget_all(inode);
    write(&by, second, 0, 90 * KIB).await.unwrap();
    place.is_whole().await;
}

async fn a_file_without_a_name_counts_until_it_is_gone(place: &Place) {
    let above = common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let (_, handle) = opened(&by, "file").await;
    write(&by, handle, 0, 90 * KIB).await.unwrap();
    by.sync(handle).await.unwrap();
    by.remove(above, "file", RemoveKind::File).await.unwrap();
    assert_eq!(used(place, USER).await, (90 * KIB, 1));
    by.close(handle).await.unwrap();
    forget_all(place, above, &[]).await;
    place
        .until(|| async { used(place, USER).await == (0, 0) })
        .await;
    place.is_whole().await;
}

async fn what_is_cut_and_punched_is_given_back(place: &Place) {
    common(place).await;
    limit(place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let (inode, handle) = opened(&by, "file").await;
    write(&by, handle, 0, 100 * KIB).await.unwrap();
    by.allocate(handle, 0..30 * KIB, Allocation::PunchHole)
        .await
        .unwrap();
    write(&by, handle, 100 * KIB, 30 * KIB).await.unwrap();
    by.sync(handle).await.unwrap();
    assert_eq!(used(place, USER).await, (100 * KIB, 1));
    let smaller = AttributeChanges {
        size: Some(40 * KIB),
        ..Default::default()
    };
    by.change(inode, smaller).await.unwrap();
    assert_eq!(used(place, USER).await, (10 * KIB, 1));
    let larger = AttributeChanges {
        size: Some(1 << 40),
        ..Default::default()
    };
    by.change(inode, larger).await.unwrap();
    assert_eq!(used(place, USER).await, (10 * KIB, 1), "holes take no room");
    by.close(handle).await.unwrap();
    place.is_whole().await;
}

async fn a_soft_limit_above_the_hard_one_is_refused(place: &Place) {
    for limits in [bytes(11, 10), files(11, 10)] {
        let refused = place.volume.set_quota(USER, limits).await;
        assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    }
    let missing = place.volume.remove_quota(USER).await;
    assert_eq!(missing, Err(FsError::NotFound));
}

async fn what_only_a_snapshot_has_counts_for_nobody(place: &Place) {
    let above = common(place).await;
    limit(place, USER, bytes(0, 10 * KIB)).await;
    let by = place.by(user(7));
    by.store(above, "file", &[1; 9000]).await.unwrap();
    let name = crate::support::name("before");
    place.volume.take_snapshot(&name).await.unwrap();
    by.store(above, "file", &[2; 9500]).await.unwrap();
    assert_eq!(used(place, USER).await, (9500, 1));
    place.is_whole().await;
}

/// Each of those who found no room waited for all who had come before it.
#[tokio::test(start_paused = true)]
async fn those_who_find_no_room_wait_at_once_for_a_store_that_does_not_answer() {
    const WRITERS: usize = 8;
    let place = on_memory().await;
    common(&place).await;
    limit(&place, USER, bytes(0, 100 * KIB)).await;
    let by = place.by(user(7));
    let mut handles = Vec::new();
    for number in 0..WRITERS {
        handles.push(opened(&by, &number.to_string()).await.1);
    }
    write(&by, handles[0], 0, 10 * KIB).await.unwrap();
    place
        .faults
        .queue(Operation::Put, vec![Fault::Hang; WRITERS]);
    let begun = clock::now();
    let writes = handles
        .iter()
        .map(|handle| write(&by, *handle, 0, 95 * KIB));
    for written in futures_util::future::join_all(writes).await {
        assert_eq!(written, Err(FsError::QuotaExceeded));
    }
    let waited = begun.elapsed();
    assert!(waited <= Duration::from_secs(60), "{waited:?}");
}
