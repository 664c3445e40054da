//! Access lists, which doors know as extended attributes, are kept with the file whose mode they go with.

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{AccessList, Inode, ListKind, XattrMode};

use super::{Asked, node, put_node, raise_format};
use crate::{
    engine::{Reads, Transaction},
    schema::Format,
};

/// A list, as the value of its attribute.
pub(super) fn get(reads: &dyn Reads, inode: Inode, kind: ListKind) -> FsResult<Bytes> {
    let file = node(reads, inode)?;
    let list = file.lists.get(kind).map(AccessList::encode);
    list.ok_or(FsError::NoAttribute)
}

/// The names of the attributes that are lists of a file.
pub(super) fn names(reads: &dyn Reads, inode: Inode) -> FsResult<Vec<Bytes>> {
    let file = node(reads, inode)?;
    Ok(file.lists.names().map(Bytes::from_static).collect())
}

/// Sets a list, and the mode with it.
pub(super) fn set(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    list: (ListKind, &[u8], XattrMode),
) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    let before = file.attributes(inode);
    file.permissions = file.lists.set((&before, &asked.by), list)?;
    file.changed = asked.now;
    put_node(transaction, inode, &file);
    raise_format(transaction, Format::with_access_lists)
}

/// Takes a list away, if it is there.
pub(super) fn remove(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    kind: ListKind,
) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    let before = file.attributes(inode);
    file.lists.remove((&before, &asked.by), kind)?;
    file.changed = asked.now;
    put_node(transaction, inode, &file);
    Ok(())
}
