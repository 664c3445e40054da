//! When written files are durable, and what happens when they cannot be.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::{BucketSettings, Fsync};
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{AttributeChanges, OpenOptions, Volume};

use crate::support::{Bed, CALLER, READ, READ_WRITE, WRITE};

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..WRITE
};

#[tokio::test(start_paused = true)]
async fn fsync_makes_what_was_written_durable_and_visible() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "one ").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one ");
    assert_eq!(bed.read_file("file").await.unwrap(), b"one ");
    bed.write(handle, 4, "two").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one two");
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one two");
}

#[tokio::test(start_paused = true)]
async fn fsync_of_a_small_file_costs_one_put() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.requests();
    for number in 0..5 {
        bed.write(handle, number, "x").await.unwrap();
        bed.sync(handle).await.unwrap();
        // Nothing changed since.
        bed.sync(handle).await.unwrap();
        assert_eq!(bed.requests(), "put 1");
    }
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.object("file").await.unwrap(), b"xxxxx");
}

#[tokio::test(start_paused = true)]
async fn fsync_of_a_large_file_goes_on_inside_the_store() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, vec![1; 6 * MIB as usize])
        .await
        .unwrap();
    bed.sync(handle).await.unwrap();
    bed.requests();
    bed.write(handle, 6 * MIB, "tail").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(
        bed.requests(),
        "complete_upload 1, copy_part 1, create_upload 1, upload_part 1"
    );
    assert_eq!(bed.object("file").await.unwrap().len() as u64, 6 * MIB + 4);
}

#[tokio::test(start_paused = true)]
async fn after_fsync_another_handle_may_write() {
    let bed = Bed::new();
    let first = bed.create("file").await.unwrap();
    bed.write(first, 0, "one ").await.unwrap();
    bed.sync(first).await.unwrap();
    let second = bed.open("file", WRITE).await.unwrap();
    bed.write(second, 4, "two").await.unwrap();
    assert!(matches!(
        bed.write(first, 7, "x").await,
        Err(FsError::Busy(_))
    ));
    bed.close(second).await.unwrap();
    bed.write(first, 7, " three").await.unwrap();
    bed.close(first).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one two three");
}

#[tokio::test(start_paused = true)]
async fn going_on_after_fsync_does_not_overwrite_another_clients_version() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    for saved_by_close in [false, true] {
        for size in [0, 10, 9 * MIB] {
            let path = format!("{saved_by_close}-{size}");
            let handle = bed.create(&path).await.unwrap();
            bed.write(handle, 0, vec![1; size as usize]).await.unwrap();
            if saved_by_close {
                bed.volume.flush(handle).await.unwrap();
            } else {
                bed.sync(handle).await.unwrap();
            }
            bed.put(&path, "theirs").await;
            let written = bed.write(handle, size, "more").await;
            let closed = bed.close(handle).await.and(written);
            assert!(matches!(closed, Err(FsError::Busy(_))), "{path} {closed:?}");
            assert_eq!(bed.object(&path).await.unwrap(), b"theirs");
            assert_eq!(bed.read_file(&path).await.unwrap(), b"theirs");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fsync_can_be_turned_off() {
    let bed = Bed::with(BucketSettings {
        fsync: Fsync::Nothing,
        ..BucketSettings::default()
    });
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert!(bed.keys().await.is_empty());
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn closing_a_duplicate_saves_and_writing_goes_on() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    // What a shell does for `> file`: the first descriptor is closed before anything is written.
    bed.volume.flush(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"");
    bed.write(handle, 0, "one ").await.unwrap();
    bed.volume.flush(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one ");
    bed.write(handle, 4, "two").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"one two");
}

#[tokio::test(start_paused = true)]
async fn closing_without_a_change_costs_nothing() {
    let bed = Bed::new();
    bed.put("file", "x").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn a_failed_upload_is_reported_by_every_later_call() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
    assert_eq!(bed.sync(handle).await, Err(FsError::NoSpace));
    assert_eq!(bed.write(handle, 1, "y").await, Err(FsError::NoSpace));
    assert_eq!(bed.sync(handle).await, Err(FsError::NoSpace));
    assert_eq!(bed.volume.flush(handle).await, Err(FsError::NoSpace));
    assert_eq!(bed.volume.flush(handle).await, Err(FsError::NoSpace));
    assert_eq!(bed.metric("bucket_failed_uploads_total"), 1);
    assert!(bed.keys().await.is_empty());
    bed.volume.release(handle).await;
}

/// The kernel tells of the end of a handle after close(2) has returned, when another program may write already.
#[tokio::test(start_paused = true)]
async fn who_heard_of_a_failure_is_not_in_the_way_of_the_next_writer() {
    let bed = Bed::new();
    bed.put("there", "as it was").await;
    for path in ["new", "there"] {
        let failed = match path {
            "new" => bed.create(path).await,
            _ => bed.open(path, TRUNCATE).await,
        };
        let failed = failed.unwrap();
        bed.write(failed, 0, "lost text").await.unwrap();
        bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
        assert_eq!(bed.sync(failed).await, Err(FsError::NoSpace));
        let next = bed.open(path, TRUNCATE).await;
        assert!(
            matches!(next, Err(FsError::Busy(_))),
            "nobody was told at a close"
        );
        assert_eq!(bed.volume.flush(failed).await, Err(FsError::NoSpace));

        let next = match bed.open(path, TRUNCATE).await {
            // It was never there: a program that creates looks again and makes it.
            Err(FsError::NotFound) => bed.create(path).await,
            opened => opened,
        };
        let next = next.unwrap();
        bed.write(next, 0, "text").await.unwrap();
        bed.close(next).await.unwrap();
        assert_eq!(bed.object(path).await.unwrap(), b"text");

        // What was lost is no beginning for more.
        assert_eq!(bed.write(failed, 4, "more").await, Err(FsError::NoSpace));
        assert_eq!(bed.sync(failed).await, Err(FsError::NoSpace));
        assert_eq!(bed.close(failed).await, Err(FsError::NoSpace));
        assert_eq!(bed.object(path).await.unwrap(), b"text");
        assert_eq!(bed.read_file(path).await.unwrap(), b"text");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_file_that_could_not_be_saved_is_gone_when_closed() {
    let bed = Bed::new();
    bed.probe.fail(Operation::Put, ErrorKind::Timeout, 1);
    assert!(matches!(
        bed.write_file("file", "x").await,
        Err(FsError::TimedOut(_))
    ));
    assert_eq!(bed.stat("file").await, Err(FsError::NotFound));
    assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
    bed.write_file("file", "again").await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"again");
}

/// The end of a handle that failed, which the kernel tells late, takes nothing from who makes the file anew.
#[tokio::test(start_paused = true)]
async fn a_late_release_of_a_handle_that_failed_is_not_in_the_way_of_the_next_file() {
    let bed = Bed::new();
    let first = bed.create("file").await.unwrap();
    bed.write(first, 0, "x").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::Timeout, 1);
    assert!(bed.volume.flush(first).await.is_err());
    assert_eq!(bed.stat("file").await, Err(FsError::NotFound));
    let second = bed.create("file").await.unwrap();
    bed.volume.release(first).await;
    let inode = bed.inode("file").await.unwrap();
    let times = AttributeChanges::default();
    bed.volume
        .set_attributes(&CALLER, inode, times)
        .await
        .unwrap();
    bed.write(second, 0, "again").await.unwrap();
    bed.close(second).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"again");
}

/// The release of the handle that failed comes between the steps of another one's open.
#[tokio::test(start_paused = true)]
async fn a_new_file_that_could_not_be_saved_is_not_emptied_through_a_later_handle() {
    let bed = Bed::new();
    let first = bed.create("file").await.unwrap();
    bed.write(first, 0, "x").await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    let second = bed.open("file", WRITE).await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::Timeout, 1);
    assert!(bed.volume.flush(first).await.is_err());
    bed.volume.release(first).await;
    let empty = AttributeChanges {
        size: Some(0),
        handle: Some(second),
        ..AttributeChanges::default()
    };
    let emptied = bed.volume.set_attributes(&CALLER, inode, empty).await;
    assert_eq!(emptied.err(), Some(FsError::Stale));
    let again = bed.created("file", TRUNCATE).await.unwrap().opened.handle;
    bed.write(again, 0, "again").await.unwrap();
    bed.close(again).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"again");
    bed.close(second).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"again");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_could_not_be_saved_keeps_its_old_content() {
    let bed = Bed::new();
    bed.put("file", "old").await;
    bed.probe
        .fail(Operation::Put, ErrorKind::PermissionDenied, 1);
    assert_eq!(
        bed.write_file("file", "newer").await,
        Err(FsError::PermissionDenied)
    );
    assert_eq!(bed.stat("file").await.unwrap().size, 3);
    assert_eq!(bed.read_file("file").await.unwrap(), b"old");
}

#[tokio::test(start_paused = true)]
async fn a_failed_part_fails_the_file_and_leaves_nothing() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    let handle = bed.create("file").await.unwrap();
    bed.probe
        .fail(Operation::UploadPart, ErrorKind::PermissionDenied, 1);
    let mut failed = None;
    for number in 0..40 {
        if let Err(error) = bed.write(handle, number * MIB, vec![0; MIB as usize]).await {
            failed = Some(error);
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(failed, Some(FsError::PermissionDenied));
    assert_eq!(bed.close(handle).await, Err(FsError::PermissionDenied));
    assert_eq!(bed.volume.shut_down().await, []);
    assert!(bed.keys().await.is_empty());
    assert!(bed.unfinished_uploads().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_close_goes_on() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    let held = bed.probe.hold(Operation::Put);
    let flush = clock::deadline(Duration::from_secs(1), bed.volume.flush(handle));
    assert!(flush.await.is_err());
    held.add_permits(1);
    // A second descriptor waits for the same upload.
    bed.volume.flush(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"x");
    assert!(bed.requests().ends_with("put 1"));
}

#[tokio::test(start_paused = true)]
async fn a_handle_released_without_a_flush_is_saved() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    bed.volume.release(handle).await;
    assert_eq!(bed.object("file").await.unwrap(), b"x");
    assert_eq!(bed.metric("bucket_open_handles"), 0);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_saves_what_is_unsaved() {
    let bed = Bed::new();
    bed.put("d/old", "old").await;
    for number in 0..40 {
        let handle = bed.create(&format!("d/{number}")).await.unwrap();
        bed.write(handle, 0, "x").await.unwrap();
    }
    let truncated = bed.open("d/old", TRUNCATE).await.unwrap();
    bed.write(truncated, 0, "newer").await.unwrap();
    bed.open("d/1", READ).await.unwrap();
    assert_eq!(bed.volume.shut_down().await, []);
    assert_eq!(bed.keys().await.len(), 41);
    assert_eq!(bed.object("d/old").await.unwrap(), b"newer");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_lists_what_could_not_be_saved() {
    let bed = Bed::new();
    for path in ["a", "b", "c"] {
        let handle = bed.create(path).await.unwrap();
        bed.write(handle, 0, "x").await.unwrap();
        if path == "b" {
            bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
            assert!(bed.sync(handle).await.is_err());
        }
    }
    assert_eq!(
        bed.volume.shut_down().await,
        [("b".to_owned(), FsError::NoSpace)]
    );
    assert_eq!(bed.keys().await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_at_its_deadline() {
    let bed = Bed::new();
    for path in ["a", "b"] {
        let handle = bed.create(path).await.unwrap();
        bed.write(handle, 0, "x").await.unwrap();
    }
    let held = bed.probe.hold(Operation::Put);
    held.add_permits(1);
    let begun = clock::now();
    let lost = bed.volume.shut_down().await;
    assert!(matches!(&lost[..], [(_, FsError::TimedOut(_))]), "{lost:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(300));
    assert_eq!(bed.keys().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_after_shutting_down_is_refused() {
    let bed = Bed::new();
    bed.put("old", "old").await;
    let (new, old) = (bed.create("new").await, bed.open("old", WRITE).await);
    let (new, old) = (new.unwrap(), old.unwrap());
    bed.write(new, 0, "x").await.unwrap();
    assert_eq!(bed.volume.shut_down().await, []);
    for (handle, offset) in [(new, 1), (old, 3)] {
        let late = bed.write(handle, offset, "late").await;
        assert!(matches!(late, Err(FsError::Io(_))), "{late:?}");
        bed.close(handle).await.unwrap();
    }
    assert!(matches!(bed.create("later").await, Err(FsError::Io(_))));
    assert!(matches!(
        bed.open("old", TRUNCATE).await,
        Err(FsError::Io(_))
    ));
    assert!(matches!(bed.unlink("old").await, Err(FsError::Io(_))));
    assert_eq!(bed.read_file("new").await.unwrap(), b"x");
    assert_eq!(bed.object("old").await.unwrap(), b"old");
}

#[tokio::test(start_paused = true)]
async fn a_new_file_whose_save_may_have_succeeded_is_looked_for() {
    let bed = Bed::new();
    bed.put("other", "").await;
    bed.ls("").await.unwrap();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "x").await.unwrap();
    bed.probe.fail_late(Operation::Put, ErrorKind::Timeout);
    assert!(bed.close(handle).await.is_err());
    assert_eq!(bed.read_file("file").await.unwrap(), b"x");
}
