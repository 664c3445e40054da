//! Renaming files.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{Capabilities, ErrorKind, Key, Operation, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{FileKind, OpenOptions, RenameMode, Volume};

use crate::support::{Bed, READ, WRITE};

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..WRITE
};

#[tokio::test(start_paused = true)]
async fn renaming_a_file_copies_and_deletes() {
    let bed = Bed::new();
    bed.put("a", "hello").await;
    bed.stat("a").await.unwrap();
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    let inode = bed.inode("a").await.unwrap();
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.requests(), "copy 1, delete 1");
    assert_eq!(bed.keys().await, ["b"]);
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    let stat = bed.stat("b").await.unwrap();
    assert_eq!((stat.inode, stat.size), (inode, 5));
    assert_eq!(bed.read_file("b").await.unwrap(), b"hello");
    assert_eq!(bed.requests(), "get 1");
}

#[tokio::test(start_paused = true)]
async fn renaming_over_a_file_replaces_it() {
    let bed = Bed::new();
    bed.put("a", "new").await;
    bed.put("d/b", "old").await;
    let reader = bed.open("d/b", READ).await.unwrap();
    bed.rename("a", "d/b").await.unwrap();
    assert_eq!(bed.object("d/b").await.unwrap(), b"new");
    assert_eq!(bed.keys().await, ["d/b"]);
    assert_eq!(bed.read(reader, 0, 9).await, Err(FsError::Stale));
    assert_eq!(bed.read_file("d/b").await.unwrap(), b"new");
}

#[tokio::test(start_paused = true)]
async fn renaming_what_is_not_there_fails() {
    let bed = Bed::new();
    assert_eq!(bed.rename("c", "b").await, Err(FsError::NotFound));
    // Also when memory still knows it.
    bed.put("a", "x").await;
    bed.stat("a").await.unwrap();
    bed.delete("a").await;
    assert_eq!(bed.rename("a", "b").await, Err(FsError::NotFound));
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn renaming_between_files_and_directories_is_refused() {
    let bed = Bed::new();
    bed.put("file", "x").await;
    bed.put("d/x", "").await;
    assert_eq!(bed.rename("file", "d").await, Err(FsError::IsADirectory));
    assert_eq!(bed.rename("d", "file").await, Err(FsError::NotADirectory));
    assert_eq!(bed.keys().await, ["d/x", "file"]);
}

#[tokio::test(start_paused = true)]
async fn renaming_to_the_same_name_does_nothing() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    bed.stat("a").await.unwrap();
    bed.requests();
    bed.rename("a", "a").await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.keys().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn noreplace_asks_the_store() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    // Made by another client since.
    bed.put("b", "theirs").await;
    let renamed = bed.rename_as("a", "b", RenameMode::NoReplace).await;
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    assert_eq!(bed.object("b").await.unwrap(), b"theirs");
    bed.requests();
    bed.rename_as("a", "c", RenameMode::NoReplace)
        .await
        .unwrap();
    assert_eq!(bed.requests(), "copy 1, delete 1, head 1, list 1");
    let renamed = bed.rename_as("c", "c", RenameMode::NoReplace).await;
    assert_eq!(renamed, Err(FsError::AlreadyExists));
}

#[tokio::test(start_paused = true)]
async fn noreplace_is_decided_by_the_store_where_it_can() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let held = bed.probe.hold(Operation::Copy);
    let renamed = bed.rename_as("a", "b", RenameMode::NoReplace);
    let (renamed, ()) = tokio::join!(renamed, async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("b", "theirs").await;
        held.add_permits(1);
    });
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    assert_eq!(bed.keys().await, ["a", "b"]);
    assert_eq!(bed.object("b").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn exchange_is_unsupported() {
    let bed = Bed::new();
    bed.put("a", "").await;
    bed.put("b", "").await;
    let renamed = bed.rename_as("a", "b", RenameMode::Exchange).await;
    assert!(matches!(renamed, Err(FsError::Unsupported(_))));
}

#[tokio::test(start_paused = true)]
async fn renaming_a_file_that_is_written_saves_it_first() {
    let bed = Bed::new();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.requests(), "copy 1, delete 1, head 1, list 1, put 1");
    assert_eq!(bed.object("b").await.unwrap(), b"hello");
    // The handle follows.
    bed.write(handle, 5, " world").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("b").await.unwrap(), b"hello world");
    assert_eq!(bed.keys().await, ["b"]);
}

#[tokio::test]
async fn a_new_staged_file_that_is_renamed_before_its_close_is_one_put() {
    let bed = Bed::staged();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    assert!(bed.keys().await.is_empty());
    bed.write(handle, 5, " world").await.unwrap();
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.keys().await, ["b"]);
    assert_eq!(bed.object("b").await.unwrap(), b"hello world");
}

#[tokio::test]
async fn a_new_staged_file_that_is_renamed_over_another_replaces_it_with_its_close() {
    let bed = Bed::staged();
    bed.put("b", "before").await;
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    let reader = bed.open("b", READ).await.unwrap();
    assert_eq!(bed.read(reader, 0, 9).await.unwrap(), b"hello");
    assert_eq!(bed.object("b").await.unwrap(), b"before");
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("b").await.unwrap(), b"hello");
    assert_eq!(bed.keys().await, ["b"]);
}

#[tokio::test]
async fn a_new_staged_file_that_was_renamed_tells_at_its_close_that_it_cannot_be_saved() {
    let bed = Bed::staged();
    bed.put("b", "before").await;
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 100);
    assert_eq!(bed.close(handle).await, Err(FsError::NoSpace));
    assert_eq!(bed.object("b").await.unwrap(), b"before");
    let reader = bed.open("b", READ).await.unwrap();
    assert_eq!(bed.read(reader, 0, 9).await.unwrap(), b"hello");
}

/// Told at the close, who believed that the name was his removed what another client had stored.
#[tokio::test]
async fn a_new_staged_file_that_is_renamed_to_replace_nothing_asks_the_store() {
    let bed = Bed::staged();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    bed.put("b", "theirs").await;
    let renamed = bed.rename_as("a", "b", RenameMode::NoReplace).await;
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("b").await.unwrap(), b"theirs");
    assert_eq!(bed.object("a").await.unwrap(), b"hello");
}

#[tokio::test(start_paused = true)]
async fn renaming_a_file_that_cannot_be_saved_fails() {
    let bed = Bed::new();
    let handle = bed.create("a").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
    assert_eq!(bed.rename("a", "b").await, Err(FsError::NoSpace));
    assert_eq!(bed.close(handle).await, Err(FsError::NoSpace));
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn readers_follow_a_renamed_file() {
    let bed = Bed::new();
    bed.put("a", vec![7; 3 * MIB as usize]).await;
    let handle = bed.open("a", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 1).await.unwrap(), [7]);
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.read(handle, 2 * MIB, 1).await.unwrap(), [7]);
}

#[tokio::test(start_paused = true)]
async fn renaming_over_a_file_that_is_written_drops_what_was_written() {
    let bed = Bed::new();
    bed.put("a", "winner").await;
    let handle = bed.create("b").await.unwrap();
    bed.write(handle, 0, "loser").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.write(handle, 5, "x").await, Err(FsError::Stale));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("b").await.unwrap(), b"winner");
    assert_eq!(bed.keys().await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_changed_by_others_is_renamed_as_it_is() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    bed.stat("a").await.unwrap();
    bed.put("a", "changed").await;
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.stat("b").await.unwrap().size, 7);
    assert_eq!(bed.object("b").await.unwrap(), b"changed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_copy_leaves_the_source() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    bed.probe
        .fail(Operation::Copy, ErrorKind::PermissionDenied, 1);
    assert_eq!(bed.rename("a", "b").await, Err(FsError::PermissionDenied));
    assert_eq!(bed.keys().await, ["a"]);
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_leaves_both_names_and_can_be_repeated() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    bed.probe.fail(Operation::Delete, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    assert_eq!(bed.keys().await, ["a", "b"]);
    assert!(bed.stat("b").await.is_ok());
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_too_large_for_one_copy_is_copied_in_parts() {
    let limits = Capabilities {
        copy_size_max: 5 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let bed = Bed::over(
        MemoryStore::with_capabilities(limits),
        BucketSettings::default(),
    );
    let body: Vec<u8> = (0..12 * MIB).map(|number| (number % 251) as u8).collect();
    let options = PutOptions {
        content_type: Some("text/x-large".to_owned()),
        metadata: [("colour".to_owned(), "green".to_owned())].into(),
        ..PutOptions::default()
    };
    bed.remote
        .put(&Key::new("a").unwrap(), body.clone().into(), options)
        .await
        .unwrap();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(
        bed.requests(),
        "complete_upload 1, copy_part 3, create_upload 1, delete 1, head 3, list 2"
    );
    assert!(bed.object("b").await.unwrap() == body);
    let info = bed
        .remote
        .head(&Key::new("b").unwrap(), Default::default())
        .await
        .unwrap();
    assert_eq!(
        (info.content_type.as_str(), info.metadata.len()),
        ("text/x-large", 1)
    );
    bed.probe
        .fail_after(1, Operation::CopyPart, ErrorKind::PermissionDenied, 1);
    assert_eq!(bed.rename("b", "c").await, Err(FsError::PermissionDenied));
    assert_eq!(bed.keys().await, ["b"]);
    assert!(bed.unfinished_uploads().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_large_object_changed_by_others_is_renamed_as_it_is() {
    let limits = Capabilities {
        copy_size_max: 5 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let bed = Bed::over(
        MemoryStore::with_capabilities(limits),
        BucketSettings::default(),
    );
    bed.put("a", vec![1; 12 * MIB as usize]).await;
    bed.stat("a").await.unwrap();
    bed.put("a", vec![2; 7 * MIB as usize]).await;
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.stat("b").await.unwrap().size, 7 * MIB);
    assert!(bed.object("b").await.unwrap() == vec![2; 7 * MIB as usize]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_stays_when_its_last_file_is_renamed_away() {
    let bed = Bed::new();
    bed.put("d/only", "").await;
    bed.rename("d/only", "elsewhere").await.unwrap();
    assert_eq!(bed.keys().await, ["d/", "elsewhere"]);
    assert_eq!(bed.stat("d").await.unwrap().kind, FileKind::Directory);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_rename_goes_on() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let held = bed.probe.hold(Operation::Delete);
    let renamed = clock::deadline(Duration::from_secs(1), bed.rename("a", "b"));
    assert!(renamed.await.is_err());
    held.add_permits(1);
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.keys().await, ["b"]);
    assert!(bed.stat("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn two_renames_across_each_other_do_not_deadlock() {
    let bed = Bed::new();
    bed.put("a", "1").await;
    bed.put("b", "2").await;
    let (one, two) = (
        bed.open("a", WRITE).await.unwrap(),
        bed.open("b", WRITE).await.unwrap(),
    );
    bed.write(one, 1, "1").await.unwrap();
    bed.write(two, 1, "2").await.unwrap();
    let both = async { tokio::join!(bed.rename("a", "b"), bed.rename("b", "a")) };
    let (first, second) = clock::deadline(Duration::from_secs(60), both)
        .await
        .unwrap();
    assert!(first.is_ok() || second.is_ok());
    assert_eq!(bed.keys().await.len(), 1);
    bed.volume.release(one).await;
    bed.volume.release(two).await;
    assert_eq!(bed.keys().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_large_file_that_others_replace_while_it_is_copied_is_not_deleted() {
    let bed = Bed::new();
    bed.put("large", vec![1; 64 * MIB as usize]).await;
    bed.stat("large").await.unwrap();
    let held = bed.probe.hold_late(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("large", "moved"), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("large", "theirs").await;
        held.add_permits(9);
    });
    assert!(matches!(renamed, Err(FsError::Busy(_))), "{renamed:?}");
    assert_eq!(bed.object("large").await.unwrap(), b"theirs");
    bed.rename("large", "moved").await.unwrap();
    assert_eq!(bed.keys().await, ["moved"]);
    assert_eq!(bed.object("moved").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn a_small_file_that_others_replace_during_a_slow_copy_is_not_deleted() {
    let bed = Bed::new();
    bed.put("small", "ours").await;
    bed.stat("small").await.unwrap();
    let held = bed.probe.hold_late(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("small", "moved"), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("small", "theirs").await;
        held.add_permits(9);
    });
    assert!(matches!(renamed, Err(FsError::Busy(_))), "{renamed:?}");
    assert_eq!(bed.object("small").await.unwrap(), b"theirs");
}

/// To repeat it would find the copy, and say that the new name is taken.
#[tokio::test(start_paused = true)]
async fn noreplace_of_a_file_that_others_replace_and_look_at_meanwhile_says_so() {
    let bed = Bed::with(BucketSettings {
        attr_timeout: Duration::ZERO,
        ..BucketSettings::default()
    });
    bed.put("small", "ours").await;
    bed.stat("small").await.unwrap();
    let held = bed.probe.hold_late(Operation::Copy);
    let renamed = bed.rename_as("small", "moved", RenameMode::NoReplace);
    let (renamed, ()) = tokio::join!(renamed, async {
        clock::sleep(Duration::from_millis(100)).await;
        bed.put("small", "theirs").await;
        bed.stat("small").await.unwrap();
        held.add_permits(9);
    });
    assert!(matches!(renamed, Err(FsError::Busy(_))), "{renamed:?}");
    assert_eq!(bed.object("small").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn a_file_opened_while_another_is_renamed_over_it_is_not_saved() {
    for options in [WRITE, TRUNCATE] {
        let bed = Bed::new();
        bed.put("source", "source").await;
        bed.put("target", "target").await;
        bed.stat("source").await.unwrap();
        bed.stat("target").await.unwrap();
        let held = bed.probe.hold_late(Operation::Copy);
        let (renamed, handle) = tokio::join!(bed.rename("source", "target"), async {
            clock::sleep(Duration::from_secs(1)).await;
            let handle = bed.open("target", options).await.unwrap();
            let end = if options.truncate { 0 } else { 6 };
            let written = bed.write(handle, end, "late").await;
            assert!(written.is_ok() || !options.truncate, "{written:?}");
            held.add_permits(1);
            handle
        });
        renamed.unwrap();
        let _ = bed.close(handle).await;
        assert_eq!(bed.object("target").await.unwrap(), b"source");
        assert_eq!(bed.read_file("target").await.unwrap(), b"source");
    }
}
