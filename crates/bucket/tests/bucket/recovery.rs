//! Staged mode: what the next mount makes of what one left that broke off.

use std::{
    fs,
    time::{Duration, UNIX_EPOCH},
};

use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_object::{ErrorKind, HeadOptions, Key, Operation, Store, UserMetadata};
use penstock_vfs::{AttributeChanges, Caller, HandleId, Inode, TimeChange, Volume, XattrMode};

use crate::support::{Bed, READ_WRITE, name};

const CALLER: Caller = Caller {
    uid: 7,
    gid: 8,
    pid: 9,
};

fn keeping() -> BucketSettings {
    BucketSettings {
        metadata: MetadataSettings {
            keep: true,
            ..MetadataSettings::default()
        },
        ..BucketSettings::default()
    }
}

async fn create(bed: &Bed, path: &str, permissions: u16) -> (HandleId, Inode) {
    let created = bed
        .volume
        .create(CALLER, Inode::ROOT, &name(path), permissions, READ_WRITE)
        .await
        .unwrap();
    (created.opened.handle, created.entry.attributes.inode)
}

async fn stored(bed: &Bed, key: &str) -> UserMetadata {
    let key = Key::new(key).unwrap();
    let info = bed.remote.head(&key, HeadOptions::default()).await;
    info.unwrap().metadata
}

fn value<'metadata>(metadata: &'metadata UserMetadata, name: &str) -> &'metadata str {
    metadata.get(name).map_or("", String::as_str)
}

fn nothing(_: &std::path::Path) {}

#[tokio::test]
async fn a_file_that_was_never_stored_is_recovered_with_its_owner_and_mode() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "new", 0o640).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 9);
    assert!(bed.volume.sync(handle, false).await.is_err());
    let time = TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000));
    let changes = AttributeChanges {
        permissions: Some(0o4711),
        gid: Some(42),
        modified: Some(time),
        ..AttributeChanges::default()
    };
    bed.volume
        .set_attributes(CALLER, inode, changes)
        .await
        .unwrap();
    let attribute = (&b"user.color"[..], &b"red"[..]);
    bed.volume
        .set_xattr(CALLER, inode, attribute, XattrMode::Set)
        .await
        .unwrap();
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("new").await.unwrap(), b"content");
    let metadata = stored(&bed, "new").await;
    let ids = ["uid", "gid", "mode"].map(|name| value(&metadata, name));
    assert_eq!(ids, ["7", "42", "35273"], "{metadata:?}");
    assert!(value(&metadata, "mtime").starts_with("1000"));
    assert!(value(&metadata, "xattr").contains("user.color"));
    assert_eq!(bed.stat("new").await.unwrap().permissions, 0o4711);
    assert_eq!(bed.staging_files("files"), [""; 0]);
}

#[tokio::test]
async fn a_recovered_file_shows_when_it_was_written() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "new", 0o600).await;
    let long_ago = TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000));
    let changes = AttributeChanges {
        modified: Some(long_ago),
        ..AttributeChanges::default()
    };
    bed.volume
        .set_attributes(CALLER, inode, changes)
        .await
        .unwrap();
    // The time of the write counts, and not one that was set before it.
    bed.write(handle, 0, "content").await.unwrap();
    let yesterday = penstock_base::clock::wall_time() - Duration::from_secs(86_400);
    let bed = bed
        .killed(keeping(), |staging| {
            for entry in fs::read_dir(staging.join("files")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "data") {
                    let file = fs::File::options().write(true).open(path).unwrap();
                    file.set_modified(yesterday).unwrap();
                }
            }
        })
        .await;
    let shown = bed.stat("new").await.unwrap().modified;
    let apart = shown.duration_since(yesterday).unwrap_or_default();
    assert!(apart < Duration::from_secs(2), "{shown:?}");
}

#[tokio::test]
async fn a_file_that_was_changed_is_recovered_with_what_it_is_now() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o4755).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.close(handle).await.unwrap();
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    // Takes away the right to run as its owner.
    bed.write(handle, 0, "C").await.unwrap();
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"Content");
    let shown = bed.stat("file").await.unwrap();
    assert_eq!((shown.uid, shown.permissions), (7, 0o755), "{inode:?}");
}
