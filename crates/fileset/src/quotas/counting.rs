//! Counting all files to their users and groups, in steps, beside those who change them.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;

use super::{
    Subject,
    charge::{self, Amount, record},
    marking,
};
use crate::{
    engine::{Engine, Reads, Transaction, mark, query, transact},
    schema::{self, Node, Owners, Quotas, USED_BY_OWNERS, kind},
};

/// Files that are counted, and counters that are removed, in one operation.
const STEP: usize = 1000;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// There is nothing to count.
    Done,
    /// Files with smaller numbers than the first one are counted; none has a number above the other one.
    Until(u64, u64),
    /// So many files were looked at which may count for the quota of a directory.
    Marked(u64),
}

/// Counts some more files, where not all were counted for quotas that there are. Any number of machines may do it at
/// once, and who was interrupted goes on.
pub async fn count_some(engine: &dyn Engine) -> FsResult<Counting> {
    let left = query(engine, |reads| {
        let is_to_count = record(reads)?.is_some_and(|quotas| is_unfinished(quotas.owners));
        Ok::<_, FsError>((is_to_count, marking::next(reads)?.is_some()))
    });
    match left.await? {
        (true, _) => transact(engine, |transaction| step(transaction)).await,
        (false, true) => {
            let marked = transact(engine, |transaction| marking::step(transaction)).await?;
            Ok(marked.map_or(Counting::Done, Counting::Marked))
        }
        (false, false) => Ok(Counting::Done),
    }
}

fn is_unfinished(owners: Owners) -> bool {
    match owners {
        Owners::Uncounted => false,
        Owners::Clearing => true,
        Owners::CountedBelow(_) => owners != Owners::COUNTED,
    }
}

/// Counts until all files are counted, durably, and tells of each step.
pub async fn count(engine: &dyn Engine, tell: &(dyn Fn(Counting) + Sync)) -> FsResult<()> {
    loop {
        match count_some(engine).await? {
            Counting::Done => return Ok(engine.sync().await?),
            step => tell(step),
        }
    }
}

/// Removes all that is counted of users and groups, unless one is limited.
pub(super) async fn clear(engine: &dyn Engine) -> FsResult<()> {
    let clear = |transaction: &mut dyn Transaction| {
        let owners = record(transaction)?.map_or(Owners::Uncounted, |quotas| quotas.owners);
        match owners {
            Owners::Uncounted => clear_some(transaction),
            _ => Ok(true),
        }
    };
    while !transact(engine, clear).await? {}
    Ok(())
}

/// Removes some counters; returns whether none is left.
fn clear_some(transaction: &mut dyn Transaction) -> FsResult<bool> {
    let mut keys = Vec::new();
    for prefix in USED_BY_OWNERS {
        transaction.scan(&prefix..&schema::behind(&prefix), &mut |key, _| {
            keys.push(Bytes::copy_from_slice(key));
            match keys.len() < STEP {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    }
    keys.iter().for_each(|key| transaction.delete(key));
    Ok(keys.len() < STEP)
}

fn step(transaction: &mut dyn Transaction) -> FsResult<Counting> {
    let owners = record(transaction)?.map_or(Owners::Uncounted, |quotas| quotas.owners);
    let next = match owners {
        Owners::CountedBelow(next) if is_unfinished(owners) => next,
        Owners::Clearing => {
            if clear_some(transaction)? {
                put(transaction, Owners::CountedBelow(0));
            }
            return Ok(Counting::Until(0, last(transaction)?));
        }
        _ => return Ok(Counting::Done),
    };
    let end = count_from(transaction, next)?;
    put(
        transaction,
        end.map_or(Owners::COUNTED, Owners::CountedBelow),
    );
    let last = last(transaction)?;
    Ok(Counting::Until(end.unwrap_or(last), last))
}

fn put(transaction: &mut dyn Transaction, owners: Owners) {
    transaction.put(schema::QUOTAS, Quotas { owners }.encode());
}

fn last(reads: &dyn Reads) -> FsResult<u64> {
    let value = reads.get(schema::LAST_INODE)?;
    Ok(mark(value.as_ref()))
}

/// Counts some files from the number `next` on; returns the first one that was not, if there is one.
fn count_from(transaction: &mut dyn Transaction, next: u64) -> FsResult<Option<u64>> {
    let mut found = Vec::new();
    let start = schema::node(Inode(next));
    transaction.scan(&start..&[kind::NODE + 1], &mut |key, value| {
        found.push((Bytes::copy_from_slice(key), value.clone()));
        match found.len() < STEP {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    let mut sums = BTreeMap::<Subject, Amount>::new();
    for (_, value) in &found {
        let node = Node::decode(value)?;
        for subject in [Subject::User(node.uid), Subject::Group(node.gid)] {
            sums.entry(subject).or_default().add(Amount::of(&node));
        }
    }
    for (subject, amount) in sums {
        charge::add(transaction, subject, amount)?;
    }
    let last = found.last().filter(|_| found.len() == STEP);
    last.map(|(key, _)| Ok(schema::inode_in(key)?.0 + 1))
        .transpose()
}
