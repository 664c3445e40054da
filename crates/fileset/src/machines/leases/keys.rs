//! The write lease of a file as operations see and change it.

use std::ops::ControlFlow;

use penstock_base::FsResult;
use penstock_vfs::Inode;

use crate::{
    engine::{Reads, Transaction},
    machines::sessions::Over,
    schema::{self, WriteLease, kind},
};

/// The lease of a file.
pub(super) fn lease(reads: &dyn Reads, inode: Inode) -> FsResult<Option<WriteLease>> {
    let value = reads.get(&schema::write_lease(inode))?;
    value.map(|value| WriteLease::decode(&value)).transpose()
}

/// The lease of a file, if it is another session's that is not known to be over.
fn in_the_way(
    reads: &dyn Reads,
    inode: Inode,
    (session, over): (u64, &Over),
) -> FsResult<Option<WriteLease>> {
    let held = lease(reads, inode)?;
    Ok(held.filter(|held| held.session != session && !over.contains(&held.session)))
}

/// Grants `wanted`, or returns the lease that is in the way, whose holder hears that it is wanted.
pub(super) fn take(
    transaction: &mut dyn Transaction,
    inode: Inode,
    wanted: WriteLease,
    over: &Over,
) -> FsResult<Option<WriteLease>> {
    let other = in_the_way(transaction, inode, (wanted.session, over))?;
    match &other {
        Some(other) => want(transaction, inode, other),
        None => transaction.put(&schema::write_lease(inode), wanted.encode()),
    }
    Ok(other)
}

/// Says that a lease is wanted, and returns whether it is held still: not by a session that is over.
pub(super) fn ask(
    transaction: &mut dyn Transaction,
    inode: Inode,
    held: &WriteLease,
    over: &Over,
) -> FsResult<bool> {
    let now = lease(transaction, inode)?.filter(|now| now.is(held));
    match now {
        Some(now) if over.contains(&now.session) => {
            transaction.delete(&schema::write_lease(inode));
            Ok(false)
        }
        Some(now) => {
            want(transaction, inode, &now);
            Ok(true)
        }
        None => Ok(false),
    }
}

fn want(transaction: &mut dyn Transaction, inode: Inode, held: &WriteLease) {
    if !held.is_wanted {
        let wanted = WriteLease {
            is_wanted: true,
            ..*held
        };
        transaction.put(&schema::write_lease(inode), wanted.encode());
    }
}

/// Ends what leases of some files a session has.
pub(super) fn give_back(
    transaction: &mut dyn Transaction,
    inodes: &[Inode],
    session: u64,
) -> FsResult<()> {
    for inode in inodes {
        let held = lease(transaction, *inode)?;
        if held.is_some_and(|held| held.session == session) {
            transaction.delete(&schema::write_lease(*inode));
        }
    }
    Ok(())
}

/// Calls `visit` with the key of each lease and the session that holds it.
pub(in crate::machines) fn visit_leases(
    reads: &dyn Reads,
    visit: &mut dyn FnMut(&[u8], u64),
) -> FsResult<()> {
    let mut outcome = Ok(());
    reads.scan(
        &[kind::WRITE_LEASE]..&[kind::WRITE_LEASE + 1],
        &mut |key, value| {
            match WriteLease::decode(value) {
                Ok(lease) => visit(key, lease.session),
                Err(error) => outcome = Err(error),
            }
            ControlFlow::Continue(())
        },
    )?;
    outcome
}

/// Ends the leases of some sessions.
pub(in crate::machines) fn drop_leases(
    transaction: &mut dyn Transaction,
    is_dropped: impl Fn(u64) -> bool,
) -> FsResult<()> {
    let mut dropped = Vec::new();
    visit_leases(transaction, &mut |key, session| {
        if is_dropped(session) {
            dropped.push(key.to_vec());
        }
    })?;
    dropped.iter().for_each(|key| transaction.delete(key));
    Ok(())
}
