//! Staged mode that saves behind the close.

use std::time::{Duration, UNIX_EPOCH};

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::{BucketSettings, MetadataSettings, SaveBehind};
use penstock_object::{ErrorKind, HeadOptions, Key, Operation, Store};
use penstock_vfs::{AttributeChanges, Inode, RenameMode, TimeChange, Volume};

use crate::support::{Bed, CALLER, READ, READ_WRITE};

/// So long that nothing is saved by itself in a test.
pub(crate) const LATER: Duration = Duration::from_secs(3600);

pub(crate) fn behind(after: Duration) -> BucketSettings {
    BucketSettings {
        save_behind: Some(SaveBehind {
            after,
            age_max: LATER,
            files_max: 1000,
        }),
        metadata: MetadataSettings {
            keep: true,
            ..MetadataSettings::default()
        },
        ..BucketSettings::default()
    }
}

fn bed() -> Bed {
    Bed::staged_with(behind(LATER))
}

/// Waits until everything is saved.
pub(crate) async fn saved(bed: &Bed) {
    for _ in 0..10_000 {
        if bed.metric("bucket_unsaved_files") == 0 {
            return;
        }
        clock::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bed.metric("bucket_unsaved_files"), 0);
}

pub(crate) async fn shut_down(bed: &Bed) -> Vec<String> {
    let lost = bed.volume.shut_down().await;
    lost.into_iter().map(|(path, _)| path).collect()
}

#[tokio::test]
async fn a_close_asks_the_store_nothing_and_the_file_is_saved_behind() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    bed.mkdir("new").await.unwrap();
    saved(&bed).await;
    bed.requests();
    bed.write_file("new/file", "content").await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.read_file("new/file").await.unwrap(), b"content");
    assert_eq!(bed.ls("").await.unwrap(), ["new"]);
    let reader = bed.open("new/file", READ).await.unwrap();
    saved(&bed).await;
    bed.volume.release(reader).await;
    assert_eq!(bed.object("new/file").await.unwrap(), b"content");
    assert_eq!(bed.journals(), [""; 0]);
}

#[tokio::test]
async fn a_file_that_is_open_for_writing_again_is_saved_when_it_is_old() {
    let mut settings = behind(Duration::from_millis(10));
    if let Some(behind) = &mut settings.save_behind {
        behind.age_max = Duration::from_secs(3);
    }
    let bed = Bed::staged_with(settings);
    let handle = bed.create("file").await.unwrap();
    bed.write_file("file", "content").await.unwrap();
    clock::sleep(Duration::from_millis(100)).await;
    assert_eq!(bed.object("file").await, None);
    saved(&bed).await;
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    bed.close(handle).await.unwrap();
}

/// The kernel asked for the attributes of an unsaved file at each look, as if somebody wrote it.
#[tokio::test]
async fn what_is_shown_of_a_closed_file_is_believed_and_the_same_when_it_is_saved() {
    let bed = bed();
    bed.write_file("file", "content").await.unwrap();
    let shown = bed.lookup(Inode::ROOT, "file").await.unwrap();
    let believed = BucketSettings::default().attr_timeout;
    assert_eq!(shown.attributes_ttl, believed);
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    let written = bed.lookup(Inode::ROOT, "file").await.unwrap();
    assert_eq!(written.attributes_ttl, believed);
    bed.close(handle).await.unwrap();
    let handle = bed.open("file", READ).await.unwrap();
    let read = bed.lookup(Inode::ROOT, "file").await.unwrap();
    assert_eq!(read.attributes_ttl, believed);
    bed.sync(handle).await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    let saved = bed.lookup(Inode::ROOT, "file").await.unwrap();
    assert_eq!(saved.attributes, shown.attributes);
}

#[tokio::test]
async fn what_is_done_to_an_unsaved_file_goes_with_its_one_put() {
    let bed = bed();
    bed.mkdir("new").await.unwrap();
    bed.requests();
    bed.write_file("new/.file.tmp", "content").await.unwrap();
    let inode = bed.inode("new/.file.tmp").await.unwrap();
    let changes = AttributeChanges {
        permissions: Some(0o640),
        modified: Some(TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000))),
        ..AttributeChanges::default()
    };
    let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
    changed.unwrap();
    bed.rename("new/.file.tmp", "new/file").await.unwrap();
    assert_eq!(bed.stat("new/file").await.unwrap().permissions, 0o640);
    assert_eq!(bed.ls("new").await.unwrap(), ["file"]);
    bed.requests();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "put 2");
    assert_eq!(bed.keys().await, ["new/", "new/file"]);
    let key = Key::new("new/file").unwrap();
    let info = bed.remote.head(&key, HeadOptions::default()).await.unwrap();
    assert_eq!(info.metadata.get("mode").unwrap(), "33184");
    assert!(info.metadata.get("mtime").unwrap().starts_with("1000"));
}

#[tokio::test]
async fn what_is_removed_before_it_was_saved_costs_nothing() {
    let bed = bed();
    bed.mkdir("new").await.unwrap();
    bed.requests();
    for name in ["new/a", "new/b"] {
        bed.write_file(name, "content").await.unwrap();
    }
    bed.unlink("new/a").await.unwrap();
    bed.rename("new/b", "new/c").await.unwrap();
    bed.unlink("new/c").await.unwrap();
    bed.rmdir("new").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.keys().await, [""; 0]);
    bed.expect_swept().await;
}

#[tokio::test]
async fn an_unsaved_file_replaces_a_saved_one_by_its_put() {
    let bed = bed();
    bed.put("file", "old").await;
    bed.stat("file").await.unwrap();
    bed.write_file("file.new", "new").await.unwrap();
    bed.requests();
    bed.rename("file.new", "file").await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.read_file("file").await.unwrap(), b"new");
    assert_eq!(bed.object("file").await.unwrap(), b"old");
    assert_eq!(bed.ls("").await.unwrap(), ["file"]);
    bed.requests();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.object("file").await.unwrap(), b"new");
    assert_eq!(bed.keys().await, ["file"]);
}

#[tokio::test]
async fn an_unsaved_file_that_replaced_a_saved_one_is_removed_with_it() {
    let bed = bed();
    bed.put("file", "old").await;
    bed.write_file("file.new", "new").await.unwrap();
    bed.rename("file.new", "file").await.unwrap();
    bed.unlink("file").await.unwrap();
    assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn an_unsaved_file_replaces_an_unsaved_one() {
    let bed = bed();
    bed.write_file("a", "first").await.unwrap();
    bed.write_file("b", "second").await.unwrap();
    bed.rename("b", "a").await.unwrap();
    assert_eq!(bed.journals().len(), 1);
    assert_eq!(bed.read_file("a").await.unwrap(), b"second");
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["a"]);
    assert_eq!(bed.object("a").await.unwrap(), b"second");
}

#[tokio::test]
async fn fsync_of_a_file_and_of_a_directory_waits_for_the_store() {
    let bed = bed();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "content").await.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    bed.close(handle).await.unwrap();
    bed.mkdir("folder").await.unwrap();
    bed.mkdir("other").await.unwrap();
    bed.write_file("folder/one", "1").await.unwrap();
    bed.write_file("other/two", "2").await.unwrap();
    let folder = bed.open_dir("folder").await.unwrap();
    bed.volume.sync_directory(folder).await.unwrap();
    assert_eq!(bed.object("folder/one").await.unwrap(), b"1");
    assert_eq!(bed.object("other/two").await, None);
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 9);
    let root = bed.open_dir("").await.unwrap();
    assert!(bed.volume.sync_directory(root).await.is_err());
}

#[tokio::test]
async fn a_version_of_another_client_is_not_replaced_behind() {
    let bed = bed();
    bed.write_file("new", "ours").await.unwrap();
    bed.put("new", "theirs").await;
    bed.put("old", "before").await;
    bed.write_file("old", "ours").await.unwrap();
    bed.put("old", "theirs, too").await;
    bed.put("renamed", "before").await;
    bed.write_file("tmp", "ours").await.unwrap();
    bed.rename("tmp", "renamed").await.unwrap();
    bed.put("renamed", "theirs as well").await;
    let mut lost = shut_down(&bed).await;
    lost.sort();
    assert_eq!(lost, ["new", "old", "renamed"]);
    assert_eq!(bed.object("new").await.unwrap(), b"theirs");
    assert_eq!(bed.object("old").await.unwrap(), b"theirs, too");
    assert_eq!(bed.object("renamed").await.unwrap(), b"theirs as well");
    assert_eq!(bed.journals().len(), 3, "ours are here");
}

#[tokio::test]
async fn what_is_in_conflict_is_put_aside_and_told_at_the_end() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    let handle = bed.create("file").await.unwrap();
    bed.put("file", "theirs").await;
    bed.write(handle, 0, "ours").await.unwrap();
    bed.close(handle).await.unwrap();
    saved(&bed).await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(bed.staging_files("kept").len(), 2);
    assert_eq!(shut_down(&bed).await, ["file"]);
}

#[tokio::test]
async fn a_save_that_fails_is_told_by_the_next_close_and_repeated() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
    bed.write_file("file", "content").await.unwrap();
    while bed.metric("bucket_failed_uploads_total") == 0 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "C").await.unwrap();
    assert!(matches!(bed.close(handle).await, Err(FsError::Io(_))));
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 1, "O").await.unwrap();
    assert_eq!(bed.close(handle).await, Ok(()), "it was told once");
    saved(&bed).await;
    assert_eq!(bed.object("file").await.unwrap(), b"COntent");
}

#[tokio::test]
async fn what_a_kill_leaves_is_as_it_was_renamed_and_removed() {
    let bed = bed();
    bed.put("replaced", "old").await;
    for name in ["tmp", "gone", "one", "two"] {
        bed.write_file(name, name).await.unwrap();
    }
    let empty = bed.create("empty").await.unwrap();
    bed.close(empty).await.unwrap();
    bed.rename("tmp", "replaced").await.unwrap();
    bed.rename("one", "two").await.unwrap();
    bed.unlink("gone").await.unwrap();
    let bed = bed.killed(behind(LATER), |_| ()).await;
    assert_eq!(bed.keys().await, ["empty", "replaced", "two"]);
    assert_eq!(bed.object("replaced").await.unwrap(), b"tmp");
    assert_eq!(bed.object("two").await.unwrap(), b"one");
}

/// A kill may come between the journal of the file that takes a name and that of the one that had it.
#[tokio::test]
async fn of_two_unsaved_files_of_one_name_the_one_that_took_it_is_recovered() {
    let bed = bed();
    bed.write_file("one", "first").await.unwrap();
    let first = bed.staging_files("files");
    let copies: Vec<_> = first
        .iter()
        .map(|name| {
            let path = bed.staging_path("files").join(name);
            (name.clone(), std::fs::read(path).unwrap())
        })
        .collect();
    bed.write_file("two", "second").await.unwrap();
    bed.rename("two", "one").await.unwrap();
    let put_back = |staging: &std::path::Path| {
        for (name, content) in copies {
            std::fs::write(staging.join("files").join(name), content).unwrap();
        }
    };
    let bed = bed.killed(behind(LATER), put_back).await;
    assert_eq!(bed.object("one").await.unwrap(), b"second");
    assert_eq!(bed.keys().await, ["one"]);
    assert_eq!(bed.journals(), [""; 0]);
}

/// Who made another file under the name in between had two journals for it.
#[tokio::test]
async fn a_file_has_no_journal_any_more_when_its_name_is_free() {
    let bed = bed();
    bed.write_file("file", "content").await.unwrap();
    let is_removed = bed.unlink("file");
    tokio::pin!(is_removed);
    loop {
        let removed = futures_util::poll!(&mut is_removed);
        if bed.lookup(Inode::ROOT, "file").await.is_err() {
            assert_eq!(bed.journals(), [""; 0]);
        }
        if removed.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A kill left neither of both.
#[tokio::test]
async fn an_open_file_that_is_empty_and_took_the_name_of_an_unsaved_one_outlives_a_kill() {
    let bed = bed();
    bed.write_file("file", "old").await.unwrap();
    bed.create("file.new").await.unwrap();
    bed.rename("file.new", "file").await.unwrap();
    let bed = bed.killed(behind(LATER), |_| ()).await;
    assert_eq!(bed.keys().await, ["file"]);
    assert_eq!(bed.object("file").await.unwrap(), b"");
}

#[tokio::test]
async fn what_another_client_stored_is_not_removed_with_a_file_that_it_kept_from_being_saved() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    let handle = bed.create("file").await.unwrap();
    bed.put("file", "theirs").await;
    bed.write(handle, 0, "ours").await.unwrap();
    let reader = bed.open("file", READ).await.unwrap();
    bed.close(handle).await.unwrap();
    while bed.metric("bucket_failed_uploads_total") == 0 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    bed.unlink("file").await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
    assert_eq!(bed.ls("").await.unwrap(), ["file"]);
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    bed.volume.release(reader).await;
    assert!(shut_down(&bed).await.is_empty());
}

/// Each of many unsaved files was waited for, one after the other, with all that a store has to answer.
#[tokio::test(start_paused = true)]
async fn a_write_without_room_does_not_wait_for_each_file_that_a_distant_store_does_not_take() {
    const FILES: usize = 6;
    const ANSWER: Duration = Duration::from_secs(120);
    let bed = Bed::staged_in_with(4 * MIB, behind(10 * LATER));
    for number in 0..FILES {
        let path = number.to_string();
        bed.write_file(&path, vec![1; 600 * 1024]).await.unwrap();
    }
    let held = bed.probe.hold(Operation::Put);
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 100);
    let answer = async {
        loop {
            clock::sleep(ANSWER).await;
            held.add_permits(1);
        }
    };
    let handle = bed.create("more").await.unwrap();
    let other = bed.create("other").await.unwrap();
    let begun = clock::now();
    let write = |handle| bed.write(handle, 0, vec![2; MIB as usize]);
    tokio::select! {
        () = answer => {}
        written = async { tokio::join!(write(handle), write(other)) } => {
            assert_eq!(written, (Err(FsError::NoSpace), Err(FsError::NoSpace)));
        }
    }
    assert!(begun.elapsed() <= 4 * ANSWER, "{:?}", begun.elapsed());
}

/// The answer was lost, so that the store has what was never announced.
#[tokio::test]
async fn a_file_is_removed_that_a_save_stored_whose_answer_was_lost() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
    bed.write_file("file", "content").await.unwrap();
    while bed.metric("bucket_failed_uploads_total") == 0 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    bed.unlink("file").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

/// Of what a kill left nobody knows whether it is stored, and memory knows no version of it.
#[tokio::test]
async fn a_changed_file_that_a_kill_left_is_removed_with_its_object() {
    for is_emptied in [false, true] {
        let bed = bed();
        bed.put("file", "old").await;
        match is_emptied {
            true => bed.write_file("file", "new").await.unwrap(),
            false => {
                let handle = bed.open("file", READ_WRITE).await.unwrap();
                bed.write(handle, 0, "N").await.unwrap();
                bed.close(handle).await.unwrap();
            }
        }
        let refused = |next: &Bed| {
            let refused = ErrorKind::Unavailable;
            next.probe.fail(Operation::Put, refused, 100);
        };
        let bed = bed.broken_off(behind(LATER), refused);
        bed.unlink("file").await.unwrap();
        assert!(shut_down(&bed).await.is_empty());
        assert_eq!(bed.keys().await, [""; 0], "{is_emptied}");
        assert_eq!(bed.ls("").await.unwrap(), [""; 0]);
    }
}

/// They were saved one after the other.
#[tokio::test]
async fn a_directory_that_is_renamed_saves_many_files_at_once() {
    const FILES: usize = 40;
    let bed = bed();
    bed.mkdir("folder").await.unwrap();
    for number in 0..FILES {
        let path = format!("folder/{number}");
        bed.write_file(&path, "content").await.unwrap();
    }
    let held = bed.probe.hold(Operation::Put);
    let all_wait = async {
        while bed.probe.waiting() < FILES {
            clock::sleep(Duration::from_millis(1)).await;
        }
        held.add_permits(1000);
    };
    let both = async { tokio::join!(bed.rename("folder", "moved"), all_wait) };
    let both = clock::deadline(Duration::from_secs(20), both).await;
    both.expect("many at once").0.unwrap();
    assert_eq!(bed.ls("moved").await.unwrap().len(), FILES);
}

/// What a listing told is believed for a second, which must not pass in between.
#[tokio::test(start_paused = true)]
async fn names_that_are_looked_for_one_after_the_other_are_listed() {
    let bed = Bed::staged_with(BucketSettings {
        negative_timeout: LATER,
        ..behind(LATER)
    });
    bed.put("there", "content").await;
    for number in 0..50 {
        let (tmp, name) = (format!(".{number}.tmp"), format!("{number}"));
        bed.write_file(&tmp, "content").await.unwrap();
        bed.rename(&tmp, &name).await.unwrap();
    }
    assert_eq!(bed.requests(), "head 6, list 4");
    assert_eq!(bed.read_file("there").await.unwrap(), b"content");
    let target = bed.rename_as("1", "there", RenameMode::NoReplace).await;
    assert_eq!(target, Err(FsError::AlreadyExists));
    assert_eq!(bed.ls("").await.unwrap().len(), 51);
}

#[tokio::test]
async fn a_directory_with_unsaved_files_is_not_empty() {
    let bed = bed();
    bed.mkdir("folder").await.unwrap();
    bed.write_file("folder/file", "content").await.unwrap();
    assert_eq!(bed.rmdir("folder").await, Err(FsError::DirectoryNotEmpty));
    bed.rename("folder", "moved").await.unwrap();
    assert_eq!(bed.object("moved/file").await.unwrap(), b"content");
    bed.unlink("moved/file").await.unwrap();
    bed.rmdir("moved").await.unwrap();
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, [""; 0]);
}

#[tokio::test]
async fn more_files_than_may_wait_are_saved_at_the_close() {
    let mut settings = behind(LATER);
    if let Some(behind) = &mut settings.save_behind {
        behind.files_max = 4;
    }
    let bed = Bed::staged_with(settings);
    for number in 0..40 {
        bed.write_file(&format!("{number}"), "content")
            .await
            .unwrap();
    }
    assert!(bed.metric("bucket_unsaved_files") <= 4);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await.len(), 40);
}

/// The staging directory gave up what a thousand files had left, and each that was read again was one request.
#[tokio::test]
async fn what_many_files_left_is_read_without_the_store() {
    const FILES: usize = 1500;
    let bed = bed();
    for number in 0..FILES {
        let name = format!("file-{number}");
        bed.write_file(&name, &name).await.unwrap();
    }
    let root = bed.open_dir("").await.unwrap();
    bed.volume.sync_directory(root).await.unwrap();
    bed.requests();
    for number in 0..FILES {
        let name = format!("file-{number}");
        assert_eq!(bed.read_file(&name).await.unwrap(), name.as_bytes());
    }
    assert_eq!(bed.requests(), "");
}

/// In haste each temporary file was saved before it was renamed, and then copied.
#[tokio::test]
async fn temporary_files_are_renamed_before_they_are_saved_in_haste_too() {
    const FILES: usize = 200;
    let mut settings = behind(LATER);
    if let Some(behind) = &mut settings.save_behind {
        behind.files_max = FILES;
    }
    let bed = Bed::staged_with(settings);
    for number in 0..FILES * 3 / 4 {
        let name = format!("file-{number}");
        bed.write_file("tmp", "content").await.unwrap();
        bed.rename("tmp", &name).await.unwrap();
    }
    // Half of them are more than may wait at leisure.
    while bed.metric("bucket_unsaved_files") > FILES as u64 / 2 {
        clock::sleep(Duration::from_millis(5)).await;
    }
    assert!(!bed.requests().contains("copy"));
}

/// Each has files open, so the descriptors of the process bound them too.
#[tokio::test]
async fn files_that_are_being_saved_count_among_those_that_may_wait() {
    const FILES_MAX: u64 = 100;
    let mut settings = behind(Duration::ZERO);
    if let Some(behind) = &mut settings.save_behind {
        behind.files_max = FILES_MAX as usize;
    }
    let bed = Bed::staged_with(settings);
    let held = bed.probe.hold(Operation::Put);
    let mut writes = std::pin::pin!(async {
        for number in 0..2 * FILES_MAX {
            let written = bed.write_file(&number.to_string(), "content").await;
            written.unwrap();
        }
    });
    let early = clock::deadline(Duration::from_secs(3), writes.as_mut()).await;
    assert!(early.is_err(), "a close had to wait for the store");
    assert_eq!(bed.metric("bucket_unsaved_files"), FILES_MAX + 1);
    bed.probe.release_all();
    held.add_permits(1000);
    writes.await;
    saved(&bed).await;
    assert_eq!(bed.keys().await.len() as u64, 2 * FILES_MAX);
}

/// What a listing told is not listed again for each name.
#[tokio::test]
async fn names_that_a_listing_told_cost_no_more_listings() {
    let bed = bed();
    for number in 0..20 {
        bed.put(&format!("{number}"), "content").await;
    }
    bed.requests();
    for number in 0..20 {
        bed.stat(&format!("{number}")).await.unwrap();
    }
    let requests = bed.requests();
    assert_eq!(requests, "head 20, list 21");
}

/// The kernel tells late that a file was closed, so one that is open cannot be left out.
#[tokio::test]
async fn fsync_of_a_directory_saves_what_is_open_in_it_too() {
    let bed = bed();
    let open = bed.create("open").await.unwrap();
    bed.write(open, 0, "half").await.unwrap();
    let root = bed.open_dir("").await.unwrap();
    bed.volume.sync_directory(root).await.unwrap();
    assert_eq!(bed.object("open").await.unwrap(), b"half");
}

/// So it looks when a kill cuts off a removal, too.
#[tokio::test]
async fn what_was_to_be_replaced_and_is_gone_is_not_missed() {
    let bed = bed();
    for name in ["one", "two"] {
        bed.put(name, "old").await;
        bed.write_file("new", name).await.unwrap();
        bed.rename("new", name).await.unwrap();
        bed.delete(name).await;
    }
    let one = bed.open("one", READ_WRITE).await.unwrap();
    bed.sync(one).await.unwrap();
    assert_eq!(bed.object("one").await.unwrap(), b"one");
    assert_eq!(bed.object("two").await, None);
    let bed = bed.killed(behind(LATER), |_| ()).await;
    assert_eq!(bed.object("two").await.unwrap(), b"two");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn a_saved_file_replaces_an_unsaved_one() {
    let bed = bed();
    bed.put("saved", "saved").await;
    bed.write_file("unsaved", "unsaved").await.unwrap();
    bed.rename("saved", "unsaved").await.unwrap();
    assert_eq!(bed.journals(), [""; 0]);
    assert_eq!(bed.ls("").await.unwrap(), ["unsaved"]);
    assert_eq!(bed.read_file("unsaved").await.unwrap(), b"saved");
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["unsaved"]);
    assert_eq!(bed.object("unsaved").await.unwrap(), b"saved");
}

#[tokio::test]
async fn fsync_tells_once_what_was_put_aside_before_it() {
    for syncs_the_file in [false, true] {
        let bed = Bed::staged_with(behind(Duration::from_millis(10)));
        for folder in ["folder/", "other/"] {
            bed.put(folder, "").await;
        }
        let handle = bed.create("folder/file").await.unwrap();
        bed.put("folder/file", "theirs").await;
        bed.write(handle, 0, "ours").await.unwrap();
        bed.close(handle).await.unwrap();
        saved(&bed).await;
        assert_eq!(bed.staging_files("kept").len(), 2);
        let other = bed.open_dir("other").await.unwrap();
        assert_eq!(bed.volume.sync_directory(other).await, Ok(()));
        let root = bed.open_dir("").await.unwrap();
        let told = match syncs_the_file {
            true => {
                let file = bed.open("folder/file", READ).await.unwrap();
                bed.sync(file).await
            }
            false => bed.volume.sync_directory(root).await,
        };
        assert!(matches!(told, Err(FsError::Busy(_))), "{told:?}");
        assert_eq!(bed.volume.sync_directory(root).await, Ok(()), "it was told");
        assert_eq!(shut_down(&bed).await, ["folder/file"]);
    }
}

#[tokio::test]
async fn what_a_kill_left_and_is_put_aside_is_told_by_fsync_and_at_the_end() {
    let bed = bed();
    bed.write_file("file", "ours").await.unwrap();
    bed.put("file", "theirs").await;
    let bed = bed.killed(behind(LATER), |_| ()).await;
    assert_eq!(bed.staging_files("kept").len(), 2);
    let root = bed.open_dir("").await.unwrap();
    let told = bed.volume.sync_directory(root).await;
    assert!(matches!(told, Err(FsError::Busy(_))), "{told:?}");
    assert_eq!(shut_down(&bed).await, ["file"]);
}

/// They had no age, and came after all others, when the store hung.
#[tokio::test]
async fn files_that_are_being_saved_are_told_with_their_age() {
    let bed = Bed::staged_with(behind(Duration::from_millis(10)));
    let held = bed.probe.hold(Operation::Put);
    bed.write_file("first", "content").await.unwrap();
    bed.probe.until_held().await;
    bed.mkdir("second").await.unwrap();
    let items = bed.volume.unsaved_items();
    let paths: Vec<_> = items.iter().map(|item| item.path.as_str()).collect();
    assert_eq!(paths, ["first", "second/"]);
    assert!(items.iter().all(|item| item.age.is_some()));
    held.add_permits(2);
    saved(&bed).await;
    assert!(bed.volume.unsaved_items().is_empty());
}
