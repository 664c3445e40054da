//! Which sessions are over, and whose objects are whose.
//!
//! A session that stores objects says so first: a key `M` has its writer, the number that the names of its objects begin with.
//! What such a writer stored and nothing refers to is left alone as long as its session lives, for it may be about to refer
//! to it; and what became garbage of it that session deletes itself.
//!
//! That a session is over is said of those alone that a key named before all sessions were asked for: one that began since is
//! not among them and lives.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use penstock_base::FsResult;

use super::{
    Machines,
    leases::{drop_leases, visit_leases},
    locks::{drop_locks, lock_holders},
};
use crate::{
    engine::{Engine, Peers, Reads, Transaction, query, transact},
    schema::{self, kind},
};

/// Sessions that are over.
pub(super) type Over = Arc<BTreeSet<u64>>;

/// All writers with their sessions.
fn writers(reads: &dyn Reads) -> FsResult<BTreeMap<u64, u64>> {
    let (mut found, mut outcome) = (BTreeMap::new(), Ok(()));
    reads.scan(&[kind::WRITER]..&[kind::WRITER + 1], &mut |key, value| {
        let session = schema::decode_session(value);
        match session.and_then(|session| Ok((schema::writer_in(key)?, session))) {
            Ok((writer, session)) => drop(found.insert(writer, session)),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| found)
}

/// All sessions that keys name: of writers, of files without a name, of locks and of write leases.
fn named(reads: &dyn Reads) -> FsResult<BTreeSet<u64>> {
    let mut found: BTreeSet<_> = writers(reads)?.into_values().collect();
    reads.scan(&[kind::ORPHAN]..&[kind::ORPHAN + 1], &mut |_, value| {
        found.extend(schema::decode_session(value));
        ControlFlow::Continue(())
    })?;
    reads.scan(&[kind::HOLDER]..&[kind::HOLDER + 1], &mut |key, _| {
        found.extend(schema::holder_in(key));
        ControlFlow::Continue(())
    })?;
    found.extend(lock_holders(reads)?);
    visit_leases(reads, &mut |_, session| found.extend([session]))?;
    Ok(found)
}

/// Those of some sessions that are over.
pub(super) async fn over(peers: &dyn Peers, mut named: BTreeSet<u64>) -> FsResult<BTreeSet<u64>> {
    for record in peers.sessions().await? {
        named.remove(&record.id.0);
    }
    Ok(named)
}

/// Writers whose sessions live, on an engine that several may have. What they stored before is seen by queries from
/// then on, if something refers to it.
pub(crate) async fn living_writers(engine: &dyn Engine) -> FsResult<BTreeSet<u64>> {
    let Some(peers) = engine.peers() else {
        return Ok(BTreeSet::new());
    };
    peers.catch_up().await?;
    let mut writers = query(engine, |reads| writers(reads)).await?;
    let over = over(peers, writers.values().copied().collect()).await?;
    writers.retain(|_, session| !over.contains(session));
    // What those did last who are over is looked at, too.
    peers.catch_up().await?;
    Ok(writers.into_keys().collect())
}

/// Whether somebody who lives stores objects of a writer.
pub(super) fn is_living(reads: &dyn Reads, writer: u64, over: &Over) -> FsResult<bool> {
    let value = reads.get(&schema::writer(writer))?;
    let session = value.map(|value| schema::decode_session(&value));
    Ok(session
        .transpose()?
        .is_some_and(|session| !over.contains(&session)))
}

impl Machines {
    /// Says that this session stores objects of a writer, and forgets those whose sessions are over.
    pub(crate) async fn begin(&self, writer: u64) -> FsResult<()> {
        self.refresh_over().await?;
        let (session, over) = (self.session(), self.over());
        transact(&*self.engine, move |transaction| {
            for (other, session) in writers(transaction)? {
                if over.contains(&session) {
                    transaction.delete(&schema::writer(other));
                }
            }
            transaction.put(&schema::writer(writer), schema::encode_session(session));
            drop_leases(transaction, |holder| over.contains(&holder))?;
            drop_locks(transaction, |holder| over.contains(&holder))
        })
        .await
    }

    /// Says that this session stores objects no more, and holds neither files nor locks nor write leases.
    pub(crate) async fn leave(&self, writer: u64) -> FsResult<()> {
        let session = self.session();
        transact(&*self.engine, move |transaction| {
            transaction.delete(&schema::writer(writer));
            drop_locks(transaction, |holder| holder == session)?;
            drop_leases(transaction, |holder| holder == session)?;
            drop_holders(transaction, |holder| holder == session)
        })
        .await
    }

    /// Finds out which sessions are over of those that keys name.
    pub(super) async fn refresh_over(&self) -> FsResult<()> {
        let named = query(&*self.engine, |reads| named(reads)).await?;
        self.are_over(named).await.map(drop)
    }

    /// Whether one of some sessions is over, which is known from then on.
    pub(super) async fn are_over(&self, named: BTreeSet<u64>) -> FsResult<bool> {
        let over = over(self.peers()?, named).await?;
        let any = !over.is_empty();
        let mut known = self.sessions_over.lock();
        let mut all = BTreeSet::clone(&known);
        all.extend(over);
        *known = Arc::new(all);
        Ok(any)
    }

    /// Sessions that are known to be over.
    pub(super) fn over(&self) -> Over {
        Arc::clone(&self.sessions_over.lock())
    }
}

/// Sessions that hold files without a name hold them no more.
fn drop_holders(
    transaction: &mut dyn Transaction,
    is_dropped: impl Fn(u64) -> bool,
) -> FsResult<()> {
    let mut dropped = Vec::new();
    transaction.scan(&[kind::HOLDER]..&[kind::HOLDER + 1], &mut |key, _| {
        if schema::holder_in(key).is_ok_and(&is_dropped) {
            dropped.push(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    dropped.iter().for_each(|key| transaction.delete(key));
    Ok(())
}
