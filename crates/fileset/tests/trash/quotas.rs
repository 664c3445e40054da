//! What is in the trash counts, but for quotas of directories; and removing makes room where there is little.

use penstock_fileset::quotas::Subject;
use penstock_vfs::{Inode, Volume};

use crate::{
    bins::{TRASH, count, items, remove, set},
    ground::{USER, bytes, common, files, limit, on_each_engine, used},
    support::{Place, ROOT, directory, user},
};

on_each_engine!(
    what_is_in_the_trash_counts_for_its_owner,
    what_is_in_the_trash_does_not_count_for_its_directory,
    removing_makes_room_where_a_limit_is_nearly_reached,
    the_trash_has_no_quota,
);

async fn store(place: &Place, above: Inode, (text, length): (&str, usize)) {
    let by = place.by(user(7));
    by.store(above, text, &vec![1; length]).await.unwrap();
}

async fn what_is_in_the_trash_counts_for_its_owner(place: &Place) {
    set(place, 7).await;
    let above = common(place).await;
    limit(place, USER, bytes(0, 1_000_000)).await;
    store(place, above, ("a", 5000)).await;
    remove(place, above, "a").await;
    assert_eq!(used(place, USER).await, (5000, 1));
    assert_eq!(count(place).await, (1, 5000));
    assert!(place.volume.purge_some(None).await.unwrap().is_done);
    for inode in 1..3000 {
        place.forget_all(Inode(inode));
    }
    place
        .until(|| async { used(place, USER).await == (0, 0) })
        .await;
    place.is_whole().await;
}

async fn what_is_in_the_trash_does_not_count_for_its_directory(place: &Place) {
    set(place, 7).await;
    let above = common(place).await;
    let subject = Subject::Directory(above);
    limit(place, subject, bytes(0, 10_000)).await;
    store(place, above, ("a", 8000)).await;
    let before = used(place, subject).await;
    remove(place, above, "a").await;
    assert_eq!(used(place, subject).await, (before.0 - 8000, before.1 - 1));
    store(place, above, ("b", 8000)).await;
    let entry = items(place).await.remove(0).entry;
    // It counts again where it comes back to.
    assert!(place.volume.restore(entry.clone(), None).await.is_err());
    let other = place.make(ROOT, "other", directory(0o755)).await.unwrap();
    let restored = place
        .volume
        .restore(entry.clone(), Some("/other".to_owned()));
    restored.await.unwrap();
    remove(place, other, "a").await;
    remove(place, above, "b").await;
    let entries = items(place).await;
    let a = entries
        .iter()
        .find(|item| item.entry.ends_with("-a"))
        .unwrap();
    let back = Some("/common/back".to_owned());
    place.volume.restore(a.entry.clone(), back).await.unwrap();
    assert_eq!(used(place, subject).await, before);
    place.is_whole().await;
}

async fn removing_makes_room_where_a_limit_is_nearly_reached(place: &Place) {
    set(place, 7).await;
    let above = common(place).await;
    limit(place, USER, bytes(0, 100_000)).await;
    store(place, above, ("a", 40_000)).await;
    store(place, above, ("b", 55_000)).await;
    remove(place, above, "b").await;
    assert_eq!(count(place).await, (0, 0));
    // It counts until it is collected.
    for inode in 1..3000 {
        place.forget_all(Inode(inode));
    }
    let is_collected = || async { used(place, USER).await == (40_000, 1) };
    place.until(is_collected).await;
    remove(place, above, "a").await;
    assert_eq!(count(place).await, (1, 40_000));
    place.volume.remove_quota(USER).await.unwrap();
    // That of the file system counts for root's files too.
    limit(place, Subject::FileSystem, files(0, 6)).await;
    place.store(ROOT, "c", b"12345").await.unwrap();
    // The root, the trash with an hour and a file, the directory, and this one.
    assert_eq!(used(place, Subject::FileSystem).await.1, 6);
    remove(place, ROOT, "c").await;
    assert_eq!(count(place).await, (1, 40_000));
    place.is_whole().await;
}

async fn the_trash_has_no_quota(place: &Place) {
    set(place, 7).await;
    let refused = place
        .volume
        .set_quota(Subject::Directory(TRASH), bytes(0, 5))
        .await;
    assert!(refused.is_err());
}
