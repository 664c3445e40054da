//! What removed snapshots kept, and what becomes of it.
//!
//! What is needed is said by what there is, not by which snapshot went: so one pass serves all that were removed before
//! it, and one that a crash cut begins again.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_base::FsResult;

use crate::{
    data::ObjectId,
    engine::{Engine, Reads, Transaction, query, transact},
    schema::{self, ObjectUse, SnapshotRecord, kind},
};

/// Keys that one step looks at.
const STEP: usize = 1000;

/// A snapshot that is there, with the last file in it.
type There = (u64, u64);

/// What a step found.
struct Found<T> {
    unneeded: Vec<T>,
    /// Where the next one begins; `None` behind the last key.
    next: Option<Bytes>,
}

/// Whether a snapshot needs what was there behind `from` and until `to`.
pub(crate) fn is_needed(records: &[(u64, SnapshotRecord)], from: u64, to: u64) -> bool {
    let mut there = records.iter().filter(|(_, record)| !record.is_removed);
    there.any(|(number, _)| (from + 1..=to).contains(number))
}

/// Clears away what removed snapshots kept and no other one needs. Returns whether there was one.
pub async fn clear(engine: &dyn Engine) -> FsResult<bool> {
    let records = query(engine, |reads| super::records(reads)).await?;
    let removed = records.iter().filter(|(_, record)| record.is_removed);
    let removed: Vec<u64> = removed.map(|(number, _)| *number).collect();
    if removed.is_empty() {
        return Ok(false);
    }
    let mut next = Some(Bytes::from_static(&[kind::KEPT]));
    while let Some(from) = next {
        next = transact(engine, move |transaction| clear_kept(transaction, &from)).await?;
    }
    let mut next = Some(Bytes::from_static(&[kind::HELD]));
    while let Some(from) = next {
        next = transact(engine, move |transaction| clear_held(transaction, &from)).await?;
    }
    transact(engine, move |transaction| {
        for number in &removed {
            transaction.delete(&schema::snapshot(*number));
        }
        Ok::<_, penstock_base::FsError>(())
    })
    .await?;
    Ok(true)
}

fn there(reads: &dyn Reads) -> FsResult<Vec<There>> {
    let records = super::records(reads)?.into_iter();
    let there = records.filter(|(_, record)| !record.is_removed);
    Ok(there
        .map(|(number, record)| (number, record.last_file))
        .collect())
}

/// A step over what was kept. Begins with a key whose own are all behind.
fn clear_kept(transaction: &mut dyn Transaction, from: &[u8]) -> FsResult<Option<Bytes>> {
    let found = unneeded_kept(transaction, from, &there(transaction)?)?;
    found
        .unneeded
        .iter()
        .for_each(|key| transaction.delete(key));
    Ok(found.next)
}

fn unneeded_kept(reads: &dyn Reads, from: &[u8], there: &[There]) -> FsResult<Found<Bytes>> {
    let mut found = Found {
        unneeded: Vec::new(),
        next: None,
    };
    // What is looked at, and under which number something was kept of it before.
    let (mut last, mut before, mut looked) = (Bytes::new(), 0, 0);
    let mut outcome = Ok(());
    reads.scan(from..&[kind::KEPT + 1], &mut |kept, _| {
        let (key, number) = match schema::kept_in(kept) {
            Ok(parts) => parts,
            Err(error) => {
                outcome = Err(error);
                return ControlFlow::Break(());
            }
        };
        if key != last {
            if looked >= STEP {
                found.next = Some(schema::of_kept(key).freeze());
                return ControlFlow::Break(());
            }
            (last, before) = (Bytes::copy_from_slice(key), 0);
        }
        looked += 1;
        let file = schema::inode_in(key).map_or(0, |file| file.0);
        let serves = |(snapshot, last_file): &There| {
            before < *snapshot && *snapshot <= number && file <= *last_file
        };
        if !there.iter().any(serves) {
            found.unneeded.push(Bytes::copy_from_slice(kept));
        }
        before = number;
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| found)
}

/// A step over objects that were held for snapshots.
fn clear_held(transaction: &mut dyn Transaction, from: &[u8]) -> FsResult<Option<Bytes>> {
    let (held, next) = held_from(transaction, from)?;
    let records = super::records(transaction)?;
    for (died, object) in held {
        let key = schema::object(object);
        let known = transaction.get(&key)?;
        let known = known.ok_or_else(|| schema::damaged("the use of an object"))?;
        if is_needed(&records, ObjectUse::decode(&known)?.born, died) {
            continue;
        }
        transaction.delete(&schema::held(died, object));
        transaction.delete(&key);
        transaction.put(&schema::garbage(object), schema::nothing());
    }
    Ok(next)
}

/// Objects that are held, each with the latest snapshot when it lost its last use, and where the next ones begin.
pub(super) type HeldPage = (Vec<(u64, ObjectId)>, Option<Bytes>);

/// Some of them.
pub(super) fn held_from(reads: &dyn Reads, from: &[u8]) -> FsResult<HeldPage> {
    let (mut held, mut next, mut outcome) = (Vec::new(), None, Ok(()));
    reads.scan(from..&[kind::HELD + 1], &mut |key, _| {
        if held.len() == STEP {
            next = Some(Bytes::copy_from_slice(key));
            return ControlFlow::Break(());
        }
        match schema::held_in(key) {
            Ok(one) => held.push(one),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| (held, next))
}
