//! Snapshots: the tree as it was at a time, read-only, below `.snapshot` in the root directory.
//!
//! ```text
//!  take ──► a record, and the epoch says: keep for this one first       one operation, whatever is in the file system
//!  change ──► what the key said goes beside, under the snapshot          once for each key (`preserve.rs`)
//!  read at s ──► what was kept for s or the next one after it, else what is live (`view.rs`, `trees.rs`)
//!  remove ──► its record says so ──► what no other one needs goes in steps (`clearing.rs`)
//! ```
//!
//! What is kept under a number serves all snapshots down to the one under whose number something is kept before it.
//! Files that were made after a snapshot are not in it, which their numbers say, so nothing is kept of them.
//!
//! An object that no file needs any more is held if a snapshot was taken between its first use and its last: its
//! [`ObjectUse`](crate::schema::ObjectUse) says when both were. Why it is so is in `docs/decisions/fileset.md`.

mod clearing;
mod holding;
mod preserve;
#[cfg(test)]
mod tests;
mod trees;
mod view;

use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Dentry, Inode};

pub use clearing::clear;
pub(crate) use clearing::is_needed;
pub use holding::{Holding, holding};
pub(crate) use preserve::Preserving;
pub(crate) use trees::{look, look_at};

use crate::{
    engine::{Engine, Reads, Transaction, mark, query, transact},
    operations::{self, Condition},
    schema::{self, Epoch, Format, SNAPSHOTS, SNAPSHOTS_NAME, SnapshotRecord, kind},
};

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Never used again.
    pub number: u64,
    /// What it is called.
    pub name: String,
    /// When it was taken.
    pub taken: SystemTime,
    /// It was removed, and what it kept is being cleared away.
    pub is_removed: bool,
}

/// The latest snapshot, if there is one.
pub(crate) fn epoch(reads: &dyn Reads) -> FsResult<Option<Epoch>> {
    let value = reads.get(schema::EPOCH)?;
    value.map(|value| Epoch::decode(&value)).transpose()
}

/// All snapshots with their numbers, in the order in which they were taken.
pub(crate) fn records(reads: &dyn Reads) -> FsResult<Vec<(u64, SnapshotRecord)>> {
    let (mut records, mut outcome) = (Vec::new(), Ok(()));
    let range = &[kind::SNAPSHOT][..]..&[kind::SNAPSHOT + 1][..];
    reads.scan(range, &mut |key, value| {
        let number = schema::inode_in(key).map(|number| number.0);
        match number.and_then(|number| Ok((number, SnapshotRecord::decode(value)?))) {
            Ok(record) => records.push(record),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| records)
}

/// Takes a snapshot: of all that was applied before. It is durable when this returns. While a volume has the file system
/// open [`crate::FilesetVolume::take_snapshot`] does it, for else the volume does not learn of it.
pub async fn take(engine: &dyn Engine, name: &FileName) -> FsResult<Snapshot> {
    take_if(engine, name, None).await
}

/// The same if that is so of the directory of all snapshots.
pub(crate) async fn take_if(
    engine: &dyn Engine,
    name: &FileName,
    condition: Option<Condition>,
) -> FsResult<Snapshot> {
    let (name, now) = (name.clone(), clock::wall_time());
    let taken = transact(engine, move |transaction| {
        check_directory(transaction, condition.as_ref())?;
        take_now(transaction, &name, now)
    })
    .await?;
    engine.sync().await?;
    Ok(taken)
}

/// Fails unless something is so of the directory of all snapshots.
fn check_directory(transaction: &dyn Transaction, condition: Option<&Condition>) -> FsResult<()> {
    let Some(condition) = condition else {
        return Ok(());
    };
    let trees = trees::Trees::new(transaction);
    condition.check(&operations::directory_attributes(&trees, SNAPSHOTS)?)
}

/// Fails unless snapshot `number` would be later than all that there ever were, as far as anything says so: what is kept for a
/// snapshot, and whether an object is, goes by the order of their numbers.
fn check_latest(reads: &dyn Reads, number: u64) -> FsResult<()> {
    let given = epoch(reads)?.map_or(0, |epoch| epoch.given.max(epoch.latest));
    let there = records(reads)?.last().map_or(0, |(number, _)| *number);
    if given.max(there) >= number {
        return Err(schema::damaged("the last number of a snapshot"));
    }
    Ok(())
}

/// Takes one in an operation.
pub(crate) fn take_now(
    transaction: &mut dyn Transaction,
    name: &FileName,
    now: SystemTime,
) -> FsResult<Snapshot> {
    let by_name = schema::snapshot_name(name.as_bytes());
    if transaction.get(&by_name)?.is_some() {
        return Err(FsError::AlreadyExists);
    }
    let number = mark(transaction.get(schema::LAST_SNAPSHOT)?.as_ref()) + 1;
    if number > schema::SNAPSHOT_MAX {
        return Err(FsError::NoSpace);
    }
    check_latest(transaction, number)?;
    let last_file = mark(transaction.get(schema::LAST_INODE)?.as_ref());
    let record = SnapshotRecord {
        name: Bytes::copy_from_slice(name.as_bytes()),
        taken: now,
        last_file,
        is_removed: false,
    };
    let epoch = Epoch {
        latest: number,
        last_file,
        given: number,
    };
    // Who does not know snapshots would change what they keep.
    operations::raise_format(transaction, Format::with_snapshots)?;
    transaction.advance(schema::LAST_SNAPSHOT, number)?;
    transaction.put(&schema::snapshot(number), record.encode());
    transaction.put(&by_name, Bytes::copy_from_slice(&number.to_le_bytes()));
    transaction.put(schema::EPOCH, epoch.encode());
    count(transaction, 1, now)?;
    Ok(shown(number, &record))
}

/// A snapshot came or went.
fn count(transaction: &mut dyn Transaction, by: i64, now: SystemTime) -> FsResult<()> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = since.unwrap_or(Duration::ZERO).as_nanos() as u64;
    transaction.advance(&schema::times(SNAPSHOTS), now)?;
    Ok(transaction.add(&schema::directories(SNAPSHOTS), by)?)
}

fn shown(number: u64, record: &SnapshotRecord) -> Snapshot {
    Snapshot {
        number,
        name: String::from_utf8_lossy(&record.name).into_owned(),
        taken: record.taken,
        is_removed: record.is_removed,
    }
}

/// All snapshots in the order in which they were taken, with those that are being cleared away.
pub async fn list(engine: &dyn Engine) -> FsResult<Vec<Snapshot>> {
    let records = query(engine, |reads| records(reads)).await?;
    let shown = records
        .iter()
        .map(|(number, record)| shown(*number, record));
    Ok(shown.collect())
}

/// Removes a snapshot: nobody sees it from then on, and [`clear`] clears away what it kept. It is durable when this
/// returns.
pub async fn remove(engine: &dyn Engine, name: &FileName) -> FsResult<()> {
    remove_if(engine, name, None).await
}

/// The same if that is so of the directory of all snapshots.
pub(crate) async fn remove_if(
    engine: &dyn Engine,
    name: &FileName,
    condition: Option<Condition>,
) -> FsResult<()> {
    let (name, now) = (name.clone(), clock::wall_time());
    transact(engine, move |transaction| {
        check_directory(transaction, condition.as_ref())?;
        remove_now(transaction, &name, now)
    })
    .await?;
    Ok(engine.sync().await?)
}

fn remove_now(transaction: &mut dyn Transaction, name: &FileName, now: SystemTime) -> FsResult<()> {
    let by_name = schema::snapshot_name(name.as_bytes());
    let number = transaction.get(&by_name)?.ok_or(FsError::NotFound)?;
    let number = mark(Some(&number));
    let mut records = records(transaction)?;
    let place = records.iter().position(|(other, _)| *other == number);
    let (_, mut record) = records.remove(place.ok_or_else(|| schema::damaged("a snapshot"))?);
    record.is_removed = true;
    transaction.delete(&by_name);
    transaction.put(&schema::snapshot(number), record.encode());
    let latest = records.iter().rfind(|(_, record)| !record.is_removed);
    match latest {
        None => transaction.delete(schema::EPOCH),
        Some((latest, record)) => {
            let epoch = Epoch {
                latest: *latest,
                last_file: record.last_file,
                given: mark(transaction.get(schema::LAST_SNAPSHOT)?.as_ref()),
            };
            transaction.put(schema::EPOCH, epoch.encode());
        }
    }
    count(transaction, -1, now)
}

/// Fails unless a name can be made: in snapshots none can, and that of the directory of all snapshots is taken.
pub(crate) fn check_place(dentry: Dentry<'_>) -> FsResult<()> {
    check_changeable(dentry.parent)?;
    match dentry.parent == Inode::ROOT && dentry.name.as_bytes() == SNAPSHOTS_NAME {
        true => Err(FsError::AlreadyExists),
        false => Ok(()),
    }
}

/// Fails unless a change of this file, or in this directory, can be made: in snapshots none can.
pub(crate) fn check_changeable(inode: Inode) -> FsResult<()> {
    match schema::is_in_snapshot(inode) {
        true => Err(FsError::ReadOnly),
        false => Ok(()),
    }
}
