//! What a reader sees.

use std::collections::BTreeMap;

use penstock_base::{FsResult, MIB};
use penstock_vfs::{Detail, FileKind, HandleId, Identity, Inode, ListFrom, OpenOptions, Volume};

use crate::{
    model::{FileId, Found, Node, Tree},
    support::Place,
};

/// The inode at a path that is there, with a reference to it.
pub async fn reach(place: &Place, top: Inode, path: &str) -> Inode {
    let held = place.volume.hold(&Identity::root(), top).await;
    let mut at = held.expect("it is there").attributes.inode;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = place.find(at, name).await.expect("it is there");
        place.volume.forget(at, 1);
        at = found.inode;
    }
    at
}

/// All bytes of an open file.
pub async fn bytes(place: &Place, handle: HandleId) -> FsResult<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let piece = place.read(handle, all.len() as u64, MIB as u32).await?;
        if piece.is_empty() {
            return Ok(all);
        }
        all.extend(piece);
    }
}

/// All names below a directory, where files go by the number of their inode, and how long the files are.
pub async fn tree(place: &Place, top: Inode) -> (Tree, BTreeMap<String, u64>) {
    let (mut tree, mut lengths) = (Tree::default(), BTreeMap::new());
    let mut left = vec![(String::new(), top)];
    while let Some((above, directory)) = left.pop() {
        let handle = place.open_directory(directory).await;
        let room = (usize::MAX, Detail::Names);
        let names = place.list(handle, ListFrom::Position(0), room).await;
        place.volume.release_directory(handle).await;
        for (name, _) in names {
            let it = place.find(directory, &name).await.expect("it was listed");
            let path = format!("{above}{name}");
            let node = match it.kind {
                FileKind::Directory => {
                    left.push((format!("{path}/"), it.inode));
                    Node::Directory
                }
                FileKind::Symlink => {
                    let target = place.read_symlink(it.inode).await.expect("it has one");
                    Node::Symlink(String::from_utf8_lossy(&target).into_owned())
                }
                _ => {
                    lengths.insert(path.clone(), it.size);
                    Node::File(FileId(it.inode.0))
                }
            };
            place.volume.forget(it.inode, 1);
            tree.0.insert(path, node);
        }
    }
    (tree, lengths)
}

/// All names below a directory and the bytes of all files.
pub async fn found(place: &Place, top: Inode) -> Found {
    let (tree, _) = tree(place, top).await;
    let mut files = BTreeMap::new();
    for file in tree.files().into_keys() {
        let inode = Inode(file.0);
        let handle = place.open(inode, OpenOptions::READ).await;
        let handle = handle.expect("it is there");
        files.insert(file, bytes(place, handle).await.expect("it can be read"));
        place.close(handle).await.expect("nothing is to be saved");
    }
    Found { tree, files }
}
