//! Counters are what the files come to, whatever is done in which order.

use std::collections::BTreeMap;

use penstock_base::FsError;
use penstock_fileset::quotas::Subject;
use penstock_vfs::{
    Allocation, AttributeChanges, HandleId, Inode, OpenOptions, RemoveKind, RenameMode, WritePlace,
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::{
    ground::{bytes, common, on_memory, until_counted, used},
    support::{Place, file, user},
};

/// Names, and users, that there can be.
const NAMES: u8 = 6;
const USERS: u32 = 3;

#[derive(Debug, Clone)]
enum Deed {
    Store(u8, u32, u16),
    Open(u8),
    Write(u16, u16),
    Sync,
    Close,
    Cut(u8, u16),
    Punch(u16, u16),
    Chown(u8, u32),
    Link(u8, u8),
    Rename(u8, u8, bool),
    Remove(u8),
    Limit(u32),
    Unlimit(u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    let (name, user) = (0..NAMES, 0..USERS);
    prop_oneof![
        4 => (name.clone(), user.clone(), 0u16..9000).prop_map(|(a, b, c)| Deed::Store(a, b, c)),
        2 => name.clone().prop_map(Deed::Open),
        4 => (0u16..9000, 1u16..3000).prop_map(|(a, b)| Deed::Write(a, b)),
        1 => Just(Deed::Sync),
        2 => Just(Deed::Close),
        2 => (name.clone(), 0u16..9000).prop_map(|(a, b)| Deed::Cut(a, b)),
        1 => (0u16..9000, 1u16..3000).prop_map(|(a, b)| Deed::Punch(a, b)),
        3 => (name.clone(), user.clone()).prop_map(|(a, b)| Deed::Chown(a, b)),
        2 => (name.clone(), name.clone()).prop_map(|(a, b)| Deed::Link(a, b)),
        2 => (name.clone(), name.clone(), any::<bool>()).prop_map(|(a, b, c)| Deed::Rename(a, b, c)),
        3 => name.prop_map(Deed::Remove),
        2 => user.clone().prop_map(Deed::Limit),
        1 => user.prop_map(Deed::Unlimit),
    ]
}

struct World {
    place: Place,
    above: Inode,
    open: Vec<HandleId>,
}

fn name(number: u8) -> String {
    format!("file {number}")
}

fn mode(is_exchange: bool) -> RenameMode {
    match is_exchange {
        true => RenameMode::Exchange,
        false => RenameMode::Replace,
    }
}

fn limited(user: u32) -> Subject {
    Subject::User(100 + user)
}

impl World {
    async fn new() -> Self {
        let place = on_memory().await;
        let above = common(&place).await;
        Self {
            place,
            above,
            open: Vec::new(),
        }
    }

    async fn inode(&self, number: u8) -> Option<Inode> {
        let found = self.place.find(self.above, &name(number)).await;
        found.ok().map(|found| found.inode)
    }

    async fn existing(&self, number: u8) -> Result<Inode, FsError> {
        self.inode(number).await.ok_or(FsError::NotFound)
    }

    fn last(&self) -> Result<HandleId, FsError> {
        self.open.last().copied().ok_or(FsError::BadHandle)
    }

    /// Does something, or not where it cannot be done.
    async fn act(&mut self, deed: &Deed) -> Result<(), FsError> {
        let (place, above) = (&self.place, self.above);
        match *deed {
            Deed::Store(number, owner, length) => {
                let by = place.by(user(100 + owner));
                by.store(above, &name(number), &vec![1; length.into()])
                    .await
            }
            Deed::Open(number) => {
                let inode = self.existing(number).await?;
                let handle = place.open(inode, OpenOptions::READ_WRITE).await?;
                self.open.push(handle);
                Ok(())
            }
            Deed::Write(offset, length) => {
                let (handle, data) = (self.last()?, vec![2; length.into()]);
                place
                    .write(handle, WritePlace::At(offset.into()), &data)
                    .await
            }
            Deed::Sync => place.sync(self.last()?).await,
            Deed::Close => {
                place
                    .close(self.open.pop().ok_or(FsError::BadHandle)?)
                    .await
            }
            Deed::Cut(number, size) => {
                let inode = self.existing(number).await?;
                let changes = AttributeChanges {
                    size: Some(size.into()),
                    ..Default::default()
                };
                place.change(inode, changes).await.map(drop)
            }
            Deed::Punch(offset, length) => {
                let handle = self.last()?;
                let range = u64::from(offset)..u64::from(offset) + u64::from(length);
                place.allocate(handle, range, Allocation::PunchHole).await
            }
            Deed::Chown(number, owner) => {
                let inode = self.existing(number).await?;
                let changes = AttributeChanges {
                    uid: Some(100 + owner),
                    gid: Some(100 + owner % 2),
                    ..Default::default()
                };
                place.change(inode, changes).await.map(drop)
            }
            Deed::Link(number, to) => {
                let inode = self.existing(number).await?;
                place.link(inode, (above, &name(to))).await
            }
            Deed::Rename(from, to, is_exchange) => {
                let mode = mode(is_exchange);
                place
                    .rename((above, &name(from)), (above, &name(to)), mode)
                    .await
            }
            Deed::Remove(number) => place.remove(above, &name(number), RemoveKind::File).await,
            Deed::Limit(owner) => {
                place
                    .volume
                    .set_quota(limited(owner), bytes(0, 20_000))
                    .await
            }
            Deed::Unlimit(owner) => place.volume.remove_quota(limited(owner)).await,
        }
    }

    /// What each user's files with names come to, once all are closed and saved.
    async fn come_to(&mut self) -> BTreeMap<u32, (u64, u64)> {
        for handle in std::mem::take(&mut self.open) {
            self.place.close(handle).await.unwrap();
        }
        let mut files = BTreeMap::new();
        for number in 0..NAMES {
            if let Ok(found) = self.place.find(self.above, &name(number)).await {
                files.insert(found.inode, found);
            }
        }
        for inode in 1..3000 {
            self.place.forget_all(Inode(inode));
        }
        let mut sums = BTreeMap::new();
        for file in files.values() {
            let sum: &mut (u64, u64) = sums.entry(file.uid).or_default();
            sum.0 += file.allocated;
            sum.1 += 1;
        }
        sums
    }
}

#[test]
fn counters_are_what_the_files_come_to_whatever_is_done() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(60));
    let deeds = prop::collection::vec(deed(), 1..60);
    runner
        .run(&deeds, |deeds| {
            runtime.block_on(async {
                let mut world = World::new().await;
                for deed in &deeds {
                    // What cannot be done changes nothing.
                    let _ = world.act(deed).await;
                }
                let sums = world.come_to().await;
                let place = &world.place;
                for owner in 0..USERS {
                    let limits = bytes(0, 1_000_000);
                    place
                        .volume
                        .set_quota(limited(owner), limits)
                        .await
                        .unwrap();
                }
                until_counted(place).await;
                for owner in 0..USERS {
                    let sum = sums.get(&(100 + owner)).copied().unwrap_or_default();
                    let is_so = || async { used(place, limited(owner)).await == sum };
                    place.until(is_so).await;
                }
                place.is_whole().await;
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_file_that_is_made_again_takes_what_it_holds() {
    let mut world = World::new().await;
    let _ = world.act(&Deed::Limit(0)).await;
    for length in [100, 5000, 20] {
        world.act(&Deed::Store(0, 0, length)).await.unwrap();
        world.act(&Deed::Link(0, 1)).await.unwrap();
        world.act(&Deed::Remove(1)).await.unwrap();
    }
    assert_eq!(world.come_to().await[&100], (20, 1));
    let made = world.place.make(world.above, "x", file(0o600)).await;
    made.unwrap();
    world.place.is_whole().await;
}
