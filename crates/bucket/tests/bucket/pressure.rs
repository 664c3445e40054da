//! Staged mode while memory or space is short: what the counters tell of, and what became of the
//! bytes.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_vfs::{Dentry, HandleId, Inode, OpenOptions, Volume};

use crate::support::{Bed, CALLER, READ, READ_WRITE, name, new_file};

fn content(size: u64, seed: u64) -> Vec<u8> {
    (0..size).map(|at| ((at + seed) % 251) as u8).collect()
}

async fn written(bed: &Bed, path: &str, content: &[u8]) -> HandleId {
    let created = bed
        .volume
        .make(
            &CALLER,
            Dentry::new(Inode::ROOT, &name(path)),
            new_file(0o644),
            Some(READ_WRITE),
        )
        .await
        .unwrap();
    let handle = created.opened.unwrap().handle;
    for (number, piece) in content.chunks(MIB as usize).enumerate() {
        bed.write(handle, number as u64 * MIB, piece).await.unwrap();
    }
    handle
}

#[tokio::test(start_paused = true)]
async fn saves_that_failed_are_counted_and_lose_nothing() {
    let bed = Bed::staged();
    let content = content(3 * MIB, 0);
    let handle = written(&bed, "file", &content).await;
    for failures in 1..=3 {
        bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
        assert!(bed.sync(handle).await.is_err());
        assert_eq!(bed.metric("bucket_failed_uploads_total"), failures);
        assert_eq!(bed.metric("bucket_unsaved_bytes"), 3 * MIB);
    }
    bed.close(handle).await.unwrap();
    assert!(bed.object("file").await.unwrap() == content);
    assert_eq!(bed.metric("bucket_unsaved_files"), 0);
}

#[tokio::test]
async fn recovered_files_are_counted_and_stored() {
    let bed = Bed::staged();
    let contents = [content(3 * MIB, 1), content(30 * MIB, 2)];
    for (name, content) in ["one", "two"].iter().zip(&contents) {
        written(&bed, name, content).await;
    }
    let bed = bed.killed(BucketSettings::default(), |_| ()).await;
    assert_eq!(bed.metric("bucket_recovered_files"), 2);
    for (name, content) in ["one", "two"].iter().zip(&contents) {
        assert!(bed.object(name).await.unwrap() == *content, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_and_a_read_that_find_no_memory_fail_and_lose_nothing() {
    let bed = Bed::staged();
    let contents = [content(24 * MIB, 3), content(20 * MIB, 4)];
    let one = written(&bed, "one", &contents[0]).await;
    let two = written(&bed, "two", &contents[1]).await;
    let everything = bed.budget.try_reserve(bed.budget.available());
    assert!(everything.is_some());
    // The store takes its time, and the first save has most of what is kept for saves.
    let puts = bed.probe.hold(Operation::Put);
    let (first, ()) = tokio::join!(bed.sync(one), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let second = bed.sync(two).await;
        assert_eq!(second, Err(FsError::OutOfMemory));
        assert_eq!(bed.metric("bucket_failed_uploads_total"), 1);
        let read = bed.read(two, 5 * MIB, 4096).await;
        assert_eq!(read.unwrap_err(), FsError::OutOfMemory);
        assert_eq!(bed.metric("bucket_unsaved_files"), 2);
        puts.add_permits(9);
    });
    first.unwrap();
    drop(everything);
    let read = bed.read(two, 5 * MIB, 4096).await.unwrap();
    assert!(read == contents[1][5 << 20..][..4096]);
    for (handle, name, content) in [(one, "one", &contents[0]), (two, "two", &contents[1])] {
        bed.close(handle).await.unwrap();
        assert!(bed.object(name).await.unwrap() == *content, "{name}");
    }
}

#[tokio::test]
async fn what_is_given_up_for_a_write_is_read_from_the_store() {
    let bed = Bed::staged_in(16 * MIB);
    let contents = [
        content(3 * MIB, 5),
        content(8 * MIB, 6),
        content(14 * MIB, 7),
    ];
    // Closed, open and saved, and being written.
    let closed = written(&bed, "closed", &contents[0]).await;
    bed.close(closed).await.unwrap();
    let saved = written(&bed, "saved", &contents[1]).await;
    bed.sync(saved).await.unwrap();
    assert!(bed.metric("bucket_staged_bytes") >= 11 * MIB);
    let last = written(&bed, "last", &contents[2]).await;
    assert!(bed.metric("bucket_staged_bytes") <= 16 * MIB);
    assert_eq!(
        bed.staging_files("files").len(),
        3,
        "two of data, a journal"
    );
    bed.requests();
    let closed = bed.open("closed", READ).await.unwrap();
    for (handle, content) in [(closed, &contents[0]), (saved, &contents[1])] {
        let read = bed.read(handle, 2 * MIB, 4096).await.unwrap();
        assert!(read == content[2 << 20..][..4096]);
    }
    assert!(bed.requests().starts_with("get "));
    for (handle, name, content) in [(saved, "saved", &contents[1]), (last, "last", &contents[2])] {
        bed.close(handle).await.unwrap();
        assert!(bed.object(name).await.unwrap() == *content, "{name}");
    }
    // A quarter is left.
    while bed.metric("bucket_staged_bytes") > 4 * MIB {
        clock::sleep(Duration::from_millis(1)).await;
    }
    let reopened = bed.open("closed", READ_WRITE).await.unwrap();
    assert!(bed.read(reopened, 0, 9).await.unwrap() == contents[0][..9]);
}

/// A save makes room for one write, and another gives some back in the middle of it.
#[tokio::test]
async fn a_write_that_finds_room_waits_for_no_save() {
    let bed = Bed::staged_in(16 * MIB);
    let [large, small] = [(10, "large"), (5, "small")].map(|(size, name)| (size * MIB, name));
    let large = written(&bed, large.1, &content(large.0, 8)).await;
    let small = written(&bed, small.1, &content(small.0, 9)).await;
    let puts = bed.probe.hold(Operation::Put);
    let wants_room = bed.write(large, 10 * MIB, vec![1; 2 << 20]);
    let gives_room = async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let empties = OpenOptions {
            truncate: true,
            ..READ_WRITE
        };
        let emptied = bed.open("small", empties).await;
        bed.write(small, 0, "!").await.unwrap();
        emptied.unwrap()
    };
    let both = async { tokio::join!(wants_room, gives_room) };
    let (written, emptied) = clock::deadline(Duration::from_secs(20), both)
        .await
        .expect("no save is waited for");
    written.unwrap();
    puts.add_permits(9);
    for handle in [large, small, emptied] {
        bed.close(handle).await.unwrap();
    }
    assert_eq!(bed.object("large").await.unwrap().len() as u64, 12 * MIB);
    assert_eq!(bed.object("small").await.unwrap(), b"!");
}
