//! Small files share objects.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::{join, join_all};
use penstock_base::FsError;
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::Fault;
use penstock_vfs::{HandleId, OpenOptions, RemoveKind, Volume, WritePlace};

use support::{Place, ROOT, file};

/// Files with something to save, each with its own content.
async fn written(place: &Place, count: usize) -> Vec<HandleId> {
    let mut handles = Vec::new();
    for number in 0..count {
        let name = format!("file-{number}");
        let made = place.make(ROOT, &name, file(0o644)).await.unwrap();
        let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
        let content = content(number);
        let written = place.write(handle, WritePlace::At(0), &content);
        written.await.unwrap();
        handles.push(handle);
    }
    handles
}

fn content(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(512)
}

async fn expect_all(place: &Place, count: usize) {
    for number in 0..count {
        let read = place.content(ROOT, &format!("file-{number}")).await;
        assert!(read.unwrap() == content(number), "file {number}");
    }
}

fn each_put_takes(place: &Place, time: Duration) {
    let delay = Fault::Delay(time);
    place.faults.rate(Some(Operation::Put), 1.0, delay);
}

#[tokio::test]
async fn small_files_that_are_synced_together_share_objects() {
    let mut place = Place::new().await;
    let handles = written(&place, 1000).await;
    each_put_takes(&place, Duration::from_millis(100));
    let syncs = join_all(handles.iter().map(|handle| place.sync(*handle))).await;
    assert!(syncs.iter().all(Result::is_ok));
    let puts = place.faults.calls(Operation::Put);
    assert!(puts <= 30, "{puts} requests for 4 MB");
    place.crash().await;
    expect_all(&place, 1000).await;
    place.is_whole().await;
}

#[tokio::test]
async fn all_that_is_unsaved_shares_objects_when_a_volume_ends() {
    let mut place = Place::new().await;
    written(&place, 1000).await;
    each_put_takes(&place, Duration::from_millis(100));
    assert_eq!(place.volume.shut_down().await, []);
    let puts = place.faults.calls(Operation::Put);
    assert!(puts <= 30, "{puts} requests for 4 MB");
    place.crash().await;
    expect_all(&place, 1000).await;
    place.is_whole().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_stored_fails_each_file_in_it_and_loses_none() {
    let place = Place::new().await;
    let handles = written(&place, 50).await;
    let fault = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(Some(Operation::Put), 1.0, fault);
    let syncs = join_all(handles.iter().map(|handle| place.sync(*handle))).await;
    assert!(
        syncs
            .iter()
            .all(|synced| matches!(synced, Err(FsError::Io(_))))
    );
    place.faults.clear();
    for handle in handles {
        place.close(handle).await.unwrap();
    }
    expect_all(&place, 50).await;
    place.is_whole().await;
}

/// Two files share an object. One was told of it and removed before the other one's operation ran: then nothing
/// referred to the object, and it was deleted.
#[tokio::test]
async fn an_object_is_kept_for_who_has_not_referred_to_it_yet() {
    let (mut place, gate) = Place::gated().await;
    let handles = written(&place, 3).await;
    each_put_takes(&place, Duration::from_millis(50));
    // The first file goes alone, the others wait for it and go together. The last of three operations waits.
    gate.hold(3);
    let syncs = handles.iter().map(|handle| place.sync(*handle));
    let meanwhile = async {
        gate.reached.notified().await;
        let mut removed = Vec::new();
        for (number, handle) in handles.iter().enumerate() {
            let name = format!("file-{number}");
            let inode = place.find(ROOT, &name).await.unwrap().inode;
            let is_saved = place.attributes(inode).await.allocated > 0
                && place.objects().await.len() == 2
                && is_in_the_metadata(&place, inode).await;
            if is_saved {
                place.remove(ROOT, &name, RemoveKind::File).await.unwrap();
                removed.push((inode, *handle));
            }
        }
        assert_eq!(removed.len(), 2, "one waits");
        for (inode, handle) in removed {
            place.volume.release(handle).await;
            place.forget_all(inode);
            place.until(|| async { place.is_gone(inode).await }).await;
        }
        // The object of the first file goes.
        place
            .until(|| async { place.objects().await.len() == 1 })
            .await;
        gate.go_on();
    };
    let (synced, ()) = join(join_all(syncs), meanwhile).await;
    assert_eq!(synced.iter().filter(|synced| synced.is_ok()).count(), 3);
    place.crash().await;
    let mut left = 0;
    for number in 0..3 {
        if let Ok(read) = place.content(ROOT, &format!("file-{number}")).await {
            assert!(read == content(number));
            left += 1;
        }
    }
    assert_eq!(left, 1);
    place.is_whole().await;
}

/// Whether the metadata refers to the file's bytes.
async fn is_in_the_metadata(place: &Place, inode: penstock_vfs::Inode) -> bool {
    let key = [&b"C"[..], &inode.0.to_be_bytes(), &[0; 8]].concat();
    let engine = Arc::clone(&place.engine);
    let look = |reads: &dyn penstock_fileset::engine::Reads| reads.get(&key);
    let value: Result<_, penstock_fileset::engine::EngineError> =
        penstock_fileset::engine::query(&*engine, look).await;
    value.unwrap().is_some()
}
