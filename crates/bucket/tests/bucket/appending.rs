//! Going on after what a file has.

use std::time::Duration;

use penstock_base::{FsError, KIB, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Key, ObjectKind, Operation, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{AttributeChanges, OpenOptions, Volume};

use crate::support::{Bed, CALLER, READ, WRITE};

const APPEND: OpenOptions = OpenOptions {
    append: true,
    ..WRITE
};

#[tokio::test(start_paused = true)]
async fn writing_at_the_end_of_an_existing_file_keeps_what_it_has() {
    let bed = Bed::new();
    bed.put("file", "hello").await;
    let handle = bed.open("file", WRITE).await.unwrap();
    bed.requests();
    bed.write(handle, 5, " world").await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"hello");
    assert_eq!(bed.stat("file").await.unwrap().size, 11);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"hello world");
    // Asked for its version, read back because it is small, and written whole.
    assert_eq!(bed.requests(), "get 1, head 1, put 1");
}

#[tokio::test(start_paused = true)]
async fn a_large_file_is_continued_inside_the_store() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    let body = vec![1; 20 * MIB as usize];
    bed.put("file", &body).await;
    let handle = bed.open("file", APPEND).await.unwrap();
    bed.requests();
    bed.write(handle, body.len() as u64, "tail").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(
        bed.requests(),
        "complete_upload 1, copy_part 1, create_upload 1, head 1, upload_part 1"
    );
    let object = bed.object("file").await.unwrap();
    assert_eq!(
        (object.len(), &object[20 * MIB as usize..]),
        (body.len() + 4, &b"tail"[..])
    );
}

#[tokio::test(start_paused = true)]
async fn appending_goes_to_the_end_whatever_the_offset() {
    let bed = Bed::new();
    bed.put("file", "a").await;
    let handle = bed.open("file", APPEND).await.unwrap();
    // The kernel still believes in the old length.
    bed.put("file", "another client's").await;
    bed.write(handle, 1, " line").await.unwrap();
    bed.write(handle, 6, " and more").await.unwrap();
    bed.write(handle, 0, ".").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(
        bed.object("file").await.unwrap(),
        b"another client's line and more."
    );
}

#[tokio::test(start_paused = true)]
async fn appending_to_an_object_that_changes_meanwhile_is_busy() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    bed.put("file", vec![1; 10 * MIB as usize]).await;
    let handle = bed.open("file", APPEND).await.unwrap();
    let held = bed.probe.hold(Operation::CreateUpload);
    bed.write(handle, 10 * MIB, "tail").await.unwrap();
    bed.put("file", "changed").await;
    held.add_permits(1);
    assert!(matches!(bed.close(handle).await, Err(FsError::Busy(_))));
    assert_eq!(bed.object("file").await.unwrap(), b"changed");
}

#[tokio::test(start_paused = true)]
async fn appending_to_a_file_that_was_removed_is_stale() {
    let bed = Bed::new();
    bed.put("file", "x").await;
    let handle = bed.open("file", APPEND).await.unwrap();
    bed.delete("file").await;
    assert_eq!(bed.write(handle, 1, "y").await, Err(FsError::Stale));
    bed.close(handle).await.unwrap();
    assert!(bed.keys().await.is_empty());
}

fn appendable() -> BucketSettings {
    BucketSettings {
        appendable: true,
        ..BucketSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn appendable_files_grow_in_the_store_while_they_are_written() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    let handle = bed.create("log").await.unwrap();
    bed.requests();
    let block = vec![7; MIB as usize];
    for number in 0..9 {
        bed.write(handle, number * MIB, &block).await.unwrap();
    }
    assert_eq!(bed.object("log").await.unwrap().len() as u64, 8 * MIB);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "append 2, head 1");
    assert_eq!(bed.object("log").await.unwrap().len() as u64, 9 * MIB);
    let key = Key::new("log").unwrap();
    let info = bed.remote.head(&key, Default::default()).await.unwrap();
    assert_eq!(info.kind, ObjectKind::Appendable);
}

#[tokio::test(start_paused = true)]
async fn appendable_files_are_continued_by_appending() {
    // Also when new files are not made so: such an object cannot be copied in every store.
    for settings in [appendable(), BucketSettings::default()] {
        let bed = Bed::over(MemoryStore::like_oss(), settings);
        let key = Key::new("log").unwrap();
        let body = b"one ".to_vec().into();
        bed.remote
            .append(&key, 0, body, PutOptions::default())
            .await
            .unwrap();
        let handle = bed.open("log", APPEND).await.unwrap();
        bed.requests();
        bed.write(handle, 4, "two ").await.unwrap();
        bed.sync(handle).await.unwrap();
        assert_eq!(bed.object("log").await.unwrap(), b"one two ");
        bed.write(handle, 8, "three").await.unwrap();
        bed.close(handle).await.unwrap();
        assert_eq!(bed.requests(), "append 2, head 3");
        assert_eq!(bed.read_file("log").await.unwrap(), b"one two three");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_appendable_file_is_stored_when_closed() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    let handle = bed.create("log").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("log").await.unwrap(), b"");
}

#[tokio::test(start_paused = true)]
async fn truncating_an_appendable_file_replaces_it() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    bed.write_file("log", "first").await.unwrap();
    bed.requests();
    bed.write_file("log", "second").await.unwrap();
    assert_eq!(bed.requests(), "append 1, delete 1, head 1");
    assert_eq!(bed.object("log").await.unwrap(), b"second");
}

#[tokio::test(start_paused = true)]
async fn two_clients_appending_to_one_object_do_not_mix() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    bed.write_file("log", "one ").await.unwrap();
    let handle = bed.open("log", APPEND).await.unwrap();
    bed.write(handle, 4, "two").await.unwrap();
    let key = Key::new("log").unwrap();
    let body = b"other".to_vec().into();
    bed.remote
        .append(&key, 4, body, PutOptions::default())
        .await
        .unwrap();
    assert!(matches!(bed.close(handle).await, Err(FsError::Busy(_))));
    assert_eq!(bed.object("log").await.unwrap(), b"one other");
}

#[tokio::test(start_paused = true)]
async fn small_appends_do_not_pin_large_buffers() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    let handle = bed.create("log").await.unwrap();
    for number in 0..1000 {
        bed.write(handle, number * KIB, [0; 1024]).await.unwrap();
    }
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("log").await.unwrap().len() as u64, 1000 * KIB);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_append_takes_whole_objects() {
    let bed = Bed::over(MemoryStore::like_s3(), appendable());
    bed.write_file("log", "first").await.unwrap();
    assert!(bed.requests().ends_with("put 1"));
    assert_eq!(bed.read_file("log").await.unwrap(), b"first");
}

#[tokio::test(start_paused = true)]
async fn a_failed_append_is_reported_and_keeps_what_the_store_has() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    bed.write_file("log", "one").await.unwrap();
    let handle = bed.open("log", APPEND).await.unwrap();
    bed.probe.fail(Operation::Append, ErrorKind::TooLarge, 1);
    bed.write(handle, 3, "two").await.unwrap();
    assert_eq!(bed.close(handle).await, Err(FsError::FileTooLarge));
    let handle = bed.open("log", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 9).await.unwrap(), b"one");
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_appended_is_paid_from_the_memory_budget() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    for (path, piece) in [("large", MIB), ("small", 4 * KIB)] {
        let handle = bed.create(path).await.unwrap();
        let before = bed.budget.used();
        for number in 0..4 * MIB / piece {
            let data = vec![1; piece as usize];
            bed.write(handle, number * piece, data).await.unwrap();
        }
        let held = bed.budget.used() - before;
        assert!((4 * MIB..6 * MIB).contains(&held), "{path} {held}");
        bed.close(handle).await.unwrap();
        assert_eq!(bed.budget.used(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn appending_goes_on_when_idle_writers_hold_all_memory() {
    let bed = Bed::with_memory(MemoryStore::like_oss(), appendable(), 16 * MIB);
    let block = vec![7; MIB as usize];
    let mut idle = Vec::new();
    for number in 0..3 {
        let handle = bed.create(&format!("idle{number}")).await.unwrap();
        for number in 0..5 {
            bed.write(handle, number * MIB, &block).await.unwrap();
        }
        idle.push(handle);
    }
    let held = bed.budget.try_reserve(bed.budget.available());
    let handle = bed.create("active").await.unwrap();
    for number in 0..20 {
        bed.write(handle, number * MIB, &block).await.unwrap();
        bed.write(handle, (number + 1) * MIB, "").await.unwrap();
    }
    bed.write(handle, 20 * MIB, "the end").await.unwrap();
    bed.close(handle).await.unwrap();
    let object = bed.object("active").await.unwrap();
    assert_eq!(object.len() as u64, 20 * MIB + 7);
    assert!(object.ends_with(b"the end"));
    drop(held);
    for (number, handle) in idle.into_iter().enumerate() {
        bed.close(handle).await.unwrap();
        let object = bed.object(&format!("idle{number}")).await.unwrap();
        assert_eq!(object.len() as u64, 5 * MIB);
    }
    assert!(bed.budget.peak() <= 16 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_given_up_while_it_appends_adds_nothing_and_loses_nothing() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    let handle = bed.create("log").await.unwrap();
    for number in 0..8 {
        bed.write(handle, number * MIB, vec![1; MIB as usize])
            .await
            .unwrap();
    }
    let held = bed.probe.hold_late(Operation::Append);
    let write = bed.write(handle, 8 * MIB, "more");
    let given_up = clock::deadline(Duration::from_secs(1), write).await;
    assert!(given_up.is_err());
    bed.probe.release_all();
    held.add_permits(1);
    bed.write(handle, 8 * MIB, "more").await.unwrap();
    bed.close(handle).await.unwrap();
    let object = bed.object("log").await.unwrap();
    assert_eq!(object.len() as u64, 8 * MIB + 4);
    assert!(object.ends_with(b"more"));
}

#[tokio::test(start_paused = true)]
async fn truncating_a_new_file_of_which_pieces_were_appended_begins_anew() {
    let bed = Bed::over(MemoryStore::like_oss(), appendable());
    let handle = bed.create("log").await.unwrap();
    for number in 0..9 {
        bed.write(handle, number * MIB, vec![1; MIB as usize])
            .await
            .unwrap();
    }
    let changes = AttributeChanges {
        size: Some(0),
        handle: Some(handle),
        ..AttributeChanges::default()
    };
    let inode = bed.inode("log").await.unwrap();
    let caller = &CALLER;
    bed.volume
        .set_attributes(caller, inode, changes)
        .await
        .unwrap();
    bed.write(handle, 0, "anew").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("log").await.unwrap(), b"anew");
}
