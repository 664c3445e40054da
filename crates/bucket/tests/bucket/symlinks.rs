//! The store's native symbolic links.

use std::time::Duration;

use penstock_base::{FsError, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{Key, Operation, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{FileKind, Volume};

use crate::support::{Bed, CALLER, READ};

fn oss() -> Bed {
    Bed::over(MemoryStore::like_oss(), BucketSettings::default())
}

async fn readlink(bed: &Bed, path: &str) -> Result<String, FsError> {
    let inode = bed.inode(path).await?;
    let target = bed.volume.read_symlink(&CALLER, inode).await?;
    Ok(String::from_utf8(target.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_link_leads_to_a_file_by_a_relative_path() {
    let bed = oss();
    bed.put("a/target", "x").await;
    bed.mkdir("a/b").await.unwrap();
    bed.requests();
    let entry = bed.symlink("../target", "a/b/link").await.unwrap();
    assert_eq!(entry.attributes.kind, FileKind::Symlink);
    assert_eq!(bed.requests(), "put_symlink 1");
    assert_eq!(readlink(&bed, "a/b/link").await.unwrap(), "../target");
    assert_eq!(bed.requests(), "get_symlink 1");
    let key = Key::new("a/b/link").unwrap();
    assert_eq!(
        bed.remote.get_symlink(&key).await.unwrap().as_str(),
        "a/target"
    );
}

#[tokio::test(start_paused = true)]
async fn links_made_by_others_are_shown() {
    let bed = oss();
    bed.put("target", "x").await;
    let (link, target) = (Key::new("d/link").unwrap(), Key::new("target").unwrap());
    bed.remote
        .put_symlink(&link, &target, PutOptions::default())
        .await
        .unwrap();
    let listed = bed.list("d", 9).await.unwrap();
    assert_eq!(listed[0].entry.attributes.kind, FileKind::Symlink);
    assert_eq!(readlink(&bed, "d/link").await.unwrap(), "../target");
    assert!(matches!(
        bed.open("d/link", READ).await,
        Err(FsError::InvalidArgument(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_link_out_of_the_mount_is_refused() {
    let bed = oss();
    bed.mkdir("d").await.unwrap();
    for target in ["/etc/passwd", "../../x", "", ".."] {
        let refused = bed.symlink(target, "d/link").await;
        assert!(
            matches!(refused, Err(FsError::InvalidArgument(_))),
            "{target}"
        );
    }
    assert_eq!(bed.keys().await, ["d/"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_over_an_existing_name_is_refused() {
    let bed = oss();
    bed.put("a", "x").await;
    assert_eq!(
        bed.symlink("b", "a").await.err(),
        Some(FsError::AlreadyExists)
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_without_links_refuses_to_make_them() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    assert!(matches!(
        bed.symlink("a", "b").await,
        Err(FsError::Unsupported(_))
    ));
    let settings = BucketSettings {
        symlinks: false,
        ..BucketSettings::default()
    };
    let bed = Bed::over(MemoryStore::like_oss(), settings);
    assert!(matches!(
        bed.symlink("a", "b").await,
        Err(FsError::Unsupported(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn reading_a_link_of_another_file_is_refused() {
    let bed = oss();
    bed.put("a", "x").await;
    assert!(matches!(
        readlink(&bed, "a").await,
        Err(FsError::InvalidArgument(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_renamed_link_leads_to_the_same_file() {
    let bed = oss();
    bed.put("target", "x").await;
    bed.mkdir("d").await.unwrap();
    bed.symlink("target", "link").await.unwrap();
    bed.requests();
    bed.rename("link", "d/moved").await.unwrap();
    assert_eq!(bed.requests(), "delete 1, get_symlink 1, put_symlink 1");
    assert_eq!(readlink(&bed, "d/moved").await.unwrap(), "../target");
    bed.unlink("d/moved").await.unwrap();
    assert_eq!(bed.keys().await, ["d/", "target"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_over_a_name_that_others_take_in_that_moment_is_refused() {
    let bed = Bed::over(MemoryStore::like_oss(), BucketSettings::default());
    let held = bed.probe.hold(Operation::PutSymlink);
    let (made, ()) = tokio::join!(bed.symlink("other", "name"), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("name", "theirs").await;
        held.add_permits(1);
    });
    assert_eq!(made.map(drop), Err(FsError::AlreadyExists));
    assert_eq!(bed.object("name").await.unwrap(), b"theirs");
}
