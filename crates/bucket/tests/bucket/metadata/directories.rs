//! What the objects that mark directories say, in all their forms.

use penstock_base::FsError;
use penstock_bucket::MetadataSettings;
use penstock_vfs::{Dentry, FileKind, Inode, Volume};

use super::{
    CALLER, advance, at, bed, change, head, keeping, mode, modified, owner, put, put_as, settings,
    stored,
};
use crate::support::{Bed, name, new_directory};

#[tokio::test(start_paused = true)]
async fn a_renamed_directory_keeps_its_metadata() {
    let bed = bed();
    bed.mkdir("d").await.unwrap();
    change(&bed, "d", mode(0o711)).await.unwrap();
    put(&bed, "d/file", "body", &[("uid", "12")]).await;
    bed.rename("d", "e").await.unwrap();
    let fresh = bed.fresh_with(settings());
    assert_eq!(fresh.stat("e").await.unwrap().permissions, 0o711);
    assert_eq!(fresh.stat("e/file").await.unwrap().uid, 12);
}

#[tokio::test(start_paused = true)]
async fn a_new_directory_keeps_its_owner_and_mode() {
    let bed = bed();
    let (outer, inner) = (name("d"), name("below"));
    let made = bed.volume.make(
        &CALLER,
        Dentry::new(Inode::ROOT, &outer),
        new_directory(0o2750),
        None,
    );
    let entry = made.await.unwrap().entry;
    assert_eq!(entry.attributes.permissions, 0o2750);
    let shown = bed.fresh_with(settings()).stat("d").await.unwrap();
    assert_eq!((shown.uid, shown.gid, shown.permissions), (7, 8, 0o2750));
    let info = head(&bed, "d/").await;
    assert_eq!(info.content_type, "application/x-directory");
    assert_eq!(info.metadata.get("mode").map(String::as_str), Some("17896"));
    // Set-group-ID hands the group down, and itself to directories.
    change(&bed, "d", owner(1, 99)).await.unwrap();
    let inner = Dentry::new(entry.attributes.inode, &inner);
    let below = bed.volume.make(&CALLER, inner, new_directory(0o700), None);
    let below = below.await.unwrap().entry.attributes;
    assert_eq!((below.gid, below.permissions), (99, 0o2700));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_directory_writes_its_marker() {
    let bed = bed();
    bed.put("d/file", "").await;
    bed.stat("d").await.unwrap();
    bed.requests();
    change(&bed, "d", mode(0o700)).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    let shown = bed.fresh_with(settings()).stat("d").await.unwrap();
    assert_eq!(shown.permissions, 0o700);
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_root_live_in_memory() {
    let bed = bed();
    change(&bed, "", mode(0o700)).await.unwrap();
    change(&bed, "", modified(at(1000, 5))).await.unwrap();
    let shown = bed.stat("").await.unwrap();
    assert_eq!((shown.permissions, shown.modified), (0o700, at(1000, 5)));
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn directories_of_other_programs_are_directories() {
    let bed = bed();
    put_as(&bed, "typed", "", (&[], Some("application/x-directory"))).await;
    put(&bed, "moded", "", &[("mode", "16832"), ("uid", "5")]).await;
    put(&bed, "folder_$folder$", "", &[("uid", "6")]).await;
    put(&bed, "both_$folder$", "", &[]).await;
    bed.put("both/file", "").await;
    for path in ["typed", "moded", "folder", "both"] {
        assert_eq!(
            bed.stat(path).await.unwrap().kind,
            FileKind::Directory,
            "{path}"
        );
    }
    let moded = bed.stat("moded").await.unwrap();
    assert_eq!((moded.uid, moded.permissions), (5, 0o700));
    assert_eq!(bed.stat("folder").await.unwrap().uid, 6);
    let listed = bed.fresh_with(settings()).list("", 99).await.unwrap();
    let names: Vec<_> = listed.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["both", "folder", "moded", "typed"]);
    let is_directory = |kind| kind == FileKind::Directory;
    assert!(
        listed
            .iter()
            .all(|listed| is_directory(listed.entry.attributes.kind))
    );
    // After the timeout they are still there.
    advance(61).await;
    assert_eq!(bed.stat("folder").await.unwrap().uid, 6);
    assert_eq!(bed.stat("moded").await.unwrap().uid, 5);
    for path in ["typed", "moded", "folder"] {
        bed.rmdir(path).await.unwrap();
    }
    bed.unlink("both/file").await.unwrap();
    bed.rmdir("both").await.unwrap();
    assert_eq!(bed.keys().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn old_markers_become_common_ones_when_they_are_changed() {
    let bed = bed();
    put(&bed, "plain", "", &[("mode", "16832"), ("uid", "5")]).await;
    put(&bed, "moved", "", &[("mode", "16832"), ("uid", "5")]).await;
    put(
        &bed,
        "folder_$folder$",
        "",
        &[("uid", "6"), ("colour", "blue")],
    )
    .await;
    change(&bed, "plain", mode(0o755)).await.unwrap();
    change(&bed, "folder", mode(0o711)).await.unwrap();
    bed.rename("moved", "target").await.unwrap();
    assert_eq!(bed.keys().await, ["folder/", "plain/", "target/"]);
    let fresh = bed.fresh_with(settings());
    let plain = fresh.stat("plain").await.unwrap();
    assert_eq!((plain.uid, plain.permissions), (5, 0o755));
    assert_eq!(fresh.stat("target").await.unwrap().uid, 5);
    let metadata = stored(&bed, "folder/").await;
    assert_eq!(metadata.get("colour").map(String::as_str), Some("blue"));
}

#[tokio::test(start_paused = true)]
async fn without_compatibility_old_markers_are_files() {
    let bed = Bed::with(keeping(MetadataSettings {
        old_directories: false,
        ..MetadataSettings::default()
    }));
    put_as(&bed, "typed", "", (&[], Some("application/x-directory"))).await;
    put(&bed, "folder_$folder$", "", &[]).await;
    assert_eq!(bed.stat("typed").await.unwrap().kind, FileKind::Regular);
    assert_eq!(bed.stat("folder").await, Err(FsError::NotFound));
    assert_eq!(bed.ls("").await.unwrap(), ["folder_$folder$", "typed"]);
}
