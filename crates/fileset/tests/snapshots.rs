//! Snapshots show what was there when they were taken, whatever happens afterwards, and leave nothing behind.

#![allow(clippy::unwrap_used)]

mod support;
mod trees;

use std::{collections::BTreeMap, ops::ControlFlow};

use penstock_base::FsError;
use penstock_fileset::{
    check::check_data,
    compression::Compression,
    engine::query,
    garbage::{Sweep, collect_garbage},
    snapshots,
};
use penstock_vfs::{
    AttributeChanges, Detail, FileKind, Inode, ListFrom, New, NewKind, OpenOptions, RemoveKind,
    RenameMode, Volume, WritePlace, XattrMode,
};
use proptest::prelude::*;

use support::{Place, ROOT, Small, directory, file, name, user};
use trees::{Tree, tree};

async fn shelf(place: &Place) -> Inode {
    place.find(ROOT, ".snapshot").await.unwrap().inode
}

async fn take(place: &Place, text: &str) -> Inode {
    let made = place.make(shelf(place).await, text, directory(0o755)).await;
    made.unwrap()
}

async fn drop_it(place: &Place, text: &str) {
    let removed = place.remove(shelf(place).await, text, RemoveKind::Directory);
    removed.await.unwrap();
}

/// Keys that are there because of snapshots.
async fn left(place: &Place) -> Vec<u8> {
    keys_of(place, b"EPHVY").await
}

/// The kinds of keys that are there, of some.
async fn keys_of(place: &Place, wanted: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    query(&*place.engine, |reads| {
        for kind in wanted {
            reads.scan(&[*kind]..&[kind + 1], &mut |key, _| {
                kinds.push(key[0]);
                ControlFlow::Continue(())
            })?;
        }
        Ok::<_, FsError>(())
    })
    .await
    .unwrap();
    kinds
}

/// Waits until nothing is left of snapshots, and of what only they needed.
async fn is_clear(place: &Place) {
    place.until(|| async { left(place).await.is_empty() }).await;
    place.is_whole().await;
}

/// Waits until nothing goes on behind. What is killed here goes on with its old metadata, and must delete nothing.
async fn is_quiet(place: &Place) {
    place
        .until(|| async {
            let snapshots = snapshots::list(&*place.engine).await.unwrap();
            let is_clearing = snapshots.iter().any(|snapshot| snapshot.is_removed);
            !is_clearing && keys_of(place, b"OG").await.is_empty()
        })
        .await;
}

#[derive(Debug, Clone)]
enum Act {
    Store(u8, u16),
    /// A file, where, and how many bytes.
    Write(u8, u32, u16),
    Cut(u8, u32),
    Remove(u8),
    Link(u8, u8),
    Symlink(u8),
    Directory(u8),
    RemoveDirectory(u8),
    Move(u8, u8),
    Xattr(u8, u8),
    Chmod(u8, u16),
    Take,
    Drop(usize),
    Crash,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let file = || 0u8..6;
    let act = prop_oneof![
        5 => (file(), any::<u16>()).prop_map(|(file, length)| Act::Store(file, length)),
        5 => (file(), 0u32..300_000, any::<u16>()).prop_map(|(file, at, length)| Act::Write(file, at, length)),
        2 => (file(), 0u32..300_000).prop_map(|(file, size)| Act::Cut(file, size)),
        3 => file().prop_map(Act::Remove),
        1 => (file(), file()).prop_map(|(file, other)| Act::Link(file, other)),
        1 => file().prop_map(Act::Symlink),
        1 => (0u8..3).prop_map(Act::Directory),
        1 => (0u8..3).prop_map(Act::RemoveDirectory),
        2 => (file(), file()).prop_map(|(file, other)| Act::Move(file, other)),
        2 => (file(), any::<u8>()).prop_map(|(file, value)| Act::Xattr(file, value)),
        1 => (file(), 0u16..0o1000).prop_map(|(file, mode)| Act::Chmod(file, mode | 0o400)),
        4 => Just(Act::Take),
        2 => any::<usize>().prop_map(Act::Drop),
        1 => Just(Act::Crash),
    ];
    proptest::collection::vec(act, 5..40)
}

struct Bench {
    place: Place,
    taken: u64,
    there: BTreeMap<String, Tree>,
    written: u8,
}

impl Bench {
    /// The directory and the name of a file: half of them are in the root.
    async fn at(&self, file: u8) -> (Inode, String) {
        let below = format!("dir{}", file / 2);
        let inside = self.place.find(ROOT, &below).await.ok();
        let inside = inside.filter(|it| file % 2 == 1 && it.kind == FileKind::Directory);
        (inside.map_or(ROOT, |it| it.inode), format!("file{file}"))
    }

    async fn write(&mut self, file: u8, at: u32, length: u16) -> Result<(), FsError> {
        self.written = self.written.wrapping_add(1);
        let (parent, text) = self.at(file).await;
        let found = self.place.find(parent, &text).await?;
        let handle = self.place.open(found.inode, OpenOptions::WRITE).await?;
        let bytes = vec![self.written; usize::from(length)];
        let place = WritePlace::At(u64::from(at));
        self.place.write(handle, place, &bytes).await?;
        self.place.close(handle).await
    }

    /// What cannot be done is not.
    async fn change(&mut self, act: &Act) -> Result<(), FsError> {
        let place = self.place.clone();
        match act.clone() {
            Act::Store(file, length) => {
                self.written = self.written.wrapping_add(1);
                let (parent, text) = self.at(file).await;
                let bytes = vec![self.written; usize::from(length)];
                place.store(parent, &text, &bytes).await
            }
            Act::Write(file, at, length) => self.write(file, at, length).await,
            Act::Cut(file, size) => {
                let (parent, text) = self.at(file).await;
                let changes = AttributeChanges {
                    size: Some(u64::from(size)),
                    ..AttributeChanges::default()
                };
                let inode = place.find(parent, &text).await?.inode;
                place.change(inode, changes).await.map(drop)
            }
            Act::Remove(file) => {
                let (parent, text) = self.at(file).await;
                let found = place.find(parent, &text).await?;
                place.remove(parent, &text, RemoveKind::File).await?;
                place.forget_all(found.inode);
                Ok(())
            }
            Act::Link(file, other) => {
                let (parent, text) = self.at(file).await;
                let inode = place.find(parent, &text).await?.inode;
                let (parent, text) = self.at(other).await;
                place.link(inode, (parent, &text)).await
            }
            Act::Symlink(file) => {
                let (parent, text) = self.at(file).await;
                let new = New {
                    kind: NewKind::Symlink(b"somewhere"),
                    ..support::file(0o777)
                };
                place.make(parent, &text, new).await.map(drop)
            }
            Act::Directory(number) => {
                let text = format!("dir{number}");
                place.make(ROOT, &text, directory(0o755)).await.map(drop)
            }
            Act::RemoveDirectory(number) => {
                let text = format!("dir{number}");
                let found = place.find(ROOT, &text).await?;
                place.remove(ROOT, &text, RemoveKind::Directory).await?;
                place.forget_all(found.inode);
                Ok(())
            }
            Act::Move(file, other) => {
                let ((from, one), (to, two)) = (self.at(file).await, self.at(other).await);
                let replaced = place.find(to, &two).await;
                let mode = RenameMode::Replace;
                place.rename((from, &one), (to, &two), mode).await?;
                replaced
                    .into_iter()
                    .for_each(|it| place.forget_all(it.inode));
                Ok(())
            }
            Act::Xattr(..) | Act::Chmod(..) => self.describe(act).await,
            Act::Take | Act::Drop(_) | Act::Crash => Ok(()),
        }
    }

    /// Changes what a file says of itself.
    async fn describe(&self, act: &Act) -> Result<(), FsError> {
        let (Act::Xattr(file, _) | Act::Chmod(file, _)) = act else {
            return Ok(());
        };
        let (parent, text) = self.at(*file).await;
        let inode = self.place.find(parent, &text).await?.inode;
        if let Act::Xattr(_, value) = act {
            let mode = XattrMode::Set;
            self.place
                .set_xattr(inode, "user.a", &[*value], mode)
                .await?;
        }
        let permissions = match act {
            Act::Chmod(_, mode) => Some(*mode),
            _ => None,
        };
        let changes = AttributeChanges {
            permissions,
            ..AttributeChanges::default()
        };
        self.place.change(inode, changes).await.map(drop)
    }

    async fn act(&mut self, act: &Act) {
        match act {
            Act::Take => {
                self.taken += 1;
                let text = format!("s{}", self.taken);
                let model = tree(&self.place, ROOT).await;
                take(&self.place, &text).await;
                self.there.insert(text, model);
            }
            Act::Drop(which) => {
                if let Some(text) = self.there.keys().nth(which % self.there.len().max(1)) {
                    let text = text.clone();
                    drop_it(&self.place, &text).await;
                    self.there.remove(&text);
                }
            }
            Act::Crash => {
                is_quiet(&self.place).await;
                self.place.crash().await;
                self.place.is_whole().await;
            }
            act => drop(self.change(act).await),
        }
        if matches!(act, Act::Drop(_) | Act::Crash | Act::Take) {
            self.compare().await;
        }
    }

    async fn compare(&self) {
        let shelf = shelf(&self.place).await;
        for (text, model) in &self.there {
            let top = self.place.find(shelf, text).await.unwrap().inode;
            assert!(tree(&self.place, top).await == *model, "{text} differs");
        }
    }

    async fn run(&mut self, acts: &[Act]) {
        for act in acts {
            self.act(act).await;
        }
        self.compare().await;
        self.place.is_whole().await;
        let (place, ahead) = (&self.place, self.place.ahead.as_ref());
        let report = check_data(&*place.engine, place.transfer(), ahead).await;
        assert!(report.as_ref().unwrap().is_clean(), "{report:#?}");
        for text in self.there.keys() {
            drop_it(&self.place, text).await;
        }
        is_clear(&self.place).await;
    }
}

fn run(acts: &[Act], small: Small, compression: Compression) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let place = Place::with_small(small).await;
        place.volume.set_compression(compression).await.unwrap();
        let mut bench = Bench {
            place,
            taken: 0,
            there: BTreeMap::new(),
            written: 0,
        };
        bench.run(acts).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn each_snapshot_is_the_tree_of_its_time(
        acts in acts(),
        small in prop::sample::select(&Small::ALL[..]),
        compression in prop_oneof![Just(Compression::None), Just(Compression::Lz4)],
    ) {
        run(&acts, small, compression);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_in_a_snapshot_can_be_changed() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"old").await.unwrap();
    let below = place.make(ROOT, "below", directory(0o755)).await.unwrap();
    place.make(below, "inside", file(0o644)).await.unwrap();
    let top = take(&place, "s").await;
    let there = place.find(top, "file").await.unwrap().inode;
    let read_only = Some(FsError::ReadOnly);
    assert_eq!(place.open(there, OpenOptions::WRITE).await.err(), read_only);
    let made = place.make(top, "new", file(0o644)).await;
    assert_eq!(made.err(), read_only);
    let removed = place.remove(top, "file", RemoveKind::File).await;
    assert_eq!(removed.err(), read_only);
    for (from, to) in [((top, "file"), (ROOT, "x")), ((ROOT, "file"), (top, "x"))] {
        let moved = place.rename(from, to, RenameMode::Replace).await;
        assert_eq!(moved.err(), read_only);
    }
    for to in [(top, "x"), (ROOT, "x")] {
        assert_eq!(place.link(there, to).await.err(), read_only);
    }
    for changes in [
        AttributeChanges {
            size: Some(0),
            ..AttributeChanges::default()
        },
        AttributeChanges {
            permissions: Some(0),
            ..AttributeChanges::default()
        },
    ] {
        assert_eq!(place.change(there, changes).await.err(), read_only);
    }
    let set = place.set_xattr(there, "user.a", b"1", XattrMode::Set).await;
    assert_eq!(set.err(), read_only);
    assert_eq!(place.content(top, "file").await.unwrap(), b"old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_hidden_from_listings_and_found_by_name() {
    let place = Place::new().await;
    let handle = place.open_directory(ROOT).await;
    let room = (10, Detail::Attributes);
    let listed = place.list(handle, ListFrom::Position(0), room).await;
    assert!(listed.is_empty(), "{listed:?}");
    let top = take(&place, "s").await;
    let shelf = shelf(&place).await;
    assert_eq!(place.parent(top).await, shelf);
    assert_eq!(place.parent(shelf).await, ROOT);
    assert_eq!(place.attributes(shelf).await.links, 3);
    let handle = place.open_directory(shelf).await;
    let listed = place.list(handle, ListFrom::Position(0), room).await;
    assert_eq!(listed[0].0, "s");
    let made = place.make(ROOT, ".snapshot", directory(0o755)).await;
    assert_eq!(made.err(), Some(FsError::AlreadyExists));
    let again = place.make(shelf, "s", directory(0o755)).await;
    assert_eq!(again.err(), Some(FsError::AlreadyExists));
    let missing = place.remove(shelf, "t", RemoveKind::Directory).await;
    assert_eq!(missing.err(), Some(FsError::NotFound));
    let other = place.by(user(5)).make(shelf, "t", directory(0o755)).await;
    assert_eq!(other.err(), Some(FsError::PermissionDenied));
    assert!(place.find(top, ".snapshot").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_has_what_was_written_and_not_saved() {
    let mut place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), b"pending").await;
    written.unwrap();
    take(&place, "s").await;
    place
        .write(handle, WritePlace::At(0), b"changed")
        .await
        .unwrap();
    place.close(handle).await.unwrap();
    place.crash().await;
    let top = place.find(shelf(&place).await, "s").await.unwrap().inode;
    assert_eq!(place.content(top, "file").await.unwrap(), b"pending");
    assert_eq!(place.content(ROOT, "file").await.unwrap(), b"changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_snapshot_holds_is_told_and_goes_with_it() {
    let place = Place::new().await;
    place.store(ROOT, "file", &[1; 100_000]).await.unwrap();
    take(&place, "s").await;
    let found = place.find(ROOT, "file").await.unwrap();
    place.remove(ROOT, "file", RemoveKind::File).await.unwrap();
    place.forget_all(found.inode);
    place.store(ROOT, "young", &[2; 5000]).await.unwrap();
    let young = place.find(ROOT, "young").await.unwrap();
    place.until(|| place.is_gone(found.inode)).await;
    place.remove(ROOT, "young", RemoveKind::File).await.unwrap();
    place.forget_all(young.inode);
    place.until(|| place.is_gone(young.inode)).await;
    let now = Sweep {
        grace: std::time::Duration::ZERO,
        dry_run: false,
    };
    let collected = || collect_garbage(place.engine.clone(), place.transfer(), now);
    let held = collected().await.unwrap().held;
    assert_eq!((held.objects, held.bytes), (1, 100_000));
    let listed = snapshots::list(&*place.engine).await.unwrap();
    assert_eq!(listed[0].name, "s");
    snapshots::remove(&*place.engine, &name("s")).await.unwrap();
    collected().await.unwrap();
    assert!(place.objects().await.is_empty());
    is_clear(&place).await;
}

/// An inode of a snapshot is one that an NFS client may come back with after a year.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_a_snapshot_is_found_again_by_its_number() {
    let mut place = Place::new().await;
    place.store(ROOT, "file", b"old").await.unwrap();
    let top = take(&place, "s").await;
    let inode = place.find(top, "file").await.unwrap().inode;
    let id = place.volume.node_id(inode).unwrap();
    place.crash().await;
    let root = penstock_vfs::Identity::new(0, 0, []);
    let found = place.volume.resolve(&root, &id).await.unwrap();
    assert_eq!(found.attributes.inode, inode);
    drop_it(&place, "s").await;
    let gone = place.volume.resolve(&root, &id).await;
    assert_eq!(gone.err(), Some(FsError::Stale));
    take(&place, "s").await;
    let gone = place.volume.resolve(&root, &id).await;
    assert_eq!(gone.err(), Some(FsError::Stale), "it is of another one");
}

/// What was removed before its upload was never sent, and the snapshot had nothing but this disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_spool_for_a_snapshot_alone_is_sent() {
    let place = Place::spooled().await;
    place.store(ROOT, "file", b"old").await.unwrap();
    let top = take(&place, "s").await;
    let found = place.find(ROOT, "file").await.unwrap();
    place.remove(ROOT, "file", RemoveKind::File).await.unwrap();
    place.forget_all(found.inode);
    place.until(|| place.is_gone(found.inode)).await;
    place.until(|| async { place.waiting().1 == 0 }).await;
    assert_eq!(place.objects().await.len(), 1);
    assert_eq!(place.content(top, "file").await.unwrap(), b"old");
    place.is_whole().await;
    drop_it(&place, "s").await;
    is_clear(&place).await;
    place
        .until(|| async { place.objects().await.is_empty() })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_of_a_snapshot_is_stale_once_that_is_removed() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"old").await.unwrap();
    let top = take(&place, "s").await;
    let there = place.find(top, "file").await.unwrap().inode;
    let handle = place.open(there, OpenOptions::READ).await.unwrap();
    let listing = place.open_directory(top).await;
    place.store(ROOT, "file", b"new").await.unwrap();
    drop_it(&place, "s").await;
    is_clear(&place).await;
    place
        .until(|| async { place.objects().await.len() == 1 })
        .await;
    assert_eq!(place.read(handle, 0, 3).await.err(), Some(FsError::Stale));
    let handle = place.open_directory(ROOT).await;
    let room = (9, Detail::Names);
    let live = place.list(handle, ListFrom::Position(0), room).await;
    assert_eq!(live[0].0, "file");
    let listed = place.try_list(listing, ListFrom::Position(0), room).await;
    assert_eq!(listed.err(), Some(FsError::Stale), "it is not empty");
}

/// What is yet to be cleared away may lead to objects that are gone: no file and no snapshot needs them.
#[tokio::test]
async fn a_check_of_bytes_passes_over_what_a_removed_snapshot_kept() {
    let mut place = Place::new().await;
    place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    take(&place, "then").await;
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), &[2; 10]).await;
    written.unwrap();
    place.close(handle).await.unwrap();
    // Nobody clears away behind this.
    let removed = snapshots::remove(&*place.engine, &name("then")).await;
    removed.unwrap();
    let cut = AttributeChanges {
        size: Some(0),
        ..AttributeChanges::default()
    };
    place.change(inode, cut).await.unwrap();
    assert!(place.volume.shut_down().await.is_empty());
    assert!(place.objects().await.is_empty());
    place.crash().await;
    assert!(left(&place).await.contains(&b'V'));
    let report = check_data(&*place.engine, place.transfer(), None).await;
    assert_eq!(report.unwrap().findings, Vec::<String>::new());
}
