//! Bringing files back.

use penstock_base::FsError;
use penstock_vfs::{RemoveKind, RenameMode, Volume};

use crate::{
    bins::{all, count, items, remove, set},
    ground::on_each_engine,
    support::{Place, ROOT, directory, name},
};

on_each_engine!(
    a_file_is_restored_to_where_it_was,
    no_file_is_replaced_by_a_restored_one,
    a_file_whose_directory_is_gone_is_restored_elsewhere,
    root_moves_a_file_out_of_the_trash,
    a_restored_file_does_not_take_the_place_of_the_snapshots,
    a_file_is_restored_from_the_hour_that_is_said,
);

async fn restore(place: &Place, entry: &str, target: Option<&str>) -> Result<String, FsError> {
    let target = target.map(str::to_owned);
    place.volume.restore(entry.to_owned(), target).await
}

async fn a_file_is_restored_to_where_it_was(place: &Place) {
    set(place, 7).await;
    let above = place.make(ROOT, "d", directory(0o755)).await.unwrap();
    place.store(above, "a", b"hello").await.unwrap();
    let inode = place.find(above, "a").await.unwrap().inode;
    remove(place, above, "a").await;
    // Its directory was moved since.
    place
        .rename((ROOT, "d"), (ROOT, "e"), RenameMode::Replace)
        .await
        .unwrap();
    let entry = items(place).await.remove(0).entry;
    assert_eq!(restore(place, &entry, None).await, Ok("/e/a".to_owned()));
    let found = place.find(above, "a").await.unwrap();
    assert_eq!((found.inode, found.links, found.size), (inode, 1, 5));
    assert_eq!(place.content(above, "a").await.unwrap(), b"hello");
    assert_eq!(count(place).await, (0, 0));
    assert_eq!(restore(place, &entry, None).await, Err(FsError::NotFound));
    assert_eq!(
        restore(place, "nonsense", None).await,
        Err(FsError::NotFound)
    );
    place.link(inode, (ROOT, "again")).await.unwrap();
    place.is_whole().await;
}

async fn no_file_is_replaced_by_a_restored_one(place: &Place) {
    set(place, 7).await;
    for content in [&b"first"[..], b"second"] {
        place.store(ROOT, "a", content).await.unwrap();
        remove(place, ROOT, "a").await;
    }
    place.store(ROOT, "a", b"there").await.unwrap();
    let entries: Vec<_> = items(place)
        .await
        .into_iter()
        .map(|item| item.entry)
        .collect();
    for entry in &entries {
        assert_eq!(
            restore(place, entry, None).await,
            Err(FsError::AlreadyExists)
        );
        let onto = restore(place, entry, Some("/a")).await;
        assert_eq!(onto, Err(FsError::AlreadyExists));
        let missing = restore(place, entry, Some("/missing/b")).await;
        assert_eq!(missing, Err(FsError::NotFound));
        let into = restore(place, entry, Some("/.trash")).await;
        assert_eq!(into, Err(FsError::ReadOnly));
    }
    assert_eq!(place.content(ROOT, "a").await.unwrap(), b"there");
    let name = entries[0].split_once('/').unwrap().1;
    assert_eq!(restore(place, name, Some("b")).await, Ok("/b".to_owned()));
    assert_eq!(place.content(ROOT, "b").await.unwrap(), b"first");
    assert_eq!(count(place).await, (1, 6));
    place.is_whole().await;
}

async fn a_file_whose_directory_is_gone_is_restored_elsewhere(place: &Place) {
    set(place, 7).await;
    let above = place.make(ROOT, "d", directory(0o755)).await.unwrap();
    let other = place.make(ROOT, "e", directory(0o755)).await.unwrap();
    place.store(above, "a", b"hello").await.unwrap();
    remove(place, above, "a").await;
    place
        .remove(ROOT, "d", RemoveKind::Directory)
        .await
        .unwrap();
    let gone = async |place: &Place| {
        let item = items(place).await.remove(0);
        assert_eq!(item.path, None);
        let restored = restore(place, &item.entry, None).await;
        assert!(matches!(restored, Err(FsError::InvalidArgument(_))));
        item.entry
    };
    gone(place).await;
    place.forget_all(above);
    place.until(|| async { place.is_gone(above).await }).await;
    let entry = gone(place).await;
    let restored = restore(place, &entry, Some("/e")).await;
    assert_eq!(restored, Ok("/e/a".to_owned()));
    assert_eq!(place.content(other, "a").await.unwrap(), b"hello");
    place.is_whole().await;
}

async fn root_moves_a_file_out_of_the_trash(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"first").await.unwrap();
    remove(place, ROOT, "a").await;
    place.store(ROOT, "a", b"second").await.unwrap();
    let (hour, entry) = all(place).await.remove(0);
    let moved = place.rename((hour, &entry), (ROOT, "a"), RenameMode::Replace);
    moved.await.unwrap();
    assert_eq!(place.content(ROOT, "a").await.unwrap(), b"first");
    assert_eq!(place.find(ROOT, "a").await.unwrap().links, 1);
    // What it replaced is there now.
    let (hour, entry) = all(place).await.remove(0);
    assert_eq!(place.content(hour, &entry).await.unwrap(), b"second");
    place.is_whole().await;
}

async fn a_restored_file_does_not_take_the_place_of_the_snapshots(place: &Place) {
    set(place, 7).await;
    place.volume.take_snapshot(&name("one")).await.unwrap();
    place.store(ROOT, "a", b"hello").await.unwrap();
    remove(place, ROOT, "a").await;
    let entry = items(place).await.remove(0).entry;
    for target in ["/.snapshot", ".snapshot/"] {
        let onto = restore(place, &entry, Some(target)).await;
        assert_eq!(onto, Err(FsError::AlreadyExists), "{target}");
    }
    for target in ["/.snapshot/two", "/.snapshot/one/a"] {
        let into = restore(place, &entry, Some(target)).await;
        assert_eq!(into, Err(FsError::NotFound), "{target}");
    }
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    place.find(shelf, "one").await.unwrap();
    assert_eq!(count(place).await, (1, 5));
    place.is_whole().await;
}

async fn a_file_is_restored_from_the_hour_that_is_said(place: &Place) {
    set(place, 7).await;
    place.store(ROOT, "a", b"hello").await.unwrap();
    remove(place, ROOT, "a").await;
    let entry = items(place).await.remove(0).entry;
    let (hour, name) = entry.split_once('/').unwrap();
    let in_trash = format!(".trash/{hour}");
    for other in ["1970-01-01-00", "2026-11-28-24", "nonsense", &in_trash] {
        let restored = restore(place, &format!("{other}/{name}"), None).await;
        assert_eq!(restored, Err(FsError::NotFound), "{other}");
    }
    assert_eq!(restore(place, &entry, None).await, Ok("/a".to_owned()));
}
