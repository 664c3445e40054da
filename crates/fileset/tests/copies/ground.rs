//! What tests of copies do again and again.

use std::{ops::ControlFlow, time::Duration};

use penstock_base::FsError;
use penstock_fileset::{
    engine::{Reads, query},
    garbage::{Sweep, collect_garbage},
};
use penstock_vfs::{HandleId, Inode, OpenOptions, Position, RemoveKind, Volume};

use crate::support::{Place, ROOT, directory, file, user};

/// Bytes of which each place is known.
pub fn counted(length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(4) as u32).flat_map(u32::to_le_bytes);
    words.take(length).collect()
}

pub async fn opened(place: &Place, name: &str) -> HandleId {
    let inode = match place.find(ROOT, name).await {
        Ok(found) => found.inode,
        Err(_) => place.make(ROOT, name, file(0o666)).await.unwrap(),
    };
    place.open(inode, OpenOptions::READ_WRITE).await.unwrap()
}

pub async fn copy(
    place: &Place,
    (source, from): (HandleId, u64),
    (target, to): (HandleId, u64),
    length: u64,
) -> Result<u64, FsError> {
    copy_by(place, 0, ((source, from), (target, to)), length).await
}

pub type Ends = ((HandleId, u64), (HandleId, u64));

pub async fn copy_by(
    place: &Place,
    uid: u32,
    (source, target): Ends,
    length: u64,
) -> Result<u64, FsError> {
    let at = |(handle, offset)| Position { handle, offset };
    let by = user(uid);
    let (volume, ends) = (&place.volume, (at(source), at(target)));
    volume.copy_range(&by, ends.0, ends.1, length).await
}

/// Copies a file whole, in as many steps as that takes. Returns how many these were.
pub async fn copy_all(place: &Place, source: HandleId, target: HandleId) -> usize {
    let (mut at, mut steps) = (0, 0);
    loop {
        let copied = copy(place, (source, at), (target, at), u64::MAX).await;
        match copied.unwrap() {
            0 => return steps,
            copied => at += copied,
        }
        steps += 1;
    }
}

pub async fn content(place: &Place, handle: HandleId, name: &str) -> Vec<u8> {
    let size = place.find(ROOT, name).await.unwrap().size;
    place.read_all(handle, size as usize).await
}

/// A source of some chunks and its copy, still open.
pub async fn copied(place: &Place) -> (Vec<u8>, HandleId, HandleId) {
    let bytes = counted(9_000_000);
    place.store(ROOT, "source", &bytes).await.unwrap();
    let (source, target) = (opened(place, "source").await, opened(place, "target").await);
    copy_all(place, source, target).await;
    (bytes, source, target)
}

pub async fn remove(place: &Place, name: &str) {
    let inode = place.find(ROOT, name).await.unwrap().inode;
    place.remove(ROOT, name, RemoveKind::File).await.unwrap();
    place.forget_all(inode);
}

/// Removes what nothing needs; what is needed stays whatever the collector finds.
pub async fn collect(place: &Place) {
    let how = Sweep {
        grace: Duration::ZERO,
        dry_run: false,
    };
    let found = collect_garbage(place.engine.clone(), place.transfer(), how).await;
    assert_eq!(found.unwrap().leaked.objects, 0);
}

pub async fn snapshot(place: &Place, name: &str) -> Inode {
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    place.make(shelf, name, directory(0o755)).await.unwrap()
}

pub async fn drop_snapshot(place: &Place, name: &str) {
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    let removed = place.remove(shelf, name, RemoveKind::Directory);
    removed.await.unwrap();
}

/// Nothing is left in the bucket once the last file is gone: each use was counted.
pub async fn ends_empty(place: &Place) {
    let is_empty = || async { place.objects().await.is_empty() };
    place.until(is_empty).await;
    place.is_whole().await;
}

pub async fn extents(place: &Place, inode: Inode) -> usize {
    let mut key = vec![b'C'];
    key.extend(inode.0.to_be_bytes());
    let mut end = key.clone();
    end.push(u8::MAX);
    let look = |reads: &dyn Reads| {
        let mut count = 0;
        // Each extent here has one checksum, a chunk's value a byte for its version.
        reads.scan(&key[..]..&end[..], &mut |_, value| {
            count += value.len() / 44;
            ControlFlow::Continue(())
        })?;
        Ok::<_, FsError>(count)
    };
    query(&*place.engine, look).await.unwrap()
}
