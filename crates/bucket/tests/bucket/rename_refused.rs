//! Renames of unsaved files that the staging disk does not note.

use penstock_base::FsError;
use penstock_object::{ErrorKind, Operation};

use crate::{
    behind::{LATER, behind, shut_down},
    support::Bed,
};

/// Keeps the disk from writing journals anew: what each is written to first is there already.
fn refuse_journals(bed: &Bed) {
    let files = bed.staging_path("files");
    for journal in bed.journals() {
        let new = files.join(journal).with_extension("new");
        std::fs::create_dir(new).unwrap();
    }
}

fn allow_journals(files: &std::path::Path) {
    for entry in std::fs::read_dir(files).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::remove_dir(path).unwrap();
        }
    }
}

/// One with an unsaved file, of which a rename was neither noted nor saved.
async fn refused(replaced: Option<&str>) -> Bed {
    let bed = Bed::staged_with(behind(LATER));
    bed.write_file("file", "content").await.unwrap();
    if let Some(name) = replaced {
        bed.write_file(name, "replaced").await.unwrap();
    }
    refuse_journals(&bed);
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 100);
    let renamed = bed.rename("file", "moved").await;
    assert!(matches!(renamed, Err(FsError::Io(_))), "{renamed:?}");
    bed
}

/// Memory had it under the new name, the journal under the old one.
#[tokio::test]
async fn a_rename_that_is_neither_noted_nor_saved_leaves_the_file_where_it_was() {
    let bed = refused(None).await;
    assert_eq!(bed.ls("").await.unwrap(), ["file"]);
    assert_eq!(bed.read_file("file").await.unwrap(), b"content");
    assert_eq!(bed.stat("moved").await, Err(FsError::NotFound));
    bed.probe.mend();
    allow_journals(&bed.staging_path("files"));
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["file"]);
    assert_eq!(bed.object("file").await.unwrap(), b"content");
}

#[tokio::test]
async fn a_kill_after_a_rename_that_failed_finds_the_file_where_it_was() {
    let bed = refused(None).await;
    let allow = |staging: &std::path::Path| allow_journals(&staging.join("files"));
    let bed = bed.killed(behind(LATER), allow).await;
    assert_eq!(bed.keys().await, ["file"]);
    assert_eq!(bed.object("file").await.unwrap(), b"content");
}

#[tokio::test]
async fn what_a_failed_rename_was_to_replace_stays() {
    let bed = refused(Some("moved")).await;
    assert_eq!(bed.ls("").await.unwrap(), ["file", "moved"]);
    assert_eq!(bed.read_file("moved").await.unwrap(), b"replaced");
    let allow = |staging: &std::path::Path| allow_journals(&staging.join("files"));
    let bed = bed.killed(behind(LATER), allow).await;
    assert_eq!(bed.keys().await, ["file", "moved"]);
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    assert_eq!(bed.object("moved").await.unwrap(), b"replaced");
}

#[tokio::test]
async fn a_rename_that_the_disk_does_not_note_is_made_at_the_store() {
    let bed = Bed::staged_with(behind(LATER));
    bed.write_file("file", "content").await.unwrap();
    refuse_journals(&bed);
    bed.rename("file", "moved").await.unwrap();
    assert_eq!(bed.object("moved").await.unwrap(), b"content");
    assert_eq!(bed.read_file("moved").await.unwrap(), b"content");
    assert_eq!(bed.ls("").await.unwrap(), ["moved"]);
    assert_eq!(bed.journals(), [""; 0]);
    assert!(shut_down(&bed).await.is_empty());
    assert_eq!(bed.keys().await, ["moved"]);
}
