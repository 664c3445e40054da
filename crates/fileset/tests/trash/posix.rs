//! A file system with a trash does what one without does, whatever is done, also with quotas, snapshots and compression.

use penstock_base::FsError;
use penstock_fileset::{compression::Compression, quotas::Subject};
use penstock_vfs::{
    AttributeChanges, HandleId, Inode, OpenOptions, RemoveKind, RenameMode, WritePlace,
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::{
    bins::set,
    ground::{bytes, limit, on_memory},
    support::{Place, ROOT, directory, name},
    trees::tree,
};

const NAMES: u8 = 5;
const DIRECTORIES: u8 = 2;

/// A name in one of the directories.
type At = (u8, u8);

#[derive(Debug, Clone)]
enum Deed {
    Store(At, u16),
    Open(At),
    Write(u16, u16),
    Read,
    Sync,
    Close,
    Cut(u16),
    Reopen,
    LinkOpen(At),
    Link(At, At),
    Rename(At, At, u8),
    Remove(At),
    MakeDirectory(At),
    RemoveDirectory(At),
    /// A snapshot is taken, or the one that there is is removed.
    Snapshot,
    /// What is in the trash goes, where there is one.
    Purge,
}

fn deed() -> impl Strategy<Value = Deed> {
    let at = || (0..DIRECTORIES, 0..NAMES);
    prop_oneof![
        4 => (at(), 0u16..3000).prop_map(|(at, length)| Deed::Store(at, length)),
        3 => at().prop_map(Deed::Open),
        3 => (0u16..3000, 1u16..900).prop_map(|(at, length)| Deed::Write(at, length)),
        2 => Just(Deed::Read),
        1 => Just(Deed::Sync),
        2 => Just(Deed::Close),
        1 => (0u16..3000).prop_map(Deed::Cut),
        1 => Just(Deed::Reopen),
        1 => at().prop_map(Deed::LinkOpen),
        2 => (at(), at()).prop_map(|(from, to)| Deed::Link(from, to)),
        4 => (at(), at(), 0u8..3).prop_map(|(from, to, mode)| Deed::Rename(from, to, mode)),
        5 => at().prop_map(Deed::Remove),
        1 => at().prop_map(Deed::MakeDirectory),
        1 => at().prop_map(Deed::RemoveDirectory),
        1 => Just(Deed::Snapshot),
        1 => Just(Deed::Purge),
    ]
}

struct World {
    place: Place,
    above: Vec<Inode>,
    open: Vec<(Inode, HandleId)>,
    has_snapshot: bool,
}

/// What a deed is answered with.
type Answer = Result<Vec<u8>, FsError>;

impl World {
    async fn new(days: u32) -> Self {
        let place = on_memory().await;
        let mut above = Vec::new();
        for number in 0..DIRECTORIES {
            let text = format!("directory {number}");
            above.push(place.make(ROOT, &text, directory(0o755)).await.unwrap());
        }
        if days > 0 {
            set(&place, days).await;
        }
        // Nothing is limited, and all is counted.
        for subject in [Subject::Directory(above[1]), Subject::User(0)] {
            limit(&place, subject, bytes(0, 0)).await;
        }
        let lz4 = place.volume.set_compression(Compression::Lz4);
        lz4.await.unwrap();
        Self {
            place,
            above,
            open: Vec::new(),
            has_snapshot: false,
        }
    }

    fn at(&self, (above, name): At) -> (Inode, String) {
        (self.above[usize::from(above)], format!("name {name}"))
    }

    async fn inode(&self, at: At) -> Result<Inode, FsError> {
        let (above, text) = self.at(at);
        Ok(self.place.find(above, &text).await?.inode)
    }

    fn last(&self) -> Result<(Inode, HandleId), FsError> {
        self.open.last().copied().ok_or(FsError::BadHandle)
    }

    async fn open(&mut self, inode: Inode) -> Answer {
        let handle = self.place.open(inode, OpenOptions::READ_WRITE).await?;
        self.open.push((inode, handle));
        Ok(Vec::new())
    }

    async fn act(&mut self, deed: &Deed) -> Answer {
        let place = self.place.clone();
        match *deed {
            Deed::Store(at, length) => {
                let (above, text) = self.at(at);
                place.store(above, &text, &vec![1; length.into()]).await?;
            }
            Deed::Open(at) => return self.open(self.inode(at).await?).await,
            Deed::Reopen => return self.open(self.last()?.0).await,
            Deed::Write(offset, length) => {
                let data = vec![2; length.into()];
                let to = WritePlace::At(offset.into());
                place.write(self.last()?.1, to, &data).await?;
            }
            Deed::Read => return place.read(self.last()?.1, 0, 10_000).await,
            Deed::Sync => place.sync(self.last()?.1).await?,
            Deed::Close => {
                let (_, handle) = self.open.pop().ok_or(FsError::BadHandle)?;
                place.close(handle).await?;
            }
            Deed::Cut(size) => {
                let changes = AttributeChanges {
                    size: Some(size.into()),
                    ..AttributeChanges::default()
                };
                place.change(self.last()?.0, changes).await?;
            }
            Deed::LinkOpen(to) => {
                let (above, text) = self.at(to);
                place.link(self.last()?.0, (above, &text)).await?;
            }
            Deed::Link(from, to) => {
                let (inode, (above, text)) = (self.inode(from).await?, self.at(to));
                place.link(inode, (above, &text)).await?;
            }
            Deed::Rename(from, to, mode) => {
                let modes = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ];
                let (from, to) = (self.at(from), self.at(to));
                let mode = modes[usize::from(mode)];
                place.rename((from.0, &from.1), (to.0, &to.1), mode).await?;
            }
            Deed::Remove(at) => {
                let (above, text) = self.at(at);
                place.remove(above, &text, RemoveKind::File).await?;
            }
            Deed::MakeDirectory(at) => {
                let (above, text) = self.at(at);
                place.make(above, &text, directory(0o755)).await?;
            }
            Deed::RemoveDirectory(at) => {
                let (above, text) = self.at(at);
                place.remove(above, &text, RemoveKind::Directory).await?;
            }
            Deed::Snapshot => self.take_or_drop().await,
            Deed::Purge => assert!(place.volume.purge_some(None).await?.is_done),
        }
        Ok(Vec::new())
    }

    async fn take_or_drop(&mut self) {
        let (volume, then) = (&self.place.volume, name("then"));
        match self.has_snapshot {
            true => volume.remove_snapshot(&then).await.unwrap(),
            false => drop(volume.take_snapshot(&then).await.unwrap()),
        }
        self.has_snapshot = !self.has_snapshot;
    }

    /// What open files show, with or without a name.
    async fn shown(&self) -> Vec<(u32, u64, u64)> {
        let mut shown = Vec::new();
        for (inode, _) in &self.open {
            let it = self.place.attributes(*inode).await;
            shown.push((it.links, it.size, it.allocated));
        }
        shown
    }

    /// All that a reader sees, but for times.
    async fn seen(&self) -> Vec<(String, u32, u64, Vec<u8>)> {
        let mut tops = vec![ROOT];
        if self.has_snapshot {
            let shelf = self.place.find(ROOT, ".snapshot").await.unwrap().inode;
            tops.push(self.place.find(shelf, "then").await.unwrap().inode);
        }
        let mut seen = Vec::new();
        for top in tops {
            let files = tree(&self.place, top).await.into_iter();
            seen.extend(files.map(|(path, it)| (path, it.links, it.size, it.content)));
        }
        seen
    }

    async fn end(&mut self) {
        for (_, handle) in std::mem::take(&mut self.open) {
            self.place.close(handle).await.unwrap();
        }
        self.place.is_whole().await;
    }
}

#[test]
fn a_tree_with_a_trash_is_what_it_is_without() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(100));
    let deeds = prop::collection::vec(deed(), 1..80);
    runner
        .run(&deeds, |deeds| {
            runtime.block_on(async {
                let mut without = World::new(0).await;
                let mut with = World::new(7).await;
                for deed in &deeds {
                    let expected = without.act(deed).await;
                    assert_eq!(with.act(deed).await, expected, "{deed:?}");
                    assert_eq!(with.shown().await, without.shown().await, "{deed:?}");
                }
                with.end().await;
                without.end().await;
                assert_eq!(with.seen().await, without.seen().await);
            });
            Ok(())
        })
        .unwrap();
}
