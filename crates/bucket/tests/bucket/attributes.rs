//! What `stat` shows, and what of it can be changed.

use std::time::{Duration, SystemTime};

use penstock_base::FsError;
use penstock_bucket::BucketSettings;
use penstock_object::{Key, Store};
use penstock_vfs::{AttributeChanges, FileKind, Inode, TimeChange, Volume};
use tokio::time::advance;

use crate::support::{Bed, CALLER, READ, READ_WRITE};

#[tokio::test(start_paused = true)]
async fn attributes_come_from_the_object_and_the_settings() {
    let settings = BucketSettings {
        uid: 1001,
        gid: 1002,
        file_mode: 0o640,
        dir_mode: 0o750,
        ..BucketSettings::default()
    };
    let bed = Bed::with(settings);
    bed.put("d/a", "hello").await;
    let key = Key::new("d/a").unwrap();
    let info = bed.remote.head(&key, Default::default()).await.unwrap();
    let file = bed.stat("d/a").await.unwrap();
    assert_eq!(
        (file.size, file.modified, file.permissions),
        (5, info.modified, 0o640)
    );
    assert_eq!((file.uid, file.gid, file.links), (1001, 1002, 1));
    let directory = bed.stat("d").await.unwrap();
    assert_eq!(
        (directory.kind, directory.permissions),
        (FileKind::Directory, 0o750)
    );
    assert_eq!(
        (directory.uid, directory.gid, directory.size),
        (1001, 1002, 4096)
    );
}

#[tokio::test(start_paused = true)]
async fn the_root_is_always_there() {
    let bed = Bed::new();
    let root = bed.volume.attributes(&CALLER, Inode::ROOT).await.unwrap();
    assert_eq!(root.attributes.kind, FileKind::Directory);
    assert_eq!(
        (root.attributes.links, root.attributes_ttl),
        (1, Duration::from_secs(60))
    );
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn attributes_are_asked_for_again_after_the_timeout() {
    let bed = Bed::new();
    bed.put("d/a", "x").await;
    let (directory, file) = (
        bed.inode("d").await.unwrap(),
        bed.inode("d/a").await.unwrap(),
    );
    advance(Duration::from_secs(50)).await;
    bed.requests();
    let entry = bed.volume.attributes(&CALLER, file).await.unwrap();
    assert_eq!(entry.attributes_ttl, Duration::from_secs(10));
    assert_eq!(bed.requests(), "");
    advance(Duration::from_secs(11)).await;
    let entry = bed.volume.attributes(&CALLER, file).await.unwrap();
    assert_eq!(entry.attributes.size, 1);
    assert_eq!(bed.requests(), "head 1");
    bed.volume.attributes(&CALLER, directory).await.unwrap();
    assert_eq!(bed.requests(), "list 1");
}

/// Where nothing is believed: the look that the kernel begins with has asked already.
#[tokio::test(start_paused = true)]
async fn a_look_that_asked_the_store_answers_for_the_question_and_the_open_that_follow() {
    let settings = BucketSettings {
        attr_timeout: Duration::ZERO,
        ..BucketSettings::default()
    };
    for bed in [Bed::with(settings.clone()), Bed::staged_with(settings)] {
        bed.put("a", "old").await;
        for access in [READ, READ_WRITE] {
            let file = bed.inode("a").await.unwrap();
            bed.requests();
            let show = || bed.volume.attributes(&CALLER, file);
            show().await.unwrap();
            let opened = bed.volume.open(&CALLER, file, access).await.unwrap();
            bed.close(opened.handle).await.unwrap();
            assert_eq!(bed.requests(), "");
            show().await.unwrap();
            assert_eq!(bed.requests(), "head 1");
        }
        let file = bed.inode("a").await.unwrap();
        bed.requests();
        let opened = bed.volume.open(&CALLER, file, READ).await.unwrap();
        bed.close(opened.handle).await.unwrap();
        bed.put("a", "newer").await;
        let shown = bed.volume.attributes(&CALLER, file).await;
        assert_eq!(shown.map(|_| ()), Err(FsError::Stale));
        let file = bed.inode("a").await.unwrap();
        advance(Duration::from_secs(2)).await;
        bed.put("a", "the newest").await;
        let opened = bed.volume.open(&CALLER, file, READ).await;
        assert_eq!(opened.map(|_| ()), Err(FsError::Stale));
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_of_what_is_gone_are_stale() {
    let bed = Bed::new();
    bed.put("d/a", "x").await;
    let (directory, file) = (
        bed.inode("d").await.unwrap(),
        bed.inode("d/a").await.unwrap(),
    );
    bed.delete("d/a").await;
    advance(Duration::from_secs(61)).await;
    let caller = &CALLER;
    assert_eq!(
        bed.volume.attributes(caller, file).await,
        Err(FsError::Stale)
    );
    assert_eq!(
        bed.volume.attributes(caller, directory).await,
        Err(FsError::Stale)
    );
    assert_eq!(
        bed.volume.attributes(caller, Inode(999)).await,
        Err(FsError::Stale)
    );
}

#[tokio::test(start_paused = true)]
async fn chmod_and_chown_succeed_without_effect() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let inode = bed.inode("a").await.unwrap();
    bed.requests();
    let changes = AttributeChanges {
        permissions: Some(0o777),
        uid: Some(5),
        gid: Some(6),
        ..AttributeChanges::default()
    };
    let entry = bed
        .volume
        .set_attributes(&CALLER, inode, changes)
        .await
        .unwrap();
    let attributes = entry.attributes;
    assert_eq!(
        (attributes.permissions, attributes.uid, attributes.gid),
        (0o644, 0, 0)
    );
    assert_eq!(bed.metric("bucket_ignored_changes_total"), 1);
    assert_eq!(bed.requests(), "");
}

fn times(accessed: u64, modified: u64) -> AttributeChanges {
    let time = |seconds| TimeChange::To(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    AttributeChanges {
        accessed: Some(time(accessed)),
        modified: Some(time(modified)),
        ..AttributeChanges::default()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[tokio::test(start_paused = true)]
async fn time_stamps_are_kept_in_memory() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let inode = bed.inode("a").await.unwrap();
    bed.requests();
    bed.volume
        .set_attributes(&CALLER, inode, times(11, 22))
        .await
        .unwrap();
    let attributes = bed.stat("a").await.unwrap();
    assert_eq!(
        (seconds(attributes.accessed), seconds(attributes.modified)),
        (11, 22)
    );
    assert_eq!(bed.requests(), "");
    advance(Duration::from_secs(61)).await;
    assert_eq!(seconds(bed.stat("a").await.unwrap().modified), 22);
    // Until the object is another one.
    bed.put("a", "y").await;
    advance(Duration::from_secs(61)).await;
    assert!(seconds(bed.stat("a").await.unwrap().modified) > 1000);
}

#[tokio::test(start_paused = true)]
async fn time_stamps_set_before_closing_survive_it() {
    let bed = Bed::new();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    let inode = bed.inode("a").await.unwrap();
    bed.volume
        .set_attributes(&CALLER, inode, times(11, 22))
        .await
        .unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(seconds(bed.stat("a").await.unwrap().modified), 22);
    // A later write shows as one.
    let handle = bed.open("a", crate::support::WRITE).await.unwrap();
    bed.write(handle, 1, "y").await.unwrap();
    assert!(seconds(bed.stat("a").await.unwrap().modified) > 1000);
}

#[tokio::test(start_paused = true)]
async fn a_directory_shows_when_it_was_changed_here() {
    let bed = Bed::new();
    bed.mkdir("d").await.unwrap();
    let before = bed.stat("d").await.unwrap().modified;
    std::thread::yield_now();
    bed.write_file("d/a", "x").await.unwrap();
    let after = bed.stat("d").await.unwrap().modified;
    assert!(after > before);
    bed.unlink("d/a").await.unwrap();
    assert!(bed.stat("d").await.unwrap().modified > after);
}
