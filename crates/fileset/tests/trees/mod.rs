//! All that a reader sees of a file system, to be compared.

#![allow(unreachable_pub, dead_code, reason = "each test file uses some of it")]

use std::{collections::BTreeMap, time::SystemTime};

use bytes::Bytes;
use penstock_vfs::{
    AccessEntry, AccessList, AccessMask, Detail, FileKind, Inode, ListFrom, OpenOptions, Volume,
    Who,
};

use crate::support::Place;

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

/// Read, write and execute, as three bits of a mode.
pub fn may(bits: u16) -> AccessMask {
    let each = AccessMask::EACH.into_iter().enumerate();
    each.filter(|(place, _)| bits >> place & 1 != 0)
        .fold(AccessMask::EXISTS, |all, (_, one)| all.union(one))
}

/// An access list for users and what each may do; all that somebody is named for is not masked.
pub fn list(users: &[(u32, u16)]) -> Bytes {
    let mask = users.iter().fold(4, |mask, (_, bits)| mask | bits);
    let mut entries = vec![(Who::Owner, 7)];
    entries.extend(users.iter().map(|(uid, bits)| (Who::User(*uid), *bits)));
    entries.extend([(Who::OwningGroup, 4), (Who::Mask, mask), (Who::Others, 0)]);
    let entries = entries.into_iter().map(|(who, bits)| AccessEntry {
        who,
        may: may(bits),
    });
    AccessList::new(entries.collect::<Vec<_>>())
        .unwrap()
        .encode()
}

/// What a reader sees of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileKind,
    pub owner: (u16, u32, u32),
    pub links: u32,
    pub times: (SystemTime, SystemTime),
    pub size: u64,
    pub content: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub type Tree = BTreeMap<String, Seen>;

pub async fn seen(place: &Place, inode: Inode) -> Seen {
    let it = place.attributes(inode).await;
    let content = match it.kind {
        FileKind::Regular => {
            let handle = place.open(inode, OpenOptions::READ).await.unwrap();
            let content = place.read_all(handle, it.size as usize).await;
            place.close(handle).await.unwrap();
            content
        }
        FileKind::Symlink => place.read_symlink(inode).await.unwrap().to_vec(),
        _ => Vec::new(),
    };
    let mut xattrs = Vec::new();
    for name in place.xattrs(inode).await.unwrap() {
        let by = penstock_vfs::Identity::new(0, 0, []);
        let value = place.volume.xattr(&by, inode, &name).await.unwrap();
        xattrs.push((name.to_vec(), value.to_vec()));
    }
    Seen {
        kind: it.kind,
        owner: (it.permissions, it.uid, it.gid),
        links: it.links,
        times: (it.modified, it.changed),
        size: it.size,
        content,
        xattrs,
    }
}

/// All that is below a directory, and itself.
pub async fn tree(place: &Place, top: Inode) -> Tree {
    let mut found = Tree::from([(String::new(), seen(place, top).await)]);
    let mut left = vec![(String::new(), top)];
    while let Some((path, inode)) = left.pop() {
        let handle = place.open_directory(inode).await;
        let room = (usize::MAX, Detail::Names);
        let names = place.list(handle, ListFrom::Position(0), room).await;
        place.volume.release_directory(handle).await;
        for (name, _) in names {
            let it = place.find(inode, &name).await.unwrap();
            let path = format!("{path}/{name}");
            found.insert(path.clone(), seen(place, it.inode).await);
            if it.kind == FileKind::Directory {
                assert_eq!(place.parent(it.inode).await, inode);
                left.push((path, it.inode));
            }
        }
    }
    found
}
