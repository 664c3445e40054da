//! Making and removing names.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Key, Operation, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Dentry, FileKind, Inode, RemoveKind, Volume};

use crate::support::{Bed, CALLER, READ, WRITE, name, new_file};

#[tokio::test(start_paused = true)]
async fn mkdir_writes_the_object_that_marks_a_directory() {
    let bed = Bed::new();
    let entry = bed.mkdir("d").await.unwrap();
    assert_eq!(entry.attributes.kind, FileKind::Directory);
    assert_eq!(bed.requests(), "head 1, list 1, put 1");
    assert_eq!(bed.keys().await, ["d/"]);
    let marker = Key::new("d/").unwrap();
    let info = bed.remote.head(&marker, Default::default()).await.unwrap();
    assert_eq!(
        (info.size, info.content_type.as_str()),
        (0, "application/x-directory")
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_directory_is_known_to_be_empty() {
    let bed = Bed::new();
    bed.mkdir("d").await.unwrap();
    bed.requests();
    let handle = bed.create("d/a").await.unwrap();
    bed.mkdir("d/e").await.unwrap();
    assert_eq!(bed.stat("d/other").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "put 1");
    bed.close(handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mkdir_of_an_existing_name_fails() {
    let bed = Bed::new();
    bed.put("file", "").await;
    bed.put("d/x", "").await;
    assert_eq!(bed.mkdir("file").await.err(), Some(FsError::AlreadyExists));
    assert_eq!(bed.mkdir("d").await.err(), Some(FsError::AlreadyExists));
    bed.create("unsaved").await.unwrap();
    assert_eq!(
        bed.mkdir("unsaved").await.err(),
        Some(FsError::AlreadyExists)
    );
}

#[tokio::test(start_paused = true)]
async fn unlink_deletes_the_object() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    bed.put("b", "x").await;
    bed.ls("").await.unwrap();
    bed.requests();
    bed.unlink("a").await.unwrap();
    assert_eq!(bed.requests(), "delete 1");
    assert_eq!(bed.keys().await, ["b"]);
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    assert_eq!(bed.ls("").await.unwrap(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn unlink_of_what_is_not_there_fails() {
    let bed = Bed::new();
    assert_eq!(bed.unlink("a").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn unlink_of_a_directory_is_refused() {
    let bed = Bed::new();
    bed.put("d/x", "").await;
    assert_eq!(bed.unlink("d").await, Err(FsError::IsADirectory));
    assert_eq!(bed.keys().await, ["d/x"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_unlink_changes_nothing() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    bed.probe
        .fail(Operation::Delete, ErrorKind::PermissionDenied, 1);
    assert_eq!(bed.unlink("a").await, Err(FsError::PermissionDenied));
    assert_eq!(bed.read_file("a").await.unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn unlink_of_a_file_that_is_read_makes_it_stale() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let handle = bed.open("a", READ).await.unwrap();
    let inode = bed.inode("a").await.unwrap();
    bed.unlink("a").await.unwrap();
    let attributes = bed
        .volume
        .attributes(&CALLER, inode)
        .await
        .unwrap()
        .attributes;
    assert_eq!((attributes.links, attributes.size), (0, 1));
    assert_eq!(bed.read(handle, 0, 1).await, Err(FsError::Stale));
    bed.close(handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unlink_of_a_file_that_is_written_drops_what_was_written() {
    let bed = Bed::new();
    bed.put("old", "old").await;
    for path in ["new", "old"] {
        let handle = bed.created(path, WRITE).await.unwrap().opened.handle;
        let end = bed.stat(path).await.unwrap().size;
        bed.write(handle, end, "more").await.unwrap();
        bed.unlink(path).await.unwrap();
        assert_eq!(
            bed.write(handle, end + 4, "lost").await,
            Err(FsError::Stale)
        );
        bed.close(handle).await.unwrap();
        assert!(bed.object(path).await.is_none());
        assert_eq!(bed.stat(path).await, Err(FsError::NotFound));
    }
}

#[tokio::test(start_paused = true)]
async fn unlink_of_a_file_that_is_not_saved_costs_nothing() {
    let bed = Bed::new();
    let handle = bed.create("new").await.unwrap();
    bed.requests();
    bed.unlink("new").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn unlink_waits_for_an_upload_under_way() {
    let bed = Bed::new();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    let held = bed.probe.hold(Operation::Put);
    let (flushed, removed, ()) = tokio::join!(bed.volume.flush(handle), bed.unlink("a"), async {
        clock::sleep(Duration::from_secs(1)).await;
        held.add_permits(1);
    });
    assert_eq!((flushed, removed), (Ok(()), Ok(())));
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_removed_name_can_be_used_again_at_once() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    let old = bed.inode("a").await.unwrap();
    bed.unlink("a").await.unwrap();
    bed.requests();
    bed.write_file("a", "new").await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    assert!(bed.inode("a").await.unwrap() > old);
    assert_eq!(bed.read_file("a").await.unwrap(), b"new");
}

#[tokio::test(start_paused = true)]
async fn rmdir_removes_an_empty_directory() {
    let bed = Bed::new();
    bed.mkdir("d").await.unwrap();
    bed.requests();
    bed.rmdir("d").await.unwrap();
    assert_eq!(bed.requests(), "delete 1, list 1");
    assert!(bed.keys().await.is_empty());
    assert_eq!(bed.stat("d").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn rmdir_asks_the_store_whether_the_directory_is_empty() {
    let bed = Bed::new();
    bed.mkdir("d").await.unwrap();
    bed.put("d/of another client", "").await;
    assert_eq!(bed.rmdir("d").await, Err(FsError::DirectoryNotEmpty));
    assert_eq!(bed.keys().await, ["d/", "d/of another client"]);
}

#[tokio::test(start_paused = true)]
async fn rmdir_of_a_directory_with_unsaved_files_is_refused() {
    let bed = Bed::new();
    bed.mkdir("d").await.unwrap();
    let handle = bed.create("d/new").await.unwrap();
    assert_eq!(bed.rmdir("d").await, Err(FsError::DirectoryNotEmpty));
    bed.unlink("d/new").await.unwrap();
    bed.close(handle).await.unwrap();
    bed.rmdir("d").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rmdir_of_a_file_is_refused() {
    let bed = Bed::new();
    bed.put("a", "").await;
    assert_eq!(bed.rmdir("a").await, Err(FsError::NotADirectory));
    assert_eq!(bed.rmdir("b").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_directory_stays_when_its_last_entry_is_removed() {
    let bed = Bed::new();
    bed.put("d/only", "").await;
    bed.stat("d/only").await.unwrap();
    bed.requests();
    bed.unlink("d/only").await.unwrap();
    // Nothing is known of others: one LIST tells, and the marker keeps the directory.
    assert_eq!(bed.requests(), "delete 1, list 1, put 1");
    assert_eq!(bed.keys().await, ["d/"]);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(bed.stat("d").await.unwrap().kind, FileKind::Directory);
    bed.put("e/f/", "").await;
    bed.rmdir("e/f").await.unwrap();
    assert_eq!(bed.keys().await, ["d/", "e/"]);
}

#[tokio::test(start_paused = true)]
async fn removing_a_listed_tree_costs_one_request_for_each_file() {
    let bed = Bed::new();
    for number in 0..50 {
        bed.put(&format!("d/{number:02}"), "").await;
    }
    let names = bed.ls("d").await.unwrap();
    let directory = bed.inode("d").await.unwrap();
    bed.requests();
    for entry in names {
        let removed = bed
            .volume
            .remove(
                &CALLER,
                Dentry::new(directory, &name(&entry)),
                RemoveKind::File,
            )
            .await;
        removed.unwrap();
    }
    // The marker of a directory that would vanish, known from the listing to be empty.
    assert_eq!(bed.requests(), "delete 50, put 1");
    bed.rmdir("d").await.unwrap();
    assert_eq!(bed.requests(), "delete 1, list 1");
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_marked_directory_stays_without_further_requests() {
    let bed = Bed::new();
    bed.put("d/", "").await;
    bed.put("d/only", "").await;
    bed.stat("d/only").await.unwrap();
    bed.requests();
    bed.unlink("d/only").await.unwrap();
    assert_eq!(bed.requests(), "delete 1");
    assert_eq!(bed.keys().await, ["d/"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_mkdir_goes_on() {
    let bed = Bed::new();
    let held = bed.probe.hold(Operation::Put);
    let mkdir = clock::deadline(Duration::from_secs(1), bed.mkdir("d"));
    assert!(mkdir.await.is_err());
    held.add_permits(1);
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.keys().await, ["d/"]);
    assert_eq!(bed.stat("d").await.unwrap().kind, FileKind::Directory);
    // The reference that nobody took is given back.
    let inode = bed.inode("d").await.unwrap();
    bed.volume.forget(inode, 2);
    assert_eq!(bed.metric("bucket_inodes"), 1);
}

/// A file that is made without a handle is stored, and closed behind who made it.
#[tokio::test(start_paused = true)]
async fn an_interrupted_mknod_leaves_nothing_open() {
    let bed = Bed::new();
    let held = bed.probe.hold(Operation::Put);
    let name = name("file");
    let dentry = Dentry::new(Inode::ROOT, &name);
    let made = bed.volume.make(&CALLER, dentry, new_file(0o640), None);
    assert!(clock::deadline(Duration::from_secs(1), made).await.is_err());
    assert_eq!(bed.metric("bucket_open_handles"), 1);
    held.add_permits(1);
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.keys().await, ["file"]);
    assert_eq!(bed.metric("bucket_open_handles"), 0);
    assert_eq!(bed.metric("bucket_inodes"), 1, "nobody took it");
    let made = bed.volume.make(&CALLER, dentry, new_file(0o640), None);
    let made = made.await.unwrap();
    assert!(made.existed && made.opened.is_none());
}

/// An interrupted rename goes on; who removes the old name meanwhile must not remove the new one.
#[tokio::test(start_paused = true)]
async fn removing_a_name_that_is_being_renamed_away_spares_the_file() {
    let bed = Bed::new();
    bed.put("a", "content").await;
    let handle = bed.open("a", READ).await.unwrap();
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, removed) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        let removal = bed.unlink("a");
        let (removed, ()) = tokio::join!(removal, async {
            clock::sleep(Duration::from_secs(1)).await;
            held.add_permits(1);
        });
        removed
    });
    assert_eq!((renamed, removed), (Ok(()), Err(FsError::NotFound)));
    assert_eq!(bed.keys().await, ["b"]);
    bed.volume.release(handle).await;
}

#[tokio::test(start_paused = true)]
async fn unlink_removes_what_may_be_in_the_store_of_an_unsaved_file() {
    let settings = BucketSettings {
        appendable: true,
        ..BucketSettings::default()
    };
    let bed = Bed::over(MemoryStore::like_oss(), settings);
    let handle = bed.create("log").await.unwrap();
    for number in 0..9 {
        let block = vec![1; MIB as usize];
        bed.write(handle, number * MIB, block).await.unwrap();
    }
    assert_eq!(bed.keys().await, ["log"]);
    bed.unlink("log").await.unwrap();
    bed.close(handle).await.unwrap();
    assert!(bed.keys().await.is_empty());
    // The other case: a save whose answer was lost.
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    bed.probe.fail_late(Operation::Put, ErrorKind::Timeout);
    assert!(bed.sync(handle).await.is_err());
    bed.unlink("file").await.unwrap();
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_two_make_at_once_is_made_once() {
    let bed = Bed::new();
    let held = bed.probe.hold(Operation::Put);
    let (one, other, ()) = tokio::join!(bed.mkdir("d"), bed.mkdir("d"), async {
        clock::sleep(Duration::from_secs(1)).await;
        held.add_permits(2);
    });
    let outcomes = [one.map(drop), other.map(drop)];
    assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(FsError::AlreadyExists)));
}
