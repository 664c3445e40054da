//! Reading directories.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Dentry, FileKind, Inode, ListFrom, RemoveKind, Volume};
use tokio::time::advance;

use crate::support::{Bed, CALLER, Listed, Probe, READ, WRITE, name};

/// A bucket with `count` files of one byte.
async fn files(count: usize) -> Bed {
    let bed = Bed::new();
    for number in 0..count {
        bed.put(&format!("{number:05}"), "x").await;
    }
    bed
}

#[tokio::test(start_paused = true)]
async fn listing_ten_thousand_files_costs_ten_requests() {
    let bed = files(10_000).await;
    let listed = bed.list("", 300).await.unwrap();
    assert_eq!(listed.len(), 10_000);
    assert!(
        listed
            .iter()
            .enumerate()
            .all(|(at, file)| file.name == format!("{at:05}"))
    );
    assert_eq!(bed.requests(), "list 10");
}

#[tokio::test(start_paused = true)]
async fn stat_and_open_after_listing_cost_nothing() {
    let bed = files(100).await;
    for listed in bed.list("", 30).await.unwrap() {
        assert_eq!(listed.entry.attributes.size, 1);
        bed.volume.forget(listed.entry.attributes.inode, 1);
    }
    bed.requests();
    for number in 0..100 {
        let path = format!("{number:05}");
        assert_eq!(bed.stat(&path).await.unwrap().size, 1);
        let handle = bed.open(&path, READ).await.unwrap();
        bed.close(handle).await.unwrap();
    }
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn listing_shows_files_and_directories_in_order() {
    let bed = Bed::new();
    for key in ["b/x", "a", "c/", "d/e/f", "a.txt", "d-", "ü"] {
        bed.put(key, "123").await;
    }
    let listed = bed.list("", 2).await.unwrap();
    let shown: Vec<_> = listed
        .iter()
        .map(|file| (file.name.as_str(), file.entry.attributes.kind))
        .collect();
    let (file, directory) = (FileKind::Regular, FileKind::Directory);
    let expected = [
        ("a", file),
        ("a.txt", file),
        ("b", directory),
        ("c", directory),
        ("d-", file),
        ("d", directory),
        ("ü", file),
    ];
    assert_eq!(shown, expected);
    assert_eq!(bed.ls("c").await.unwrap(), [""; 0]);
    assert_eq!(bed.ls("d/e").await.unwrap(), ["f"]);
}

#[tokio::test(start_paused = true)]
async fn listing_goes_on_from_any_position() {
    let bed = files(4500).await;
    let handle = bed.open_dir("").await.unwrap();
    let all = bed.list_all(handle, 700).await.unwrap();
    for position in [1u64, 999, 1000, 1001, 2500, 4499, 3, 4500, 17] {
        let rest = bed.list_from(handle, position, 5).await.unwrap();
        let names = |listed: &[Listed]| -> Vec<String> {
            listed.iter().map(|file| file.name.clone()).collect()
        };
        let expected = &all[position as usize..all.len().min(position as usize + 5)];
        assert_eq!(names(&rest), names(expected), "{position}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_back_over_a_page_costs_nothing() {
    let bed = files(3000).await;
    let handle = bed.open_dir("").await.unwrap();
    bed.list_from(handle, 0, 1500).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(bed.requests(), "list 3");
    let again = bed.list_from(handle, 990, 20).await.unwrap();
    assert_eq!((again[0].name.as_str(), again.len()), ("00990", 20));
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn rewinding_lists_anew() {
    let bed = files(3).await;
    let handle = bed.open_dir("").await.unwrap();
    assert_eq!(bed.list_from(handle, 0, 99).await.unwrap().len(), 3);
    bed.put("new", "").await;
    assert_eq!(bed.list_from(handle, 0, 99).await.unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn listing_fetches_one_page_ahead_and_no_more() {
    let bed = files(9000).await;
    let handle = bed.open_dir("").await.unwrap();
    bed.list_from(handle, 0, 10).await.unwrap();
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.requests(), "list 2");
    let mut position = 10;
    while position < 4990 {
        position = bed.list_from(handle, position, 10).await.unwrap()[9].next;
    }
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.requests(), "list 4");
}

#[tokio::test(start_paused = true)]
async fn listing_shows_files_that_are_not_saved_yet() {
    let bed = files(1).await;
    let handle = bed.create("unsaved").await.unwrap();
    bed.write(handle, 0, "12345").await.unwrap();
    let listed = bed.list("", 99).await.unwrap();
    let shown: Vec<_> = listed
        .iter()
        .map(|file| (file.name.as_str(), file.entry.attributes.size))
        .collect();
    assert_eq!(shown, [("unsaved", 5), ("00000", 1)]);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.ls("").await.unwrap(), ["00000", "unsaved"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_saved_while_listing_is_shown_once() {
    let bed = files(1500).await;
    let unsaved = bed.create("99999").await.unwrap();
    let handle = bed.open_dir("").await.unwrap();
    let first = bed.list_from(handle, 0, 1200).await.unwrap();
    assert_eq!(first[0].name, "99999");
    bed.close(unsaved).await.unwrap();
    let rest = bed.list_from(handle, 1200, 9999).await.unwrap();
    assert_eq!(first.len() + rest.len(), 1501);
    assert!(rest.iter().all(|file| file.name != "99999"));
}

#[tokio::test(start_paused = true)]
async fn listing_does_not_show_what_was_removed_here_meanwhile() {
    let bed = files(1500).await;
    let handle = bed.open_dir("").await.unwrap();
    let first = bed.list_from(handle, 0, 500).await.unwrap();
    // The second page, already fetched, still has it.
    tokio::task::yield_now().await;
    bed.unlink("01200").await.unwrap();
    bed.unlink("00600").await.unwrap();
    let rest = bed.list_from(handle, 500, 9999).await.unwrap();
    assert_eq!(first.len() + rest.len(), 1498);
    assert_eq!(bed.stat("01200").await, Err(FsError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn removing_everything_while_listing_misses_nothing() {
    let bed = files(3500).await;
    let handle = bed.open_dir("").await.unwrap();
    let mut position = 0;
    loop {
        let some = bed.list_from(handle, position, 150).await.unwrap();
        let Some(last) = some.last() else { break };
        position = last.next;
        for file in some {
            let name = name(&file.name);
            bed.volume
                .remove(&CALLER, Dentry::new(Inode::ROOT, &name), RemoveKind::File)
                .await
                .unwrap();
        }
    }
    assert!(bed.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn names_that_no_file_can_have_are_hidden_and_counted() {
    let bed = Bed::new();
    let long = format!("d/{}", "x".repeat(256));
    for key in [
        "d//x", "d/./y", "d/../z", "d/.", "d/..", "d/a\0b", &long, "d/good",
    ] {
        bed.put(key, "").await;
    }
    bed.put("/root", "").await;
    assert_eq!(bed.ls("d").await.unwrap(), ["good"]);
    assert_eq!(bed.metric("bucket_hidden_entries_total"), 7);
    assert_eq!(bed.ls("").await.unwrap(), ["d"]);
    assert_eq!(bed.metric("bucket_hidden_entries_total"), 8);
    // What is hidden still keeps the directory from being removed.
    bed.unlink("d/good").await.unwrap();
    assert_eq!(bed.rmdir("d").await, Err(FsError::DirectoryNotEmpty));
}

#[tokio::test(start_paused = true)]
async fn a_file_hidden_by_a_directory_is_listed_once() {
    let bed = Bed::new();
    for key in ["a", "a-1", "a.txt", "a/x", "b", "b/"] {
        bed.put(key, "").await;
    }
    assert_eq!(bed.ls("").await.unwrap(), ["a-1", "a.txt", "a", "b"]);
    assert_eq!(bed.metric("bucket_hidden_entries_total"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_is_hidden_by_a_directory_on_a_later_page() {
    for between in [998, 999, 1000, 1001, 2500] {
        let bed = Bed::new();
        bed.put("a", "").await;
        for number in 0..between {
            bed.put(&format!("a-{number:04}"), "").await;
        }
        bed.put("a/x", "").await;
        let listed = bed.list("", 400).await.unwrap();
        assert_eq!(listed.len(), between + 1, "{between}");
        assert_eq!(listed[0].name, "a-0000");
        let last = listed.last().unwrap();
        assert_eq!(
            (last.name.as_str(), last.entry.attributes.kind),
            ("a", FileKind::Directory)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_file_of_a_page_costs_no_extra_request() {
    let bed = files(2001).await;
    assert_eq!(bed.list("", 9999).await.unwrap().len(), 2001);
    assert_eq!(bed.requests(), "list 3");
}

#[tokio::test(start_paused = true)]
async fn a_directory_larger_than_the_cache_is_listed() {
    let bed = Bed::with_memory(MemoryStore::new(), BucketSettings::default(), 2 * MIB);
    for number in 0..3000 {
        bed.put(&format!("d/{number:05}"), "x").await;
    }
    let handle = bed.open_dir("d").await.unwrap();
    let (mut position, mut count) = (0, 0);
    loop {
        let some = bed.list_from(handle, position, 200).await.unwrap();
        let Some(last) = some.last() else { break };
        position = last.next;
        count += some.len();
        for file in &some {
            bed.volume.forget(file.entry.attributes.inode, 1);
        }
        assert!(bed.metric("bucket_remembered_names") <= 1024);
        assert!(bed.metric("bucket_inodes") < 10);
    }
    assert_eq!(count, 3000);
    // It is not taken for complete.
    bed.requests();
    bed.stat("d/02999").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn listing_a_removed_directory_is_empty_or_stale() {
    let bed = Bed::new();
    bed.put("d/", "").await;
    let handle = bed.open_dir("d").await.unwrap();
    bed.rmdir("d").await.unwrap();
    assert!(matches!(
        bed.list_from(handle, 0, 9).await,
        Err(FsError::Stale)
    ));
}

#[tokio::test(start_paused = true)]
async fn listing_fails_when_the_store_fails_and_goes_on_after() {
    let bed = files(2500).await;
    let handle = bed.open_dir("").await.unwrap();
    bed.probe.fail(Operation::List, ErrorKind::Unavailable, 1);
    let listed = bed.list_from(handle, 0, 1500).await;
    assert!(matches!(listed, Err(FsError::Io(_))));
    advance(Duration::from_secs(5)).await;
    // Entries that were shown before a failure are not taken back. Of the last one of a page only
    // the next page tells whether a directory hides it.
    bed.probe
        .fail_after(1, Operation::List, ErrorKind::PermissionDenied, 1);
    let first = bed.list_from(handle, 0, 1500).await.unwrap();
    assert_eq!(first.len(), 999);
    assert_eq!(
        bed.list_from(handle, 999, 9999).await.err(),
        Some(FsError::PermissionDenied)
    );
    assert_eq!(bed.list_from(handle, 999, 9999).await.unwrap().len(), 1501);
}

/// A door may have put entries of its own before a failure at the beginning.
#[tokio::test(start_paused = true)]
async fn a_failure_of_a_listing_answers_the_next_call_for_its_position_and_no_other() {
    let bed = files(2500).await;
    let handle = bed.open_dir("").await.unwrap();
    let fails = async |position| {
        let listed = bed.list_from(handle, position, 9999).await;
        assert_eq!(listed.err(), Some(FsError::PermissionDenied), "{position}");
    };
    bed.probe
        .fail(Operation::List, ErrorKind::PermissionDenied, 1);
    fails(0).await;
    bed.requests();
    fails(0).await;
    assert_eq!(bed.requests(), "");
    bed.probe
        .fail_after(1, Operation::List, ErrorKind::PermissionDenied, 9);
    assert_eq!(bed.list_from(handle, 0, 9999).await.unwrap().len(), 999);
    tokio::task::yield_now().await;
    bed.probe.mend();
    bed.requests();
    fails(999).await;
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.list_from(handle, 999, 9999).await.unwrap().len(), 1501);
    // Elsewhere, and later, it is nobody's answer.
    for later in [false, true] {
        bed.probe
            .fail(Operation::List, ErrorKind::PermissionDenied, 1);
        fails(0).await;
        let position = if later { 0 } else { 1 };
        advance(Duration::from_secs(if later { 5 } else { 0 })).await;
        assert!(!bed.list_from(handle, position, 9).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_refreshes_what_was_known() {
    let bed = files(2).await;
    bed.ls("").await.unwrap();
    bed.put("00000", "longer").await;
    bed.delete("00001").await;
    advance(Duration::from_secs(5)).await;
    assert_eq!(bed.stat("00000").await.unwrap().size, 1);
    assert_eq!(bed.ls("").await.unwrap(), ["00000"]);
    assert_eq!(bed.stat("00000").await.unwrap().size, 6);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lists_in_no_order_is_refused() {
    for disorder in [Probe::disorder, Probe::disorder_of_pages] {
        let bed = Bed::new();
        for number in 0..1500 {
            bed.put(&format!("file{number:04}"), "").await;
            bed.put(&format!("directory{number:04}/x"), "").await;
        }
        disorder(&bed.probe);
        let refused = bed.ls("").await.unwrap_err();
        assert!(matches!(refused, FsError::Unsupported(_)), "{refused}");
        assert!(refused.to_string().contains("S3 Express"), "{refused}");
    }
}

/// A door without handles goes on after a name, whether that is still there or not.
#[tokio::test(start_paused = true)]
async fn a_directory_is_listed_after_a_name() {
    let bed = Bed::new();
    for key in ["d/a", "d/a-b", "d/a/x", "d/b", "d/c/y", "d/c0", "d/z"] {
        bed.put(key, "").await;
    }
    bed.create("d/m").await.unwrap();
    let changed = bed.open("d/b", WRITE).await.unwrap();
    bed.write(changed, 0, "it is in the store, too")
        .await
        .unwrap();
    let all = bed.ls("d").await.unwrap();
    let directory = bed.inode("d").await.unwrap();
    let mut found = Vec::new();
    loop {
        let last = found.last().map(|last: &String| name(last));
        let from = last.as_ref().map_or(ListFrom::START, ListFrom::After);
        let some = bed.list_stateless(directory, from, 2).await.unwrap();
        if some.is_empty() {
            break;
        }
        found.extend(some);
    }
    let (mut listed, mut expected) = (found.clone(), all);
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected, "each once");
    bed.unlink("d/b").await.unwrap();
    let after = bed
        .list_stateless(directory, ListFrom::After(&name("b")), 9)
        .await;
    assert_eq!(after.unwrap(), ["c", "c0", "m", "z"]);
}
