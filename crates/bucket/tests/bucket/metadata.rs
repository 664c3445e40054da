//! Owner, mode, times, links and extended attributes in the metadata of objects.

mod directories;
mod kept;
mod special;

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_base::{FsError, FsResult, clock};
use penstock_bucket::{BucketSettings, ContentTypes, MetadataSettings};
use penstock_object::{
    HeadOptions, Key, ObjectInfo, PutOptions, Store, UserMetadata, WriteCondition,
};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{
    AttributeChanges, Attributes, Dentry, FileKind, Identity, Inode, TimeChange, Volume, XattrMode,
};

use crate::support::{Bed, READ, WRITE, name, new_file};

static CALLER: LazyLock<Identity> = LazyLock::new(|| Identity::trusted(7, 8));

fn keeping(mut metadata: MetadataSettings) -> BucketSettings {
    metadata.keep = true;
    BucketSettings {
        file_mode: 0o640,
        dir_mode: 0o750,
        metadata,
        ..BucketSettings::default()
    }
}

fn settings() -> BucketSettings {
    keeping(MetadataSettings::default())
}

fn bed() -> Bed {
    Bed::with(settings())
}

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

/// The clock of the wall is not paused.
pub(crate) async fn wait_for_the_wall_clock(time: Duration) {
    let end = clock::wall_time() + time;
    while clock::wall_time() < end {
        tokio::task::yield_now().await;
    }
}

fn at(seconds: u64, nanos: u32) -> SystemTime {
    UNIX_EPOCH + Duration::new(seconds, nanos)
}

async fn put(bed: &Bed, key: &str, body: &str, pairs: &[(&str, &str)]) {
    put_as(bed, key, body, (pairs, None)).await;
}

async fn put_as(
    bed: &Bed,
    key: &str,
    body: &str,
    (pairs, content_type): (&[(&str, &str)], Option<&str>),
) {
    let options = PutOptions {
        content_type: content_type.map(str::to_owned),
        metadata: pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        condition: WriteCondition::Always,
    };
    let body = body.as_bytes().to_vec().into();
    bed.remote
        .put(&Key::new(key).unwrap(), body, options)
        .await
        .unwrap();
}

async fn head(bed: &Bed, key: &str) -> ObjectInfo {
    let key = Key::new(key).unwrap();
    bed.remote.head(&key, HeadOptions::default()).await.unwrap()
}

async fn stored(bed: &Bed, key: &str) -> UserMetadata {
    head(bed, key).await.metadata
}

async fn change(bed: &Bed, path: &str, changes: AttributeChanges) -> FsResult<Attributes> {
    let inode = bed.inode(path).await?;
    let entry = bed.volume.set_attributes(&CALLER, inode, changes).await?;
    Ok(entry.attributes)
}

fn mode(permissions: u16) -> AttributeChanges {
    AttributeChanges {
        permissions: Some(permissions),
        ..AttributeChanges::default()
    }
}

fn owner(uid: u32, gid: u32) -> AttributeChanges {
    AttributeChanges {
        uid: Some(uid),
        gid: Some(gid),
        ..AttributeChanges::default()
    }
}

fn modified(time: SystemTime) -> AttributeChanges {
    AttributeChanges {
        modified: Some(TimeChange::To(time)),
        accessed: Some(TimeChange::To(time)),
        ..AttributeChanges::default()
    }
}

async fn create_as_caller(bed: &Bed, path: &str, permissions: u16) -> penstock_vfs::HandleId {
    let created = bed
        .volume
        .make(
            &CALLER,
            Dentry::new(Inode::ROOT, &name(path)),
            new_file(permissions),
            Some(WRITE),
        )
        .await;
    created.unwrap().opened.unwrap().handle
}

#[tokio::test(start_paused = true)]
async fn attributes_come_from_the_metadata_of_objects() {
    let bed = bed();
    let pairs = [
        ("uid", "12"),
        ("gid", "34"),
        ("mode", "33257"),
        ("mtime", "981173106.123456789"),
        ("atime", "981173107"),
        ("ctime", "981173108"),
    ];
    put(&bed, "file", "four", &pairs).await;
    let shown = bed.stat("file").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    assert_eq!((shown.uid, shown.gid), (12, 34));
    assert_eq!((shown.kind, shown.permissions), (FileKind::Regular, 0o751));
    assert_eq!(shown.modified, at(981_173_106, 123_456_789));
    assert_eq!(shown.accessed, at(981_173_107, 0));
    assert_eq!(shown.changed, at(981_173_108, 0));
    assert_eq!(shown.size, 4);
}

#[tokio::test(start_paused = true)]
async fn what_an_object_does_not_say_comes_from_the_settings() {
    let bed = Bed::with(BucketSettings {
        uid: 3,
        gid: 4,
        ..settings()
    });
    put(&bed, "file", "", &[]).await;
    put(&bed, "d/file", "", &[("uid", "9")]).await;
    let file = bed.stat("file").await.unwrap();
    assert_eq!((file.uid, file.gid, file.permissions), (3, 4, 0o640));
    let below = bed.stat("d/file").await.unwrap();
    assert_eq!((below.uid, below.gid, below.permissions), (9, 4, 0o640));
    let directory = bed.stat("d").await.unwrap();
    assert_eq!((directory.uid, directory.permissions), (3, 0o750));
}

#[tokio::test(start_paused = true)]
async fn owner_and_umask_of_the_mount_hide_what_objects_say() {
    let bed = Bed::with(keeping(MetadataSettings {
        uid: Some(1),
        gid: Some(2),
        umask: 0o022,
        root_mode: Some(0o711),
        ..MetadataSettings::default()
    }));
    put(
        &bed,
        "file",
        "",
        &[("uid", "12"), ("gid", "34"), ("mode", "33279")],
    )
    .await;
    let shown = bed.stat("file").await.unwrap();
    assert_eq!((shown.uid, shown.gid, shown.permissions), (1, 2, 0o755));
    assert_eq!(bed.stat("").await.unwrap().permissions, 0o711);
}

#[tokio::test(start_paused = true)]
async fn a_new_file_keeps_its_owner_mode_and_time() {
    let bed = bed();
    let handle = create_as_caller(&bed, "file", 0o604).await;
    bed.write(handle, 0, "body").await.unwrap();
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    let metadata = stored(&bed, "file").await;
    let value = |name: &str| metadata.get(name).map(String::as_str);
    assert_eq!((value("uid"), value("gid")), (Some("7"), Some("8")));
    assert_eq!(value("mode"), Some("33156"));
    let here = bed.stat("file").await.unwrap();
    let there = bed.fresh_with(settings()).stat("file").await.unwrap();
    assert_eq!((there.uid, there.gid, there.permissions), (7, 8, 0o604));
    assert_eq!(
        (there.modified, there.accessed),
        (here.modified, here.accessed)
    );
    assert_eq!(there.changed, here.changed);
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_file_that_is_written_go_with_the_save() {
    let bed = bed();
    let handle = create_as_caller(&bed, "file", 0o600).await;
    bed.write(handle, 0, "body").await.unwrap();
    bed.requests();
    change(&bed, "file", mode(0o4755)).await.unwrap();
    change(&bed, "file", modified(at(1000, 5))).await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    let set = bed
        .volume
        .set_xattr(&CALLER, inode, b"user.a", b"b", XattrMode::Set);
    set.await.unwrap();
    assert_eq!(bed.requests(), "");
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    let shown = bed.fresh_with(settings()).stat("file").await.unwrap();
    assert_eq!((shown.permissions, shown.modified), (0o4755, at(1000, 5)));
    assert!(stored(&bed, "file").await.contains_key("xattr"));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_mode_or_owner_copies_the_object_onto_itself() {
    let bed = bed();
    let pairs = [("colour", "blue"), ("mode", "33188"), ("mtime", "1000.5")];
    put_as(&bed, "file", "body", (&pairs, Some("text/x-test"))).await;
    bed.stat("file").await.unwrap();
    bed.requests();
    let shown = change(&bed, "file", mode(0o600)).await.unwrap();
    assert_eq!(shown.permissions, 0o600);
    assert_eq!(bed.requests(), "copy 1");
    change(&bed, "file", owner(5, 6)).await.unwrap();
    let info = head(&bed, "file").await;
    let value = |name: &str| info.metadata.get(name).map(String::as_str);
    assert_eq!((value("uid"), value("gid")), (Some("5"), Some("6")));
    assert_eq!(value("mode"), Some("33152"));
    assert_eq!(value("mtime"), Some("1000.500000000"));
    assert_eq!(value("colour"), Some("blue"));
    assert_eq!(info.content_type, "text/x-test");
    assert_eq!(bed.object("file").await.unwrap(), b"body");
}

#[tokio::test(start_paused = true)]
async fn a_change_keeps_the_time_that_the_object_had() {
    let bed = bed();
    bed.put("file", "body").await;
    let before = bed.stat("file").await.unwrap().modified;
    advance(100).await;
    change(&bed, "file", mode(0o600)).await.unwrap();
    let after = bed.fresh_with(settings()).stat("file").await.unwrap();
    assert_eq!(after.modified, before);
    assert!(after.changed > before);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_others_replaced_is_made_on_their_version() {
    let bed = bed();
    put(&bed, "file", "ours", &[("uid", "1"), ("mode", "33188")]).await;
    bed.stat("file").await.unwrap();
    put(&bed, "file", "theirs", &[("uid", "2"), ("mode", "33188")]).await;
    assert_eq!(change(&bed, "file", mode(0o600)).await, Err(FsError::Stale));
    // As the kernel, which looks again by itself.
    let shown = change(&bed, "file", mode(0o600)).await.unwrap();
    assert_eq!((shown.uid, shown.permissions, shown.size), (2, 0o600, 6));
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
    bed.delete("file").await;
    assert_eq!(change(&bed, "file", mode(0o644)).await, Err(FsError::Stale));
    assert_eq!(bed.object("file").await, None);
}

#[tokio::test(start_paused = true)]
async fn readers_follow_a_change_of_metadata() {
    let bed = bed();
    bed.put("file", "body").await;
    let handle = bed.open("file", READ).await.unwrap();
    change(&bed, "file", mode(0o600)).await.unwrap();
    assert_eq!(bed.read(handle, 0, 10).await.unwrap(), b"body");
    bed.close(handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_written_again_keeps_what_it_is() {
    let bed = bed();
    let pairs = [
        ("uid", "12"),
        ("mode", "35309"),
        ("colour", "blue"),
        ("mtime", "1000"),
    ];
    put_as(&bed, "file", "old", (&pairs, Some("text/x-test"))).await;
    bed.write_file("file", "new").await.unwrap();
    let info = head(&bed, "file").await;
    let value = |name: &str| info.metadata.get(name).map(String::as_str);
    assert_eq!((value("uid"), value("colour")), (Some("12"), Some("blue")));
    assert_eq!(info.content_type, "text/x-test");
    // Set-user-ID does not survive a change of the content: 35309 is 0104755.
    assert_eq!(value("mode"), Some("33261"));
    assert_ne!(value("mtime"), Some("1000"));
    assert_eq!(bed.object("file").await.unwrap(), b"new");
}

#[tokio::test(start_paused = true)]
async fn a_large_file_takes_along_what_was_changed_while_it_was_sent() {
    let bed = bed();
    let handle = create_as_caller(&bed, "file", 0o644).await;
    let block = vec![1; 1 << 20];
    for index in 0..20 {
        bed.write(handle, index << 20, &block).await.unwrap();
    }
    change(&bed, "file", modified(at(1000, 5))).await.unwrap();
    bed.requests();
    bed.close(handle).await.unwrap();
    assert!(bed.requests().contains("copy 1"));
    let shown = bed.fresh_with(settings()).stat("file").await.unwrap();
    assert_eq!((shown.modified, shown.uid), (at(1000, 5), 7));
    // Without a change in between no copy is needed, and the time is the store's.
    let handle = create_as_caller(&bed, "other", 0o644).await;
    for index in 0..20 {
        bed.write(handle, index << 20, &block).await.unwrap();
    }
    bed.requests();
    bed.close(handle).await.unwrap();
    assert!(!bed.requests().contains("copy"));
    let metadata = stored(&bed, "other").await;
    assert_eq!(metadata.get("mode").map(String::as_str), Some("33188"));
    assert_eq!(metadata.get("mtime"), None);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_file_keeps_its_metadata() {
    let bed = bed();
    put(&bed, "old", "body", &[("uid", "12"), ("colour", "blue")]).await;
    let before = bed.stat("old").await.unwrap();
    advance(100).await;
    bed.rename("old", "new").await.unwrap();
    let after = bed.fresh_with(settings()).stat("new").await.unwrap();
    assert_eq!((after.uid, after.modified), (12, before.modified));
    let metadata = stored(&bed, "new").await;
    assert_eq!(metadata.get("colour").map(String::as_str), Some("blue"));
    assert_eq!(bed.stat("new").await.unwrap().uid, 12);
}

#[tokio::test(start_paused = true)]
async fn a_listing_asks_for_metadata_once() {
    let bed = bed();
    for index in 0..20 {
        put(&bed, &format!("file{index:02}"), "x", &[("uid", "5")]).await;
    }
    bed.put("d/file", "x").await;
    // The store's clock is not the test's, and what was written just now may change again unseen.
    wait_for_the_wall_clock(Duration::from_millis(2100)).await;
    let listed = bed.list("", 99).await.unwrap();
    assert_eq!(bed.requests(), "head 21, list 1");
    assert_eq!(listed[1].entry.attributes.uid, 5);
    bed.list("", 99).await.unwrap();
    assert_eq!(bed.requests(), "list 1");
    // After the timeout, too: what has not changed since is not asked for again.
    advance(61).await;
    bed.list("", 99).await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    put(&bed, "file07", "x", &[("uid", "6")]).await;
    let listed = bed.list("", 99).await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    assert_eq!(listed[8].entry.attributes.uid, 6);
}

#[tokio::test(start_paused = true)]
async fn readdir_optimize_asks_for_nothing_but_the_listing() {
    let bed = Bed::with(keeping(MetadataSettings {
        readdir_optimize: true,
        symlink_in_meta: true,
        ..MetadataSettings::default()
    }));
    put(&bed, "file", "x", &[("uid", "5")]).await;
    bed.symlink("target/is/../far", "link").await.unwrap();
    advance(10).await;
    let fresh = bed.fresh_with(keeping(MetadataSettings {
        readdir_optimize: true,
        symlink_in_meta: true,
        ..MetadataSettings::default()
    }));
    let listed = fresh.list("", 99).await.unwrap();
    // Links in metadata are empty objects, so those are asked for.
    assert_eq!(fresh.requests(), "head 1, list 1");
    let attributes = |index: usize| &listed[index].entry.attributes;
    assert_eq!((attributes(0).uid, attributes(0).permissions), (0, 0o640));
    assert_eq!(attributes(1).kind, FileKind::Symlink);
    assert_eq!(attributes(1).size, 16);
    let inode = fresh.inode("file").await.unwrap();
    let volume = &fresh.volume;
    let capability = volume.xattr(&CALLER, inode, b"security.capability").await;
    assert_eq!(capability, Err(FsError::NoAttribute));
    assert_eq!(fresh.requests(), "");
    // A change all the same keeps what the object says of itself.
    change(&fresh, "file", mode(0o600)).await.unwrap();
    let metadata = stored(&bed, "file").await;
    assert_eq!(metadata.get("uid").map(String::as_str), Some("5"));
}

#[tokio::test(start_paused = true)]
async fn links_lead_anywhere_and_are_objects() {
    for in_meta in [false, true] {
        let bed = Bed::over(
            MemoryStore::like_oss(),
            keeping(MetadataSettings {
                symlink_in_meta: in_meta,
                ..MetadataSettings::default()
            }),
        );
        let long = "x".repeat(4000);
        for (path, target) in [("link", "/etc/../a b"), ("long", long.as_str())] {
            bed.symlink(target, path).await.unwrap();
            for bed in [&bed, &bed.fresh_with(settings())] {
                let shown = bed.stat(path).await.unwrap();
                assert_eq!(
                    (shown.kind, shown.size),
                    (FileKind::Symlink, target.len() as u64)
                );
                let inode = bed.inode(path).await.unwrap();
                let read = bed.volume.read_symlink(&CALLER, inode).await.unwrap();
                assert_eq!(read, target.as_bytes());
            }
        }
        assert_eq!(head(&bed, "long").await.size, 4000);
        let body = bed.object("link").await.unwrap();
        assert_eq!(body.is_empty(), in_meta);
        let metadata = stored(&bed, "link").await;
        assert_eq!(metadata.get("mode").map(String::as_str), Some("41471"));
        bed.rename("link", "moved").await.unwrap();
        let moved = bed.fresh_with(settings()).stat("moved").await.unwrap();
        assert_eq!(moved.kind, FileKind::Symlink);
        assert_eq!(bed.stat("moved").await.unwrap().kind, FileKind::Symlink);
        bed.unlink("moved").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn extended_attributes_are_kept() {
    let bed = bed();
    bed.put("file", "x").await;
    bed.mkdir("d").await.unwrap();
    for path in ["file", "d"] {
        let inode = bed.inode(path).await.unwrap();
        let volume = &bed.volume;
        let set = async |name: &str, value: &[u8], mode| {
            volume
                .set_xattr(&CALLER, inode, name.as_bytes(), value, mode)
                .await
        };
        assert_eq!(set("user.a", b"\0\xff", XattrMode::Create).await, Ok(()));
        assert_eq!(set("user.b", b"", XattrMode::Set).await, Ok(()));
        let again = set("user.a", b"x", XattrMode::Create).await;
        assert_eq!(again, Err(FsError::AlreadyExists));
        let missing = set("user.c", b"x", XattrMode::Replace).await;
        assert_eq!(missing, Err(FsError::NoAttribute));
        for never in ["system.posix_acl_access", "security.selinux"] {
            let refused = set(never, b"x", XattrMode::Set).await;
            assert!(matches!(refused, Err(FsError::Unsupported(_))));
        }
        let large = set("user.large", &[0; 10_000], XattrMode::Set).await;
        assert_eq!(large, Err(FsError::NoSpace));
        let fresh = bed.fresh_with(settings());
        let there = fresh.inode(path).await.unwrap();
        let read = fresh.volume.xattr(&CALLER, there, b"user.a").await;
        assert_eq!(read.unwrap(), b"\0\xff".as_slice());
        let names = fresh.volume.xattrs(&CALLER, there).await.unwrap();
        assert_eq!(names, [b"user.a".as_slice(), b"user.b"]);
        volume
            .remove_xattr(&CALLER, inode, b"user.a")
            .await
            .unwrap();
        let gone = volume.xattr(&CALLER, inode, b"user.a").await;
        assert_eq!(gone, Err(FsError::NoAttribute));
        let again = volume.remove_xattr(&CALLER, inode, b"user.a").await;
        assert_eq!(again, Err(FsError::NoAttribute));
    }
    let off = bed.fresh();
    assert!(!off.volume.features().xattrs);
    let inode = off.inode("file").await.unwrap();
    let read = off.volume.xattr(&CALLER, inode, b"user.b").await;
    assert!(matches!(read, Err(FsError::Unsupported(_))));
}

#[tokio::test(start_paused = true)]
async fn concurrent_changes_of_one_file_are_all_kept() {
    let bed = bed();
    bed.put("file", "x").await;
    let inode = bed.inode("file").await.unwrap();
    let names: Vec<String> = (0..8).map(|index| format!("user.{index}")).collect();
    let sets = names.iter().map(|name| {
        bed.volume
            .set_xattr(&CALLER, inode, name.as_bytes(), b"x", XattrMode::Set)
    });
    for set in futures_util::future::join_all(sets).await {
        set.unwrap();
    }
    let listed = bed.fresh_with(settings());
    let inode = listed.inode("file").await.unwrap();
    assert_eq!(listed.volume.xattrs(&CALLER, inode).await.unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_is_not_brought_back_by_a_change() {
    let bed = bed();
    bed.put("file", "x").await;
    let inode = bed.inode("file").await.unwrap();
    let change = bed.volume.set_attributes(&CALLER, inode, mode(0o600));
    let (changed, removed) = tokio::join!(change, bed.unlink("file"));
    removed.unwrap();
    assert!(matches!(changed, Ok(_) | Err(FsError::Stale)));
    assert_eq!(bed.object("file").await, None);
    // An open file that was removed still has attributes.
    let handle = create_as_caller(&bed, "open", 0o600).await;
    let inode = bed.inode("open").await.unwrap();
    bed.unlink("open").await.unwrap();
    let entry = bed.volume.set_attributes(&CALLER, inode, mode(0o644)).await;
    assert_eq!(entry.unwrap().attributes.permissions, 0o644);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.keys().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn files_get_the_media_type_of_their_names() {
    let types = ContentTypes::parse("text/html html", Some("application/octet-stream"));
    for keep in [false, true] {
        let bed = Bed::with(BucketSettings {
            content_types: types.clone().into(),
            metadata: MetadataSettings {
                keep,
                ..MetadataSettings::default()
            },
            ..BucketSettings::default()
        });
        bed.write_file("page.html", "x").await.unwrap();
        bed.write_file("other", vec![1; 20 << 20]).await.unwrap();
        assert_eq!(head(&bed, "page.html").await.content_type, "text/html");
        let other = head(&bed, "other").await.content_type;
        assert_eq!(other, "application/octet-stream");
    }
}

#[tokio::test(start_paused = true)]
async fn the_stat_cache_may_count_from_the_last_use() {
    let bed = Bed::with(keeping(MetadataSettings {
        stat_cache_interval: true,
        ..MetadataSettings::default()
    }));
    bed.put("file", "x").await;
    bed.stat("file").await.unwrap();
    bed.requests();
    for _ in 0..5 {
        advance(40).await;
        bed.stat("file").await.unwrap();
        assert_eq!(bed.requests(), "");
    }
    advance(61).await;
    bed.stat("file").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
}

#[tokio::test(start_paused = true)]
async fn the_stat_cache_has_a_size() {
    let bed = Bed::with(keeping(MetadataSettings {
        stat_cache_size: 5,
        ..MetadataSettings::default()
    }));
    for index in 0..20 {
        bed.put(&format!("file{index:02}"), "x").await;
    }
    bed.list("", 99).await.unwrap();
    bed.forget_all();
    assert_eq!(bed.metric("bucket_remembered_names"), 5);
}

/// A program goes on with the old version; whoever changes the file by its name means the one that is there.
#[tokio::test(start_paused = true)]
async fn what_another_client_replaced_is_not_described_in_its_place() {
    let bed = bed();
    bed.put("file", "first").await;
    let handle = bed.open("file", READ).await.unwrap();
    bed.read(handle, 0, 99).await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    bed.put("file", "second").await;
    advance(61).await;
    let shown = bed.volume.attributes(&CALLER, inode).await.unwrap();
    assert_eq!(shown.attributes.size, 5, "who has it open goes on with it");
    let set = |changes| bed.volume.set_attributes(&CALLER, inode, changes);
    assert_eq!(set(mode(0o600)).await.err(), Some(FsError::Stale));
    assert_eq!(set(modified(at(7, 0))).await.err(), Some(FsError::Stale));
    assert_eq!(set(owner(1, 2)).await.err(), Some(FsError::Stale));
    let volume = &bed.volume;
    let set = volume.set_xattr(&CALLER, inode, b"user.a", b"b", XattrMode::Set);
    assert_eq!(set.await, Err(FsError::Stale));
    change(&bed, "file", mode(0o600)).await.unwrap();
    let shown = bed.fresh_with(settings()).stat("file").await.unwrap();
    assert_eq!((shown.permissions, shown.size), (0o600, 6));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_seen_too_late_changes_nothing() {
    let bed = bed();
    bed.put("file", "x").await;
    let inode = bed.inode("file").await.unwrap();
    let seen = bed.stat("file").await.unwrap().changed;
    let guarded = |permissions, seen| AttributeChanges {
        only_if_changed_at: Some(seen),
        ..mode(permissions)
    };
    let set = |changes| bed.volume.set_attributes(&CALLER, inode, changes);
    set(guarded(0o600, seen)).await.unwrap();
    advance(1).await;
    let again = set(guarded(0o644, seen)).await;
    assert_eq!(again.err(), Some(FsError::NotSynchronized));
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
}
