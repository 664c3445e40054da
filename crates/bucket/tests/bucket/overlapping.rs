//! What the store says about a name while this mount changes it: each test holds back the answer to a
//! request that was carried out, and lets somebody else ask before the tree knows of it.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_object::{Capabilities, ErrorKind, Operation, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{AttributeChanges, Dentry, Inode, Volume};

use crate::support::{Bed, CALLER, READ_WRITE, WRITE, name, new_file};

/// Nothing is believed, so that whoever looks asks the store.
fn doubting() -> BucketSettings {
    BucketSettings {
        attr_timeout: Duration::ZERO,
        negative_timeout: Duration::ZERO,
        ..BucketSettings::default()
    }
}

/// Lets `look` run after the next request of a kind was carried out and before its answer arrives.
async fn overlapped<T>(
    bed: &Bed,
    operation: Operation,
    change: impl Future<Output = T>,
    look: impl AsyncFnOnce(),
) -> T {
    let answer = bed.probe.hold_late(operation);
    let (changed, ()) = tokio::join!(change, async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.probe.release_all();
        look().await;
        answer.add_permits(9);
    });
    changed
}

/// A name is looked up while it changes; the answer to the change arrives a second later.
async fn looked_up<T>(
    bed: &Bed,
    operation: Operation,
    change: impl Future<Output = T>,
    (parent, name): (Inode, &str),
) -> (T, Result<Inode, FsError>) {
    let answer = bed.probe.hold_late(operation);
    tokio::join!(change, async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.probe.release_all();
        let later = async {
            clock::sleep(Duration::from_secs(1)).await;
            answer.add_permits(9);
        };
        let (found, ()) = tokio::join!(bed.lookup(parent, name), later);
        found.map(|found| found.attributes.inode)
    })
}

async fn is_there(bed: &Bed, inode: Inode) -> bool {
    bed.volume.attributes(&CALLER, inode).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_file_that_others_look_at_while_it_is_renamed_is_there_under_its_new_name() {
    let bed = Bed::with(doubting());
    bed.put("a", "hello").await;
    let inode = bed.inode("a").await.unwrap();
    let renamed = overlapped(&bed, Operation::Delete, bed.rename("a", "b"), async || {
        assert!(is_there(&bed, inode).await);
        assert_eq!(bed.inode("a").await, Ok(inode));
    });
    renamed.await.unwrap();
    assert_eq!(bed.inode("b").await, Ok(inode));
    assert!(is_there(&bed, inode).await);
    assert_eq!(bed.inode("a").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn creating_what_a_file_was_just_renamed_to_opens_that_file() {
    // The absence of the new name is remembered from before the rename.
    let settings = BucketSettings {
        attr_timeout: Duration::ZERO,
        ..BucketSettings::default()
    };
    for bed in [
        Bed::with(settings.clone()),
        Bed::staged_with(settings.clone()),
    ] {
        bed.put("a", "hello").await;
        let inode = bed.inode("a").await.unwrap();
        let renamed = overlapped(&bed, Operation::Delete, bed.rename("a", "b"), async || {
            is_there(&bed, inode).await;
        });
        renamed.await.unwrap();
        let created = bed.created("b", READ_WRITE).await.unwrap();
        assert_eq!(created.entry.attributes.inode, inode);
        bed.close(created.opened.handle).await.unwrap();
        assert_eq!(bed.object("b").await.unwrap(), b"hello");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_renamed_over_is_what_it_was_until_then() {
    for door_keeps_sizes in [false, true] {
        let bed = Bed::with(BucketSettings {
            door_keeps_sizes,
            ..doubting()
        });
        bed.put("a", "new").await;
        bed.put("b", "older").await;
        let (inode, old) = (bed.inode("a").await.unwrap(), bed.inode("b").await.unwrap());
        let renamed = overlapped(&bed, Operation::Copy, bed.rename("a", "b"), async || {
            let stat = bed.stat("b").await.unwrap();
            assert_eq!((stat.inode, stat.size), (old, 5));
        });
        renamed.await.unwrap();
        assert_eq!(bed.inode("b").await, Ok(inode));
        assert!(!is_there(&bed, old).await || door_keeps_sizes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_file_is_renamed_to_is_found_when_it_is_there() {
    let bed = Bed::with(doubting());
    bed.put("a", "hello").await;
    let inode = bed.inode("a").await.unwrap();
    let renamed = bed.rename("a", "b");
    let (renamed, found) = looked_up(&bed, Operation::Copy, renamed, (Inode::ROOT, "b")).await;
    renamed.unwrap();
    assert_eq!(found, Ok(inode));
}

#[tokio::test(start_paused = true)]
async fn a_rename_whose_deletion_has_no_answer_is_looked_at_again() {
    let bed = Bed::new();
    bed.put("a", "hello").await;
    bed.stat("a").await.unwrap();
    bed.probe
        .fail_late(Operation::Delete, ErrorKind::Unavailable);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    assert_eq!(bed.stat("b").await.unwrap().size, 5);
}

#[tokio::test(start_paused = true)]
async fn what_others_look_at_while_its_directory_is_renamed_moves_along() {
    let bed = Bed::with(doubting());
    for key in ["a/x", "a/sub/y"] {
        bed.put(key, key).await;
    }
    let paths = ["a", "a/x", "a/sub", "a/sub/y"];
    let mut inodes = Vec::new();
    for path in paths {
        inodes.push(bed.inode(path).await.unwrap());
    }
    let renamed = bed.rename("a", "b");
    let renamed = overlapped(&bed, Operation::DeleteMany, renamed, async || {
        for inode in &inodes {
            assert!(is_there(&bed, *inode).await);
        }
        assert_eq!(bed.inode("a/sub/y").await, Ok(inodes[3]));
    });
    renamed.await.unwrap();
    for (inode, path) in inodes.iter().zip(paths) {
        assert!(is_there(&bed, *inode).await, "{path}");
        let path = path.replacen('a', "b", 1);
        assert_eq!(bed.inode(&path).await, Ok(*inode), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_below_a_directory_whose_originals_are_deleted_is_found_under_its_new_name() {
    let bed = Bed::with(doubting());
    bed.put("a/x", "hello").await;
    let directory = bed.inode("a").await.unwrap();
    let renamed = bed.rename("a", "b");
    let asked = looked_up(&bed, Operation::DeleteMany, renamed, (directory, "x"));
    let (renamed, found) = asked.await;
    renamed.unwrap();
    assert_eq!(found, bed.inode("b/x").await);
}

#[tokio::test(start_paused = true)]
async fn creating_what_moves_along_with_its_directory_opens_it() {
    let bed = Bed::with(doubting());
    bed.put("a/x", "hello").await;
    let directory = bed.inode("a").await.unwrap();
    let answer = bed.probe.hold_late(Operation::DeleteMany);
    let created = async {
        clock::sleep(Duration::from_secs(1)).await;
        let (caller, x) = (&*CALLER, name("x"));
        let created = bed.volume.make(
            caller,
            Dentry::new(directory, &x),
            new_file(0o644),
            Some(WRITE),
        );
        let later = async {
            clock::sleep(Duration::from_secs(1)).await;
            answer.add_permits(9);
        };
        tokio::join!(created, later).0
    };
    let (renamed, created) = tokio::join!(bed.rename("a", "b"), created);
    renamed.unwrap();
    bed.close(created.unwrap().opened.unwrap().handle)
        .await
        .unwrap();
    assert_eq!(bed.object("b/x").await.unwrap(), b"hello");
}

#[tokio::test(start_paused = true)]
async fn what_is_made_in_place_of_a_name_that_is_being_removed_is_not_removed_with_it() {
    let bed = Bed::with(doubting());
    bed.put("file", "old").await;
    bed.put("d/", "").await;
    let removed = overlapped(&bed, Operation::Delete, bed.unlink("file"), async || {
        let handle = bed.open("file", WRITE).await.unwrap();
        let _ = bed.close(handle).await;
        let handle = bed.create("file").await.unwrap();
        let _ = bed.close(handle).await;
    });
    removed.await.unwrap();
    assert_eq!(bed.stat("file").await, Err(FsError::NotFound));
    assert_eq!(bed.keys().await, ["d/"]);
    let mut made = Ok(());
    let removed = overlapped(&bed, Operation::Delete, bed.rmdir("d"), async || {
        made = bed.mkdir("d").await.map(drop);
    });
    removed.await.unwrap();
    assert_eq!(made, Err(FsError::AlreadyExists));
    assert_eq!(bed.stat("d").await, Err(FsError::NotFound));
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_found_while_it_is_made_is_made_all_the_same() {
    let bed = Bed::with(doubting());
    let made = bed.mkdir("d");
    let (made, found) = looked_up(&bed, Operation::Put, made, (Inode::ROOT, "d")).await;
    assert_eq!(Ok(made.unwrap().attributes.inode), found);
}

#[tokio::test(start_paused = true)]
async fn a_directory_outlives_the_moment_without_entries_before_it_is_marked() {
    let bed = Bed::with(doubting());
    bed.put("up/d/only", "").await;
    let directories = [
        bed.inode("up").await.unwrap(),
        bed.inode("up/d").await.unwrap(),
    ];
    let removed = bed.unlink("up/d/only");
    let removed = overlapped(&bed, Operation::Delete, removed, async || {
        for directory in directories {
            assert!(is_there(&bed, directory).await);
        }
    });
    removed.await.unwrap();
    assert_eq!(bed.keys().await, ["up/d/"]);
    assert_eq!(bed.inode("up/d").await, Ok(directories[1]));
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_not_taken_for_gone_by_an_answer_from_before_it_was_marked() {
    let bed = Bed::with(doubting());
    bed.put("d/only", "").await;
    let directory = bed.inode("d").await.unwrap();
    let deletion = bed.probe.hold_late(Operation::Delete);
    let removed = bed.unlink("d/only");
    let answer = async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let answer = bed.probe.hold_late(Operation::List);
        let later = async {
            clock::sleep(Duration::from_secs(1)).await;
            bed.probe.release_all();
            deletion.add_permits(1);
            clock::sleep(Duration::from_secs(1)).await;
            answer.add_permits(1);
        };
        tokio::join!(is_there(&bed, directory), later).0
    };
    let (removed, is_there) = tokio::join!(removed, answer);
    removed.unwrap();
    assert!(is_there);
    assert_eq!(bed.inode("d").await, Ok(directory));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_others_look_at_while_its_mode_is_changed_stays_the_same() {
    // A copy in parts has another tag than its original.
    let limits = Capabilities {
        copy_size_max: 5 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let settings = BucketSettings {
        door_keeps_sizes: true,
        metadata: MetadataSettings {
            keep: true,
            ..MetadataSettings::default()
        },
        ..doubting()
    };
    let bed = Bed::over(MemoryStore::with_capabilities(limits), settings);
    bed.put("file", vec![7; 6 * MIB as usize]).await;
    let inode = bed.inode("file").await.unwrap();
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let changed = bed.volume.set_attributes(&CALLER, inode, changes);
    let changed = overlapped(&bed, Operation::CompleteUpload, changed, async || {
        assert_eq!(bed.inode("file").await, Ok(inode));
    });
    changed.await.unwrap();
    assert_eq!(bed.stat("file").await.unwrap().inode, inode);
}
