//! Reading files.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, MIB};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_vfs::{Access, HandleId, Inode, OpenOptions, Volume};
use tokio::time::advance;

use crate::support::{Bed, CALLER, READ, READ_WRITE, WRITE};

#[tokio::test(start_paused = true)]
async fn reading_a_small_file_after_listing_costs_one_get() {
    let bed = Bed::new();
    bed.put("d/a", "hello").await;
    bed.ls("d").await.unwrap();
    bed.requests();
    assert_eq!(bed.read_file("d/a").await.unwrap(), b"hello");
    assert_eq!(bed.requests(), "get 1");
}

#[tokio::test(start_paused = true)]
async fn a_small_file_read_in_small_pieces_costs_one_get() {
    let bed = Bed::new();
    let body: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
    bed.put("a", &body).await;
    let handle = bed.open("a", READ).await.unwrap();
    bed.requests();
    let mut read = Vec::new();
    while read.len() < body.len() {
        read.extend(bed.read(handle, read.len() as u64, 4096).await.unwrap());
    }
    assert!(read == body);
    assert_eq!(bed.requests(), "get 1");
}

#[tokio::test(start_paused = true)]
async fn reads_at_any_offset_return_what_is_there() {
    let bed = Bed::new();
    let body: Vec<u8> = (0..3 * MIB).map(|number| (number % 251) as u8).collect();
    bed.put("a", &body).await;
    let handle = bed.open("a", READ).await.unwrap();
    for (offset, length) in [(0, 1), (MIB, 4096), (3 * MIB - 1, 10), (5, 2 * MIB), (7, 0)] {
        let end = body.len().min((offset + length) as usize);
        let read = bed.read(handle, offset, length as u32).await.unwrap();
        assert!(read == body[offset as usize..end], "{offset} {length}");
    }
    for offset in [3 * MIB, 9 * MIB, u64::MAX] {
        assert_eq!(bed.read(handle, offset, 10).await.unwrap(), b"");
    }
}

#[tokio::test(start_paused = true)]
async fn reading_an_empty_file_costs_nothing() {
    let bed = Bed::new();
    bed.put("a", "").await;
    let handle = bed.open("a", READ).await.unwrap();
    bed.requests();
    assert_eq!(bed.read(handle, 0, 10).await.unwrap(), b"");
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn opening_costs_nothing_within_the_attribute_timeout() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let inode = bed.inode("a").await.unwrap();
    bed.requests();
    open(&bed, inode, READ).await;
    assert_eq!(bed.requests(), "");
    advance(Duration::from_secs(61)).await;
    open(&bed, inode, READ).await;
    assert_eq!(bed.requests(), "head 1");
}

async fn open(bed: &Bed, inode: Inode, options: OpenOptions) -> HandleId {
    bed.volume
        .open(&CALLER, inode, options)
        .await
        .unwrap()
        .handle
}

#[tokio::test(start_paused = true)]
async fn a_replaced_object_is_stale_for_its_readers() {
    let bed = Bed::new();
    bed.put("a", vec![1; 5 * MIB as usize]).await;
    let handle = bed.open("a", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 1).await.unwrap(), [1]);
    bed.put("a", vec![2; 5 * MIB as usize]).await;
    assert_eq!(bed.read(handle, 4 * MIB, 1).await, Err(FsError::Stale));
    assert!(bed.metric("bucket_stale_reads_total") > 0);
    // Whoever opens it now sees the new version, whatever the timeout.
    assert_eq!(bed.read_file("a").await.unwrap()[..2], [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_small_file_replaced_before_its_first_read_is_read_as_it_is() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    bed.stat("a").await.unwrap();
    bed.put("a", "the present content").await;
    let handle = bed.open("a", READ).await.unwrap();
    bed.requests();
    assert_eq!(
        bed.read(handle, 0, 99).await.unwrap(),
        b"the present content"
    );
    assert_eq!(bed.requests(), "get 2, head 1");
    assert_eq!(bed.stat("a").await.unwrap().size, 19);
    // Once something was given out, the version stays.
    bed.put("a", "another one, again longer").await;
    assert_eq!(bed.read(handle, 0, 99).await, Err(FsError::Stale));
}

#[tokio::test(start_paused = true)]
async fn a_large_file_replaced_before_its_first_read_is_stale() {
    // The kernel may still hold pages of the old version.
    let bed = Bed::new();
    bed.put("a", vec![1; 2 * MIB as usize]).await;
    bed.stat("a").await.unwrap();
    bed.put("a", vec![2; 2 * MIB as usize]).await;
    let handle = bed.open("a", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 9).await, Err(FsError::Stale));
    assert_eq!(bed.read_file("a").await.unwrap()[..2], [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_object_is_stale_for_its_readers() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let handle = bed.open("a", READ).await.unwrap();
    bed.delete("a").await;
    assert_eq!(bed.read(handle, 0, 1).await, Err(FsError::Stale));
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn opening_a_removed_object_after_the_timeout_is_stale() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let inode = bed.inode("a").await.unwrap();
    bed.delete("a").await;
    advance(Duration::from_secs(61)).await;
    let opened = bed.volume.open(&CALLER, inode, READ).await;
    assert_eq!(opened.err(), Some(FsError::Stale));
}

#[tokio::test(start_paused = true)]
async fn close_to_open_sees_what_others_wrote() {
    let settings = BucketSettings {
        close_to_open: true,
        ..BucketSettings::default()
    };
    let bed = Bed::with(settings);
    bed.put("a", vec![1; 2 * MIB as usize]).await;
    let first = bed.opened("a", READ).await.unwrap();
    let same = bed.opened("a", READ).await.unwrap();
    assert_eq!((first.is_unchanged, same.is_unchanged), (false, true));
    bed.put("a", vec![2; 2 * MIB as usize]).await;
    bed.requests();
    let opened = bed.opened("a", READ).await.unwrap();
    // Of the file that the name led to, and of the one that it leads to now.
    assert_eq!(bed.requests(), "head 2");
    assert!(!opened.is_unchanged);
    assert_eq!(bed.read(opened.handle, 0, 1).await.unwrap(), [2]);
}

#[tokio::test(start_paused = true)]
async fn small_files_bypass_the_cache_when_opened_once() {
    let bed = Bed::new();
    bed.put("small", "x").await;
    bed.put("large", vec![0; MIB as usize + 1]).await;
    let advice = |opened: penstock_vfs::Opened| (opened.passes_once, opened.is_unchanged);
    assert_eq!(
        advice(bed.opened("small", READ).await.unwrap()),
        (true, false)
    );
    assert_eq!(
        advice(bed.opened("small", READ).await.unwrap()),
        (false, true)
    );
    assert_eq!(
        advice(bed.opened("large", READ).await.unwrap()),
        (false, false)
    );
    assert_eq!(
        advice(bed.opened("large", READ).await.unwrap()),
        (false, true)
    );
    advance(Duration::from_secs(61)).await;
    assert_eq!(
        advice(bed.opened("small", READ).await.unwrap()),
        (true, false)
    );
    assert_eq!(
        advice(bed.opened("large", READ).await.unwrap()),
        (false, true)
    );
    bed.put("large", vec![1; MIB as usize + 1]).await;
    advance(Duration::from_secs(61)).await;
    assert_eq!(
        advice(bed.opened("large", READ).await.unwrap()),
        (false, false)
    );
}

#[tokio::test(start_paused = true)]
async fn only_readers_skip_the_flush() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    assert!(bed.opened("a", READ).await.unwrap().closes_silently);
    let writer = bed.opened("a", READ_WRITE).await.unwrap();
    assert!(!writer.closes_silently);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_may_write_reads_through_the_cache() {
    let bed = Bed::new();
    bed.put("a", vec![0; MIB as usize + 1]).await;
    let advice = |opened: penstock_vfs::Opened| (opened.passes_once, opened.is_unchanged);
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(advice(bed.opened("a", READ_WRITE).await.unwrap()));
    }
    assert_eq!(seen, [(false, false), (false, true)]);
    let truncating = OpenOptions {
        truncate: true,
        ..READ_WRITE
    };
    let only_writing = OpenOptions {
        access: Access::Write,
        ..READ_WRITE
    };
    for options in [only_writing, truncating] {
        let opened = bed.opened("a", options).await.unwrap();
        assert_eq!(advice(opened), (true, false), "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_saved_is_dropped_from_the_cache() {
    let bed = Bed::new();
    bed.put("a", "saved").await;
    bed.opened("a", READ).await.unwrap();
    let opened = bed.opened("a", READ_WRITE).await.unwrap();
    assert!(!opened.passes_once, "what it writes stays in the cache");
    bed.write(opened.handle, 5, "lost").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
    bed.close(opened.handle).await.unwrap_err();
    assert!(!bed.opened("a", READ).await.unwrap().is_unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_being_written_cannot_be_read() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    let reader = bed.open("a", READ).await.unwrap();
    let truncate = OpenOptions {
        truncate: true,
        ..READ_WRITE
    };
    let writer = bed.open("a", truncate).await.unwrap();
    bed.write(writer, 0, "newer").await.unwrap();
    assert!(matches!(
        bed.read(reader, 0, 9).await,
        Err(FsError::Busy(_))
    ));
    assert!(matches!(
        bed.read(writer, 0, 9).await,
        Err(FsError::Busy(_))
    ));
    let late = bed.open("a", READ).await.unwrap();
    assert!(matches!(bed.read(late, 0, 9).await, Err(FsError::Busy(_))));
    bed.close(writer).await.unwrap();
    assert_eq!(bed.read(late, 0, 9).await.unwrap(), b"newer");
}

#[tokio::test(start_paused = true)]
async fn readers_follow_versions_written_by_this_mount() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    let reader = bed.open("a", READ).await.unwrap();
    assert_eq!(bed.read(reader, 0, 9).await.unwrap(), b"old");
    bed.write_file("a", "newer").await.unwrap();
    assert_eq!(bed.read(reader, 0, 9).await.unwrap(), b"newer");
    let writer = bed.open("a", READ_WRITE).await.unwrap();
    bed.write(writer, 5, " still").await.unwrap();
    bed.sync(writer).await.unwrap();
    assert_eq!(bed.read(writer, 0, 99).await.unwrap(), b"newer still");
    assert_eq!(bed.read(reader, 0, 99).await.unwrap(), b"newer still");
}

#[tokio::test(start_paused = true)]
async fn wrong_handles_are_refused() {
    let bed = Bed::new();
    bed.put("d/a", "x").await;
    let writer = bed.open("d/a", WRITE).await.unwrap();
    let reader = bed.open("d/a", READ).await.unwrap();
    let directory = bed.open_dir("d").await.unwrap();
    assert_eq!(bed.read(writer, 0, 1).await, Err(FsError::BadHandle));
    assert_eq!(bed.write(reader, 0, "x").await, Err(FsError::BadHandle));
    assert_eq!(bed.read(directory, 0, 1).await, Err(FsError::BadHandle));
    assert_eq!(
        bed.list_from(reader, 0, 1).await.err(),
        Some(FsError::BadHandle)
    );
    bed.close(reader).await.unwrap();
    assert_eq!(bed.read(reader, 0, 1).await, Err(FsError::BadHandle));
    assert_eq!(bed.volume.flush(reader).await, Err(FsError::BadHandle));
}

#[tokio::test(start_paused = true)]
async fn directories_cannot_be_opened_as_files() {
    let bed = Bed::new();
    bed.put("d/a", "x").await;
    assert_eq!(bed.open("d", READ).await, Err(FsError::IsADirectory));
    assert_eq!(bed.open("d", WRITE).await, Err(FsError::IsADirectory));
    assert_eq!(bed.open_dir("d/a").await, Err(FsError::NotADirectory));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_the_store_fails_is_an_error() {
    let bed = Bed::new();
    bed.put("a", "x").await;
    let handle = bed.open("a", READ).await.unwrap();
    for (kind, error) in [
        (ErrorKind::PermissionDenied, FsError::PermissionDenied),
        (ErrorKind::Archived, bed_archived()),
    ] {
        bed.probe.fail(Operation::Get, kind, 1);
        assert_eq!(bed.read(handle, 0, 1).await, Err(error));
    }
    assert_eq!(bed.read(handle, 0, 1).await.unwrap(), b"x");
}

fn bed_archived() -> FsError {
    FsError::NotPermitted(
        "the object is in an archive storage class; restore it in the store first",
    )
}

#[tokio::test(start_paused = true)]
async fn many_handles_read_at_once() {
    let bed = Arc::new(Bed::new());
    for number in 0..200 {
        bed.put(&format!("{number}"), format!("content {number}"))
            .await;
    }
    bed.ls("").await.unwrap();
    bed.requests();
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let bed = Arc::clone(&bed);
            tokio::spawn(async move {
                let read = bed.read_file(&format!("{number}")).await.unwrap();
                assert_eq!(read, format!("content {number}").as_bytes());
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bed.requests(), "get 200");
    assert_eq!(bed.metric("bucket_open_handles"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_that_the_door_does_not_hear_of_drops_nothing() {
    let bed = Bed::new();
    bed.put("a", vec![1; 2 * MIB as usize]).await;
    for keeps in [false, true] {
        let opened = bed.opened("a", READ).await.unwrap();
        assert_eq!(opened.is_unchanged, keeps);
        bed.volume.release(opened.handle).await;
    }
    let unheard = bed.opened("a", READ).await.unwrap();
    bed.volume.undo_open(unheard.handle).await;
    assert!(!bed.opened("a", READ).await.unwrap().is_unchanged);
}

/// What a handle reads through the door's cache stays there for others, who have opened another version.
#[tokio::test(start_paused = true)]
async fn a_handle_of_an_older_version_puts_nothing_among_the_pages_of_a_newer_one() {
    let bed = Bed::with(BucketSettings {
        close_to_open: true,
        ..BucketSettings::default()
    });
    let size = 16 * MIB as usize;
    bed.put("file", vec![1; size]).await;
    let older = bed.opened("file", READ).await.unwrap();
    assert!(!older.passes_once);
    for at in 0..4 {
        let bytes = bed.read(older.handle, at * MIB, MIB as u32).await.unwrap();
        assert!(bytes == vec![1; MIB as usize]);
    }
    bed.put("file", vec![2; size]).await;
    let newer = bed.opened("file", READ).await.unwrap();
    assert!(!newer.is_unchanged);
    for at in 4..16 {
        // Some of it was fetched ahead.
        let late = bed.read(older.handle, at * MIB, MIB as u32).await;
        assert!(late == Ok(vec![1; MIB as usize]) || late == Err(FsError::Stale));
    }
    let late = bed.read(older.handle, 15 * MIB, MIB as u32).await;
    assert!(late == Err(FsError::Stale));
    let bytes = bed.read(newer.handle, 0, MIB as u32).await.unwrap();
    assert!(bytes == vec![2; MIB as usize]);
}
