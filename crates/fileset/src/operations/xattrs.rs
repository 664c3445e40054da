//! Extended attributes. Those that are access lists are kept elsewhere: see [`super::access_lists`].

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{AccessMask, Identity, Inode, ListKind, XattrMode, permission};

use super::{Asked, access_lists, node, put_node, ruling};
use crate::{
    engine::{Reads, Transaction},
    schema, trash,
};

/// Bytes in the longest value, the kernel's own limit.
const VALUE_MAX: usize = 64 << 10;
/// Names of one file's attributes together: the kernel's own limit of a listing, in which there is always room for those of
/// access lists.
const NAMES_MAX: usize = (64 << 10) - ListKind::NAMES_ROOM;
/// Whose attributes are kept. Those of `system.` mean something to a file system, here access lists.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check_name(name: &[u8]) -> FsResult<()> {
    match NAMESPACES
        .iter()
        .any(|namespace| name.starts_with(namespace))
    {
        true => Ok(()),
        false => Err(FsError::Unsupported(
            "attributes of user., trusted. and security. are kept, and access lists, and no others",
        )),
    }
}

/// Fails unless `by` may do that to an attribute.
fn check_access(
    reads: &dyn Reads,
    by: &Identity,
    (inode, name): (Inode, &[u8]),
    wanted: AccessMask,
) -> FsResult<()> {
    check_name(name)?;
    let file = ruling(reads, inode)?;
    if name.starts_with(b"user.") {
        return permission::check(&file, by, wanted);
    }
    match by.is_trusted || by.uid == 0 {
        true => Ok(()),
        false => Err(FsError::NotPermitted("such attributes are root's")),
    }
}

/// The value of an attribute.
pub(crate) fn xattr(
    reads: &dyn Reads,
    by: &Identity,
    inode: Inode,
    name: &[u8],
) -> FsResult<Bytes> {
    if let Some(kind) = ListKind::of_name(name) {
        return access_lists::get(reads, inode, kind);
    }
    check_access(reads, by, (inode, name), AccessMask::READ)?;
    let value = reads.get(&schema::xattr(inode, name))?;
    value.ok_or(FsError::NoAttribute)
}

/// The names of all attributes.
pub(crate) fn xattrs(reads: &dyn Reads, inode: Inode) -> FsResult<Vec<Bytes>> {
    let mut names = access_lists::names(reads, inode)?;
    let prefix = schema::of_xattrs(inode);
    reads.scan(&prefix..&schema::behind(&prefix), &mut |key, _| {
        names.push(Bytes::copy_from_slice(schema::name_in(key)));
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// An attribute with its value.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: Bytes,
    pub(crate) value: Bytes,
}

/// Sets an attribute.
pub(crate) fn set_xattr(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    (attribute, mode): (&Attribute, XattrMode),
) -> FsResult<()> {
    trash::check_changeable(inode)?;
    let Attribute { name, value } = attribute;
    if let Some(kind) = ListKind::of_name(name) {
        return access_lists::set(transaction, asked, inode, (kind, value, mode));
    }
    check_access(transaction, &asked.by, (inode, name), AccessMask::WRITE)?;
    let key = schema::xattr(inode, name);
    let is_there = transaction.get(&key)?.is_some();
    match (mode, is_there) {
        (XattrMode::Create, true) => return Err(FsError::AlreadyExists),
        (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
        _ => {}
    }
    let names = xattrs(transaction, inode)?;
    let names: usize = names.iter().map(|name| name.len() + 1).sum();
    if value.len() > VALUE_MAX || !is_there && names + name.len() >= NAMES_MAX {
        return Err(FsError::NoSpace);
    }
    transaction.put(&key, value.clone());
    touch_file(transaction, asked, inode)
}

/// Removes an attribute.
pub(crate) fn remove_xattr(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    name: &[u8],
) -> FsResult<()> {
    trash::check_changeable(inode)?;
    if let Some(kind) = ListKind::of_name(name) {
        return access_lists::remove(transaction, asked, inode, kind);
    }
    check_access(transaction, &asked.by, (inode, name), AccessMask::WRITE)?;
    let key = schema::xattr(inode, name);
    if transaction.get(&key)?.is_none() {
        return Err(FsError::NoAttribute);
    }
    transaction.delete(&key);
    touch_file(transaction, asked, inode)
}

/// Removes attributes of about so many bytes, all of which a snapshot may keep. Returns whether none is left.
pub(super) fn drop_some(
    transaction: &mut dyn Transaction,
    inode: Inode,
    bytes: usize,
) -> FsResult<bool> {
    let (prefix, mut keys, mut found) = (schema::of_xattrs(inode), Vec::new(), 0);
    transaction.scan(&prefix..&schema::behind(&prefix), &mut |key, value| {
        if found > bytes {
            return ControlFlow::Break(());
        }
        found += key.len() + value.len();
        keys.push(Bytes::copy_from_slice(key));
        ControlFlow::Continue(())
    })?;
    keys.iter().for_each(|key| transaction.delete(key));
    Ok(found <= bytes)
}

fn touch_file(transaction: &mut dyn Transaction, asked: &Asked, inode: Inode) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    file.changed = asked.now;
    put_node(transaction, inode, &file);
    Ok(())
}
