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
    // The number that it gets is that of the root directory.
    let made = place.make(ROOT, "second", file(0o644)).await;
    println!("{made:?}");
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
