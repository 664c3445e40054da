//! Random copies, writes, cuts, holes and removals of some files, beside snapshots, folds and kills, against a model of bytes.
//! What is saved is compressed or not, and removed files come to the trash or not, by turns.

use std::collections::HashMap;

use penstock_base::FsError;
use penstock_fileset::{
    check::check_data,
    compression::Compression,
    quotas::{Change, LimitChange, Subject},
};
use penstock_vfs::{Allocation, AttributeChanges, HandleId, Inode, OpenOptions, WritePlace};
use proptest::prelude::*;

use crate::{
    ground::{
        collect, content, copy, copy_all, drop_snapshot, ends_empty, opened, remove, snapshot,
    },
    support::{Place, ROOT, Small},
};

const FILES: usize = 4;
/// Bytes of a file at most, about.
const LENGTH_MAX: usize = 10_000_000;

#[derive(Debug, Clone)]
enum Deed {
    Write(usize, usize, usize),
    /// Bytes all over a part of a chunk, so that it is folded.
    Scatter(usize, usize),
    Copy(usize, usize, (usize, usize), usize),
    Cut(usize, usize),
    Punch(usize, usize, usize),
    Sync(usize),
    Remove(usize),
    Take,
    Drop,
    /// A file of the snapshot into a live one.
    Restore(usize, usize),
    Collect,
    /// All is saved, and the process killed.
    Kill,
    Compare,
    /// What is saved from now on is compressed so.
    Compress(Compression),
    /// Removed files stay in the trash for so many days.
    Keep(u32),
    /// What is first in the trash comes back, and is removed again.
    Recover,
    Purge,
}

/// A place near the ends of chunks.
fn place() -> impl Strategy<Value = usize> {
    (0usize..3, 0usize..8000).prop_map(|(chunk, at)| (chunk << 22) + at)
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 1usize..9000, 1 => 4_000_000usize..5_000_000]
}

fn setting() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Zstd(1)),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    let file = || 0..FILES;
    prop_oneof![
        5 => (file(), place(), length()).prop_map(|(a, b, c)| Deed::Write(a, b, c)),
        1 => (file(), place()).prop_map(|(a, b)| Deed::Scatter(a, b)),
        8 => (file(), file(), (place(), place()), length())
            .prop_map(|(a, b, c, d)| Deed::Copy(a, b, c, d)),
        2 => (file(), place()).prop_map(|(a, b)| Deed::Cut(a, b)),
        2 => (file(), place(), length()).prop_map(|(a, b, c)| Deed::Punch(a, b, c)),
        1 => file().prop_map(Deed::Sync),
        2 => file().prop_map(Deed::Remove),
        1 => Just(Deed::Take),
        1 => Just(Deed::Drop),
        2 => (file(), file()).prop_map(|(a, b)| Deed::Restore(a, b)),
        1 => Just(Deed::Collect),
        1 => Just(Deed::Kill),
        1 => Just(Deed::Compare),
        2 => setting().prop_map(Deed::Compress),
        1 => (0u32..2).prop_map(Deed::Keep),
        1 => Just(Deed::Recover),
        1 => Just(Deed::Purge),
    ]
}

struct World {
    place: Place,
    files: Vec<(HandleId, Vec<u8>)>,
    snapshot: Option<(Inode, Vec<Vec<u8>>)>,
    /// Files that were removed, as they were then.
    removed: HashMap<Inode, Vec<u8>>,
    count: usize,
}

fn name_of(file: usize) -> String {
    format!("file {file}")
}

impl World {
    async fn new((small, is_limited): (Small, bool)) -> Self {
        let place = Place::with_small(small).await;
        if is_limited {
            let hard = LimitChange {
                soft: Some(0),
                hard: Some(1 << 40),
            };
            let change = Change {
                bytes: hard,
                ..Change::default()
            };
            let set = place.volume.set_quota(Subject::User(0), change);
            set.await.unwrap();
        }
        let mut files = Vec::new();
        for file in 0..FILES {
            files.push((opened(&place, &name_of(file)).await, Vec::new()));
        }
        Self {
            place,
            files,
            snapshot: None,
            removed: HashMap::new(),
            count: 0,
        }
    }

    async fn act(&mut self, deed: &Deed) {
        self.count += 1;
        match *deed {
            Deed::Write(file, at, length) => self.write(file, at, length).await,
            Deed::Scatter(file, at) => {
                for step in 0..300 {
                    self.write(file, at + 5 * step, 1).await;
                }
                self.place.sync(self.files[file].0).await.unwrap();
            }
            Deed::Copy(source, target, ends, length) => {
                self.copy(source, target, ends, length).await;
            }
            Deed::Cut(file, size) => {
                let changes = AttributeChanges {
                    size: Some(size as u64),
                    ..AttributeChanges::default()
                };
                let inode = self.place.find(ROOT, &name_of(file)).await.unwrap().inode;
                self.place.change(inode, changes).await.unwrap();
                self.files[file].1.resize(size, 0);
            }
            Deed::Punch(file, at, length) => {
                let (handle, model) = &mut self.files[file];
                let range = at as u64..(at + length) as u64;
                let punched = self.place.allocate(*handle, range, Allocation::PunchHole);
                punched.await.unwrap();
                let within = |place: usize| place.min(model.len());
                let range = within(at)..within(at + length);
                model[range].fill(0);
            }
            Deed::Sync(file) => self.place.sync(self.files[file].0).await.unwrap(),
            Deed::Remove(file) => self.remove(file).await,
            Deed::Take => self.take().await,
            Deed::Drop => self.drop_snapshot().await,
            Deed::Restore(from, to) => self.restore(from, to).await,
            Deed::Collect => collect(&self.place).await,
            Deed::Kill => self.kill().await,
            Deed::Compare => self.compare().await,
            Deed::Compress(setting) => self.place.volume.set_compression(setting).await.unwrap(),
            Deed::Keep(days) => self.place.volume.set_trash(days).await.unwrap(),
            Deed::Recover => self.recover().await,
            Deed::Purge => self.purge().await,
        }
    }

    async fn write(&mut self, file: usize, at: usize, length: usize) {
        let (handle, model) = &mut self.files[file];
        let first = self.count.wrapping_mul(31).wrapping_add(at) as u8;
        let data: Vec<_> = (0..length).map(|by| first.wrapping_add(by as u8)).collect();
        let written = self.place.write(*handle, WritePlace::At(at as u64), &data);
        written.await.unwrap();
        write(model, at, &data);
    }

    async fn copy(
        &mut self,
        source: usize,
        target: usize,
        (from, to): (usize, usize),
        length: usize,
    ) {
        let handles = (self.files[source].0, self.files[target].0);
        let ends = ((handles.0, from as u64), (handles.1, to as u64));
        let made = copy(&self.place, ends.0, ends.1, length as u64).await;
        let model = &self.files[source].1;
        let part = model.get(from..(from + length).min(model.len()));
        let part = part.unwrap_or_default().to_vec();
        match made {
            Err(FsError::InvalidArgument(_)) => {
                assert!(source == target && from.abs_diff(to) < part.len());
            }
            made => {
                assert_eq!(made, Ok(part.len() as u64));
                if !part.is_empty() {
                    write(&mut self.files[target].1, to, &part);
                }
            }
        }
    }

    async fn remove(&mut self, file: usize) {
        let name = name_of(file);
        let inode = self.place.find(ROOT, &name).await.unwrap().inode;
        self.place.close(self.files[file].0).await.unwrap();
        remove(&self.place, &name).await;
        let fresh = (opened(&self.place, &name).await, Vec::new());
        let (_, model) = std::mem::replace(&mut self.files[file], fresh);
        self.removed.insert(inode, model);
    }

    async fn recover(&self) {
        let items = self.place.volume.list_trash(None).await.unwrap();
        let Some(first) = items.into_iter().next() else {
            return;
        };
        let back = Some("/back".to_owned());
        self.place.volume.restore(first.entry, back).await.unwrap();
        let inode = self.place.find(ROOT, "back").await.unwrap().inode;
        let handle = opened(&self.place, "back").await;
        assert!(content(&self.place, handle, "back").await == self.removed[&inode]);
        self.place.close(handle).await.unwrap();
        remove(&self.place, "back").await;
    }

    async fn purge(&self) {
        let purged = self.place.volume.purge_some(None).await.unwrap();
        assert!(purged.is_done);
    }

    async fn take(&mut self) {
        if self.snapshot.is_none() {
            let taken = snapshot(&self.place, "then").await;
            let models = self.files.iter().map(|(_, model)| model.clone());
            self.snapshot = Some((taken, models.collect()));
        }
    }

    async fn drop_snapshot(&mut self) {
        if self.snapshot.take().is_some() {
            drop_snapshot(&self.place, "then").await;
        }
    }

    async fn restore(&mut self, from: usize, to: usize) {
        let Some((then, models)) = &self.snapshot else {
            return;
        };
        let kept = self.place.find(*then, &name_of(from)).await.unwrap().inode;
        let source = self.place.open(kept, OpenOptions::READ).await.unwrap();
        copy_all(&self.place, source, self.files[to].0).await;
        self.place.close(source).await.unwrap();
        write(&mut self.files[to].1, 0, &models[from]);
    }

    async fn kill(&mut self) {
        for (handle, _) in &self.files {
            self.place.sync(*handle).await.unwrap();
        }
        self.place.crash().await;
        for (file, (handle, _)) in self.files.iter_mut().enumerate() {
            *handle = opened(&self.place, &name_of(file)).await;
        }
        if let Some((then, _)) = &mut self.snapshot {
            let shelf = self.place.find(ROOT, ".snapshot").await.unwrap().inode;
            *then = self.place.find(shelf, "then").await.unwrap().inode;
        }
    }

    async fn compare(&self) {
        for (file, (handle, model)) in self.files.iter().enumerate() {
            let shown = content(&self.place, *handle, &name_of(file)).await;
            assert!(shown == *model, "{}", name_of(file));
        }
        if let Some((then, models)) = &self.snapshot {
            for (file, model) in models.iter().enumerate() {
                let kept = self.place.find(*then, &name_of(file)).await.unwrap().inode;
                let handle = self.place.open(kept, OpenOptions::READ).await.unwrap();
                let shown = self.place.read_all(handle, model.len()).await;
                assert!(shown == *model, "{} of the snapshot", name_of(file));
                self.place.close(handle).await.unwrap();
            }
        }
    }

    async fn end(mut self) {
        self.compare().await;
        for (handle, _) in &self.files {
            self.place.sync(*handle).await.unwrap();
        }
        self.place.is_whole().await;
        let (place, ahead) = (&self.place, self.place.ahead.as_ref());
        let report = check_data(&*place.engine, place.transfer(), ahead).await;
        assert!(report.as_ref().unwrap().is_clean(), "{report:?}");
        self.recover().await;
        self.drop_snapshot().await;
        for file in 0..FILES {
            self.place.close(self.files[file].0).await.unwrap();
            remove(&self.place, &name_of(file)).await;
        }
        self.purge().await;
        ends_empty(&self.place).await;
    }
}

fn write(model: &mut Vec<u8>, at: usize, data: &[u8]) {
    assert!(at + data.len() < 2 * LENGTH_MAX);
    model.resize(model.len().max(at + data.len()), 0);
    model[at..at + data.len()].copy_from_slice(data);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn random_copies_are_what_their_sources_were(
        small in prop::sample::select(&Small::ALL[..]), is_limited in any::<bool>(), deeds in prop::collection::vec(deed(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let mut world = World::new((small, is_limited)).await;
            for deed in &deeds {
                world.act(deed).await;
            }
            world.end().await;
        });
    }
}
