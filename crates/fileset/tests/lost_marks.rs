//! Marks of what was given out that are lost or stand too low: whoever goes on with them gives the same number out again.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::FsError;
use penstock_fileset::{
    check::{Report, apply, check, plan},
    engine::{Engine, Transaction, transact},
    snapshots,
};

use support::{Place, ROOT, file, name};

async fn put(engine: &dyn Engine, key: &'static [u8], value: Option<u64>) {
    let damage = move |transaction: &mut dyn Transaction| {
        match value {
            Some(value) => transaction.put(key, Bytes::copy_from_slice(&value.to_le_bytes())),
            None => transaction.delete(key),
        }
        Ok::<_, FsError>(())
    };
    transact(engine, damage).await.unwrap();
    engine.sync().await.unwrap();
}

async fn checked(place: &Place) -> Report {
    check(&*place.engine, &*place.bucket, None).await.unwrap()
}

async fn repaired(place: &Place) {
    let planned = plan(&*place.engine).await.unwrap();
    let engine = Arc::clone(&place.engine);
    apply(engine, planned, &|_| ()).await.unwrap();
}

/// The mark of the last inode.
const LAST_INODE: &[u8] = b"N";
/// The latest snapshot, and the mark of the last number of one.
const EPOCH: &[u8] = b"E";
const LAST_SNAPSHOT: &[u8] = b"K";
/// The record of the first snapshot.
const FIRST_SNAPSHOT: &[u8] = b"V\0\0\0\0\0\0\0\x01";

#[tokio::test]
async fn a_lost_mark_of_the_last_inode_is_found_by_a_check() {
    let place = Place::new().await;
    place.store(ROOT, "first", &[1; 1000]).await.unwrap();
    put(&*place.engine, LAST_INODE, None).await;
    assert!(!checked(&place).await.is_clean());
}

#[tokio::test]
async fn a_new_file_takes_no_place_of_another_after_a_repair() {
    let mut place = Place::new().await;
    place.store(ROOT, "first", &[1; 1000]).await.unwrap();
    put(&*place.engine, LAST_INODE, None).await;
    repaired(&place).await;
    place.crash().await;
    // The number that it gets must not be that of the root directory.
    place.make(ROOT, "second", file(0o644)).await.unwrap();
    let content = place.content(ROOT, "first").await;
    assert_eq!(content.map(|bytes| bytes.len()), Ok(1000));
}

#[tokio::test]
async fn a_lost_epoch_is_found_by_a_check() {
    let place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    place.volume.take_snapshot(&name("kept")).await.unwrap();
    put(&*place.engine, EPOCH, None).await;
    assert!(!checked(&place).await.is_clean());
}

#[tokio::test]
async fn a_snapshot_takes_no_place_of_another_after_a_repair() {
    let mut place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    place.volume.take_snapshot(&name("kept")).await.unwrap();
    put(&*place.engine, LAST_SNAPSHOT, None).await;
    repaired(&place).await;
    place.crash().await;
    place.volume.take_snapshot(&name("later")).await.unwrap();
    let there = snapshots::list(&*place.engine).await.unwrap();
    let names: Vec<_> = there.into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["kept", "later"]);
}

/// Until it is repaired no file is made rather than another one lost.
#[tokio::test]
async fn a_number_that_a_file_has_is_not_given_out() {
    let mut place = Place::new().await;
    place.store(ROOT, "first", &[1; 1000]).await.unwrap();
    put(&*place.engine, LAST_INODE, Some(1)).await;
    place.crash().await;
    let made = place.make(ROOT, "second", file(0o644)).await;
    assert!(matches!(made, Err(FsError::Corrupt(_))), "{made:?}");
    let content = place.content(ROOT, "first").await;
    assert_eq!(content.map(|bytes| bytes.len()), Ok(1000));
    repaired(&place).await;
    place.crash().await;
    place.make(ROOT, "second", file(0o644)).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn a_number_that_a_snapshot_has_is_not_given_out() {
    let place = Place::new().await;
    place.volume.take_snapshot(&name("kept")).await.unwrap();
    put(&*place.engine, LAST_SNAPSHOT, None).await;
    let taken = place.volume.take_snapshot(&name("later")).await;
    assert!(matches!(taken, Err(FsError::Corrupt(_))), "{taken:?}");
}

/// The numbers of snapshots that were cleared away are free, and who took one would be earlier than those that are there.
#[tokio::test]
async fn a_number_before_that_of_a_snapshot_is_not_given_out() {
    for lost in [&[LAST_SNAPSHOT][..], &[LAST_SNAPSHOT, EPOCH]] {
        let place = Place::new().await;
        for text in ["first", "second", "third"] {
            place.volume.take_snapshot(&name(text)).await.unwrap();
        }
        place.volume.remove_snapshot(&name("first")).await.unwrap();
        for key in lost {
            put(&*place.engine, key, None).await;
        }
        put(&*place.engine, FIRST_SNAPSHOT, None).await;
        let taken = place.volume.take_snapshot(&name("later")).await;
        assert!(matches!(taken, Err(FsError::Corrupt(_))), "{taken:?}");
    }
}

/// What a later one kept serves the one before it.
#[tokio::test]
async fn the_epoch_is_that_of_the_latest_snapshot_that_is_there() {
    let mut place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let take = |text: &'static str| {
        let volume = Arc::clone(&place.volume);
        async move { volume.take_snapshot(&name(text)).await.unwrap() }
    };
    take("first").await;
    take("second").await;
    place.store(ROOT, "file", &[2; 1000]).await.unwrap();
    place.volume.remove_snapshot(&name("second")).await.unwrap();
    assert!(checked(&place).await.is_clean());
    for lost in [EPOCH, LAST_SNAPSHOT, LAST_INODE] {
        put(&*place.engine, lost, None).await;
    }
    assert!(!checked(&place).await.is_clean());
    repaired(&place).await;
    assert!(plan(&*place.engine).await.unwrap().is_empty());
    place.crash().await;
    place.store(ROOT, "file", &[3; 1000]).await.unwrap();
    place.volume.take_snapshot(&name("third")).await.unwrap();
    place.is_whole().await;
    let there = snapshots::list(&*place.engine).await.unwrap();
    let there: Vec<_> = there.into_iter().filter(|one| !one.is_removed).collect();
    let shown = there.iter().map(|one| (&one.name[..], one.number));
    assert_eq!(shown.collect::<Vec<_>>(), [("first", 1), ("third", 3)]);
}

#[tokio::test]
async fn an_epoch_of_no_snapshot_goes() {
    let place = Place::new().await;
    put(&*place.engine, EPOCH, Some(7)).await;
    assert!(!checked(&place).await.is_clean());
    repaired(&place).await;
    assert!(checked(&place).await.is_clean());
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
}
