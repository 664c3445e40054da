//! Staged mode: what the next mount makes of what one left that broke off.

use std::{
    fs,
    time::{Duration, UNIX_EPOCH},
};

use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_object::{ErrorKind, HeadOptions, Key, Operation, Store, UserMetadata};
use penstock_vfs::{
    Allocation, AttributeChanges, Caller, HandleId, Inode, OpenOptions, TimeChange, Volume,
    XattrMode,
};

use crate::support::{Bed, READ_WRITE, name};

const CALLER: Caller = Caller {
    uid: 7,
    gid: 8,
    pid: 9,
};

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..READ_WRITE
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

#[tokio::test]
async fn a_change_of_size_before_a_kill_is_recovered() {
    let bed = Bed::staged();
    let handle = bed.create("new").await.unwrap();
    let grow = Allocation::Reserve { keep_size: false };
    // Nothing of it lies in a staging file.
    bed.volume.allocate(handle, 0..100, grow).await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("new").await, Some(vec![0; 100]));
    assert_eq!(bed.staging_files("files"), [""; 0]);
}

#[tokio::test]
async fn a_file_that_was_emptied_before_a_kill_is_recovered_empty() {
    let bed = Bed::staged();
    bed.put("file", "old content").await;
    bed.open("file", TRUNCATE).await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"");
    assert_eq!(bed.staging_files("files"), [""; 0]);
}

#[tokio::test]
async fn a_file_that_was_emptied_is_stored_when_it_is_synced_or_closed() {
    for synced in [false, true] {
        let bed = Bed::staged();
        bed.put("file", "old content").await;
        let handle = bed.open("file", TRUNCATE).await.unwrap();
        if synced {
            bed.volume.sync(handle, false).await.unwrap();
        } else {
            bed.volume.flush(handle).await.unwrap();
        }
        assert_eq!(bed.object("file").await.unwrap(), b"");
        assert_eq!(bed.staging_files("files"), [""; 0]);
    }
}

#[tokio::test]
async fn what_is_written_during_a_rename_is_recovered_under_the_new_name() {
    let bed = Bed::staged();
    let handle = bed.create("old").await.unwrap();
    bed.write(handle, 0, "saved by the rename").await.unwrap();
    let copies = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("old", "new"), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.write(handle, 0, "SAVED").await.unwrap();
        copies.add_permits(1);
    });
    renamed.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.keys().await, ["new"]);
    assert_eq!(bed.object("new").await.unwrap(), b"SAVED by the rename");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn what_is_written_during_a_change_of_mode_is_recovered() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.volume.sync(handle, false).await.unwrap();
    let copies = bed.probe.hold(Operation::Copy);
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (changed, ()) = tokio::join!(bed.volume.set_attributes(CALLER, inode, changes), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.write(handle, 0, "CONTENT").await.unwrap();
        copies.add_permits(1);
    });
    changed.unwrap();
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"CONTENT");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
}

#[tokio::test]
async fn a_sync_waits_for_a_change_of_mode_that_came_during_a_save() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    let (puts, copies) = (
        bed.probe.hold(Operation::Put),
        bed.probe.hold(Operation::Copy),
    );
    let is_held = || async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (saved, ()) = tokio::join!(bed.volume.sync(handle, false), async {
        is_held().await;
        bed.volume
            .set_attributes(CALLER, inode, changes)
            .await
            .unwrap();
        puts.add_permits(1);
        while bed.object("file").await.is_none() {
            tokio::task::yield_now().await;
        }
        is_held().await;
        // The content is stored, and the mode is not.
        let again = bed.volume.sync(handle, false);
        let early = penstock_base::clock::deadline(Duration::from_millis(100), again).await;
        assert!(early.is_err(), "{early:?}");
        copies.add_permits(1);
    });
    saved.unwrap();
    bed.volume.sync(handle, false).await.unwrap();
    assert_eq!(value(&stored(&bed, "file").await, "mode"), "33152");
}

#[tokio::test]
async fn a_change_of_mode_that_could_not_be_stored_is_tried_by_the_next_sync() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    let puts = bed.probe.hold(Operation::Put);
    bed.probe.fail(Operation::Copy, ErrorKind::Unavailable, 1);
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (saved, ()) = tokio::join!(bed.volume.sync(handle, false), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.volume
            .set_attributes(CALLER, inode, changes)
            .await
            .unwrap();
        puts.add_permits(1);
    });
    assert!(saved.is_err());
    bed.volume.sync(handle, false).await.unwrap();
    assert_eq!(value(&stored(&bed, "file").await, "mode"), "33152");
}

#[tokio::test]
async fn a_file_that_was_half_put_aside_is_never_swept() {
    let bed = Bed::staged();
    bed.put("file", "the first version").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "ours").await.unwrap();
    bed.put("file", "theirs").await;
    let bed = bed
        .killed(BucketSettings::default(), |staging| {
            for entry in fs::read_dir(staging.join("files")).unwrap() {
                let entry = entry.unwrap();
                let kept = staging.join("kept").join(entry.file_name());
                if kept.extension().is_some_and(|ending| ending == "data") {
                    fs::rename(entry.path(), kept).unwrap();
                }
            }
        })
        .await;
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
    assert_eq!(bed.staging_files("files"), [""; 0]);
    let kept = bed.staging_files("kept");
    let [data, journal] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    assert!(data.ends_with(".data") && journal.ends_with(".journal"));
}

/// What a program does after a save whose answer was lost, and what becomes of its file.
type Later = (&'static [(u64, &'static str)], Option<u64>, &'static str);

const LATER: [Later; 4] = [
    (&[], None, "snapshot"),
    (&[(8, " and more")], None, "snapshot and more"),
    (&[(0, "SNAP")], None, "SNAPshot"),
    (&[(8, "???"), (0, "S")], Some(4), "Snap"),
];

async fn change_later(bed: &Bed, handle: HandleId, inode: Inode, (writes, size, _): Later) {
    for (at, text) in writes {
        bed.write(handle, *at, text).await.unwrap();
    }
    if size.is_some() {
        let changes = AttributeChanges {
            size,
            handle: Some(handle),
            ..AttributeChanges::default()
        };
        bed.volume
            .set_attributes(CALLER, inode, changes)
            .await
            .unwrap();
    }
}

/// A file whose save reached the store, which nobody was told, and what was done to it later.
async fn with_a_lost_answer(existing: bool, later: Later) -> (Bed, HandleId) {
    let bed = Bed::staged();
    if existing {
        bed.put("file", "the version before").await;
    }
    let handle = match existing {
        true => bed.open("file", TRUNCATE).await.unwrap(),
        false => bed.create("file").await.unwrap(),
    };
    let inode = bed.stat("file").await.unwrap().inode;
    if existing {
        // So that the changes are relative to a version.
        bed.write(handle, 0, "the base").await.unwrap();
        bed.volume.sync(handle, false).await.unwrap();
    }
    bed.write(handle, 0, "snapshot").await.unwrap();
    bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
    assert!(bed.volume.sync(handle, false).await.is_err());
    assert_eq!(bed.object("file").await.unwrap(), b"snapshot");
    change_later(&bed, handle, inode, later).await;
    (bed, handle)
}

#[tokio::test]
async fn a_kill_between_a_save_and_its_journal_takes_nobody_for_another_client() {
    for existing in [false, true] {
        for later in LATER {
            let (bed, _) = with_a_lost_answer(existing, later).await;
            let bed = bed.killed(BucketSettings::default(), nothing).await;
            let stored = bed.object("file").await.unwrap();
            assert_eq!(String::from_utf8_lossy(&stored), later.2, "{existing}");
            assert_eq!(bed.staging_files("kept"), [""; 0]);
            assert_eq!(bed.staging_files("files"), [""; 0]);
        }
    }
}

#[tokio::test]
async fn what_is_written_after_a_save_whose_answer_was_lost_is_saved_by_the_next() {
    for existing in [false, true] {
        for later in LATER {
            let (bed, handle) = with_a_lost_answer(existing, later).await;
            bed.volume.sync(handle, false).await.unwrap();
            let stored = bed.object("file").await.unwrap();
            assert_eq!(String::from_utf8_lossy(&stored), later.2, "{existing}");
            assert_eq!(bed.staging_files("files").len(), 1, "no journal");
        }
    }
}

#[tokio::test]
async fn several_saves_without_an_answer_are_known_again() {
    let (bed, handle) = with_a_lost_answer(true, LATER[1]).await;
    // None of these reaches the store, and who asks does not know.
    for text in ["one", "two", "three", "four", "five", "six"] {
        bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
        bed.write(handle, 17, text).await.unwrap();
        assert!(bed.volume.sync(handle, false).await.is_err());
    }
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"snapshot and moresixee");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn another_clients_version_of_the_same_size_is_not_taken_for_a_save() {
    for later in LATER {
        let (bed, _) = with_a_lost_answer(true, later).await;
        bed.put("file", "SNAPSHOT").await;
        let bed = bed.killed(BucketSettings::default(), nothing).await;
        assert_eq!(bed.object("file").await.unwrap(), b"SNAPSHOT");
        assert_eq!(bed.staging_files("kept").len(), 2);
    }
}

#[tokio::test]
async fn a_large_save_whose_answer_was_lost_is_known_again() {
    let bed = Bed::staged();
    let mut content: Vec<u8> = (0..40 << 20).map(|at: u32| (at % 251) as u8).collect();
    bed.put("large", &content).await;
    let handle = bed.open("large", READ_WRITE).await.unwrap();
    bed.write(handle, 20 << 20, "changed").await.unwrap();
    let operation = Operation::CompleteUpload;
    bed.probe.fail_late(operation, ErrorKind::Unavailable);
    assert!(bed.volume.sync(handle, false).await.is_err());
    bed.write(handle, 20 << 20, "CHANGED").await.unwrap();
    bed.write(handle, 30 << 20, "and this").await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    content[20 << 20..][..7].copy_from_slice(b"CHANGED");
    content[30 << 20..][..8].copy_from_slice(b"and this");
    assert!(bed.object("large").await.unwrap() == content);
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn what_is_taken_back_after_a_save_whose_answer_was_lost_is_taken_back_in_the_store() {
    for killed in [false, true] {
        let bed = Bed::staged();
        bed.put("file", "base").await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        let inode = bed.stat("file").await.unwrap().inode;
        bed.write(handle, 4, "more").await.unwrap();
        bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
        assert!(bed.volume.sync(handle, false).await.is_err());
        change_later(&bed, handle, inode, (&[], Some(4), "")).await;
        let bed = if killed {
            bed.killed(BucketSettings::default(), nothing).await
        } else {
            bed.volume.sync(handle, false).await.unwrap();
            bed
        };
        assert_eq!(bed.object("file").await.unwrap(), b"base", "{killed}");
        assert_eq!(bed.staging_files("kept"), [""; 0]);
    }
}
