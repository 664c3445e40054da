//! Quotas of directories.

use penstock_base::FsError;
use penstock_fileset::quotas::{self, Subject};
use penstock_vfs::{Inode, RemoveKind, RenameMode, Volume};

use crate::{
    ground::{at_once, bytes, files, keys, limit, on_each_engine, quota, until_counted, used},
    support::{Place, ROOT, directory, file},
};

on_each_engine!(
    a_directory_is_limited_with_all_that_is_below_it,
    what_was_below_a_directory_is_counted_in_steps,
    names_do_not_move_into_or_out_of_a_directory_with_a_quota,
    a_directory_shows_its_quota_as_its_size,
    quotas_of_directories_do_not_nest,
    quotas_of_directories_do_not_nest_before_all_is_marked_either,
    a_directory_that_is_not_marked_yet_can_be_renamed,
    a_file_that_a_quota_left_behind_can_be_linked,
    a_quota_whose_directory_lost_those_above_it_is_listed,
    a_directory_without_its_quota_counts_for_nothing,
    the_quota_of_a_directory_goes_with_it,
    a_directory_with_a_quota_can_be_moved,
    files_are_marked_beside_those_who_change_them,
);

async fn made(place: &Place, above: Inode, name: &str) -> (Inode, Subject) {
    let inode = place.make(above, name, directory(0o755)).await.unwrap();
    (inode, Subject::Directory(inode))
}

async fn a_directory_is_limited_with_all_that_is_below_it(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    limit(place, subject, bytes(0, 10_000)).await;
    limit(place, subject, files(0, 5)).await;
    let (below, _) = made(place, top, "below").await;
    place.store(below, "file", &[1; 6000]).await.unwrap();
    // Root is held to it.
    let refused = place.store(below, "more", &[1; 4001]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    place.store(top, "more", &[1; 4000]).await.unwrap();
    assert_eq!(used(place, subject).await, (10_000, 5));
    let refused = place.make(below, "last", file(0o644)).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    place.store(ROOT, "outside", &[1; 20_000]).await.unwrap();
    place.remove(below, "file", RemoveKind::File).await.unwrap();
    forget_all(place);
    place
        .until(|| async { used(place, subject).await == (4000, 4) })
        .await;
    place.is_whole().await;
}

fn forget_all(place: &Place) {
    (1..5000).for_each(|inode| place.forget_all(Inode(inode)));
}

async fn what_was_below_a_directory_is_counted_in_steps(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    for number in 0..1100 {
        let name = number.to_string();
        place.make(below, &name, file(0o644)).await.unwrap();
    }
    place.store(below, "file", &[1; 100]).await.unwrap();
    limit(place, subject, bytes(0, 150)).await;
    assert_eq!(used(place, subject).await, (100, 1103));
    let refused = place.store(below, "more", &[1; 51]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    assert_eq!(quota(place, subject).await.path.unwrap(), "/top");
    let found = place.volume.directory_at("/top").await;
    assert_eq!(found, Ok(top));
    place.is_whole().await;
}

async fn names_do_not_move_into_or_out_of_a_directory_with_a_quota(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    limit(place, subject, bytes(0, 1000)).await;
    place.store(below, "in", &[1; 10]).await.unwrap();
    place.store(ROOT, "out", &[1; 10]).await.unwrap();
    let across = Err(FsError::CrossDevice);
    let replace = RenameMode::Replace;
    assert_eq!(
        place.rename((below, "in"), (ROOT, "x"), replace).await,
        across
    );
    assert_eq!(
        place.rename((ROOT, "out"), (top, "x"), replace).await,
        across
    );
    let exchange = RenameMode::Exchange;
    assert_eq!(
        place.rename((ROOT, "out"), (below, "in"), exchange).await,
        across
    );
    let (inner, outer) = (
        place.find(below, "in").await.unwrap().inode,
        place.find(ROOT, "out").await.unwrap().inode,
    );
    assert_eq!(place.link(inner, (ROOT, "x")).await, across);
    assert_eq!(place.link(outer, (below, "x")).await, across);
    place
        .rename((below, "in"), (top, "in"), replace)
        .await
        .unwrap();
    place.link(inner, (below, "again")).await.unwrap();
    assert_eq!(used(place, subject).await, (10, 3));
    place.is_whole().await;
}

async fn a_directory_shows_its_quota_as_its_size(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    limit(place, subject, bytes(0, 1 << 20)).await;
    place.store(below, "file", &[1; 524_288]).await.unwrap();
    let by = penstock_vfs::Identity::root();
    let shown = place.volume.statistics(&by, below).await.unwrap();
    assert_eq!((shown.blocks, shown.blocks_free), (256, 128));
    assert_eq!(place.statistics().await.blocks, 1 << 48);
}

async fn quotas_of_directories_do_not_nest(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, inner) = made(place, top, "below").await;
    let (above, _) = (top, subject);
    limit(place, inner, bytes(0, 1000)).await;
    for refused in [subject, Subject::Directory(ROOT)] {
        let refused = place.volume.set_quota(refused, bytes(0, 1)).await;
        assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    }
    let (_, deeper) = made(place, below, "deeper").await;
    let refused = place.volume.set_quota(deeper, bytes(0, 1)).await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    // Another one beside it is no matter.
    let (_, beside) = made(place, above, "beside").await;
    limit(place, beside, bytes(0, 1000)).await;
    place.is_whole().await;
}

async fn quotas_of_directories_do_not_nest_before_all_is_marked_either(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    let (_, deeper) = made(place, below, "deeper").await;
    // The walk comes behind this.
    quotas::set(&*place.engine, subject, bytes(0, 1000))
        .await
        .unwrap();
    let refused = quotas::set(&*place.engine, deeper, bytes(0, 1)).await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    quotas::count(&*place.engine, &|_| ()).await.unwrap();
    assert_eq!(used(place, subject).await, (0, 3));
    place.is_whole().await;
}

async fn a_directory_that_is_not_marked_yet_can_be_renamed(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    let (other, _) = made(place, top, "other").await;
    place.store(below, "file", &[1; 100]).await.unwrap();
    quotas::set(&*place.engine, subject, bytes(0, 1000))
        .await
        .unwrap();
    let replace = RenameMode::Replace;
    place
        .rename((top, "below"), (top, "renamed"), replace)
        .await
        .unwrap();
    quotas::count(&*place.engine, &|_| ()).await.unwrap();
    assert_eq!(used(place, subject).await, (100, 4));
    place
        .rename((top, "renamed"), (other, "moved"), replace)
        .await
        .unwrap();
    assert_eq!(used(place, subject).await, (100, 4));
    place.is_whole().await;
}

async fn a_file_that_a_quota_left_behind_can_be_linked(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    place.store(top, "in", &[1; 100]).await.unwrap();
    let inode = place.find(top, "in").await.unwrap().inode;
    place.link(inode, (ROOT, "out")).await.unwrap();
    limit(place, subject, bytes(0, 1000)).await;
    place.remove(top, "in", RemoveKind::File).await.unwrap();
    place.volume.remove_quota(subject).await.unwrap();
    let is_done = || async { keys(&*place.engine, b"m").await == 0 };
    place.until(is_done).await;
    place.link(inode, (ROOT, "again")).await.unwrap();
    limit(place, subject, bytes(0, 1000)).await;
    assert_eq!(used(place, subject).await, (0, 1));
    place.is_whole().await;
}

async fn a_quota_whose_directory_lost_those_above_it_is_listed(place: &Place) {
    let (top, _) = made(place, ROOT, "top").await;
    let (below, subject) = made(place, top, "below").await;
    limit(place, subject, bytes(0, 1000)).await;
    let directory = RemoveKind::Directory;
    place.remove(top, "below", directory).await.unwrap();
    place.remove(ROOT, "top", directory).await.unwrap();
    place.forget_all(top);
    let by = penstock_vfs::Identity::root();
    let is_gone = || async { place.volume.attributes(&by, top).await.is_err() };
    place.until(is_gone).await;
    let listed = quota(place, subject).await;
    assert_eq!(listed.path, Some(format!("(inode {})", below.0)));
}

async fn a_directory_without_its_quota_counts_for_nothing(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (below, _) = made(place, top, "below").await;
    limit(place, subject, bytes(0, 1000)).await;
    place.store(below, "file", &[1; 900]).await.unwrap();
    place.volume.remove_quota(subject).await.unwrap();
    let is_done = || async { keys(&*place.engine, b"m").await == 0 };
    place.until(is_done).await;
    place.store(below, "more", &[1; 900]).await.unwrap();
    let replace = RenameMode::Replace;
    place
        .rename((below, "file"), (ROOT, "file"), replace)
        .await
        .unwrap();
    place.is_whole().await;
    limit(place, subject, at_once(bytes(0, 1000))).await;
    assert_eq!(used(place, subject).await, (900, 3));
    place.is_whole().await;
}

async fn the_quota_of_a_directory_goes_with_it(place: &Place) {
    let (_, subject) = made(place, ROOT, "top").await;
    limit(place, subject, bytes(0, 1000)).await;
    place
        .remove(ROOT, "top", RemoveKind::Directory)
        .await
        .unwrap();
    forget_all(place);
    let is_gone = || async { place.volume.list_quotas().await.unwrap().is_empty() };
    place.until(is_gone).await;
    assert_eq!(keys(&*place.engine, b"l").await, 0);
    place.is_whole().await;
}

async fn a_directory_with_a_quota_can_be_moved(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let (other, _) = made(place, ROOT, "other").await;
    limit(place, subject, bytes(0, 1000)).await;
    place.store(top, "file", &[1; 900]).await.unwrap();
    let replace = RenameMode::Replace;
    place
        .rename((ROOT, "top"), (other, "moved"), replace)
        .await
        .unwrap();
    let quota = quota(place, subject).await;
    assert_eq!(quota.path.as_deref(), Some("/other/moved"));
    let refused = place.store(top, "more", &[1; 101]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    place.is_whole().await;
}

async fn files_are_marked_beside_those_who_change_them(place: &Place) {
    let (top, subject) = made(place, ROOT, "top").await;
    let mut all = vec![top];
    for number in 0..8 {
        let (below, _) = made(place, top, &format!("below {number}")).await;
        for number in 0..300 {
            let name = number.to_string();
            place.make(below, &name, file(0o644)).await.unwrap();
        }
        all.push(below);
    }
    let set = place.volume.set_quota(subject, files(0, 100_000));
    set.await.unwrap();
    let replace = RenameMode::Replace;
    for round in 0..40 {
        let (one, other) = (all[round % all.len()], all[(round * 5 + 2) % all.len()]);
        let (old, new) = (format!("{}", 299 - round), format!("new {round}"));
        // It may fail while one of both is marked and the other one is not.
        let renamed = place.rename((one, &old), (other, &new), replace).await;
        let is_known = matches!(
            renamed,
            Ok(()) | Err(FsError::CrossDevice | FsError::NotFound)
        );
        assert!(is_known, "{renamed:?}");
        place
            .store(other, "written", &vec![1; round])
            .await
            .unwrap();
    }
    until_counted(place).await;
    let mut there = 0;
    for directory in all {
        there += entries(place, directory).await + u64::from(directory == top);
    }
    forget_all(place);
    place
        .until(|| async { used(place, subject).await.1 == there })
        .await;
    place.is_whole().await;
}

async fn entries(place: &Place, directory: Inode) -> u64 {
    let handle = place.open_directory(directory).await;
    let from = penstock_vfs::ListFrom::Position(0);
    let room = (usize::MAX, penstock_vfs::Detail::Names);
    place.list(handle, from, room).await.len() as u64
}

#[tokio::test]
async fn a_walk_that_was_cut_off_is_gone_on_with() {
    let mut place = Place::new().await;
    let (top, subject) = made(&place, ROOT, "top").await;
    for number in 0..1100 {
        let name = number.to_string();
        place.make(top, &name, file(0o644)).await.unwrap();
    }
    quotas::set(&*place.engine, subject, files(0, 2000))
        .await
        .unwrap();
    quotas::count_some(&*place.engine).await.unwrap();
    place.engine.sync().await.unwrap();
    place.crash().await;
    until_counted(&place).await;
    assert_eq!(used(&place, subject).await, (0, 1101));
    place.is_whole().await;
}
