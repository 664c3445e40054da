//! Taking a name away.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Change, Inode, RemoveKind, permission};

use super::{
    Asked, Place, check_empty, count_directories, directory, find, node, put_node, ruling, touch,
};
use crate::{
    engine::Transaction,
    schema::{self, Hour},
    trash,
};

/// Which name is taken away, by whom.
#[derive(Debug, Clone)]
pub(crate) struct Removing {
    pub(crate) asked: Asked,
    pub(crate) place: Place,
    pub(crate) kind: RemoveKind,
}

/// What was removed.
#[derive(Debug, Clone)]
pub(crate) struct Removed {
    pub(crate) directory: Change,
    pub(crate) unnamed: Option<Unnamed>,
}

/// A file that lost its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// It goes when nobody holds it.
    Orphan(Inode),
    /// It has one in the trash.
    Kept(Inode),
}

/// Removes a name, and the file if nobody holds it: see [`super::orphans`].
pub(crate) fn remove(transaction: &mut dyn Transaction, removing: &Removing) -> FsResult<Removed> {
    let Removing { asked, place, kind } = removing;
    let dentry = place.dentry();
    let parent = directory(transaction, dentry.parent)?;
    let above = parent.attributes(dentry.parent);
    let before = super::before(transaction, (dentry.parent, &parent))?;
    permission::check(&above, &asked.by, penstock_vfs::AccessMask::EXECUTE)?;
    let entry = find(transaction, dentry)?.ok_or(FsError::NotFound)?;
    let file = ruling(transaction, entry.inode)?;
    let is_directory = file.kind == penstock_vfs::FileKind::Directory;
    match (kind, is_directory) {
        (RemoveKind::File, true) => return Err(FsError::IsADirectory),
        (RemoveKind::Directory, false) => return Err(FsError::NotADirectory),
        _ => {}
    }
    permission::check_removal(&above, &file, &asked.by)?;
    trash::check_removal(entry)?;
    if is_directory {
        check_empty(transaction, entry.inode)?;
        count_directories(transaction, dentry.parent, -1)?;
    }
    transaction.delete(&schema::entry(dentry));
    let unnamed = unlink(transaction, asked, place, entry.inode)?;
    touch(transaction, dentry.parent, asked.now)?;
    Ok(Removed {
        directory: super::change(before.as_ref(), transaction)?,
        unnamed,
    })
}

/// A file lost a name, `place`. Says what it is if that was the last one.
pub(crate) fn unlink(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    place: &Place,
    inode: Inode,
) -> FsResult<Option<Unnamed>> {
    if let Some(hour) = Hour::of_inode(inode) {
        trash::close_hour(transaction, hour)?;
        return Ok(None);
    }
    let mut file = node(transaction, inode)?;
    file.changed = asked.now;
    if file.links == 1 && trash::keeps(transaction, inode, &file)? {
        trash::put(transaction, asked, place, (inode, &mut file))?;
        put_node(transaction, inode, &file);
        return Ok(Some(Unnamed::Kept(inode)));
    }
    trash::take_out(transaction, asked, (inode, &mut file))?;
    file.links = file.links.saturating_sub(1);
    put_node(transaction, inode, &file);
    if file.links > 0 {
        return Ok(None);
    }
    let remover = asked.session.map(schema::encode_session);
    transaction.put(&schema::orphan(inode), remover.unwrap_or_default());
    Ok(Some(Unnamed::Orphan(inode)))
}
