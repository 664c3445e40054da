//! Letting what is below a directory count for its quota, in steps, beside those who use it.
//!
//! A directory is marked, then what is in it, directories of it before their own entries: from then on what is made there has the
//! mark of its own. Each directory whose entries are not all looked at has a key that says up to which one they are. Its
//! entries get the mark that it has when that is done, so taking a quota away is the same walk with no mark.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::Inode;

use super::{
    Subject,
    charge::{self, Amount},
    places,
};
use crate::{
    engine::{Reads, Transaction},
    operations::{self, Asked},
    schema::{self, Entry, Node, kind},
};

/// Entries that are looked at in one operation.
const STEP: usize = 500;

/// The next directory whose entries are to be marked, and the last name that was.
pub(super) fn next(reads: &dyn Reads) -> FsResult<Option<(Inode, Bytes)>> {
    let mut found = None;
    reads.scan(&[kind::MARKING]..&[kind::MARKING + 1], &mut |key, value| {
        found = Some((schema::inode_in(key), value.clone()));
        ControlFlow::Break(())
    })?;
    found.map(|(inode, name)| Ok((inode?, name))).transpose()
}

/// A directory gets a quota.
pub(super) fn begin(transaction: &mut dyn Transaction, inode: Inode) -> FsResult<()> {
    let node = operations::directory(transaction, inode)?;
    if inode == Inode::ROOT {
        return Err(FsError::InvalidArgument(
            "the root directory is limited with the file system",
        ));
    }
    if schema::is_of_trash(inode) {
        return Err(FsError::InvalidArgument(
            "the trash has no quota of its own: what is in it counts for the owners of the files",
        ));
    }
    if node.links == 0 {
        return Err(FsError::NotFound);
    }
    let nests = FsError::InvalidArgument("quotas of directories do not nest");
    // Those above may not have marked it yet.
    let above = places::above(transaction, inode)?;
    for subject in super::limits(transaction)?.into_keys() {
        if let Subject::Directory(other) = subject
            && other != inode
            && (above.contains(&other) || places::is_below(transaction, other, inode)?)
        {
            return Err(nests);
        }
    }
    mark(transaction, (inode, node), inode.0)
}

/// A directory has no quota any more.
pub(super) fn undo(transaction: &mut dyn Transaction, inode: Inode) -> FsResult<()> {
    match transaction.get(&schema::node(inode))? {
        Some(value) => mark(transaction, (inode, Node::decode(&value)?), 0),
        None => Ok(()),
    }
}

/// A file counts for another quota, and what is in it is to do the same.
fn mark(
    transaction: &mut dyn Transaction,
    (inode, mut node): (Inode, Node),
    project: u64,
) -> FsResult<()> {
    if node.is_directory() {
        transaction.put(&schema::marking(inode), schema::nothing());
    }
    let amount = Amount::of(&node);
    if node.project != 0 {
        let before = Subject::Directory(Inode(node.project));
        charge::add(transaction, before, amount.back())?;
    }
    if project != 0 {
        charge::add(transaction, Subject::Directory(Inode(project)), amount)?;
    }
    node.project = project;
    transaction.put(&schema::node(inode), node.encode());
    Ok(())
}

/// Marks some entries. Returns how many it looked at, or nothing if none is left.
pub(super) fn step(transaction: &mut dyn Transaction) -> FsResult<Option<u64>> {
    let Some((directory, last)) = next(transaction)? else {
        return Ok(None);
    };
    let key = schema::marking(directory);
    let Some(above) = transaction.get(&schema::node(directory))? else {
        transaction.delete(&key);
        return Ok(Some(0));
    };
    let above = Node::decode(&above)?;
    let entries = entries(transaction, directory, &last)?;
    for (_, entry) in &entries {
        let node = operations::node(transaction, entry.inode)?;
        let has_own = node.project == entry.inode.0;
        if node.project != above.project && !has_own {
            mark(transaction, (entry.inode, node), above.project)?;
        }
    }
    match entries.last().filter(|_| entries.len() == STEP) {
        Some((name, _)) => transaction.put(&key, name.clone()),
        None => transaction.delete(&key),
    }
    Ok(Some(entries.len() as u64))
}

/// Some entries behind a name.
fn entries(reads: &dyn Reads, directory: Inode, last: &Bytes) -> FsResult<Vec<(Bytes, Entry)>> {
    let after = FileName::new(last).ok();
    let mut found = Vec::new();
    operations::visit(reads, directory, after.as_ref(), &mut |name, entry| {
        found.push((Bytes::copy_from_slice(name), entry));
        match found.len() < STEP {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// A file gets one more name in a directory, which has to count for the same. One whose quota is gone counts for none: no
/// walk found it that had no name below the directory any more.
pub(crate) fn join(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (inode, node): (Inode, &mut Node),
    project: u64,
) -> FsResult<()> {
    if node.project == project {
        return Ok(());
    }
    let quota = schema::limits(Subject::Directory(Inode(node.project)));
    match project == 0 && transaction.get(&quota)?.is_none() {
        true => follow(transaction, asked, (inode, node), project),
        false => Err(FsError::CrossDevice),
    }
}

/// A file that is moved counts for what its directories, the old one and the new one, do. One that was not marked yet is now,
/// and what is in a directory comes behind it.
pub(crate) fn follow(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (inode, node): (Inode, &mut Node),
    project: u64,
) -> FsResult<()> {
    let has_own = node.project == inode.0;
    if node.project == project || has_own {
        return Ok(());
    }
    if node.is_directory() {
        transaction.put(&schema::marking(inode), schema::nothing());
    }
    let before = node.clone();
    node.project = project;
    charge::hand_over(transaction, asked, inode, (&before, node))
}
