//! Owner, mode, times and attributes of saved files that the store gets later.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use penstock_base::{FileName, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{CompleteOptions, ErrorKind, HeadOptions, Key, Operation, PutOptions, Store};
use penstock_vfs::{
    AttributeChanges, HeldFile, Inode, TimeChange, UnsavedKind, Volume, Watcher, XattrMode,
};

use crate::{
    behind::{LATER, behind, saved, shut_down},
    support::{Bed, CALLER, READ, READ_WRITE, WRITE},
};

fn bed() -> Bed {
    Bed::staged_with(behind(LATER))
}

fn quick() -> Bed {
    Bed::staged_with(behind(Duration::from_millis(10)))
}

async fn permissions(bed: &Bed, path: &str) -> u16 {
    bed.stat(path).await.unwrap().permissions
}

/// What the store has of it.
async fn mode(bed: &Bed, key: &str) -> Option<String> {
    let key = Key::new(key).unwrap();
    let info = bed.remote.head(&key, HeadOptions::default()).await.unwrap();
    info.metadata.get("mode").cloned()
}

/// An object whose copy has another tag.
async fn put_in_parts(bed: &Bed, key: &str) {
    let key = Key::new(key).unwrap();
    let options = PutOptions::default();
    let upload = bed.remote.create_upload(&key, options).await.unwrap();
    let part = bed
        .remote
        .upload_part(&key, &upload, 1, b"content".to_vec().into())
        .await
        .unwrap();
    let options = CompleteOptions::default();
    let parts = [part];
    let completed = bed.remote.complete_upload(&key, &upload, &parts, options);
    completed.await.unwrap();
}

#[tokio::test]
async fn changes_of_saved_files_cost_one_copy_each_and_that_later() {
    let bed = bed();
    let names: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    for name in &names {
        bed.put(name, "content").await;
    }
    bed.ls("").await.unwrap();
    bed.requests();
    let times = AttributeChanges {
        modified: Some(TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000))),
        ..AttributeChanges::default()
    };
    for name in &names {
        bed.chmod(name, 0o600).await.unwrap();
        let inode = bed.inode(name).await.unwrap();
        let touched = bed.volume.set_attributes(&CALLER, inode, times).await;
        touched.unwrap();
        assert_eq!(permissions(&bed, name).await, 0o600);
    }
    assert_eq!(bed.requests(), "");
    assert_eq!(mode(&bed, "7").await, None);
    assert_eq!(bed.metric("bucket_unsaved_files"), 50);
    let items = bed.volume.unsaved_items();
    assert!(items.iter().all(|item| item.kind == UnsavedKind::Name));
    assert_eq!(items.len(), 50);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "copy 50");
    assert_eq!(mode(&bed, "7").await.unwrap(), "33152");
    let fresh = bed.fresh_with(behind(LATER));
    let seen = fresh.stat("7").await.unwrap();
    assert_eq!(seen.permissions, 0o600);
    assert_eq!(seen.modified, UNIX_EPOCH + Duration::from_secs(1000));
}

#[tokio::test]
async fn what_waits_to_be_described_is_seen_in_each_answer_of_the_store() {
    let bed = Bed::staged_with(BucketSettings {
        attr_timeout: Duration::ZERO,
        ..behind(LATER)
    });
    bed.put("file", "content").await;
    bed.chmod("file", 0o600).await.unwrap();
    bed.forget_all();
    assert_eq!(permissions(&bed, "file").await, 0o600);
    bed.forget_all();
    let listed = bed.list("", 10).await.unwrap();
    assert_eq!(listed[0].entry.attributes.permissions, 0o600);
    assert_eq!(mode(&bed, "file").await, None);
    bed.put("file", "theirs").await;
    assert_eq!(permissions(&bed, "file").await, 0o644);
}

#[tokio::test]
async fn an_attribute_of_a_saved_file_waits_too() {
    let bed = bed();
    bed.put("file", "content").await;
    let inode = bed.inode("file").await.unwrap();
    bed.requests();
    let set = bed
        .volume
        .set_xattr(&CALLER, inode, b"user.name", b"value", XattrMode::Set);
    set.await.unwrap();
    assert_eq!(bed.requests(), "");
    let value = bed
        .volume
        .xattr(&CALLER, inode, b"user.name")
        .await
        .unwrap();
    assert_eq!(&value[..], b"value");
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "copy 1");
}

/// Its copy is younger than what was looked up.
#[tokio::test]
async fn a_file_that_was_described_anew_is_removed() {
    for is_stored in [false, true] {
        let bed = bed();
        bed.put("file", "content").await;
        bed.ls("").await.unwrap();
        clock::sleep(Duration::from_millis(1100)).await;
        bed.chmod("file", 0o600).await.unwrap();
        let root = bed.open_dir("").await.unwrap();
        if is_stored {
            bed.volume.sync_directory(root).await.unwrap();
        }
        bed.unlink("file").await.unwrap();
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(bed.keys().await, [""; 0], "{is_stored}");
    }
}

#[tokio::test]
async fn a_file_is_removed_while_it_is_described_anew() {
    let bed = quick();
    put_in_parts(&bed, "file").await;
    let held = bed.probe.hold_late(Operation::Copy);
    bed.chmod("file", 0o600).await.unwrap();
    bed.probe.until_held().await;
    held.add_permits(1);
    bed.unlink("file").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_file_that_is_written_takes_along_how_it_was_to_be_described() {
    let bed = bed();
    put_in_parts(&bed, "file").await;
    bed.chmod("file", 0o600).await.unwrap();
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "C").await.unwrap();
    bed.close(handle).await.unwrap();
    bed.requests();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.object("file").await.unwrap(), b"Content");
    assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
}

/// What was written was put aside: the copy has another tag than the version that it is to replace.
#[tokio::test]
async fn a_file_is_emptied_and_written_while_it_is_described_anew() {
    let bed = quick();
    put_in_parts(&bed, "file").await;
    let held = bed.probe.hold_late(Operation::Copy);
    bed.chmod("file", 0o600).await.unwrap();
    bed.probe.until_held().await;
    bed.write_file("file", "new").await.unwrap();
    held.add_permits(1);
    saved(&bed).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.object("file").await.unwrap(), b"new");
    assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
}

/// The same, after a kill: the next mount describes the file before it saves it.
#[tokio::test]
async fn what_a_kill_leaves_of_a_file_that_was_to_be_described_and_written_anew_is_saved() {
    let bed = bed();
    put_in_parts(&bed, "file").await;
    bed.chmod("file", 0o600).await.unwrap();
    bed.write_file("file", "new").await.unwrap();
    let bed = bed.killed(behind(LATER), |_| ()).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.object("file").await.unwrap(), b"new");
    assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
}

#[tokio::test]
async fn what_another_client_stored_is_not_removed_with_a_file_that_is_described_anew() {
    let bed = quick();
    bed.put("file", "ours").await;
    let held = bed.probe.hold(Operation::Copy);
    bed.chmod("file", 0o600).await.unwrap();
    bed.probe.until_held().await;
    bed.put("file", "theirs").await;
    let go_on = async {
        clock::sleep(Duration::from_millis(20)).await;
        held.add_permits(1);
    };
    let (removed, ()) = tokio::join!(bed.unlink("file"), go_on);
    removed.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
}

#[tokio::test]
async fn a_file_is_written_while_it_is_described_anew() {
    let bed = quick();
    put_in_parts(&bed, "file").await;
    let held = bed.probe.hold_late(Operation::Copy);
    bed.chmod("file", 0o600).await.unwrap();
    bed.probe.until_held().await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "C").await.unwrap();
    bed.close(handle).await.unwrap();
    held.add_permits(1);
    saved(&bed).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.object("file").await.unwrap(), b"Content");
    assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
}

#[tokio::test]
async fn a_file_that_was_to_be_described_anew_is_replaced_by_an_unsaved_one() {
    for is_begun in [false, true] {
        let bed = bed();
        put_in_parts(&bed, "file").await;
        bed.write_file("new", "new").await.unwrap();
        bed.chmod("file", 0o600).await.unwrap();
        if is_begun {
            let held = bed.probe.hold_late(Operation::Copy);
            let file = bed.open("file", READ).await.unwrap();
            let renamed = async {
                bed.probe.until_held().await;
                held.add_permits(1);
                bed.rename("new", "file").await.unwrap();
            };
            let (synced, ()) = tokio::join!(bed.sync(file), renamed);
            synced.unwrap();
        } else {
            bed.rename("new", "file").await.unwrap();
        }
        bed.requests();
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(bed.requests(), "put 1");
        assert_eq!(bed.object("file").await.unwrap(), b"new");
        assert_eq!(mode(&bed, "file").await.unwrap(), "33188");
        assert_eq!(bed.keys().await, ["file"]);
    }
}

#[tokio::test]
async fn a_file_that_was_described_anew_is_renamed() {
    let bed = bed();
    put_in_parts(&bed, "old").await;
    bed.chmod("old", 0o600).await.unwrap();
    bed.rename("old", "new").await.unwrap();
    assert_eq!(permissions(&bed, "new").await, 0o600);
    bed.put("folder/file", "content").await;
    bed.chmod("folder/file", 0o600).await.unwrap();
    bed.rename("folder", "moved").await.unwrap();
    assert_eq!(permissions(&bed, "moved/file").await, 0o600);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["moved/file", "new"]);
    for key in ["new", "moved/file"] {
        assert_eq!(mode(&bed, key).await.unwrap(), "33152");
    }
}

#[tokio::test]
async fn another_client_s_version_is_not_described_anew() {
    let bed = bed();
    for name in ["replaced", "gone"] {
        bed.put(name, "content").await;
        bed.chmod(name, 0o600).await.unwrap();
    }
    bed.put("replaced", "theirs").await;
    bed.delete("gone").await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.object("replaced").await.unwrap(), b"theirs");
    assert_eq!(mode(&bed, "replaced").await, None);
    assert_eq!(bed.keys().await, ["replaced"]);
}

/// The copy is another version.
#[tokio::test]
async fn a_copy_whose_answer_was_lost_is_ours() {
    for is_killed in [false, true] {
        let mut bed = quick();
        put_in_parts(&bed, "file").await;
        bed.stat("file").await.unwrap();
        bed.probe.fail_late(Operation::Copy, ErrorKind::Unavailable);
        bed.chmod("file", 0o600).await.unwrap();
        while mode(&bed, "file").await.is_none() {
            clock::sleep(Duration::from_millis(1)).await;
        }
        if is_killed {
            bed = bed.broken_off(behind(LATER), |_| ());
        }
        bed.chmod("file", 0o640).await.unwrap();
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(mode(&bed, "file").await.unwrap(), "33184");
    }
}

#[tokio::test]
async fn what_a_kill_leaves_to_be_described_is_seen_and_stored_by_the_next_mount() {
    for next in [
        behind(LATER),
        BucketSettings {
            save_behind: None,
            ..behind(LATER)
        },
    ] {
        let bed = bed();
        bed.put("file", "content").await;
        bed.chmod("file", 0o600).await.unwrap();
        let bed = bed.broken_off(next, |bed| {
            bed.probe.fail(Operation::Copy, ErrorKind::Unavailable, 1);
        });
        assert_eq!(permissions(&bed, "file").await, 0o600);
        assert_eq!(mode(&bed, "file").await, None);
        saved(&bed).await;
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
    }
}

#[tokio::test]
async fn fsync_of_a_file_stores_how_it_is_described() {
    let bed = bed();
    bed.put("file", "content").await;
    bed.chmod("file", 0o600).await.unwrap();
    let file = bed.open("file", READ).await.unwrap();
    bed.sync(file).await.unwrap();
    assert_eq!(mode(&bed, "file").await.unwrap(), "33152");
    bed.chmod("file", 0o640).await.unwrap();
    bed.probe.fail(Operation::Copy, ErrorKind::Unavailable, 1);
    assert!(bed.sync(file).await.is_err());
    bed.sync(file).await.unwrap();
    assert_eq!(mode(&bed, "file").await.unwrap(), "33184");
}

#[tokio::test]
async fn what_must_not_be_described_anew_is_as_it_was_and_told() {
    let bed = quick();
    bed.put("file", "content").await;
    bed.probe
        .fail(Operation::Copy, ErrorKind::PermissionDenied, 1);
    bed.chmod("file", 0o600).await.unwrap();
    saved(&bed).await;
    assert_eq!(permissions(&bed, "file").await, 0o644);
    let root = bed.open_dir("").await.unwrap();
    assert!(bed.volume.sync_directory(root).await.is_err());
    assert_eq!(shut_down(&bed).await, ["file"]);
}

/// A door that notes whether it is to forget something.
#[derive(Debug, Default)]
struct Door(AtomicBool);

impl Door {
    /// Whether it is told within a second.
    async fn is_told(&self) -> bool {
        for _ in 0..1000 {
            if self.0.load(Ordering::SeqCst) {
                break;
            }
            clock::sleep(Duration::from_millis(1)).await;
        }
        self.0.load(Ordering::SeqCst)
    }
}

impl Watcher for Door {
    fn references_wanted(&self, _: Vec<HeldFile>) {}

    fn content_changed(&self, _: Inode) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn attributes_changed(&self, _: Inode) {}

    fn name_changed(&self, _: Inode, _: &FileName) {}
}

/// The kernel went on checking permissions by a mode that was not to be, as long as it believed that: five minutes.
#[tokio::test]
async fn a_door_forgets_how_a_file_is_described_when_that_was_refused() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::PreconditionFailed] {
        let bed = quick();
        let door = Arc::new(Door::default());
        let watcher: Weak<Door> = Arc::downgrade(&door);
        bed.volume.watch(watcher);
        bed.put("file", "content").await;
        bed.stat("file").await.unwrap();
        match kind {
            ErrorKind::PermissionDenied => bed.probe.fail(Operation::Copy, kind, 1),
            _ => bed.put("file", "theirs").await,
        }
        bed.chmod("file", 0o600).await.unwrap();
        saved(&bed).await;
        assert!(door.is_told().await, "{kind:?}");
        assert_eq!(permissions(&bed, "file").await, 0o644);
    }
}

/// It believes what it was shown of a closed file, and nothing else tells it that another client's is there.
#[tokio::test]
async fn a_door_forgets_a_file_that_was_put_aside() {
    for name in ["new", "old"] {
        let bed = quick();
        let door = Arc::new(Door::default());
        let watcher: Weak<Door> = Arc::downgrade(&door);
        bed.volume.watch(watcher);
        bed.put("old", "before").await;
        bed.stat("old").await.unwrap();
        let handle = match name {
            "new" => bed.create("new").await.unwrap(),
            _ => bed.open("old", WRITE).await.unwrap(),
        };
        bed.write(handle, 0, "ours").await.unwrap();
        bed.put(name, "theirs").await;
        bed.close(handle).await.unwrap();
        saved(&bed).await;
        assert!(door.is_told().await, "{name}");
        assert_eq!(bed.read_file(name).await.unwrap(), b"theirs");
    }
}

/// The description came after the attempt.
#[tokio::test]
async fn a_file_whose_save_was_not_answered_is_described_as_it_was_changed_since() {
    for is_killed in [false, true] {
        let mut bed = bed();
        let handle = bed.create("file").await.unwrap();
        bed.write(handle, 0, "content").await.unwrap();
        bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
        bed.probe.fail(Operation::Head, ErrorKind::Unavailable, 10);
        bed.sync(handle).await.unwrap_err();
        bed.probe.mend();
        bed.close(handle).await.unwrap();
        bed.chmod("file", 0o600).await.unwrap();
        if is_killed {
            bed = bed.killed(behind(LATER), |_| ()).await;
        }
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(bed.object("file").await.unwrap(), b"content");
        assert_eq!(mode(&bed, "file").await.unwrap(), "33152", "{is_killed}");
    }
}

/// What a listing told of the file was of no use meanwhile, and the file was left out.
#[tokio::test]
async fn a_file_that_is_described_during_a_listing_is_listed() {
    let bed = bed();
    bed.put("file", "content").await;
    bed.chmod("file", 0o600).await.unwrap();
    let mut held = None;
    let bed = bed.broken_off(behind(LATER), |bed| {
        held = Some(bed.probe.hold(Operation::Copy));
    });
    bed.probe.until_held().await;
    let release = async {
        clock::sleep(Duration::from_millis(20)).await;
        held.unwrap().add_permits(1);
    };
    let (listed, ()) = tokio::join!(bed.list("", 10), release);
    assert_eq!(listed.unwrap().len(), 1);
}
