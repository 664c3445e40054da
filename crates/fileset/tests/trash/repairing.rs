//! A trash that was damaged is found to be so, and repaired.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::FsError;
use penstock_fileset::{
    check::{apply, check, plan},
    engine::{Transaction, transact},
};

use crate::{
    bins::{TRASH, all, count, hour, keys, names, remove, set},
    support::{Place, ROOT},
};

async fn filled() -> Place {
    let place = Place::new().await;
    set(&place, 7).await;
    for text in ["a", "b", "c"] {
        place.store(ROOT, text, b"12345").await.unwrap();
    }
    remove(&place, ROOT, "a").await;
    remove(&place, ROOT, "b").await;
    place
}

fn key(kind: u8, inode: u64) -> Vec<u8> {
    [&[kind][..], &inode.to_be_bytes()].concat()
}

async fn change(place: &Place, changes: Vec<(Vec<u8>, Option<Bytes>)>) {
    let work = move |transaction: &mut dyn Transaction| {
        for (key, value) in &changes {
            match value {
                Some(value) => transaction.put(key, value.clone()),
                None => transaction.delete(key),
            }
        }
        Ok::<_, FsError>(())
    };
    transact(&*place.engine, work).await.unwrap();
}

/// Fails unless a check finds it, and a repair leaves nothing to be found.
async fn is_found_and_repaired(place: &Place, what: &str) {
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    let is_told = report.findings.iter().any(|text| text.contains(what));
    assert!(is_told, "{what}: {:?}", report.findings);
    let planned = plan(&*place.engine).await.unwrap();
    apply(Arc::clone(&place.engine), planned, &|_| ())
        .await
        .unwrap();
    place.is_whole().await;
}

/// The entry of the file that was called so in the directory of the hour, key and value.
async fn entry(place: &Place, text: &str) -> (Vec<u8>, Bytes) {
    let found = keys(&*place.engine, b'D').await.into_iter();
    let mut found = found.filter(|(key, _)| key.ends_with(text.as_bytes()) && key.len() > 12);
    found.next().unwrap()
}

#[tokio::test]
async fn the_directory_of_the_trash_is_made_anew() {
    let place = filled().await;
    change(&place, vec![(key(b'I', TRASH.0), None)]).await;
    is_found_and_repaired(&place, "is missing").await;
    assert_eq!(all(&place).await.len(), 2);
    let trash = place.find(ROOT, ".trash").await.unwrap();
    assert_eq!((trash.permissions, trash.uid), (0o700, 0));
}

#[tokio::test]
async fn the_directory_of_an_hour_is_made_anew_and_named() {
    let place = filled().await;
    let hour = hour(&place).await;
    let entries = keys(&*place.engine, b'D').await.into_iter();
    let in_trash = entries.filter(|(entry, _)| entry.starts_with(&key(b'D', TRASH.0)));
    let mut changes: Vec<_> = in_trash.map(|(key, _)| (key, None)).collect();
    changes.push((key(b'I', hour.0), None));
    change(&place, changes).await;
    is_found_and_repaired(&place, "is missing").await;
    assert_eq!(all(&place).await.len(), 2);
    assert_eq!(count(&place).await, (2, 10));
}

#[tokio::test]
async fn an_hour_with_another_name_gets_its_own() {
    let place = filled().await;
    let entries = keys(&*place.engine, b'D').await.into_iter();
    let mut in_trash = entries.filter(|(entry, _)| entry.starts_with(&key(b'D', TRASH.0)));
    let (old, value) = in_trash.next().unwrap();
    let other = [&old[..9], b"2020-01-01-00"].concat();
    change(&place, vec![(old.clone(), None), (other, Some(value))]).await;
    is_found_and_repaired(&place, "does not belong there").await;
    let found = names(&place, TRASH).await;
    assert_eq!(found, [String::from_utf8_lossy(&old[9..])]);
    assert_eq!(all(&place).await.len(), 2);
}

#[tokio::test]
async fn what_lies_in_the_trash_has_no_other_name_and_counts_for_it() {
    let place = filled().await;
    let (_, value) = entry(&place, "-a").await;
    let name = [&key(b'D', ROOT.0)[..], b"again"].concat();
    change(&place, vec![(name, Some(value))]).await;
    is_found_and_repaired(&place, "has another name").await;
    assert_eq!(place.content(ROOT, "again").await.unwrap(), b"12345");
    assert_eq!(place.find(ROOT, "again").await.unwrap().links, 1);
    assert_eq!(count(&place).await, (1, 5));
    let (old, value) = entry(&place, "-b").await;
    let moved = [&key(b'D', ROOT.0)[..], b"moved"].concat();
    change(&place, vec![(old, None), (moved, Some(value))]).await;
    is_found_and_repaired(&place, "does not count for it").await;
    assert_eq!(place.find(ROOT, "moved").await.unwrap().links, 1);
    assert_eq!(count(&place).await, (0, 0));
}

#[tokio::test]
async fn lost_files_come_to_a_directory_with_a_number_of_a_file() {
    let place = filled().await;
    let found = keys(&*place.engine, b'D').await.into_iter();
    let mut found = found.filter(|(entry, _)| entry.ends_with(b"c") && entry.len() == 10);
    let (lost, _) = found.next().unwrap();
    change(&place, vec![(lost, None)]).await;
    is_found_and_repaired(&place, "0 entries lead to it").await;
    let made = place.find(ROOT, "lost+found").await.unwrap();
    assert!(made.inode.0 < 1 << 40);
}
