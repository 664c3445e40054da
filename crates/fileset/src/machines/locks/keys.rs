//! The locks of a file as operations see and change them.

use std::{collections::BTreeSet, ops::ControlFlow};

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Inode, Lock, LockFamily};

use crate::{
    engine::{Reads, Transaction},
    machines::sessions::Over,
    operations,
    schema::{self, FileLocks, is_in_snapshot, kind},
};

/// Locks of one file, of all machines.
const LOCKS_MAX: usize = 4096;

/// What is locked.
pub(super) type At = (Inode, LockFamily);

/// A lock with the session whose it is.
pub(super) type Held = (u64, Lock);

fn read(reads: &dyn Reads, inode: Inode) -> FsResult<FileLocks> {
    let value = reads.get(&schema::locks(inode))?;
    value.map_or_else(
        || Ok(FileLocks::default()),
        |value| FileLocks::decode(&value),
    )
}

/// The locks of a file but for those of sessions that are over.
pub(super) fn living_locks(reads: &dyn Reads, inode: Inode, over: &Over) -> FsResult<FileLocks> {
    let mut locks = read(reads, inode)?;
    locks.drop_sessions(|session| over.contains(&session));
    Ok(locks)
}

fn put(transaction: &mut dyn Transaction, inode: Inode, locks: &FileLocks) {
    let key = schema::locks(inode);
    match locks.len() {
        0 => transaction.delete(&key),
        _ => transaction.put(&key, locks.encode()),
    }
}

fn put_if_changed(
    transaction: &mut dyn Transaction,
    inode: Inode,
    (before, locks): (&FileLocks, &FileLocks),
) {
    if locks.encode() != before.encode() {
        put(transaction, inode, locks);
    }
}

/// What keeps a session from taking a lock.
pub(super) fn blocking(
    locks: &FileLocks,
    family: LockFamily,
    (session, wanted): (u64, &Lock),
) -> Vec<Held> {
    let all = locks.of(family).iter();
    let blocking = all.flat_map(|(holder, held)| {
        let is_own = *holder == session;
        let own = is_own.then(|| held.blocking(wanted)).into_iter().flatten();
        let others = (!is_own).then(|| held.iter()).into_iter().flatten();
        let others = others.filter(|lock| lock.excludes(wanted));
        let blocking = own.chain(others);
        blocking.map(|lock| (*holder, lock.clone()))
    });
    blocking.collect()
}

/// What became of an attempt to take a lock.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is held; of its range its owner held these before.
    Given(Vec<Lock>),
    /// These are in the way.
    Blocked(Vec<Held>),
}

/// Takes a lock, unless something is in its way.
pub(super) fn take(
    transaction: &mut dyn Transaction,
    (inode, family): At,
    (session, wanted): (u64, &Lock),
    over: &Over,
) -> FsResult<Taken> {
    let before = read(transaction, inode)?;
    let mut locks = before.clone();
    locks.drop_sessions(|session| over.contains(&session));
    let own = locks.held(family, session);
    let had = own.within(wanted.owner, &wanted.range);
    // As flock(2) says, who has it in another mode gives it back first, and may lose it so.
    if family == LockFamily::Whole && had.iter().any(|lock| lock.mode != wanted.mode) {
        own.cut(wanted.owner, &(0..u64::MAX));
    }
    let blocked = blocking(&locks, family, (session, wanted));
    let taken = match blocked.is_empty() {
        true => {
            if !is_in_snapshot(inode) {
                operations::node(transaction, inode)?;
            }
            let own = locks.held(family, session);
            let before = own.within(wanted.owner, &wanted.range);
            own.cut(wanted.owner, &wanted.range);
            own.add(wanted.clone());
            if locks.len() > LOCKS_MAX {
                return Err(FsError::LimitReached("too many locks of a file are held"));
            }
            Taken::Given(before)
        }
        false => Taken::Blocked(blocked),
    };
    put_if_changed(transaction, inode, (&before, &locks));
    Ok(taken)
}

/// Takes back that a session was given a lock, whose owner held some locks of its range before.
pub(super) fn take_back(
    locks: &mut FileLocks,
    family: LockFamily,
    (session, given, before): (u64, &Lock, &[Lock]),
) {
    let all = locks.clone();
    let is_blocked = |lock: &Lock| !blocking(&all, family, (session, lock)).is_empty();
    let own = locks.held(family, session);
    own.take_back(given, before, is_blocked);
}

/// Changes the locks of a file.
pub(super) fn change<T>(
    transaction: &mut dyn Transaction,
    inode: Inode,
    change: impl FnOnce(&mut FileLocks) -> T,
) -> FsResult<T> {
    let before = read(transaction, inode)?;
    let mut locks = before.clone();
    let changed = change(&mut locks);
    put_if_changed(transaction, inode, (&before, &locks));
    Ok(changed)
}

/// All sessions that hold locks.
pub(in crate::machines) fn lock_holders(reads: &dyn Reads) -> FsResult<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    visit_locks(reads, &mut |_, locks| found.extend(locks.sessions()))?;
    Ok(found)
}

/// Takes the locks of some sessions away.
pub(in crate::machines) fn drop_locks(
    transaction: &mut dyn Transaction,
    is_dropped: impl Fn(u64) -> bool,
) -> FsResult<()> {
    let mut left = Vec::new();
    visit_locks(transaction, &mut |inode, mut locks| {
        if locks.drop_sessions(&is_dropped) {
            left.push((inode, locks));
        }
    })?;
    for (inode, locks) in left {
        put(transaction, inode, &locks);
    }
    Ok(())
}

fn visit_locks(reads: &dyn Reads, visit: &mut dyn FnMut(Inode, FileLocks)) -> FsResult<()> {
    let mut outcome = Ok(());
    reads.scan(&[kind::LOCKS]..&[kind::LOCKS + 1], &mut |key, value| {
        let locks = FileLocks::decode(value);
        match locks.and_then(|locks| Ok((schema::inode_in(key)?, locks))) {
            Ok((inode, locks)) => visit(inode, locks),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome
}
