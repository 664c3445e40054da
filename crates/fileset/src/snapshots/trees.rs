//! The live tree and those of all snapshots as one: inodes in snapshots have keys of their own, which nobody wrote, and
//! a directory in the root has the snapshots as its entries. So what only reads works in snapshots as it does outside.

use std::{
    cell::{Cell, RefCell},
    ops::{ControlFlow, Range},
};

use bytes::{Bytes, BytesMut};
use penstock_base::{FsError, FsResult};
use penstock_vfs::{AccessLists, FileKind, Inode};

use super::{preserve::damaged, view::View};
use crate::{
    engine::{Engine, EngineResult, Reads, Visitor, mark, query},
    schema::{
        self, Entry, Node, SNAPSHOTS, SNAPSHOTS_NAME, SnapshotRecord, in_snapshot, is_of_tree,
        kind, snapshot_of,
    },
};

/// Looks at one state of the live tree and all snapshots. Fails with `Stale` if one was asked for that is gone.
pub(crate) async fn look<T: Send>(
    engine: &dyn Engine,
    mut look: impl FnMut(&dyn Reads) -> FsResult<T> + Send,
) -> FsResult<T> {
    query(engine, |reads| look_at(reads, &mut look)).await
}

/// The same at the state that an operation sees.
pub(crate) fn look_at<T>(
    reads: &dyn Reads,
    look: impl FnOnce(&dyn Reads) -> FsResult<T>,
) -> FsResult<T> {
    let trees = Trees::new(reads);
    let found = look(&trees);
    match trees.was_gone.get() {
        true => Err(FsError::Stale),
        false => found,
    }
}

/// See the module.
pub(super) struct Trees<'a> {
    live: &'a dyn Reads,
    /// The last snapshot that was looked at, and the last file in it; `None` if it is gone.
    known: RefCell<Option<(u64, Option<u64>)>>,
    /// One that is gone was looked at: what is not found there means nothing.
    was_gone: Cell<bool>,
}

/// Whose key one is.
enum Whose {
    Live,
    /// Of the directory of all snapshots.
    Directory,
    Snapshot(u64),
}

fn whose(key: &[u8]) -> Whose {
    if !is_of_tree(key) {
        return Whose::Live;
    }
    // The end of a range may be shorter than a key.
    let mut inode = [0; 8];
    let there = key.len().clamp(1, 9);
    inode[..there - 1].copy_from_slice(&key[1..there]);
    match snapshot_of(Inode(u64::from_be_bytes(inode))).0 {
        0 => Whose::Live,
        number if number == snapshot_of(SNAPSHOTS).0 => Whose::Directory,
        number => Whose::Snapshot(number),
    }
}

/// A key with the number of another snapshot in its inode.
fn of_snapshot(key: &[u8], snapshot: u64) -> BytesMut {
    let mut moved = BytesMut::from(key);
    let (own, number) = (
        in_snapshot(u64::MAX, Inode(0)),
        in_snapshot(snapshot, Inode(0)),
    );
    let masks = own.0.to_be_bytes().into_iter().zip(number.0.to_be_bytes());
    for (byte, (own, number)) in moved.iter_mut().skip(1).zip(masks) {
        *byte = *byte & !own | number;
    }
    moved
}

/// A value of a snapshot with inodes that are of it, too.
fn value_of(snapshot: u64, key: &[u8], value: &Bytes) -> FsResult<Bytes> {
    match key.first() {
        Some(&kind::ENTRY) => {
            let entry = Entry::decode(value)?;
            let inode = in_snapshot(snapshot, entry.inode);
            Ok(Entry { inode, ..entry }.encode())
        }
        Some(&kind::NODE) => {
            let mut node = Node::decode(value)?;
            node.parent = match node.parent {
                0 => 0,
                _ if schema::inode_in(key)? == Inode::ROOT => SNAPSHOTS.0,
                parent => in_snapshot(snapshot, Inode(parent)).0,
            };
            Ok(node.encode())
        }
        _ => Ok(value.clone()),
    }
}

impl<'a> Trees<'a> {
    pub(super) fn new(live: &'a dyn Reads) -> Self {
        Self {
            live,
            known: RefCell::default(),
            was_gone: Cell::default(),
        }
    }

    fn view(&self, snapshot: u64) -> EngineResult<Option<View<'a>>> {
        let known = self
            .known
            .borrow()
            .filter(|(number, _)| *number == snapshot);
        let last_file = match known {
            Some((_, last_file)) => last_file,
            None => {
                let record = self.live.get(&schema::snapshot(snapshot))?;
                let record = record.map(|value| SnapshotRecord::decode(&value));
                let record = record.transpose().map_err(|error| damaged(&error))?;
                let record = record.filter(|record| !record.is_removed);
                let last_file = record.map(|record| record.last_file);
                *self.known.borrow_mut() = Some((snapshot, last_file));
                last_file
            }
        };
        if last_file.is_none() {
            self.was_gone.set(true);
        }
        Ok(last_file.map(|last_file| View::new(self.live, snapshot, last_file)))
    }

    /// A key of the live tree. The root has an entry that is not written anywhere.
    fn live(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        let value = self.live.get(key)?;
        let is_directory = || key.first() == Some(&kind::ENTRY) && key == &directory_key()[..];
        Ok(value.or_else(|| is_directory().then(|| entry_of(SNAPSHOTS))))
    }

    /// A key of the directory of all snapshots.
    fn directory(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        match key.first() {
            Some(&kind::NODE) => self.directory_node(),
            Some(&kind::ENTRY) => {
                let name = schema::snapshot_name(schema::name_in(key));
                let number = self.live.get(&name)?;
                Ok(number.map(|number| entry_of_number(&number)))
            }
            _ => self.live.get(key),
        }
    }

    /// Belongs to whom the root does, and only that one changes it.
    fn directory_node(&self) -> EngineResult<Option<Bytes>> {
        let Some(root) = self.live.get(&schema::node(Inode::ROOT))? else {
            return Ok(None);
        };
        let root = Node::decode(&root).map_err(|error| damaged(&error))?;
        let permissions = root.permissions & 0o755;
        let mut lists = AccessLists {
            access: root.lists.access.clone(),
            default: None,
        };
        lists.follow(permissions);
        let node = Node {
            permissions,
            lists,
            parent: Inode::ROOT.0,
            seen: 0,
            links: 1,
            ..root
        };
        Ok(Some(node.encode()))
    }

    fn scan_directory(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        if range.start.first() != Some(&kind::ENTRY) {
            return Ok(());
        }
        let start = schema::snapshot_name(schema::name_in(range.start));
        let end = [kind::SNAPSHOT_NAME + 1];
        self.live.scan(&start[..]..&end[..], &mut |key, number| {
            let mut entry = schema::of_directory(SNAPSHOTS);
            entry.extend_from_slice(&key[1..]);
            visit(&entry, &entry_of_number(number))
        })
    }

    fn scan_snapshot(
        &self,
        snapshot: u64,
        range: Range<&[u8]>,
        visit: Visitor<'_>,
    ) -> EngineResult<()> {
        let Some(view) = self.view(snapshot)? else {
            return Ok(());
        };
        let mut outcome = Ok(());
        let (start, end) = (of_snapshot(range.start, 0), of_snapshot(range.end, 0));
        view.scan(
            &start..&end,
            &mut |key, value| match value_of(snapshot, key, value) {
                Ok(value) => visit(&of_snapshot(key, snapshot), &value),
                Err(error) => {
                    outcome = Err(damaged(&error));
                    ControlFlow::Break(())
                }
            },
        )?;
        outcome
    }
}

/// The key of the entry of the directory of all snapshots.
fn directory_key() -> BytesMut {
    let mut key = schema::of_directory(Inode::ROOT);
    key.extend_from_slice(SNAPSHOTS_NAME);
    key
}

fn entry_of(inode: Inode) -> Bytes {
    let kind = FileKind::Directory;
    Entry { inode, kind }.encode()
}

/// The entry of the snapshot whose number is kept as a mark.
fn entry_of_number(number: &Bytes) -> Bytes {
    entry_of(in_snapshot(mark(Some(number)), Inode::ROOT))
}

impl Reads for Trees<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        let snapshot = match whose(key) {
            Whose::Live => return self.live(key),
            Whose::Directory => return self.directory(key),
            Whose::Snapshot(snapshot) => snapshot,
        };
        let Some(view) = self.view(snapshot)? else {
            return Ok(None);
        };
        let key = of_snapshot(key, 0);
        let value = view.get(&key)?;
        let value = value.map(|value| value_of(snapshot, &key, &value));
        value.transpose().map_err(|error| damaged(&error))
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        match whose(range.start) {
            Whose::Live => self.live.scan(range, visit),
            Whose::Directory => self.scan_directory(range, visit),
            Whose::Snapshot(snapshot) => self.scan_snapshot(snapshot, range, visit),
        }
    }
}
