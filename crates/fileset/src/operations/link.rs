//! One more name for a file.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Change, Inode};

use super::{Asked, LINKS_MAX, Place, enterable, find, node, put_entry, put_node, touch};
use crate::{engine::Transaction, quotas, schema::Entry};

/// Gives a file, which is no directory, one more name.
pub(crate) fn link(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    place: &Place,
) -> FsResult<Change> {
    let mut file = node(transaction, inode)?;
    if file.is_directory() {
        return Err(FsError::NotPermitted("a directory has one name"));
    }
    let dentry = place.dentry();
    let parent = super::directory(transaction, dentry.parent)?;
    let before = super::before(transaction, (dentry.parent, &parent))?;
    if find(transaction, dentry)?.is_some() {
        return Err(FsError::AlreadyExists);
    }
    enterable(&asked.by, dentry.parent, &parent)?;
    match file.links {
        // It has been removed, and only those who hold it know it.
        _ if file.is_in_trash() => return Err(FsError::NotFound),
        0 => return Err(FsError::NotFound),
        links if links >= LINKS_MAX => return Err(FsError::TooManyLinks),
        _ => {}
    }
    quotas::join(transaction, asked, (inode, &mut file), parent.project)?;
    file.links += 1;
    file.changed = asked.now;
    put_node(transaction, inode, &file);
    let kind = file.kind;
    put_entry(transaction, dentry, Entry { inode, kind });
    touch(transaction, dentry.parent, asked.now)?;
    super::change(before.as_ref(), transaction)
}
