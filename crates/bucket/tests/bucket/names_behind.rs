//! Names that are made, described and removed before the store has it.

use std::time::{Duration, UNIX_EPOCH};

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, HeadOptions, Key, Operation, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{AttributeChanges, RenameMode, TimeChange, Volume};

use crate::{
    behind::{LATER, behind, saved, shut_down},
    support::{Bed, CALLER, READ},
};

fn bed() -> Bed {
    Bed::staged_with(behind(LATER))
}

fn quick() -> BucketSettings {
    behind(Duration::from_millis(10))
}

async fn put_all(bed: &Bed, keys: &[&str]) {
    for key in keys {
        bed.put(key, *key).await;
    }
}

#[tokio::test]
async fn directories_and_links_cost_nothing_until_they_are_stored() {
    let bed = bed();
    bed.ls("").await.unwrap();
    bed.requests();
    bed.mkdir("folder").await.unwrap();
    bed.mkdir("folder/inner").await.unwrap();
    bed.symlink("../target", "folder/link").await.unwrap();
    let changes = AttributeChanges {
        permissions: Some(0o750),
        modified: Some(TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000))),
        ..AttributeChanges::default()
    };
    for path in ["folder", "folder/link"] {
        let inode = bed.inode(path).await.unwrap();
        let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
        changed.unwrap();
    }
    assert_eq!(bed.stat("folder").await.unwrap().permissions, 0o750);
    assert_eq!(bed.ls("folder").await.unwrap(), ["inner", "link"]);
    let link = bed.inode("folder/link").await.unwrap();
    let target = bed.volume.read_symlink(&CALLER, link).await.unwrap();
    assert_eq!(&target[..], b"../target");
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.metric("bucket_unsaved_files"), 3);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "put 3");
    assert_eq!(
        bed.keys().await,
        ["folder/", "folder/inner/", "folder/link"]
    );
    for (key, mode) in [("folder/", "16872"), ("folder/link", "41448")] {
        let key = Key::new(key).unwrap();
        let info = bed.remote.head(&key, HeadOptions::default()).await.unwrap();
        assert_eq!(info.metadata.get("mode").unwrap(), mode);
        assert!(info.metadata.get("mtime").unwrap().starts_with("1000"));
    }
    assert_eq!(bed.object("folder/link").await.unwrap(), b"../target");
}

#[tokio::test]
async fn what_was_listed_and_is_removed_costs_one_look_and_one_request() {
    let bed = bed();
    let keys: Vec<String> = (0..300).map(|number| format!("folder/{number}")).collect();
    bed.put("folder/", "").await;
    for key in &keys {
        bed.put(key, "content").await;
    }
    bed.ls("folder").await.unwrap();
    bed.requests();
    for key in &keys {
        bed.unlink(key).await.unwrap();
    }
    bed.rmdir("folder").await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.stat("folder").await, Err(FsError::NotFound));
    assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
    assert_eq!(bed.keys().await.len(), 301);
    bed.requests();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "delete 1, delete_many 1, head 1, list 1");
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn what_is_removed_is_gone_for_every_question() {
    let bed = bed();
    put_all(&bed, &["folder/", "folder/a", "folder/b", "file"]).await;
    for path in ["folder/a", "folder/b", "file"] {
        bed.unlink(path).await.unwrap();
    }
    clock::sleep(Duration::from_millis(1)).await;
    bed.forget_all();
    assert_eq!(bed.ls("folder").await.unwrap(), [""; 0]);
    assert_eq!(bed.stat("file").await, Err(FsError::NotFound));
    assert_eq!(bed.stat("folder/a").await, Err(FsError::NotFound));
    bed.rmdir("folder").await.unwrap();
    bed.mkdir("folder").await.unwrap();
    assert_eq!(bed.ls("folder").await.unwrap(), [""; 0]);
    bed.write_file("folder/b", "new").await.unwrap();
    assert_eq!(bed.ls("folder").await.unwrap(), ["b"]);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["folder/", "folder/b"]);
    assert_eq!(bed.object("folder/b").await.unwrap(), b"new");
}

/// Its version is that of the removed one.
#[tokio::test]
async fn a_file_with_the_bytes_of_a_removed_one_is_not_removed_with_it() {
    let bed = bed();
    bed.put("file", "content").await;
    bed.unlink("file").await.unwrap();
    bed.write_file("file", "content").await.unwrap();
    let file = bed.open("file", READ).await.unwrap();
    bed.sync(file).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    bed.put("other", "content").await;
    bed.put("moved", "content").await;
    bed.unlink("other").await.unwrap();
    bed.rename("moved", "other").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["file", "other"]);
}

#[tokio::test]
async fn another_client_s_version_is_not_removed() {
    let bed = bed();
    let names = ["a", "b", "c", "d", "e"];
    put_all(&bed, &names).await;
    bed.ls("").await.unwrap();
    for name in names {
        bed.unlink(name).await.unwrap();
    }
    bed.put("b", "theirs").await;
    bed.delete("c").await;
    let root = bed.open_dir("").await.unwrap();
    bed.volume.sync_directory(root).await.unwrap();
    assert_eq!(bed.keys().await, ["b"]);
    clock::sleep(Duration::from_millis(1100)).await;
    assert_eq!(bed.read_file("b").await.unwrap(), b"theirs");
    assert!(shut_down(&bed).await.is_empty());
}

#[tokio::test]
async fn what_a_kill_leaves_of_names_is_done_by_the_next_mount() {
    let bed = bed();
    put_all(&bed, &["old/", "old/file", "kept"]).await;
    bed.unlink("old/file").await.unwrap();
    bed.rmdir("old").await.unwrap();
    bed.mkdir("new").await.unwrap();
    bed.mkdir("new/inner").await.unwrap();
    bed.symlink("kept", "new/link").await.unwrap();
    bed.mkdir("gone").await.unwrap();
    bed.rmdir("gone").await.unwrap();
    bed.write_file("new/inner/file", "content").await.unwrap();
    let keys = bed.keys().await;
    assert_eq!(keys, ["kept", "old/", "old/file"]);
    let bed = bed.broken_off(behind(LATER), |bed| {
        for operation in [Operation::Put, Operation::Delete, Operation::DeleteMany] {
            bed.probe.fail(operation, ErrorKind::Unavailable, 1);
        }
    });
    assert_eq!(bed.ls("").await.unwrap(), ["new", "kept"]);
    assert_eq!(bed.ls("new").await.unwrap(), ["inner", "link"]);
    let link = bed.inode("new/link").await.unwrap();
    let target = bed.volume.read_symlink(&CALLER, link).await.unwrap();
    assert_eq!(&target[..], b"kept");
    saved(&bed).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(
        bed.keys().await,
        ["kept", "new/", "new/inner/", "new/inner/file", "new/link"]
    );
    assert_eq!(bed.object("new/link").await.unwrap(), b"kept");
}

#[tokio::test]
async fn a_mount_that_saves_at_the_close_does_what_one_that_saves_behind_left() {
    let bed = bed();
    bed.put("old", "old").await;
    bed.unlink("old").await.unwrap();
    bed.mkdir("new").await.unwrap();
    let settings = BucketSettings {
        save_behind: None,
        ..behind(LATER)
    };
    let bed = bed.broken_off(settings, |_| ());
    saved(&bed).await;
    assert_eq!(bed.keys().await, ["new/"]);
    bed.mkdir("at once").await.unwrap();
    assert_eq!(bed.keys().await, ["at once/", "new/"]);
}

#[tokio::test]
async fn what_fails_is_repeated_and_told_to_who_waits_for_it() {
    let bed = Bed::staged_with(quick());
    bed.put("file", "content").await;
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    bed.probe.fail(Operation::Delete, ErrorKind::Unavailable, 1);
    bed.mkdir("folder").await.unwrap();
    bed.unlink("file").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    let synced = bed.volume.sync_directory(root).await;
    assert!(matches!(synced, Err(FsError::Io(_))), "{synced:?}");
    saved(&bed).await;
    assert_eq!(bed.keys().await, ["folder/"]);
    bed.volume.sync_directory(root).await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1000);
    bed.mkdir("never").await.unwrap();
    assert_eq!(shut_down(&bed).await, ["never/"]);
}

#[tokio::test]
async fn what_must_not_be_removed_is_there_again_and_told_at_the_end() {
    let bed = Bed::staged_with(quick());
    bed.put("file", "content").await;
    bed.probe
        .fail(Operation::Delete, ErrorKind::PermissionDenied, 1);
    bed.unlink("file").await.unwrap();
    saved(&bed).await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"content");
    assert_eq!(shut_down(&bed).await, ["file"]);
}

#[tokio::test]
async fn a_link_whose_name_another_client_took_is_told_at_the_end() {
    let bed = bed();
    bed.symlink("target", "link").await.unwrap();
    bed.put("link", "theirs").await;
    assert_eq!(shut_down(&bed).await, ["link"]);
    assert_eq!(bed.object("link").await.unwrap(), b"theirs");
}

/// Its answer was lost.
#[tokio::test]
async fn a_link_that_is_stored_already_is_ours() {
    let bed = Bed::staged_with(quick());
    bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
    bed.symlink("target", "link").await.unwrap();
    saved(&bed).await;
    assert_eq!(bed.object("link").await.unwrap(), b"target");
    assert!(shut_down(&bed).await.is_empty());
}

#[tokio::test]
async fn a_directory_is_removed_while_its_marker_is_being_stored() {
    let bed = Bed::staged_with(quick());
    let held = bed.probe.hold(Operation::Put);
    bed.mkdir("folder").await.unwrap();
    bed.probe.until_held().await;
    bed.rmdir("folder").await.unwrap();
    assert_eq!(bed.stat("folder").await, Err(FsError::NotFound));
    bed.probe.release_all();
    held.add_permits(10);
    saved(&bed).await;
    assert_eq!(bed.keys().await, [""; 0]);
    assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_directory_is_renamed_with_what_waits_below_it() {
    let bed = bed();
    bed.mkdir("one").await.unwrap();
    bed.mkdir("one/inner").await.unwrap();
    bed.symlink("target", "one/link").await.unwrap();
    put_all(&bed, &["two/", "two/file"]).await;
    bed.unlink("two/file").await.unwrap();
    bed.rename("one", "two").await.unwrap();
    assert_eq!(bed.ls("two").await.unwrap(), ["inner", "link"]);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["two/", "two/inner/", "two/link"]);
}

#[tokio::test]
async fn a_link_is_renamed_and_removed() {
    let bed = bed();
    bed.symlink("target", "one").await.unwrap();
    bed.rename("one", "two").await.unwrap();
    assert_eq!(bed.ls("").await.unwrap(), ["two"]);
    bed.symlink("target", "three").await.unwrap();
    bed.unlink("three").await.unwrap();
    bed.unlink("two").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

/// Otherwise the directory would vanish with its last file.
#[tokio::test]
async fn a_directory_that_nothing_marks_stays_when_its_last_file_is_removed() {
    let bed = bed();
    bed.put("folder/file", "content").await;
    bed.unlink("folder/file").await.unwrap();
    assert_eq!(bed.ls("").await.unwrap(), ["folder"]);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["folder/"]);
}

#[tokio::test]
async fn more_changes_than_may_wait_are_made_at_once() {
    const MEMORY: u64 = MIB;
    let bed = Bed::staged_with_memory(MemoryStore::like_s3(), behind(LATER), MEMORY);
    for number in 0..200 {
        bed.mkdir(&format!("{number}")).await.unwrap();
    }
    let waiting = bed.metric("bucket_unsaved_files");
    assert!(waiting <= MEMORY / 16 / 1024, "{waiting} wait");
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await.len(), 200);
}

#[tokio::test]
async fn files_that_were_saved_here_are_listed_without_asking_for_each() {
    let bed = Bed::staged_with(BucketSettings {
        listing_timeout: Duration::ZERO,
        negative_timeout: Duration::ZERO,
        ..quick()
    });
    bed.mkdir("folder").await.unwrap();
    for number in 0..20 {
        let path = format!("folder/{number}");
        bed.write_file(&path, "content").await.unwrap();
    }
    saved(&bed).await;
    bed.requests();
    assert_eq!(bed.ls("folder").await.unwrap().len(), 20);
    assert_eq!(bed.requests(), "list 1");
}

#[tokio::test]
async fn a_name_that_is_made_anew_where_one_is_to_be_removed_is_the_new_one() {
    let bed = bed();
    put_all(&bed, &["folder/", "file"]).await;
    bed.symlink("old", "link").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    bed.volume.sync_directory(root).await.unwrap();
    for name in ["link", "file"] {
        bed.unlink(name).await.unwrap();
        bed.symlink("new", name).await.unwrap();
    }
    bed.rmdir("folder").await.unwrap();
    bed.mkdir("folder").await.unwrap();
    bed.rmdir("folder").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["file", "link"]);
    assert_eq!(bed.object("link").await.unwrap(), b"new");
    assert_eq!(bed.object("file").await.unwrap(), b"new");
}

/// Another client's, such as a lock file.
#[tokio::test]
async fn what_another_client_stored_with_the_same_bytes_is_not_removed() {
    let bed = bed();
    put_all(&bed, &["lock", "folder/"]).await;
    bed.ls("").await.unwrap();
    bed.unlink("lock").await.unwrap();
    bed.rmdir("folder").await.unwrap();
    clock::sleep(Duration::from_millis(1100)).await;
    put_all(&bed, &["lock", "folder/"]).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["folder/", "lock"]);
}

#[tokio::test]
async fn a_link_is_described_while_it_is_being_stored() {
    let bed = Bed::staged_with(quick());
    let held = bed.probe.hold(Operation::Put);
    bed.symlink("target", "link").await.unwrap();
    bed.probe.until_held().await;
    let inode = bed.inode("link").await.unwrap();
    let changes = AttributeChanges {
        modified: Some(TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000))),
        ..AttributeChanges::default()
    };
    let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
    changed.unwrap();
    bed.probe.release_all();
    held.add_permits(10);
    saved(&bed).await;
    assert!(shut_down(&bed).await.is_empty());
    let key = Key::new("link").unwrap();
    let info = bed.remote.head(&key, HeadOptions::default()).await.unwrap();
    assert!(info.metadata.get("mtime").unwrap().starts_with("1000"));
}

#[tokio::test]
async fn fsync_of_a_directory_tells_what_was_given_up() {
    let bed = bed();
    bed.put("file", "content").await;
    bed.probe
        .fail(Operation::Delete, ErrorKind::PermissionDenied, 1);
    bed.unlink("file").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    let synced = bed.volume.sync_directory(root).await;
    assert!(synced.is_err(), "{synced:?}");
    assert_eq!(bed.volume.sync_directory(root).await, Ok(()));
    bed.symlink("target", "link").await.unwrap();
    bed.put("link", "theirs").await;
    let synced = bed.volume.sync_directory(root).await;
    assert!(synced.is_err(), "{synced:?}");
    assert_eq!(shut_down(&bed).await, ["file", "link"]);
}

#[tokio::test]
async fn a_directory_is_gone_as_long_as_something_below_it_is_to_be_removed() {
    let bed = Bed::staged_with(quick());
    put_all(&bed, &["folder/", "folder/file"]).await;
    bed.ls("folder").await.unwrap();
    bed.probe.fail(Operation::Delete, ErrorKind::Unavailable, 2);
    bed.unlink("folder/file").await.unwrap();
    bed.rmdir("folder").await.unwrap();
    while bed.metric("bucket_unsaved_files") > 0 {
        clock::sleep(Duration::from_millis(100)).await;
        assert_eq!(bed.stat("folder").await, Err(FsError::NotFound));
        assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
    }
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_directory_that_was_made_anew_is_there_after_kills() {
    let bed = bed();
    bed.put("folder/", "").await;
    bed.rmdir("folder").await.unwrap();
    bed.mkdir("folder").await.unwrap();
    bed.delete("folder/").await;
    let bed = bed.broken_off(behind(LATER), |bed| {
        bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    });
    assert_eq!(bed.ls("").await.unwrap(), ["folder"]);
    saved(&bed).await;
    assert_eq!(bed.keys().await, ["folder/"]);
}

/// As by a program that touches it again and again.
#[tokio::test]
async fn fsync_of_a_directory_ends_while_one_below_it_is_described_anew_faster_than_it_is_stored() {
    const TOUCHES_MAX: usize = 20;
    for kind in [None, Some(ErrorKind::Unavailable)] {
        let bed = bed();
        bed.mkdir("folder").await.unwrap();
        let inode = bed.inode("folder").await.unwrap();
        let root = bed.open_dir("").await.unwrap();
        let held = bed.probe.hold(Operation::Put);
        if let Some(kind) = kind {
            bed.probe.fail(Operation::Put, kind, 1000);
        }
        let touches = async {
            for touched in 0..TOUCHES_MAX {
                bed.probe.until_held().await;
                let time = UNIX_EPOCH + Duration::from_secs(touched as u64);
                let changes = AttributeChanges {
                    modified: Some(TimeChange::To(time)),
                    ..AttributeChanges::default()
                };
                let touched = bed.volume.set_attributes(&CALLER, inode, changes).await;
                touched.unwrap();
                held.add_permits(1);
                while bed.probe.waiting() > 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            biased;
            synced = bed.volume.sync_directory(root) => assert_eq!(synced.is_err(), kind.is_some()),
            () = touches => panic!("it goes on as long as the directory is touched"),
        }
    }
}

#[tokio::test]
async fn fsync_of_a_directory_tells_what_was_given_up_before_it() {
    let bed = Bed::staged_with(quick());
    put_all(&bed, &["folder/", "folder/file", "other/"]).await;
    bed.probe
        .fail(Operation::Delete, ErrorKind::PermissionDenied, 1);
    bed.unlink("folder/file").await.unwrap();
    saved(&bed).await;
    for (path, is_told) in [("other", false), ("", true), ("", false), ("folder", false)] {
        let directory = bed.open_dir(path).await.unwrap();
        let synced = bed.volume.sync_directory(directory).await;
        assert_eq!(synced.is_err(), is_told, "{path}: {synced:?}");
    }
    assert_eq!(shut_down(&bed).await, ["folder/file"]);
}

#[tokio::test]
async fn a_removal_does_not_wait_because_what_it_takes_back_could_not_be_stored() {
    let bed = Bed::staged_with(quick());
    let held = bed.probe.hold(Operation::Put);
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    bed.mkdir("folder").await.unwrap();
    bed.probe.until_held().await;
    bed.rmdir("folder").await.unwrap();
    bed.probe.release_all();
    held.add_permits(1);
    while bed.metric("bucket_unsaved_files") > 0 {
        let items = bed.volume.unsaved_items();
        let failed = items.iter().find_map(|item| item.failure.clone());
        assert_eq!(failed, None);
        clock::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bed.keys().await, [""; 0]);
}

/// The copy of its marker is younger than the marker that was listed.
#[tokio::test]
async fn a_directory_that_was_renamed_and_removed_does_not_come_back() {
    let bed = bed();
    put_all(&bed, &["old/", "old/inner/"]).await;
    bed.ls("").await.unwrap();
    bed.ls("old").await.unwrap();
    clock::sleep(Duration::from_millis(1100)).await;
    bed.rename("old", "new").await.unwrap();
    bed.rmdir("new/inner").await.unwrap();
    bed.rmdir("new").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn who_waits_for_a_directory_to_go_hears_why_what_is_below_it_stays() {
    let bed = bed();
    put_all(&bed, &["folder/", "folder/file", "other/"]).await;
    bed.ls("folder").await.unwrap();
    bed.probe
        .fail(Operation::Delete, ErrorKind::Unavailable, 1000);
    bed.unlink("folder/file").await.unwrap();
    bed.rmdir("folder").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    let synced = bed.volume.sync_directory(root);
    let synced = clock::deadline(Duration::from_secs(20), synced).await;
    assert!(matches!(synced, Ok(Err(FsError::Io(_)))), "{synced:?}");
}

#[tokio::test]
async fn a_removal_whose_look_is_refused_once_is_carried_out() {
    let bed = Bed::staged_with(quick());
    bed.put("file", "content").await;
    bed.stat("file").await.unwrap();
    bed.probe
        .fail(Operation::Head, ErrorKind::PermissionDenied, 1);
    bed.unlink("file").await.unwrap();
    saved(&bed).await;
    assert_eq!(bed.keys().await, [""; 0]);
    assert!(shut_down(&bed).await.is_empty());
}

/// Another client's, such as a lock file.
#[tokio::test]
async fn what_another_client_stored_under_the_old_name_of_a_renamed_file_stays() {
    let bed = bed();
    put_all(&bed, &["old"]).await;
    bed.ls("").await.unwrap();
    bed.rename("old", "new").await.unwrap();
    clock::sleep(Duration::from_millis(1100)).await;
    put_all(&bed, &["old"]).await;
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["new", "old"]);
}

/// The store had been asked before the marker was written, and was believed after it: the file was hidden by the
/// directory from then on.
#[tokio::test]
async fn a_file_does_not_take_the_name_of_a_directory_that_is_stored_meanwhile() {
    let bed = bed();
    put_all(&bed, &["file"]).await;
    bed.ls("").await.unwrap();
    bed.mkdir("folder").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    let held = [Operation::Head, Operation::List].map(|asked| bed.probe.hold_late(asked));
    let mode = RenameMode::NoReplace;
    let renamed = bed.rename_as("file", "folder", mode);
    let stored = async {
        while bed.probe.waiting() < 2 {
            clock::sleep(Duration::from_millis(1)).await;
        }
        bed.volume.sync_directory(root).await.unwrap();
        bed.probe.release_all();
        held.iter().for_each(|held| held.add_permits(1));
    };
    let (renamed, ()) = tokio::join!(renamed, stored);
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    assert_eq!(bed.keys().await, ["file", "folder/"]);
}
