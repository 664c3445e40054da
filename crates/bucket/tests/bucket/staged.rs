//! Staged mode: what it costs in requests, and what happens while a save is under way.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Key, Operation, Store};
use penstock_vfs::{AttributeChanges, HandleId, OpenOptions, Volume};

use crate::support::{Bed, CALLER, READ, READ_WRITE};

#[tokio::test]
async fn a_staged_file_costs_one_put() {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    assert_eq!(bed.keys().await, [""; 0], "nothing is stored by creating");
    bed.requests();
    bed.write(handle, 10, "later").await.unwrap();
    bed.write(handle, 0, "0123456789").await.unwrap();
    bed.volume.flush(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    bed.volume.flush(handle).await.unwrap();
    bed.sync(handle).await.unwrap();
    bed.volume.release(handle).await;
    assert_eq!(bed.requests(), "", "nothing is unsaved");
    assert_eq!(bed.object("file").await.unwrap(), b"0123456789later");
}

#[tokio::test]
async fn a_change_of_a_large_file_is_one_part_between_copies() {
    let bed = Bed::staged();
    let mut content = vec![7; 40 * MIB as usize];
    bed.put("large", &content).await;
    let handle = bed.open("large", READ_WRITE).await.unwrap();
    bed.requests();
    bed.write(handle, 20 * MIB, "changed").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(
        bed.requests(),
        "complete_upload 1, copy_part 2, create_upload 1, get 1, head 1, upload_part 1"
    );
    content[20 * MIB as usize..][..7].copy_from_slice(b"changed");
    assert!(bed.object("large").await.unwrap() == content);
    assert_eq!(bed.unfinished_uploads().await, [""; 0]);
}

/// A file of `size` bytes of which every sixteenth page was changed, what it should be, and a handle.
async fn with_many_changes(bed: &Bed, name: &str, size: u64) -> (Vec<u8>, HandleId) {
    let mut content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    bed.put(name, &content).await;
    let handle = bed.open(name, READ_WRITE).await.unwrap();
    for at in (0..size).step_by(64 << 10) {
        bed.write(handle, at + 5000, [255; 4096]).await.unwrap();
        content[at as usize + 5000..][..4096].fill(255);
    }
    bed.requests();
    (content, handle)
}

#[tokio::test]
async fn gaps_between_many_small_changes_are_not_fetched_one_by_one() {
    let bed = Bed::staged();
    let (content, handle) = with_many_changes(&bed, "large", 30 * MIB).await;
    bed.close(handle).await.unwrap();
    assert_eq!(
        bed.requests(),
        "complete_upload 1, create_upload 1, get 6, upload_part 3"
    );
    assert!(bed.object("large").await.unwrap() == content);
    let (content, handle) = with_many_changes(&bed, "medium", 20 * MIB).await;
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "get 3, put 1");
    assert!(bed.object("medium").await.unwrap() == content);
    let (content, handle) = with_many_changes(&bed, "read", 20 * MIB).await;
    assert!(bed.read(handle, 0, 9000).await.unwrap() == content[..9000]);
    assert_eq!(bed.requests(), "get 11", "of 2 MiB at most, four at once");
}

#[tokio::test]
async fn files_are_put_together_for_saves_at_the_same_time() {
    let bed = Arc::new(Bed::staged());
    let gets = bed.probe.hold(Operation::Get);
    let mut saves = tokio::task::JoinSet::new();
    let mut contents = Vec::new();
    for name in ["one", "two", "three"] {
        let (content, handle) = with_many_changes(&bed, name, 6 * MIB).await;
        contents.push((name, content));
        let bed = Arc::clone(&bed);
        saves.spawn(async move { bed.close(handle).await });
    }
    let all = async {
        while bed.probe.waiting() < 3 {
            clock::sleep(Duration::from_millis(1)).await;
        }
    };
    let together = clock::deadline(Duration::from_secs(20), all).await;
    gets.add_permits(1000);
    while let Some(saved) = saves.join_next().await {
        saved.unwrap().unwrap();
    }
    assert!(together.is_ok(), "one waited for another");
    for (name, content) in contents {
        assert!(bed.object(name).await.unwrap() == content);
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_needs_no_memory_but_what_is_kept_for_it() {
    let bed = Bed::staged();
    for size in [20 * MIB, 30 * MIB] {
        let (content, handle) = with_many_changes(&bed, "file", size).await;
        let held = bed.budget.try_reserve(bed.budget.available());
        bed.close(handle).await.unwrap();
        assert!(held.is_some());
        assert!(bed.object("file").await.unwrap() == content);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_lies_between_changes_is_saved() {
    for memory_is_short in [false, true] {
        let bed = Bed::staged();
        let mut content: Vec<u8> = (0..28 * MIB).map(|at| (at % 251) as u8).collect();
        bed.put("file", &content).await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        let (mut at, mut chance) = (0, 1u64);
        while at < 34 << 20 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let [gap, length] = [chance >> 33, chance >> 45].map(|chance| {
                // From a few bytes to some MiB, small ones more often; beyond the end they are zeros.
                (1 << (chance % 22)) + (chance >> 5) as usize % 1000
            });
            bed.write(handle, (at + gap) as u64, vec![255; length])
                .await
                .unwrap();
            content.resize(content.len().max(at + gap + length), 0);
            content[at + gap..][..length].fill(255);
            at += gap + length;
        }
        let held = memory_is_short.then(|| bed.budget.try_reserve(bed.budget.available()));
        bed.close(handle).await.unwrap();
        drop(held);
        assert!(bed.object("file").await.unwrap() == content);
        assert_eq!(bed.unfinished_uploads().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_changed_file_that_is_read_is_fetched_once() {
    let bed = Arc::new(Bed::staged());
    let mut content: Vec<u8> = (0..5 * MIB).map(|at| (at % 251) as u8).collect();
    bed.put("file", &content).await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 3 * MIB, "changed").await.unwrap();
    content[3 * MIB as usize..][..7].copy_from_slice(b"changed");
    bed.requests();
    let mut readers = tokio::task::JoinSet::new();
    for at in [4_000_000, 17, 2_000_000, 5 * MIB - 9, 3 * MIB] {
        let bed = Arc::clone(&bed);
        readers.spawn(async move { (at as usize, bed.read(handle, at, 5000).await.unwrap()) });
    }
    while let Some(read) = readers.join_next().await {
        let (at, bytes) = read.unwrap();
        assert!(
            bytes == content[at..content.len().min(at + 5000)],
            "at {at}"
        );
    }
    assert_eq!(
        bed.requests(),
        "get 3",
        "of 2 MiB at most, around the change"
    );
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1", "and the save finds it here");
    assert!(bed.object("file").await.unwrap() == content);
}

#[tokio::test]
async fn what_is_written_while_a_file_is_fetched_stays() {
    let bed = Arc::new(Bed::staged());
    bed.put("file", vec![b'-'; 3 * MIB as usize]).await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "one").await.unwrap();
    let gets = bed.probe.hold(Operation::Get);
    let reading = tokio::spawn({
        let bed = Arc::clone(&bed);
        async move { bed.read(handle, MIB, 3).await }
    });
    while bed.probe.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    bed.write(handle, MIB, "two").await.unwrap();
    bed.write(handle, 2 * MIB - 1, "three").await.unwrap();
    gets.add_permits(100);
    assert_eq!(reading.await.unwrap().unwrap(), b"two");
    bed.close(handle).await.unwrap();
    let saved = bed.object("file").await.unwrap();
    assert_eq!(saved.len() as u64, 3 * MIB);
    let written = [(0, "one"), (MIB, "two"), (2 * MIB - 1, "three")];
    for (at, text) in written {
        assert!(saved[at as usize..].starts_with(text.as_bytes()));
    }
    let dashes = saved.iter().filter(|byte| **byte == b'-').count() as u64;
    assert_eq!(dashes, 3 * MIB - 11);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_another_client_changed_is_another_inode_if_the_door_keeps_sizes() {
    let bed = Bed::staged_with(BucketSettings {
        door_keeps_sizes: true,
        ..BucketSettings::default()
    });
    bed.put("file", "old").await;
    let before = bed.stat("file").await.unwrap();
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "ours").await.unwrap();
    bed.close(handle).await.unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    let ours = bed.stat("file").await.unwrap();
    assert_eq!((ours.inode, ours.size), (before.inode, 4), "our own save");
    bed.put("file", "theirs").await;
    tokio::time::advance(Duration::from_secs(61)).await;
    let opened = bed.volume.open(&CALLER, before.inode, READ).await;
    assert_eq!(opened.err(), Some(FsError::Stale), "the kernel looks again");
    let theirs = bed.stat("file").await.unwrap();
    assert_ne!(theirs.inode, before.inode);
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    let late = bed.volume.open(&CALLER, before.inode, READ).await;
    assert_eq!(late.err(), Some(FsError::Stale));
}

#[tokio::test]
async fn what_is_written_during_a_save_stays_unsaved() {
    let bed = Arc::new(Bed::staged());
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "first version").await.unwrap();
    let puts = bed.probe.hold(Operation::Put);
    let saving = tokio::spawn({
        let bed = Arc::clone(&bed);
        async move { bed.sync(handle).await }
    });
    while bed.probe.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    bed.write(handle, 0, "FIRST").await.unwrap();
    bed.write(handle, 13, ", longer").await.unwrap();
    puts.add_permits(1);
    saving.await.unwrap().unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"first version");
    assert_eq!(bed.stat("file").await.unwrap().size, 21);
    assert_eq!(bed.read(handle, 0, 100).await, Err(FsError::BadHandle));
    let reader = bed.open("file", READ).await.unwrap();
    assert_eq!(
        bed.read(reader, 0, 100).await.unwrap(),
        b"FIRST version, longer"
    );
    puts.add_permits(1);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"FIRST version, longer");
}

#[tokio::test]
async fn a_read_between_a_save_and_its_answer_waits_for_the_answer() {
    let bed = Arc::new(Bed::staged());
    bed.put("file", vec![7; 3 * MIB as usize]).await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "new").await.unwrap();
    let puts = bed.probe.hold_late(Operation::Put);
    let saving = tokio::spawn({
        let bed = Arc::clone(&bed);
        async move { bed.sync(handle).await }
    });
    while bed.probe.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    bed.requests();
    // Only the store has this, and the version that it is part of is gone.
    let reading = tokio::spawn({
        let bed = Arc::clone(&bed);
        async move { bed.read(handle, 2 * MIB, 9).await }
    });
    while bed.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    puts.add_permits(1);
    saving.await.unwrap().unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), [7; 9]);
}

#[tokio::test]
async fn a_read_of_a_version_that_another_client_replaced_is_stale_at_once() {
    let bed = Bed::staged();
    bed.put("file", vec![7; 3 * MIB as usize]).await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "new").await.unwrap();
    bed.put("file", "theirs").await;
    assert_eq!(bed.read(handle, 2 * MIB, 9).await, Err(FsError::Stale));
    assert_eq!(bed.read(handle, 0, 3).await.unwrap(), b"new");
}

#[tokio::test]
async fn a_save_whose_answer_was_lost_is_recognized() {
    let bed = Bed::staged();
    bed.put("file", "old content").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "new").await.unwrap();
    bed.probe.fail_late(Operation::Put, ErrorKind::Timeout);
    assert!(bed.sync(handle).await.is_err());
    assert_eq!(bed.object("file").await.unwrap(), b"new content");
    bed.sync(handle).await.unwrap();
    bed.write(handle, 4, "CONTENT").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"new CONTENT");
}

#[tokio::test]
async fn many_writers_of_one_file_do_not_disturb_each_other() {
    const WRITERS: u64 = 16;
    let bed = Arc::new(Bed::staged());
    let first = bed.create("file").await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let bed = Arc::clone(&bed);
        writers.spawn(async move {
            let handle = bed.open("file", READ_WRITE).await.unwrap();
            for round in 0..20 {
                let offset = (round * WRITERS + number) * 1000;
                bed.write(handle, offset, vec![number as u8 + 1; 1000])
                    .await
                    .unwrap();
                if round % 7 == number % 7 {
                    bed.sync(handle).await.unwrap();
                }
            }
            bed.close(handle).await.unwrap();
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    bed.close(first).await.unwrap();
    let content = bed.object("file").await.unwrap();
    let expected = (0..20 * WRITERS).flat_map(|piece| [(piece % WRITERS) as u8 + 1; 1000]);
    assert!(content == expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_is_opened_while_it_is_written() {
    const ROUNDS: usize = 500;
    let bed = Arc::new(Bed::staged());
    let written = bed.create("file").await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        let bed = Arc::clone(&bed);
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                if number % 2 == 0 {
                    let opened = bed.open("file", READ_WRITE).await.unwrap();
                    bed.volume.release(opened).await;
                } else {
                    bed.write(written, round as u64, "x").await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    bed.close(written).await.unwrap();
}

#[tokio::test]
async fn unmounting_saves_what_is_staged_and_refuses_more() {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "saved at the end").await.unwrap();
    assert_eq!(bed.volume.shut_down().await, []);
    assert_eq!(bed.object("file").await.unwrap(), b"saved at the end");
    assert!(bed.write(handle, 0, "too late").await.is_err());
}

#[tokio::test]
async fn a_file_that_was_closed_a_moment_ago_is_read_and_written_without_the_store() {
    let bed = Bed::staged();
    let content: Vec<u8> = (0..30 * MIB).map(|at| (at % 251) as u8).collect();
    let handle = bed.create("file").await.unwrap();
    for (number, piece) in content.chunks(MIB as usize).enumerate() {
        bed.write(handle, number as u64 * MIB, piece).await.unwrap();
    }
    bed.close(handle).await.unwrap();
    bed.requests();
    for options in [READ, READ_WRITE] {
        let handle = bed.open("file", options).await.unwrap();
        for at in [0, 7 * MIB + 5, 29 * MIB] {
            let read = bed.read(handle, at, 4096).await.unwrap();
            assert!(read == content[at as usize..][..4096]);
        }
        bed.close(handle).await.unwrap();
    }
    assert_eq!(bed.requests(), "", "nothing was fetched");
    bed.rename("file", "moved").await.unwrap();
    bed.requests();
    let handle = bed.open("moved", READ_WRITE).await.unwrap();
    bed.write(handle, 5, "changed").await.unwrap();
    let read = bed.read(handle, 0, 4096).await.unwrap();
    assert_eq!(&read[..13], b"\0\x01\x02\x03\x04changed\x0c");
    assert_eq!(bed.requests(), "");
    bed.close(handle).await.unwrap();
    let stored = bed.object("moved").await.unwrap();
    assert_eq!(&stored[..13], b"\0\x01\x02\x03\x04changed\x0c");
    assert!(stored[13..] == content[13..]);
    bed.unlink("moved").await.unwrap();
    bed.expect_swept().await;
}

#[tokio::test]
async fn a_closed_file_of_which_nothing_can_be_left_leaves_nothing() {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    for at in 0..100 {
        // Pieces with holes between them, and then without.
        bed.write(handle, at * 8192, [1; 4096]).await.unwrap();
    }
    bed.close(handle).await.unwrap();
    bed.expect_swept().await;
}

#[tokio::test(start_paused = true)]
async fn what_closed_files_left_is_of_no_use_when_another_client_wrote() {
    let bed = Bed::staged();
    bed.write_file("file", b"ours").await.unwrap();
    bed.put("file", "theirs").await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    bed.expect_swept().await;
}

#[tokio::test]
async fn what_closed_files_left_goes_with_the_mount() {
    let bed = Bed::staged();
    bed.write_file("file", b"content").await.unwrap();
    assert_eq!(bed.staging_files("files").len(), 1);
    assert_eq!(bed.volume.shut_down().await, []);
    assert_eq!(bed.staging_files("files"), [""; 0]);
    let bed = bed.killed(BucketSettings::default(), |_| ()).await;
    bed.write_file("file", b"again").await.unwrap();
    let bed = bed.killed(BucketSettings::default(), |_| ()).await;
    assert_eq!(bed.staging_files("files"), [""; 0]);
    assert_eq!(bed.read_file("file").await.unwrap(), b"again");
}

#[tokio::test]
async fn a_write_that_fails_at_its_journal_is_not_shown() {
    let bed = Bed::staged();
    bed.put("file", "0123456789").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "saved").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.journals(), [""; 0]);
    let [data] = &bed.staging_files("files")[..] else {
        panic!("one staging file");
    };
    let journal = data.replace(".data", ".journal");
    let journal = bed.staging_path("files").join(journal);
    // No file can take its place.
    std::fs::create_dir(&journal).unwrap();
    assert!(bed.write(handle, 0, "wrong").await.is_err());
    assert_eq!(bed.read_file("file").await.unwrap(), b"saved56789");
    std::fs::remove_dir(&journal).unwrap();
    bed.write(handle, 9, "!").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"saved5678!");
}

#[tokio::test(start_paused = true)]
async fn a_save_that_finds_no_memory_for_what_stands_in_for_a_copy_says_so() {
    let bed = Bed::staged();
    bed.put("large", vec![7; 60 * MIB as usize]).await;
    let handle = bed.open("large", READ_WRITE).await.unwrap();
    bed.write(handle, 30 * MIB, "changed").await.unwrap();
    let (operation, kind) = (Operation::CopyPart, ErrorKind::Unsupported);
    bed.probe.fail(operation, kind, usize::MAX);
    let others = bed.budget.try_reserve(bed.budget.available()).unwrap();
    let saved = bed.sync(handle).await;
    assert_eq!(saved, Err(FsError::OutOfMemory));
    drop(others);
    bed.sync(handle).await.unwrap();
    assert_eq!(
        &bed.object("large").await.unwrap()[30 << 20..][..8],
        b"changed\x07"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_closed_a_moment_ago_is_whole_for_several_who_open_it_at_once() {
    let bed = Arc::new(Bed::staged());
    for round in 0..50_u8 {
        bed.write_file("file", &[round; 5000]).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let bed = Arc::clone(&bed);
            tasks.spawn(async move { bed.read_file("file").await.unwrap() });
        }
        while let Some(read) = tasks.join_next().await {
            assert!(read.unwrap() == [round; 5000]);
        }
    }
    bed.unlink("file").await.unwrap();
    bed.expect_swept().await;
}

#[tokio::test]
async fn what_an_open_file_has_here_stays_until_it_is_closed_when_another_client_replaced_it() {
    let settings = BucketSettings {
        close_to_open: true,
        ..BucketSettings::default()
    };
    let bed = Bed::staged_with(settings);
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, vec![1; 100_000]).await.unwrap();
    bed.sync(handle).await.unwrap();
    bed.put("file", "theirs").await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(bed.write(handle, 3, "ir").await, Err(FsError::Stale));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
    // It is left for a while to who opens that version, which nobody does.
    bed.unlink("file").await.unwrap();
    bed.expect_swept().await;
}

/// Who opens a file first must not make the door drop its pages: another who opened it at the same moment
/// may be writing one of them.
#[tokio::test]
async fn a_door_keeps_the_pages_of_a_file_that_only_this_mount_changed() {
    let bed = Bed::staged();
    bed.put("old", "content").await;
    for access in [READ, READ_WRITE] {
        let opened = bed.opened("old", access).await.unwrap();
        assert!(opened.is_unchanged, "it was never open before");
        bed.close(opened.handle).await.unwrap();
    }
    let handle = bed.create("new").await.unwrap();
    bed.write(handle, 0, "content").await.unwrap();
    bed.close(handle).await.unwrap();
    let inode = bed.inode("new").await.unwrap();
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
    changed.unwrap();
    bed.rename("new", "renamed").await.unwrap();
    for access in [READ, READ_WRITE] {
        let opened = bed.opened("renamed", access).await.unwrap();
        assert!(opened.is_unchanged);
        bed.close(opened.handle).await.unwrap();
    }
}

/// A `file` that another client replaced while a program had it open that had read nothing yet, and then read
/// what there is now. Each open asks for it.
async fn replaced_by(theirs: &str) -> Bed {
    let bed = Bed::staged_with(BucketSettings {
        close_to_open: true,
        ..BucketSettings::default()
    });
    bed.put("file", "first").await;
    let handle = bed.open("file", READ).await.unwrap();
    bed.put("file", theirs).await;
    let read = bed.read(handle, 0, 99).await.unwrap();
    assert_eq!(read, theirs.as_bytes());
    bed
}

#[tokio::test]
async fn a_door_drops_the_pages_of_an_open_file_that_another_client_changed_once() {
    let bed = replaced_by("theirs").await;
    for keeps in [false, true, true] {
        let opened = bed.opened("file", READ_WRITE).await.unwrap();
        assert_eq!(opened.is_unchanged, keeps);
        bed.close(opened.handle).await.unwrap();
    }
}

/// As the kernel truncates a file by its path to the size that it believes: it drops nothing.
#[tokio::test]
async fn a_door_drops_pages_only_when_it_hears_of_an_open() {
    let bed = replaced_by("else").await;
    let inode = bed.inode("file").await.unwrap();
    let changes = AttributeChanges {
        size: Some(4),
        ..AttributeChanges::default()
    };
    let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
    changed.unwrap();
    for hears in [false, false, true] {
        let opened = bed.opened("file", READ).await.unwrap();
        assert!(!opened.is_unchanged);
        match hears {
            true => bed.close(opened.handle).await.unwrap(),
            false => bed.volume.undo_open(opened.handle).await,
        }
    }
    assert!(bed.opened("file", READ).await.unwrap().is_unchanged);
}

#[tokio::test]
async fn an_open_that_fails_drops_nothing() {
    let bed = replaced_by("theirs").await;
    std::fs::remove_dir_all(bed.staging_path("files")).unwrap();
    let emptying = OpenOptions {
        truncate: true,
        ..READ_WRITE
    };
    let emptied = bed.opened("file", emptying).await;
    assert!(emptied.is_err(), "there is no place for it");
    let opened = bed.opened("file", READ).await.unwrap();
    assert!(!opened.is_unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_staged_file_of_which_nothing_was_read_is_read_as_it_is_now() {
    let bed = Bed::staged();
    bed.put("file", "first").await;
    let handle = bed.open("file", READ).await.unwrap();
    bed.put("file", "and later").await;
    assert_eq!(bed.read(handle, 0, 99).await.unwrap(), b"and later");
    bed.put("file", "last").await;
    assert_eq!(bed.read(handle, 4, 99).await, Err(FsError::Stale));
}

/// The kernel knows the size of a file that nobody has open, and keeps pages of it.
#[tokio::test(start_paused = true)]
async fn a_file_that_nobody_has_open_and_another_client_replaced_is_another_inode() {
    for bed in [Bed::new(), Bed::staged()] {
        bed.put("file", "first").await;
        let first = bed.inode("file").await.unwrap();
        bed.put("file", "and later").await;
        clock::sleep(BucketSettings::default().attr_timeout).await;
        let opened = bed.volume.open(&CALLER, first, READ).await;
        assert_eq!(opened.unwrap_err(), FsError::Stale);
        assert_ne!(bed.inode("file").await.unwrap(), first);
        assert_eq!(bed.read_file("file").await.unwrap(), b"and later");
    }
}

/// Another client's version is taken while a read waits for the first of its parts.
#[tokio::test]
async fn a_read_of_what_is_partly_here_is_of_one_version() {
    const SIZE: usize = 30 * MIB as usize;
    let bed = Bed::staged_with(BucketSettings {
        close_to_open: true,
        ..BucketSettings::default()
    });
    bed.put("file", vec![b'A'; SIZE]).await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, MIB + MIB / 2, [b'x'; 4096])
        .await
        .unwrap();
    bed.sync(handle).await.unwrap();
    let held = bed.probe.hold_late(Operation::Get);
    let read = bed.read(handle, MIB, MIB as u32);
    let replace = async {
        bed.probe.until_held().await;
        bed.put("file", vec![b'B'; SIZE]).await;
        let opened = bed.opened("file", READ).await.unwrap();
        bed.probe.release_all();
        held.add_permits(1000);
        opened.handle
    };
    let (read, opened) = tokio::join!(read, replace);
    bed.close(opened).await.unwrap();
    let mut ours = vec![b'A'; MIB as usize];
    ours[MIB as usize / 2..][..4096].fill(b'x');
    match read {
        Ok(bytes) => assert!(bytes == ours || bytes == vec![b'B'; MIB as usize]),
        Err(error) => assert_eq!(error, FsError::Stale),
    }
}

/// A listing showed it only once it was saved.
#[tokio::test]
async fn an_unsaved_file_is_listed_also_when_its_object_is_gone() {
    let bed = Bed::staged();
    bed.put("file", "content").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "C").await.unwrap();
    bed.remote.delete(&Key::new("file").unwrap()).await.unwrap();
    bed.forget_all();
    let listed = bed.list("", 10).await.unwrap();
    assert_eq!(listed.len(), 1);
}
