//! Staged mode that saves behind the close, and whose fsync asks the disk here instead of the store.

use std::{fs, time::Duration};

use penstock_base::{FsError, clock};
use penstock_bucket::{BucketSettings, Fsync};
use penstock_object::{ErrorKind, Operation};
use penstock_vfs::{HandleId, Inode, Volume};

use crate::{
    behind::{LATER, behind, saved},
    support::{Bed, CALLER, READ, READ_WRITE},
};

fn to_journal(after: Duration) -> BucketSettings {
    BucketSettings {
        fsync: Fsync::Journal,
        ..behind(after)
    }
}

fn bed() -> Bed {
    Bed::staged_with(to_journal(LATER))
}

async fn write_new(bed: &Bed, path: &str, content: &str) -> HandleId {
    let handle = bed.create(path).await.unwrap();
    bed.write(handle, 0, content).await.unwrap();
    handle
}

#[tokio::test]
async fn fsync_to_the_journal_asks_the_store_nothing_and_outlives_the_mount() {
    let bed = bed();
    let file = write_new(&bed, "file", "content").await;
    let empty = bed.create("empty").await.unwrap();
    bed.requests();
    bed.sync(file).await.unwrap();
    bed.sync(empty).await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.keys().await, [""; 0]);
    let next = bed.killed(to_journal(LATER), |_| ()).await;
    assert_eq!(next.object("file").await.unwrap(), b"content");
    assert_eq!(next.object("empty").await.unwrap(), b"");
}

/// `penstock sync FILE` waited for its bytes alone.
#[tokio::test]
async fn sync_of_a_file_stores_how_it_is_described_whatever_fsync_means() {
    let bed = bed();
    bed.put("file", "content").await;
    bed.chmod("file", 0o600).await.unwrap();
    let handle = bed.open("file", READ).await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.metric("bucket_unsaved_files"), 1);
    let inode = bed.inode("file").await.unwrap();
    bed.volume.save(&CALLER, inode).await.unwrap();
    assert_eq!(bed.metric("bucket_unsaved_files"), 0);
}

#[tokio::test]
async fn fsync_to_the_journal_and_sync_tell_once_what_was_put_aside_before_them() {
    let bed = Bed::staged_with(to_journal(Duration::from_millis(10)));
    for name in ["synced", "saved", "folder"] {
        let handle = write_new(&bed, name, "ours").await;
        bed.put(name, "theirs").await;
        bed.close(handle).await.unwrap();
    }
    saved(&bed).await;
    let file = bed.open("synced", READ).await.unwrap();
    assert!(matches!(bed.sync(file).await, Err(FsError::Busy(_))));
    assert_eq!(bed.sync(file).await, Ok(()));
    let inode = bed.inode("saved").await.unwrap();
    let told = bed.volume.save(&CALLER, inode).await;
    assert!(matches!(told, Err(FsError::Busy(_))));
    assert_eq!(bed.volume.save(&CALLER, inode).await, Ok(()));
    let root = bed.open_dir("").await.unwrap();
    let told = bed.volume.sync_directory(root).await;
    assert!(matches!(told, Err(FsError::Busy(_))));
    assert_eq!(bed.volume.sync_directory(root).await, Ok(()));
}

#[tokio::test]
async fn fsync_of_a_directory_to_the_journal_asks_the_store_nothing() {
    let bed = bed();
    bed.put("old", "removed").await;
    bed.mkdir("new").await.unwrap();
    bed.write_file("new/file", "content").await.unwrap();
    write_new(&bed, "new/open", "written").await;
    bed.unlink("old").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    bed.requests();
    bed.volume.sync_directory(root).await.unwrap();
    assert_eq!(bed.requests(), "");
    let next = bed.killed(to_journal(LATER), |_| ()).await;
    assert_eq!(next.ls("").await.unwrap(), ["new"]);
    assert_eq!(next.ls("new").await.unwrap(), ["file", "open"]);
}

#[tokio::test]
async fn a_save_waits_for_the_store_although_fsync_does_not() {
    let bed = bed();
    let file = write_new(&bed, "file", "content").await;
    bed.mkdir("new").await.unwrap();
    bed.write_file("new/file", "content, too").await.unwrap();
    bed.sync(file).await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    bed.volume.save(&CALLER, inode).await.unwrap();
    assert_eq!(bed.keys().await, ["file"]);
    bed.volume.save(&CALLER, Inode::ROOT).await.unwrap();
    assert_eq!(bed.keys().await, ["file", "new/", "new/file"]);
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    bed.write(file, 0, "C").await.unwrap();
    assert!(bed.volume.save(&CALLER, inode).await.is_err());
    assert_eq!(bed.volume.save(&CALLER, inode).await, Ok(()));
    assert_eq!(bed.object("file").await.unwrap(), b"Content");
}

#[tokio::test]
async fn a_disk_that_fails_is_told_by_fsync_and_the_store_takes_the_file_from_then_on() {
    let bed = bed();
    let file = write_new(&bed, "file", "content").await;
    let (files, away) = (bed.staging_path("files"), bed.staging_path("away"));
    fs::rename(&files, &away).unwrap();
    let failed = bed.sync(file).await;
    assert!(matches!(failed, Err(FsError::Io(_))), "{failed:?}");
    fs::rename(&away, &files).unwrap();
    bed.requests();
    bed.sync(file).await.unwrap();
    assert_eq!(bed.requests(), "put 1", "the disk may not have it");
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    bed.write(file, 0, "C").await.unwrap();
    bed.sync(file).await.unwrap();
    assert_eq!(bed.requests(), "", "the disk is asked again");
}

#[tokio::test]
async fn a_save_behind_that_failed_is_told_by_the_next_fsync_to_the_journal() {
    let bed = Bed::staged_with(to_journal(Duration::from_millis(10)));
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    bed.write_file("file", "content").await.unwrap();
    while bed.metric("bucket_failed_uploads_total") == 0 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    // It is counted before it is noted.
    let told = async {
        loop {
            match bed.sync(handle).await {
                Ok(()) => clock::sleep(Duration::from_millis(1)).await,
                Err(error) => break error,
            }
        }
    };
    let told = clock::deadline(Duration::from_secs(10), told).await;
    assert!(matches!(told, Ok(FsError::Io(_))), "{told:?}");
    assert_eq!(bed.sync(handle).await, Ok(()), "it was told once");
}

#[tokio::test]
async fn fsync_to_the_journal_of_what_is_saved_costs_nothing() {
    let bed = bed();
    bed.put("file", "content").await;
    let handle = bed.open("file", READ).await.unwrap();
    bed.requests();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.journals(), [""; 0]);
}

#[tokio::test]
async fn fsync_waits_for_the_store_where_files_are_saved_at_the_close() {
    let bed = Bed::staged_with(BucketSettings {
        save_behind: None,
        ..to_journal(LATER)
    });
    let file = write_new(&bed, "file", "content").await;
    bed.sync(file).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"content");
}
