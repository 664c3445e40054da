//! Taking a name away.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Change, Inode, RemoveKind, permission};

use super::{
    Asked, Place, attributes, check_empty, count_directories, directory_attributes, find, node,
    put_node, touch,
};
use crate::{engine::Transaction, schema};

/// What was removed.
#[derive(Debug, Clone)]
pub(crate) struct Removed {
    pub(crate) directory: Change,
    /// The file, if that was its last name.
    pub(crate) orphan: Option<Inode>,
}

/// Removes a name, and the file if nobody holds it: see [`super::orphans`].
pub(crate) fn remove(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    place: &Place,
    kind: RemoveKind,
) -> FsResult<Removed> {
    let dentry = place.dentry();
    let above = directory_attributes(transaction, dentry.parent)?;
    permission::check(&above, &asked.by, penstock_vfs::AccessMask::EXECUTE)?;
    let entry = find(transaction, dentry)?.ok_or(FsError::NotFound)?;
    let file = attributes(transaction, entry.inode)?;
    let is_directory = file.kind == penstock_vfs::FileKind::Directory;
    match (kind, is_directory) {
        (RemoveKind::File, true) => return Err(FsError::IsADirectory),
        (RemoveKind::Directory, false) => return Err(FsError::NotADirectory),
        _ => {}
    }
    permission::check_removal(&above, &file, &asked.by)?;
    if is_directory {
        check_empty(transaction, entry.inode)?;
        count_directories(transaction, dentry.parent, -1)?;
    }
    transaction.delete(&schema::entry(dentry));
    let orphan = unlink(transaction, asked, entry.inode)?;
    touch(transaction, dentry.parent, asked.now)?;
    Ok(Removed {
        directory: super::change(&above, transaction)?,
        orphan,
    })
}

/// A file lost a name. Returns it if that was the last one.
pub(super) fn unlink(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
) -> FsResult<Option<Inode>> {
    let mut file = node(transaction, inode)?;
    file.links = file.links.saturating_sub(1);
    file.changed = asked.now;
    put_node(transaction, inode, &file);
    if file.links > 0 {
        return Ok(None);
    }
    let remover = asked.session.map(schema::encode_session);
    transaction.put(&schema::orphan(inode), remover.unwrap_or_default());
    Ok(Some(inode))
}
