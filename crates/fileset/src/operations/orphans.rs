//! What becomes of files without a name, and of objects that no file refers to.
//!
//! The operation that takes a file's last name away makes it an orphan: a key says so, as long as somebody may hold
//! it. Whoever has the file system open collects orphans when they are given back, and all that it finds when it
//! opens it: their holder died; where several machines have it open `machines/orphans.rs` says who collects. A file of many chunks loses them in steps, and its node in the last one.
//!
//! An object that lost its last reference is garbage: another key. It is deleted from the bucket when that is
//! durable, for else a crash could bring a reference back; then the key goes.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{
    extents::{FileChange, STEP, STEP_BYTES, clearing, edit},
    node, xattrs,
};
use crate::{
    data::ObjectId,
    engine::{Reads, Transaction},
    quotas::{self, Amount, Owner},
    schema::{self, ObjectUse, kind},
};

/// All orphans.
pub(crate) fn orphans(reads: &dyn Reads) -> FsResult<Vec<Inode>> {
    let mut found = Vec::new();
    reads.scan(&[kind::ORPHAN]..&[kind::ORPHAN + 1], &mut |key, _| {
        found.extend(schema::inode_in(key).ok());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A step of collecting an orphan; returns whether it is gone.
pub(crate) fn collect(transaction: &mut dyn Transaction, inode: Inode) -> FsResult<bool> {
    if transaction.get(&schema::orphan(inode))?.is_none() {
        return Ok(true);
    }
    let file = node(transaction, inode)?;
    let edits = clearing(transaction, inode, &(0..u64::MAX), STEP + 1)?;
    let step = edit(transaction, inode, (&edits, 0), &|_| FileChange::default())?;
    if !step.is_last {
        return Ok(false);
    }
    if !xattrs::drop_some(transaction, inode, STEP_BYTES)? {
        return Ok(false);
    }
    let mut keys = vec![schema::node(inode), schema::orphan(inode)];
    match file.kind {
        penstock_vfs::FileKind::Symlink => keys.push(schema::target(inode)),
        penstock_vfs::FileKind::Directory => {
            keys.extend([schema::times(inode), schema::directories(inode)]);
        }
        _ => {}
    }
    keys.iter().for_each(|key| transaction.delete(key));
    let gone = Amount {
        bytes: 0,
        files: -1,
    };
    quotas::charge(transaction, Owner::of(inode, &file), gone)?;
    if file.project == inode.0 {
        quotas::end(transaction, inode)?;
    }
    Ok(true)
}

/// Some objects that are garbage, of those that are wanted.
pub(crate) fn garbage(
    reads: &dyn Reads,
    is_wanted: &mut dyn FnMut(ObjectId) -> bool,
) -> FsResult<Vec<ObjectId>> {
    let mut found = Vec::new();
    reads.scan(&[kind::GARBAGE]..&[kind::GARBAGE + 1], &mut |key, _| {
        let object = schema::object_in(key).ok();
        found.extend(object.filter(|object| is_wanted(*object)));
        match found.len() < STEP {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// No byte of an object is with the metadata any more.
pub(crate) fn drop_content(transaction: &mut dyn Transaction, object: ObjectId) -> FsResult<()> {
    let first = schema::of_content(object);
    let mut keys = Vec::new();
    transaction.scan(&first..&schema::behind(&first), &mut |key, _| {
        keys.push(Bytes::copy_from_slice(key));
        ControlFlow::Continue(())
    })?;
    keys.iter().for_each(|key| transaction.delete(key));
    Ok(())
}

/// These objects are not in the bucket any more.
pub(crate) fn drop_garbage(
    transaction: &mut dyn Transaction,
    objects: &[ObjectId],
) -> FsResult<()> {
    for object in objects {
        transaction.delete(&schema::garbage(*object));
    }
    Ok(())
}

/// These objects became so long: who referred to them first did not know it.
pub(crate) fn set_lengths(
    transaction: &mut dyn Transaction,
    lengths: &[(ObjectId, u32)],
) -> FsResult<()> {
    for (object, length) in lengths {
        let key = schema::object(*object);
        if let Some(value) = transaction.get(&key)? {
            let known = ObjectUse {
                length: u64::from(*length),
                ..ObjectUse::decode(&value)?
            };
            transaction.put(&key, known.encode());
        }
    }
    Ok(())
}
