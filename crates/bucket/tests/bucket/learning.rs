//! Staged mode that saves behind the close: what memory answers while the times run, and what one listing renews.

use std::time::Duration;

use penstock_base::clock;
use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_vfs::{RenameMode, Volume};

use crate::{
    behind::{behind, saved, shut_down},
    metadata::wait_for_the_wall_clock,
    support::Bed,
};

const BELIEVED: Duration = Duration::from_secs(300);
const FILES: usize = 20;

fn settings() -> BucketSettings {
    BucketSettings {
        attr_timeout: BELIEVED,
        ..behind(Duration::from_millis(10))
    }
}

fn plain() -> BucketSettings {
    BucketSettings {
        metadata: MetadataSettings::default(),
        ..settings()
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..FILES).map(|number| format!("tree/{number:02}"))
}

/// A directory of files that were made here and are saved.
async fn tree(settings: BucketSettings) -> Bed {
    let bed = Bed::staged_with(settings);
    bed.mkdir("tree").await.unwrap();
    for path in names() {
        bed.write_file(&path, "content").await.unwrap();
    }
    saved(&bed).await;
    bed.requests();
    bed
}

async fn stat_all(bed: &Bed) {
    for path in names() {
        assert_eq!(bed.stat(&path).await.unwrap().size, 7, "{path}");
    }
}

/// What git asks for: each file, what else there is, and names that are not there.
async fn status(bed: &Bed) {
    stat_all(bed).await;
    assert_eq!(bed.ls("tree").await.unwrap().len(), FILES);
    assert!(bed.stat("tree/.gitignore").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_made_here_is_shown_and_listed_from_memory_while_the_times_run() {
    let bed = tree(settings()).await;
    status(&bed).await;
    clock::sleep(BELIEVED - Duration::from_secs(60)).await;
    status(&bed).await;
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_listed_from_memory_only_where_files_are_saved_behind() {
    let bed = tree(BucketSettings {
        save_behind: None,
        ..settings()
    })
    .await;
    bed.put("tree/theirs", "theirs").await;
    assert_eq!(bed.ls("tree").await.unwrap().len(), FILES + 1);
}

#[tokio::test(start_paused = true)]
async fn what_others_made_is_listed_when_the_times_have_run_out() {
    let bed = tree(plain()).await;
    bed.put("tree/theirs", "theirs").await;
    bed.delete("tree/00").await;
    assert_eq!(bed.ls("tree").await.unwrap().len(), FILES);
    clock::sleep(BELIEVED).await;
    bed.stat("tree").await.unwrap();
    bed.requests();
    assert_eq!(bed.ls("tree").await.unwrap().len(), FILES);
    assert_eq!(bed.requests(), "list 1");
    assert!(bed.stat("tree/00").await.is_err());
    assert_eq!(bed.read_file("tree/theirs").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn what_changes_here_is_listed_from_memory() {
    let bed = tree(settings()).await;
    bed.unlink("tree/00").await.unwrap();
    bed.write_file("tree/new", "new").await.unwrap();
    bed.rename_as("tree/01", "tree/moved", RenameMode::NoReplace)
        .await
        .unwrap();
    bed.requests();
    let listed = bed.ls("tree").await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(listed.len(), FILES);
    for (name, is_there) in [("00", false), ("01", false), ("new", true), ("moved", true)] {
        let found = listed.iter().any(|listed| listed == name);
        assert_eq!(found, is_there, "{name}");
    }
    assert!(shut_down(&bed).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_listing_from_memory_does_not_prolong_what_is_believed() {
    let bed = tree(plain()).await;
    for _ in 0..3 {
        clock::sleep(BELIEVED / 3 - Duration::from_secs(1)).await;
        bed.ls("tree").await.unwrap();
        assert_eq!(bed.requests(), "");
    }
    clock::sleep(Duration::from_secs(10)).await;
    bed.stat("tree").await.unwrap();
    bed.requests();
    bed.ls("tree").await.unwrap();
    assert_eq!(bed.requests(), "list 1");
}

#[tokio::test(start_paused = true)]
async fn one_listing_renews_files_that_are_believed_no_longer() {
    let bed = tree(plain()).await;
    for _ in 0..3 {
        clock::sleep(BELIEVED).await;
        bed.stat("tree").await.unwrap();
        bed.requests();
        stat_all(&bed).await;
        // Three are asked for before the directory is listed.
        assert_eq!(bed.requests(), "head 3, list 4");
    }
}

#[tokio::test(start_paused = true)]
async fn with_kept_metadata_files_stored_here_are_described_once_and_then_renewed_by_a_listing() {
    let bed = tree(settings()).await;
    let asked = async || {
        clock::sleep(BELIEVED).await;
        bed.stat("tree").await.unwrap();
        bed.requests();
        stat_all(&bed).await;
        bed.requests()
    };
    // The store tells times in seconds: what it has just stored may be described anew within the same second.
    wait_for_the_wall_clock(Duration::from_millis(2100)).await;
    assert_eq!(asked().await, "head 20, list 4");
    assert_eq!(asked().await, "head 3, list 4");
}

/// Who looks at some files of many does not pay for all.
#[tokio::test(start_paused = true)]
async fn with_kept_metadata_more_and_more_files_are_described_with_a_listing() {
    let bed = Bed::staged_with(settings());
    bed.mkdir("tree").await.unwrap();
    let path = |number: usize| format!("tree/{number:03}");
    for number in 0..100 {
        bed.write_file(&path(number), "content").await.unwrap();
    }
    saved(&bed).await;
    clock::sleep(BELIEVED).await;
    bed.stat("tree").await.unwrap();
    bed.requests();
    for number in 0..10 {
        bed.stat(&path(number)).await.unwrap();
    }
    assert_eq!(bed.requests(), "head 35, list 4");
    for number in 10..100 {
        bed.stat(&path(number)).await.unwrap();
    }
    assert_eq!(bed.requests(), "head 65, list 2");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_renews_shows_what_others_changed() {
    for settings in [plain(), settings()] {
        let bed = tree(settings).await;
        clock::sleep(BELIEVED).await;
        bed.put("tree/10", "theirs, longer").await;
        bed.delete("tree/11").await;
        for path in ["tree/00", "tree/01", "tree/02", "tree/03"] {
            bed.stat(path).await.unwrap();
        }
        assert_eq!(bed.stat("tree/10").await.unwrap().size, 14);
        assert!(bed.stat("tree/11").await.is_err());
        assert_eq!(bed.read_file("tree/10").await.unwrap(), b"theirs, longer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_files_that_are_believed_no_longer_are_asked_for_one_by_one() {
    let bed = tree(plain()).await;
    clock::sleep(BELIEVED).await;
    bed.stat("tree").await.unwrap();
    bed.requests();
    bed.stat("tree/00").await.unwrap();
    bed.stat("tree/01").await.unwrap();
    assert_eq!(bed.requests(), "head 2, list 2");
}

#[tokio::test(start_paused = true)]
async fn a_directory_of_more_than_a_page_is_renewed_file_by_file() {
    let bed = tree(plain()).await;
    for number in 0..1000 {
        bed.put(&format!("tree/theirs{number:04}"), "theirs").await;
    }
    clock::sleep(BELIEVED).await;
    bed.stat("tree").await.unwrap();
    bed.requests();
    stat_all(&bed).await;
    // One listing came to nothing, and is not tried again soon.
    assert_eq!(bed.requests(), "head 20, list 21");
}

#[tokio::test(start_paused = true)]
async fn names_that_memory_forgot_during_a_listing_from_it_are_asked_for() {
    let mut settings = plain();
    settings.metadata.stat_cache_size = 30;
    let bed = tree(settings).await;
    for number in 0..FILES {
        bed.put(&format!("other/{number}"), "theirs").await;
    }
    let directory = bed.open_dir("tree").await.unwrap();
    bed.requests();
    let mut listed = bed.list_from(directory, 0, 5).await.unwrap();
    assert_eq!(bed.requests(), "");
    bed.forget_all();
    // Memory has no room for both.
    bed.ls("other").await.unwrap();
    bed.forget_all();
    bed.requests();
    let next = listed.last().unwrap().next;
    listed.extend(bed.list_from(directory, next, FILES).await.unwrap());
    assert_ne!(bed.requests(), "", "memory forgot them");
    assert_eq!(listed.len(), FILES);
    bed.volume.release_directory(directory).await;
}
