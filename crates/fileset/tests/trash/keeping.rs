//! What comes into the trash, and what may be done there.

use penstock_base::FsError;
use penstock_fileset::{check::check, snapshots};
use penstock_vfs::{
    AttributeChanges, FileKind, New, NewKind, OpenOptions, RemoveKind, RenameMode, Volume,
    WritePlace, XattrMode,
};

use crate::{
    bins::{self, TRASH, age, all, count, hour, items, names, remove, set},
    ground::on_each_engine,
    support::{Place, ROOT, directory, file, name, user},
};

on_each_engine!(
    a_removed_file_lies_in_the_trash_for_root_alone,
    what_is_replaced_lies_in_the_trash,
    only_files_with_bytes_whose_last_name_goes_lie_in_the_trash,
    an_open_file_goes_on_in_the_trash,
    nothing_is_made_in_the_trash_or_moved_into_it,
    what_is_removed_in_the_trash_is_gone,
    the_trash_is_seen_while_files_come_there_or_are_there,
    snapshots_do_not_show_the_trash,
    a_name_in_the_trash_is_cut,
    a_file_that_came_back_shows_no_links_when_it_is_removed,
);

async fn a_removed_file_lies_in_the_trash_for_root_alone(place: &Place) {
    let above = place.make(ROOT, "d", directory(0o755)).await.unwrap();
    place.store(above, "before", b"gone").await.unwrap();
    remove(place, above, "before").await;
    set(place, 7).await;
    place.store(above, "a", b"hello").await.unwrap();
    let inode = place.find(above, "a").await.unwrap().inode;
    remove(place, above, "a").await;
    assert_eq!(place.find(above, "a").await.err(), Some(FsError::NotFound));
    let trash = place.find(ROOT, ".trash").await.unwrap();
    assert_eq!(
        (trash.permissions, trash.uid, trash.inode),
        (0o700, 0, TRASH)
    );
    assert_eq!(place.parent(TRASH).await, ROOT);
    assert_eq!(names(place, ROOT).await, ["d"]);
    let hour = hour(place).await;
    let entry = format!("{}-{}-a", above.0, inode.0);
    assert_eq!(names(place, hour).await, [entry.as_str()]);
    assert_eq!(place.find(hour, &entry).await.unwrap().links, 1);
    assert_eq!(place.content(hour, &entry).await.unwrap(), b"hello");
    assert_eq!(count(place).await, (1, 5));
    let item = items(place).await.remove(0);
    assert_eq!((item.path.as_deref(), item.size), (Some("/d/a"), 5));
    let other = place.by(user(7));
    assert_eq!(
        other.find(TRASH, "x").await.err(),
        Some(FsError::PermissionDenied)
    );
    assert_eq!(
        other.find(hour, &entry).await.err(),
        Some(FsError::PermissionDenied)
    );
    place.is_whole().await;
}

async fn what_is_replaced_lies_in_the_trash(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"new").await.unwrap();
    place.store(ROOT, "b", b"older").await.unwrap();
    place
        .rename((ROOT, "a"), (ROOT, "b"), RenameMode::Replace)
        .await
        .unwrap();
    assert_eq!(place.content(ROOT, "b").await.unwrap(), b"new");
    let [(hour, entry)] = &all(place).await[..] else {
        unreachable!("one file was replaced");
    };
    assert!(entry.ends_with("-b"), "{entry}");
    assert_eq!(place.content(*hour, entry).await.unwrap(), b"older");
    place.is_whole().await;
}

async fn only_files_with_bytes_whose_last_name_goes_lie_in_the_trash(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "empty", b"").await.unwrap();
    let link = New {
        kind: NewKind::Symlink(b"somewhere"),
        ..file(0o777)
    };
    place.make(ROOT, "link", link).await.unwrap();
    place.store(ROOT, "one", b"bytes").await.unwrap();
    let inode = place.find(ROOT, "one").await.unwrap().inode;
    place.link(inode, (ROOT, "two")).await.unwrap();
    for text in ["empty", "link", "one"] {
        remove(place, ROOT, text).await;
    }
    place.make(ROOT, "d", directory(0o755)).await.unwrap();
    place
        .remove(ROOT, "d", RemoveKind::Directory)
        .await
        .unwrap();
    assert_eq!(count(place).await, (0, 0));
    assert_eq!(place.content(ROOT, "two").await.unwrap(), b"bytes");
    remove(place, ROOT, "two").await;
    assert_eq!(count(place).await, (1, 5));
    assert!(items(place).await[0].entry.ends_with("-two"));
    place.is_whole().await;
}

async fn an_open_file_goes_on_in_the_trash(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"12345").await.unwrap();
    let inode = place.find(ROOT, "a").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    remove(place, ROOT, "a").await;
    let shown = place.attributes(inode).await;
    assert_eq!((shown.links, shown.size), (0, 5));
    place
        .write(handle, WritePlace::At(5), b"678")
        .await
        .unwrap();
    place.sync(handle).await.unwrap();
    assert_eq!(place.read(handle, 0, 100).await.unwrap(), b"12345678");
    let cut = AttributeChanges {
        size: Some(6),
        ..AttributeChanges::default()
    };
    assert_eq!(place.change(inode, cut).await.unwrap().links, 0);
    let again = place.open(inode, OpenOptions::READ).await.unwrap();
    place.close(again).await.unwrap();
    assert_eq!(
        place.link(inode, (ROOT, "b")).await.err(),
        Some(FsError::NotFound)
    );
    assert_eq!(count(place).await, (1, 6));
    let (hour, entry) = all(place).await.remove(0);
    assert_eq!(place.find(hour, &entry).await.unwrap().links, 1);
    assert_eq!(place.content(hour, &entry).await.unwrap(), b"123456");
    place.close(handle).await.unwrap();
    place.forget_all(inode);
    assert_eq!(count(place).await, (1, 6));
    place.is_whole().await;
}

async fn nothing_is_made_in_the_trash_or_moved_into_it(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"12345").await.unwrap();
    place.store(ROOT, "b", b"12345").await.unwrap();
    let other = place.find(ROOT, "b").await.unwrap().inode;
    remove(place, ROOT, "a").await;
    let hour = hour(place).await;
    let hours = names(place, TRASH).await;
    let entry = names(place, hour).await.remove(0);
    for into in [TRASH, hour] {
        let refused = [
            place.make(into, "x", file(0o644)).await.err(),
            place.make(into, "x", directory(0o755)).await.err(),
            place.link(other, (into, "x")).await.err(),
            place
                .set_xattr(into, "user.a", b"b", XattrMode::Set)
                .await
                .err(),
            place
                .change(
                    into,
                    AttributeChanges {
                        permissions: Some(0o777),
                        ..AttributeChanges::default()
                    },
                )
                .await
                .err(),
            place
                .rename((ROOT, "b"), (into, "x"), RenameMode::Replace)
                .await
                .err(),
        ];
        for refused in refused {
            assert_eq!(refused, Some(FsError::ReadOnly));
        }
    }
    let rename = async |from, to, mode| place.rename(from, to, mode).await.err();
    let entry = entry.as_str();
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let moved = rename((ROOT, "b"), (hour, entry), mode).await;
        assert_eq!(moved, Some(FsError::ReadOnly), "{mode:?}");
    }
    let moved = rename((hour, entry), (ROOT, "b"), RenameMode::Exchange).await;
    assert_eq!(moved, Some(FsError::ReadOnly));
    let moved = rename((hour, entry), (hour, "x"), RenameMode::Replace).await;
    assert_eq!(moved, Some(FsError::ReadOnly));
    let stays = |error| matches!(error, Some(FsError::NotPermitted(_)));
    assert!(stays(
        rename((TRASH, &hours[0]), (ROOT, "x"), RenameMode::Replace).await
    ));
    assert!(stays(
        rename((ROOT, ".trash"), (ROOT, "x"), RenameMode::Replace).await
    ));
    place.make(ROOT, "d", directory(0o755)).await.unwrap();
    assert!(stays(
        rename((ROOT, "d"), (ROOT, ".trash"), RenameMode::Replace).await
    ));
    let removed = place.remove(ROOT, ".trash", RemoveKind::Directory).await;
    assert!(stays(removed.err()));
    let removed = place.remove(TRASH, &hours[0], RemoveKind::Directory).await;
    assert_eq!(removed.err(), Some(FsError::DirectoryNotEmpty));
    let made = place.make(ROOT, ".trash", file(0o644)).await;
    assert_eq!(made.err(), Some(FsError::AlreadyExists));
    place.is_whole().await;
}

async fn what_is_removed_in_the_trash_is_gone(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", &[7; 300_000]).await.unwrap();
    let inode = place.find(ROOT, "a").await.unwrap().inode;
    remove(place, ROOT, "a").await;
    let (hour, entry) = all(place).await.remove(0);
    remove(place, hour, &entry).await;
    assert_eq!(count(place).await, (0, 0));
    let hours = names(place, TRASH).await;
    place
        .remove(TRASH, &hours[0], RemoveKind::Directory)
        .await
        .unwrap();
    assert!(names(place, TRASH).await.is_empty());
    place.forget_all(inode);
    place.until(|| async { place.is_gone(inode).await }).await;
    place
        .until(|| async { place.objects().await.is_empty() })
        .await;
    // The same hour can come again.
    place.store(ROOT, "b", b"again").await.unwrap();
    remove(place, ROOT, "b").await;
    assert_eq!(count(place).await, (1, 5));
    place.is_whole().await;
}

async fn the_trash_is_seen_while_files_come_there_or_are_there(place: &Place) {
    let is_seen = async || place.find(ROOT, ".trash").await.is_ok();
    assert!(!is_seen().await);
    place.store(ROOT, ".trash", b"mine").await.unwrap();
    assert!(place.volume.set_trash(7).await.is_err());
    remove(place, ROOT, ".trash").await;
    assert!(place.volume.set_trash(36_501).await.is_err());
    set(place, 7).await;
    assert!(is_seen().await);
    place.store(ROOT, "a", b"12345").await.unwrap();
    remove(place, ROOT, "a").await;
    set(place, 0).await;
    assert!(is_seen().await);
    place.store(ROOT, "b", b"12345").await.unwrap();
    remove(place, ROOT, "b").await;
    assert_eq!(count(place).await, (1, 5));
    assert!(place.volume.purge_some(None).await.unwrap().is_done);
    assert!(!is_seen().await);
    place.make(ROOT, ".trash", directory(0o755)).await.unwrap();
    place.is_whole().await;
}

async fn snapshots_do_not_show_the_trash(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"in the snapshot").await.unwrap();
    place.store(ROOT, "b", b"in the trash").await.unwrap();
    remove(place, ROOT, "b").await;
    place.volume.take_snapshot(&name("one")).await.unwrap();
    remove(place, ROOT, "a").await;
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    let tree = place.find(shelf, "one").await.unwrap().inode;
    assert_eq!(names(place, tree).await, ["a"]);
    assert_eq!(
        place.find(tree, ".trash").await.err(),
        Some(FsError::NotFound)
    );
    assert_eq!(place.find(tree, "a").await.unwrap().links, 1);
    assert!(place.volume.purge_some(None).await.unwrap().is_done);
    assert_eq!(place.content(tree, "a").await.unwrap(), b"in the snapshot");
    place.is_whole().await;
    snapshots::remove(&*place.engine, &name("one"))
        .await
        .unwrap();
}

async fn a_name_in_the_trash_is_cut(place: &Place) {
    set(place, 7).await;
    let long = "ß".repeat(127);
    place.store(ROOT, &long, b"12345").await.unwrap();
    remove(place, ROOT, &long).await;
    let (_, entry) = all(place).await.remove(0);
    assert!(entry.len() <= 255 && entry.len() >= 254 && entry.ends_with('ß'));
    place.is_whole().await;
}

async fn a_file_that_came_back_shows_no_links_when_it_is_removed(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"12345").await.unwrap();
    remove(place, ROOT, "a").await;
    let (hour, entry) = all(place).await.remove(0);
    let found = place.find(hour, &entry).await.unwrap();
    assert_eq!(found.links, 1);
    place
        .rename((hour, &entry), (ROOT, "back"), RenameMode::Replace)
        .await
        .unwrap();
    let handle = place.open(found.inode, OpenOptions::READ).await.unwrap();
    set(place, 0).await;
    remove(place, ROOT, "back").await;
    assert_eq!(place.attributes(found.inode).await.links, 0);
    place.close(handle).await.unwrap();
}

#[tokio::test]
async fn what_a_kill_left_is_in_its_place_or_in_the_trash() {
    let mut place = Place::spooled().await;
    set(&place, 7).await;
    for number in 0..40u8 {
        let text = format!("file-{number}");
        place.store(ROOT, &text, &[number; 100]).await.unwrap();
    }
    place.engine.sync().await.unwrap();
    for number in 0..40 {
        remove(&place, ROOT, &format!("file-{number}")).await;
        if number % 10 == 7 {
            place.crash().await;
            place.is_whole().await;
            let left = names(&place, ROOT).await;
            assert_eq!(left.len() as u64 + count(&place).await.0, 40);
            assert_eq!(all(&place).await.len() as u64, count(&place).await.0);
        }
    }
    age(&*place.engine, 30).await;
    for _ in 0..3 {
        // A kill in the midst of emptying leaves the rest for later.
        let _ = place
            .volume
            .expire_trash(penstock_base::clock::wall_time())
            .await;
        place.crash().await;
        place.is_whole().await;
    }
    assert_eq!(count(&place).await, (0, 0));
}
