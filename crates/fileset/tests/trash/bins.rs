//! What tests look for in the trash.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_base::FsError;
use penstock_fileset::{
    engine::{Engine, Reads, Transaction, query, transact},
    trash::Item,
};
use penstock_vfs::{Detail, Inode, ListFrom, RemoveKind, Volume};

use crate::support::{Place, ROOT};

/// The directory of all that is in the trash.
pub const TRASH: Inode = Inode((1 << 42) - 1);
/// The number of the directory of the first hour of 1970.
const FIRST_HOUR: u64 = TRASH.0 - (1 << 24);

pub async fn set(place: &Place, days: u32) {
    place.volume.set_trash(days).await.unwrap();
}

/// Files in it, and bytes.
pub async fn count(place: &Place) -> (u64, u64) {
    let state = place.volume.trash().await.unwrap();
    (state.files, state.bytes)
}

pub async fn items(place: &Place) -> Vec<Item> {
    let (mut items, mut after): (Vec<Item>, Option<String>) = (Vec::new(), None);
    loop {
        let page = place.volume.list_trash(after.as_deref()).await.unwrap();
        let Some(last) = page.last() else {
            return items;
        };
        after = Some(last.entry.clone());
        items.extend(page);
    }
}

pub async fn remove(place: &Place, parent: Inode, text: &str) {
    let removed = place.remove(parent, text, RemoveKind::File).await;
    removed.unwrap();
}

pub async fn names(place: &Place, directory: Inode) -> Vec<String> {
    let handle = place.open_directory(directory).await;
    let room = (usize::MAX, Detail::Attributes);
    let listed = place.list(handle, ListFrom::Position(0), room).await;
    place.volume.release_directory(handle).await;
    listed.into_iter().map(|(name, _)| name).collect()
}

/// The directory of the only hour.
pub async fn hour(place: &Place) -> Inode {
    let trash = place.find(ROOT, ".trash").await.unwrap().inode;
    let hours = names(place, trash).await;
    // Rarely a test lives through two.
    place.find(trash, &hours[0]).await.unwrap().inode
}

/// Each file in the trash with its directory there.
pub async fn all(place: &Place) -> Vec<(Inode, String)> {
    let Ok(trash) = place.find(ROOT, ".trash").await else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for name in names(place, trash.inode).await {
        let hour = place.find(trash.inode, &name).await.unwrap().inode;
        let names = names(place, hour).await.into_iter();
        found.extend(names.map(|name| (hour, name)));
    }
    found
}

fn name_of(hour: u64) -> String {
    let begin = jiff::Timestamp::from_second((hour * 3600).cast_signed()).unwrap();
    begin.strftime("%Y-%m-%d-%H").to_string()
}

/// Lets what is in the trash have been there for so many days longer.
pub async fn age(engine: &dyn Engine, days: u64) {
    let by = days * 24;
    let hours = FIRST_HOUR..TRASH.0;
    transact(engine, move |transaction: &mut dyn Transaction| {
        let mut found = Vec::new();
        transaction.scan(&[0][..]..&[u8::MAX][..], &mut |key, value| {
            if b"DITL".contains(&key[0]) {
                found.push((key.to_vec(), value.clone()));
            }
            ControlFlow::Continue(())
        })?;
        for (key, value) in found {
            let inode = u64::from_be_bytes(key[1..9].try_into().unwrap());
            if hours.contains(&inode) {
                let older = (inode - by).to_be_bytes();
                transaction.put(&[&key[..1], &older, &key[9..]].concat(), value);
                transaction.delete(&key);
            } else if inode == TRASH.0 && key[0] == b'D' {
                let at = value.len() - 8;
                let to = u64::from_le_bytes(value[at..].try_into().unwrap()) - by;
                let name = name_of(to - FIRST_HOUR);
                let value = [&value[..at], &to.to_le_bytes()].concat();
                let older = [&key[..9], name.as_bytes()].concat();
                transaction.put(&older, Bytes::from(value));
                transaction.delete(&key);
            }
        }
        Ok::<_, FsError>(())
    })
    .await
    .unwrap();
}

/// Keys that begin so.
pub async fn keys(engine: &dyn Engine, kind: u8) -> Vec<(Vec<u8>, Bytes)> {
    let look = |reads: &dyn Reads| {
        let mut found = Vec::new();
        reads.scan(&[kind][..]..&[kind + 1][..], &mut |key, value| {
            found.push((key.to_vec(), value.clone()));
            ControlFlow::Continue(())
        })?;
        Ok::<_, FsError>(found)
    };
    query(engine, look).await.unwrap()
}
