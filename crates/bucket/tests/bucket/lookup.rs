//! Finding names.

use std::time::Duration;

use penstock_base::{FsError, KIB, MIB};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Dentry, FileKind, Inode, Volume};
use tokio::time::advance;

use crate::support::{Bed, CALLER, READ, name};

#[tokio::test(start_paused = true)]
async fn lookup_of_a_file_asks_head_and_list_at_once() {
    let bed = Bed::new();
    bed.put("file", "hello").await;
    let held = (
        bed.probe.hold(Operation::Head),
        bed.probe.hold(Operation::List),
    );
    let found = async {
        // Both are under way before either is answered.
        while bed.probe.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        held.0.add_permits(9);
        held.1.add_permits(9);
    };
    let (entry, ()) = tokio::join!(bed.lookup(Inode::ROOT, "file"), found);
    let attributes = entry.unwrap().attributes;
    assert_eq!((attributes.kind, attributes.size), (FileKind::Regular, 5));
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn lookup_finds_a_directory_that_no_object_marks() {
    let bed = Bed::new();
    bed.put("a/b/c", "").await;
    assert_eq!(bed.stat("a").await.unwrap().kind, FileKind::Directory);
    assert_eq!(bed.requests(), "head 1, list 1");
    assert_eq!(bed.stat("a/b/c").await.unwrap().kind, FileKind::Regular);
}

#[tokio::test(start_paused = true)]
async fn lookup_finds_a_directory_that_an_object_marks() {
    let bed = Bed::new();
    bed.put("a/", "").await;
    assert_eq!(bed.stat("a").await.unwrap().kind, FileKind::Directory);
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn lookup_of_a_free_name_is_remembered_for_the_negative_timeout() {
    let bed = Bed::new();
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "head 1, list 1");
    bed.put("a", "").await;
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "");
    advance(Duration::from_millis(1001)).await;
    assert!(bed.stat("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_negative_timeout_of_zero_asks_each_time() {
    let settings = BucketSettings {
        negative_timeout: Duration::ZERO,
        ..BucketSettings::default()
    };
    let bed = Bed::with(settings);
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    bed.put("a", "").await;
    assert!(bed.stat("a").await.is_ok());
    // Not even a complete listing answers for names that are free.
    bed.ls("").await.unwrap();
    bed.requests();
    bed.put("b", "").await;
    assert!(bed.stat("b").await.is_ok());
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn lookup_is_remembered_for_the_attribute_timeout() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    bed.stat("a").await.unwrap();
    bed.requests();
    bed.put("a", "newer").await;
    assert_eq!(bed.stat("a").await.unwrap().size, 3);
    assert_eq!(bed.requests(), "");
    advance(Duration::from_secs(61)).await;
    assert_eq!(bed.stat("a").await.unwrap().size, 5);
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn lookup_in_a_listed_directory_costs_nothing() {
    let bed = Bed::new();
    bed.put("d/a", "abc").await;
    bed.put("d/e/f", "").await;
    bed.ls("d").await.unwrap();
    bed.requests();
    assert_eq!(bed.stat("d/a").await.unwrap().size, 3);
    assert_eq!(bed.stat("d/e").await.unwrap().kind, FileKind::Directory);
    assert_eq!(bed.stat("d/other").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "");
    advance(Duration::from_secs(61)).await;
    assert_eq!(bed.stat("d/other").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "head 2, list 2");
}

#[tokio::test(start_paused = true)]
async fn a_partial_listing_says_nothing_about_other_names() {
    let bed = Bed::new();
    for number in 0..1500 {
        bed.put(&format!("{number:04}"), "").await;
    }
    let handle = bed.open_dir("").await.unwrap();
    bed.list_from(handle, 0, 10).await.unwrap();
    bed.requests();
    assert!(bed.stat("0009").await.is_ok());
    assert_eq!(bed.requests(), "");
    assert!(bed.stat("1400").await.is_ok());
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn a_directory_hides_a_file_of_the_same_name() {
    let bed = Bed::new();
    bed.put("a", "file").await;
    bed.put("a/b", "").await;
    bed.put("m", "file").await;
    bed.put("m/", "").await;
    assert_eq!(bed.stat("a").await.unwrap().kind, FileKind::Directory);
    assert_eq!(bed.stat("m").await.unwrap().kind, FileKind::Directory);
    assert_eq!(bed.metric("bucket_hidden_entries_total"), 2);
    assert_eq!(bed.ls("").await.unwrap(), ["a", "m"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_changed_its_kind_is_another_inode() {
    let bed = Bed::new();
    bed.put("a", "file").await;
    let file = bed.inode("a").await.unwrap();
    let handle = bed.open("a", READ).await.unwrap();
    bed.delete("a").await;
    bed.put("a/b", "").await;
    advance(Duration::from_secs(61)).await;
    let directory = bed.stat("a").await.unwrap();
    assert_eq!(directory.kind, FileKind::Directory);
    assert_ne!(directory.inode, file);
    assert_eq!(bed.read(handle, 0, 9).await, Err(FsError::Stale));
    let attributes = bed.volume.attributes(&CALLER, file).await.unwrap();
    assert_eq!(attributes.attributes.links, 0);
    bed.close(handle).await.unwrap();
    let attributes = bed.volume.attributes(&CALLER, file).await;
    assert_eq!(attributes, Err(FsError::Stale));
}

#[tokio::test(start_paused = true)]
async fn lookup_without_permission_to_list_finds_files() {
    let bed = Bed::new();
    bed.put("a", "abc").await;
    bed.probe
        .fail(Operation::List, ErrorKind::PermissionDenied, 2);
    assert_eq!(bed.stat("a").await.unwrap().size, 3);
    assert_eq!(bed.stat("b").await, Err(FsError::PermissionDenied));
}

#[tokio::test(start_paused = true)]
async fn lookup_fails_when_the_store_fails() {
    let bed = Bed::new();
    bed.put("a", "").await;
    bed.probe.fail(Operation::Head, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.stat("a").await, Err(FsError::Io(_))));
    assert!(bed.stat("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_path_longer_than_a_key_is_refused() {
    let bed = Bed::new();
    let long = "x".repeat(255);
    let path = [long.as_str(); 3].join("/");
    bed.put(&format!("{path}/y"), "").await;
    let deep = format!("{path}/{long}");
    assert_eq!(deep.len(), 1023);
    assert_eq!(bed.stat(&deep).await, Err(FsError::NotFound));
    let parent = bed.inode(&path).await.unwrap();
    let sub = bed.inode(&format!("{path}/y")).await.unwrap();
    assert_eq!(
        bed.lookup(sub, "z").await.err(),
        Some(FsError::NotADirectory)
    );
    bed.put(&format!("{path}/d/e"), "").await;
    let below = bed.lookup(parent, "d").await.unwrap().attributes.inode;
    assert_eq!(
        bed.lookup(below, &long).await.err(),
        Some(FsError::NameTooLong)
    );
    let created = bed.created(&format!("{path}/d/{long}"), READ).await;
    assert_eq!(created.err(), Some(FsError::NameTooLong));
}

#[tokio::test(start_paused = true)]
async fn lookup_below_a_file_is_refused() {
    let bed = Bed::new();
    bed.put("a", "").await;
    let file = bed.inode("a").await.unwrap();
    assert_eq!(
        bed.lookup(file, "b").await.err(),
        Some(FsError::NotADirectory)
    );
}

#[tokio::test(start_paused = true)]
async fn inodes_that_nobody_holds_leave_memory() {
    let bed = Bed::new();
    bed.put("d/a", "abc").await;
    let directory = bed.lookup(Inode::ROOT, "d").await.unwrap().attributes.inode;
    let first = bed.lookup(directory, "a").await.unwrap().attributes.inode;
    let again = bed.lookup(directory, "a").await.unwrap().attributes.inode;
    assert_eq!((first, bed.metric("bucket_inodes")), (again, 3));
    bed.volume.forget(first, 2);
    assert_eq!(bed.metric("bucket_inodes"), 2);
    // What was known is remembered, under a new number.
    bed.requests();
    let found = bed.lookup(directory, "a").await.unwrap().attributes;
    assert_eq!((found.size, bed.requests()), (3, String::new()));
    assert!(found.inode > first);
    bed.volume.forget(found.inode, 1);
    bed.volume.forget(directory, 1);
    // The directory stays for what it remembers, but not as one that somebody holds.
    assert_eq!(bed.metric("bucket_inodes"), 1);
    assert_eq!(bed.metric("bucket_idle_directories"), 1);
    assert_eq!(bed.metric("bucket_remembered_names"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_directory_answers_from_its_fresh_listing() {
    let bed = Bed::new();
    for number in 0..1000 {
        bed.put(&format!("above/d/{number:04}"), "abc").await;
    }
    bed.mkdir("empty").await.unwrap();
    assert_eq!(bed.ls("above/d").await.unwrap().len(), 1000);
    assert_eq!(bed.ls("empty").await.unwrap(), [""; 0]);
    bed.forget_all();
    bed.requests();
    for number in 0..1000 {
        let path = format!("above/d/{number:04}");
        assert_eq!(bed.stat(&path).await.unwrap().size, 3);
    }
    assert_eq!(bed.stat("above/d/other").await, Err(FsError::NotFound));
    assert_eq!(bed.stat("empty/other").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "", "all of it was just listed");
    bed.forget_all();
    advance(Duration::from_secs(61)).await;
    bed.stat("above/d/0000").await.unwrap();
    assert_eq!(bed.requests(), "head 3, list 3");
}

#[tokio::test(start_paused = true)]
async fn forgotten_directories_stay_within_the_limit_of_names() {
    let bed = Bed::with_memory(MemoryStore::new(), BucketSettings::default(), 2 * MIB);
    for number in 0..2000 {
        bed.put(&format!("{number:04}/below/file"), "").await;
    }
    let before = bed.budget.used();
    for number in 0..2000 {
        bed.ls(&format!("{number:04}/below")).await.unwrap();
        bed.forget_all();
        // Each of them takes two names for itself.
        let idle = bed.metric("bucket_idle_directories");
        assert!(bed.metric("bucket_remembered_names") + 2 * idle <= 1024);
    }
    assert!(bed.budget.used() - before <= MIB);
    bed.requests();
    bed.stat("1999/below/file").await.unwrap();
    assert_eq!(bed.requests(), "", "the newest is remembered");
    bed.stat("0000/below/file").await.unwrap();
    assert_ne!(bed.requests(), "", "the oldest is not");
}

#[tokio::test(start_paused = true)]
async fn remembered_names_are_bounded() {
    let bed = Bed::with_memory(MemoryStore::new(), BucketSettings::default(), 2 * MIB);
    for directory in 0..4 {
        for file in 0..400 {
            bed.put(&format!("{directory}/{file}"), "").await;
        }
    }
    for directory in 0..4 {
        for listed in bed.list(&directory.to_string(), 70).await.unwrap() {
            bed.volume.forget(listed.entry.attributes.inode, 1);
        }
        assert!(bed.metric("bucket_remembered_names") <= 1024);
    }
    bed.requests();
    assert!(bed.stat("3/0").await.is_ok());
    assert_eq!(bed.stat("3/other").await, Err(FsError::NotFound));
    assert_eq!(bed.requests(), "");
    assert!(bed.stat("0/0").await.is_ok());
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn remembered_names_draw_from_the_memory_budget() {
    let store = MemoryStore::new();
    let bed = Bed::with_memory(store, BucketSettings::default(), 8 * MIB);
    let before = bed.budget.used();
    for file in 0..5000 {
        bed.put(&format!("{file:04}"), "").await;
    }
    for listed in bed.list("", 500).await.unwrap().iter().skip(1) {
        bed.volume.forget(listed.entry.attributes.inode, 1);
    }
    // An eighth of the budget, at 256 bytes each.
    assert_eq!(bed.metric("bucket_remembered_names"), 4096);
    // The inode that is left is paid for, too, in steps.
    assert_eq!(bed.budget.used() - before, MIB + 256 * KIB);
}

#[tokio::test(start_paused = true)]
async fn an_answer_older_than_a_change_made_here_is_not_believed() {
    let bed = Bed::new();
    bed.put("a", "old").await;
    bed.put("b", "").await;
    bed.stat("a").await.unwrap();
    advance(Duration::from_secs(61)).await;
    // The answers are ready but held back while the file is removed here.
    let late = bed.probe.hold_late(Operation::Head);
    let lookup = bed.lookup(Inode::ROOT, "a");
    let change = async {
        while bed.probe.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        bed.probe.release_all();
        let parent = Inode::ROOT;
        let kind = penstock_vfs::RemoveKind::File;
        bed.volume
            .remove(&CALLER, Dentry::new(parent, &name("a")), kind)
            .await
            .unwrap();
        late.add_permits(9);
    };
    let (found, ()) = tokio::join!(lookup, change);
    assert_eq!(found.err(), Some(FsError::NotFound));
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
}

#[tokio::test]
async fn a_name_that_changes_during_each_question_about_it_is_not_taken_for_absent() {
    let bed = Bed::with(BucketSettings {
        attr_timeout: Duration::ZERO,
        negative_timeout: Duration::ZERO,
        ..BucketSettings::default()
    });
    bed.write_file("file", b"0").await.unwrap();
    bed.forget_all();
    let mut answers = bed.probe.hold_late(Operation::List);
    let (found, ()) = tokio::join!(bed.lookup(Inode::ROOT, "file"), async {
        for round in [b"1", b"2", b"3"] {
            while bed.probe.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            // The next question waits, and this change does not.
            bed.probe.release_all();
            bed.write_file("file", round).await.unwrap();
            bed.forget_all();
            let next = bed.probe.hold_late(Operation::List);
            std::mem::replace(&mut answers, next).add_permits(1);
            // The answer arrives, and the next question is asked.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        bed.probe.release_all();
    });
    assert!(matches!(found, Err(FsError::Busy(_))), "{found:?}");
    assert_eq!(bed.stat("file").await.unwrap().size, 1);
}
