//! Files without a name that somebody may hold on another machine, and objects that somebody may read there.
//!
//! ```text
//!  the last name goes ──► O says by which session: that one collects the file
//!        others hear of it ──► who holds the file says so, R, before it says that it heard
//!              all have heard, and no R of a living session is left ──► the file is collected
//! ```
//!
//! Who holds such a file without having said so cannot be: a file is found by its name, and whoever looks after the last one
//! is gone is refused. Where the session is over that took the last name away, everybody who is alive collects it, who
//! comes first. Objects that no file refers to any more wait in the same way: until nobody reads by an older map.

use std::{collections::BTreeSet, ops::ControlFlow};

use futures_util::{StreamExt, stream};
use penstock_base::{FsError, FsResult, Mutex};
use penstock_vfs::Inode;

use super::{Machines, sessions::Over};
use crate::{
    data::ObjectId,
    engine::{Moment, Reads, Transaction, query, transact},
    garbage, operations, schema,
    volume::Parts,
};

/// Files that are collected at once: each is a trip or more to the engine's keys.
const COLLECTED_MAX: usize = 64;

/// What waits until all have heard of it.
#[derive(Debug)]
struct Unheard {
    until: Moment,
    orphans: BTreeSet<Inode>,
    garbage: Vec<ObjectId>,
}

#[derive(Debug, Default)]
struct State {
    /// Files without a name that are to be collected here.
    new: BTreeSet<Inode>,
    unheard: Option<Unheard>,
    /// Of these all have heard. Somebody may hold them.
    heard: BTreeSet<Inode>,
    /// Those that are to be collected by others, as long as these live.
    others: BTreeSet<Inode>,
    /// There is garbage of others, which they delete as long as they live.
    has_others_garbage: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    state: Mutex<State>,
    /// Who says, or takes back, that this session holds a file.
    holding: tokio::sync::Mutex<()>,
}

/// What became of a file without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Gone,
    /// It is collected here.
    Ours,
    /// Another session collects it.
    Others,
    /// Somebody holds it.
    Held,
    /// There is more of it.
    Begun,
}

/// The session that took a file's last name away, if it has none.
fn remover(reads: &dyn Reads, inode: Inode) -> FsResult<Option<u64>> {
    let value = reads.get(&schema::orphan(inode))?;
    let session = value.map(|value| schema::decode_session(&value));
    session.transpose()
}

/// Who says that he holds a file.
fn holders(reads: &dyn Reads, inode: Inode) -> FsResult<Vec<u64>> {
    let (prefix, mut found) = (schema::of_holders(inode), Vec::new());
    reads.scan(&prefix..&schema::behind(&prefix), &mut |key, _| {
        found.extend(schema::holder_in(key));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A step of collecting a file, if it is ours to collect and nobody holds it.
fn collect(
    transaction: &mut dyn Transaction,
    inode: Inode,
    (session, over): (u64, &Over),
) -> FsResult<Fate> {
    match remover(transaction, inode)? {
        None => return Ok(Fate::Gone),
        Some(remover) if remover != session && !over.contains(&remover) => {
            return Ok(Fate::Others);
        }
        Some(_) => {}
    }
    let holders = holders(transaction, inode)?;
    if holders.iter().any(|holder| !over.contains(holder)) {
        return Ok(Fate::Held);
    }
    for holder in holders {
        transaction.delete(&schema::holder(inode, holder));
    }
    match operations::collect(transaction, inode)? {
        true => {
            transaction.delete(&schema::locks(inode));
            Ok(Fate::Gone)
        }
        false => Ok(Fate::Begun),
    }
}

/// Some garbage that is to be deleted here, and whether there is other.
fn own_garbage(reads: &dyn Reads, (own, over): (u64, &Over)) -> FsResult<(Vec<ObjectId>, bool)> {
    let (mut has_others, mut outcome) = (false, Ok(()));
    let mut is_ours = |object: ObjectId| {
        let is_others = object.writer != own
            && super::sessions::is_living(reads, object.writer, over).unwrap_or_else(|error| {
                outcome = Err(error);
                true
            });
        has_others |= is_others;
        !is_others
    };
    let found = operations::garbage(reads, &mut is_ours)?;
    outcome.map(|()| (found, has_others))
}

impl Machines {
    /// Others took the last names of these files away, or collected them.
    pub(super) async fn learn_orphans(
        &self,
        parts: &Parts,
        inodes: &BTreeSet<Inode>,
    ) -> FsResult<()> {
        if inodes.is_empty() {
            return Ok(());
        }
        let look = |reads: &dyn Reads| {
            let there = inodes.iter().map(|inode| {
                let remover = match remover(reads, *inode) {
                    // Nobody collects one that is damaged, and it keeps no other.
                    Err(FsError::Corrupt(_)) => None,
                    remover => remover?,
                };
                let is_others = remover.is_some_and(|remover| remover != self.session());
                Ok(is_others.then_some(*inode))
            });
            there.collect::<FsResult<Vec<_>>>()
        };
        let there = query(&*self.engine, look).await?;
        for inode in there.into_iter().flatten() {
            match parts.held.hold_orphan(inode) {
                true => self.say_held(parts, inode).await?,
                false => drop(self.orphans.state.lock().others.insert(inode)),
            }
        }
        Ok(())
    }

    /// All files without a name.
    pub(super) async fn all_orphans(&self) -> FsResult<BTreeSet<Inode>> {
        let found = query(&*self.engine, |reads| operations::orphans(reads)).await?;
        Ok(found.into_iter().collect())
    }

    /// What was left when this machine came: that of sessions which are over is collected here.
    pub(crate) async fn find_orphans(&self) -> FsResult<()> {
        let found = self.all_orphans().await?;
        self.orphans.state.lock().others = found;
        self.take_over().await
    }

    async fn say_held(&self, parts: &Parts, inode: Inode) -> FsResult<()> {
        let _one = self.orphans.holding.lock().await;
        if !parts.held.has(inode) {
            // It was given back since, and whoever takes that back came before.
            return Ok(());
        }
        let session = self.session();
        transact(&*self.engine, move |transaction| {
            if remover(transaction, inode)?.is_some() {
                transaction.put(&schema::holder(inode, session), schema::nothing());
            }
            Ok(())
        })
        .await
    }

    /// Nobody here holds a file without a name any more.
    async fn give_up(&self, inode: Inode) -> FsResult<Fate> {
        let _one = self.orphans.holding.lock().await;
        let (session, over) = (self.session(), self.over());
        transact(&*self.engine, move |transaction| {
            let Some(remover) = remover(transaction, inode)? else {
                return Ok(Fate::Gone);
            };
            if remover == session {
                return Ok(Fate::Ours);
            }
            transaction.delete(&schema::holder(inode, session));
            match over.contains(&remover) {
                true => Ok(Fate::Ours),
                false => Ok(Fate::Others),
            }
        })
        .await
    }

    /// Fails with `Stale` unless a file without a name is one that is held here, and so is not collected.
    pub(crate) async fn check_held(&self, parts: &Parts, inode: Inode) -> FsResult<()> {
        let remover = query(&*self.engine, |reads| remover(reads, inode)).await?;
        if remover == Some(self.session()) {
            return Ok(());
        }
        // If it was held when its last name went, that is known as soon as the follower is there.
        self.settle().await?;
        match parts.held.is_orphan(inode) {
            true => Ok(()),
            false => Err(FsError::Stale),
        }
    }

    /// Fails with `Stale` if another machine took a file's last name away.
    pub(crate) async fn check_named(&self, inode: Inode) -> FsResult<()> {
        let remover = query(&*self.engine, |reads| remover(reads, inode)).await?;
        match remover.is_some_and(|remover| remover != self.session()) {
            true => Err(FsError::Stale),
            false => Ok(()),
        }
    }

    /// Collects what nobody holds any more, as far as all have heard of it. `is_due`: it is time to look after what others
    /// left who are over. Returns whether something waits until others have heard of it.
    pub(crate) async fn collect(&self, parts: &Parts, is_due: bool) -> FsResult<bool> {
        self.check()?;
        self.sort(parts).await?;
        if is_due {
            self.take_over().await?;
        }
        let garbage = self.find_garbage(parts).await?;
        self.begin_wait(garbage).await?;
        self.end_wait(parts).await?;
        self.collect_heard(parts).await?;
        let state = self.orphans.state.lock();
        Ok(state.unheard.is_some() || !state.new.is_empty())
    }

    /// Sorts what was given back here: what is ours to collect, and what others collect.
    async fn sort(&self, parts: &Parts) -> FsResult<()> {
        let mut outcome = Ok(());
        for inode in parts.held.waiting() {
            parts.files.discard(inode);
            let fate = match parts.held.is_others(inode) {
                true => self.give_up(inode).await,
                false => Ok(Fate::Ours),
            };
            match fate {
                Ok(Fate::Ours) => drop(self.orphans.state.lock().new.insert(inode)),
                Ok(Fate::Others) => {
                    parts.held.gone(inode);
                    self.orphans.state.lock().others.insert(inode);
                }
                Ok(_) => parts.held.gone(inode),
                Err(error) => {
                    parts.held.put_back(inode);
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Takes what is to be collected over from sessions that are over.
    async fn take_over(&self) -> FsResult<()> {
        let others = {
            let state = self.orphans.state.lock();
            let waits = state.has_others_garbage || !state.heard.is_empty();
            if state.others.is_empty() && !waits {
                return Ok(());
            }
            state.others.clone()
        };
        self.refresh_over().await?;
        let over = self.over();
        let look = |reads: &dyn Reads| {
            let removers = others.iter();
            let removers = removers.map(|inode| Ok((*inode, remover(reads, *inode)?)));
            removers.collect::<FsResult<Vec<_>>>()
        };
        let removers = query(&*self.engine, look).await?;
        let mut state = self.orphans.state.lock();
        for (inode, remover) in removers {
            let is_left = remover.is_some_and(|remover| over.contains(&remover));
            if is_left || remover.is_none() {
                state.others.remove(&inode);
            }
            if is_left {
                state.new.insert(inode);
            }
        }
        Ok(())
    }

    async fn find_garbage(&self, parts: &Parts) -> FsResult<Vec<ObjectId>> {
        // Before the look: see there.
        let uncommitted = parts.objects.uncommitted();
        let (own, over) = (parts.objects.writer(), self.over());
        let (mut garbage, has_others) =
            query(&*self.engine, |reads| own_garbage(reads, (own, &over))).await?;
        garbage.retain(|object| !uncommitted.contains(object));
        self.orphans.state.lock().has_others_garbage = has_others;
        Ok(garbage)
    }

    /// Finds out by when all have heard of what there is by now.
    async fn begin_wait(&self, garbage: Vec<ObjectId>) -> FsResult<()> {
        {
            let state = self.orphans.state.lock();
            let is_idle = state.new.is_empty() && garbage.is_empty();
            if state.unheard.is_some() || is_idle {
                return Ok(());
            }
        }
        let orphans = std::mem::take(&mut self.orphans.state.lock().new);
        let until = self.peers()?.catch_up().await;
        let mut state = self.orphans.state.lock();
        match until {
            Ok(until) => {
                state.unheard = Some(Unheard {
                    until,
                    orphans,
                    garbage,
                });
                Ok(())
            }
            Err(error) => {
                state.new.extend(orphans);
                Err(error.into())
            }
        }
    }

    /// Goes on with what all have heard of.
    async fn end_wait(&self, parts: &Parts) -> FsResult<()> {
        let until = self
            .orphans
            .state
            .lock()
            .unheard
            .as_ref()
            .map(|it| it.until);
        let Some(until) = until else { return Ok(()) };
        if self.peers()?.taken_in_by_all().await? < until {
            return Ok(());
        }
        let unheard = self.orphans.state.lock().unheard.take();
        let Some(unheard) = unheard else {
            return Ok(());
        };
        self.orphans.state.lock().heard.extend(unheard.orphans);
        // What is not deleted now is found again.
        garbage::delete(&*self.engine, &parts.objects, unheard.garbage).await?;
        Ok(())
    }

    async fn collect_heard(&self, parts: &Parts) -> FsResult<()> {
        let heard = self.orphans.state.lock().heard.clone();
        let collected = heard.into_iter().map(async |inode| {
            let fate = self.collect_one(inode).await?;
            if fate == Fate::Gone {
                parts.held.gone(inode);
                self.orphans.state.lock().heard.remove(&inode);
            }
            Ok(())
        });
        let mut collected = stream::iter(collected).buffer_unordered(COLLECTED_MAX);
        let mut outcome = Ok(());
        while let Some(one) = collected.next().await {
            // One that is damaged keeps no other.
            outcome = outcome.and(one);
        }
        outcome
    }

    async fn collect_one(&self, inode: Inode) -> FsResult<Fate> {
        loop {
            let (session, over) = (self.session(), self.over());
            let step = transact(&*self.engine, move |transaction| {
                collect(transaction, inode, (session, &over))
            });
            match step.await? {
                Fate::Begun => {}
                fate => return Ok(fate),
            }
        }
    }
}
