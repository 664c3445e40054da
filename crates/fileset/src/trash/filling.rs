//! What becomes of a file whose last name goes, and of the directories of hours.

use penstock_base::FsResult;
use penstock_vfs::{Dentry, FileKind, Inode};

use crate::{
    engine::{Reads, Transaction},
    operations::{self, Asked, Place},
    quotas::{self, Amount, Owner},
    schema::{self, Entry, Hour, Node, TRASH, trash_name},
};

/// Whether a file whose last name goes comes into the trash.
pub(crate) fn keeps(reads: &dyn Reads, inode: Inode, file: &Node) -> FsResult<bool> {
    if file.kind != FileKind::Regular || file.size == 0 || file.is_in_trash() {
        return Ok(false);
    }
    Ok(super::days(reads)?.is_some() && !quotas::is_short(reads, Owner::of(inode, file))?)
}

/// Gives a file, which is about to lose the name `place`, one in the trash.
pub(crate) fn put(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    place: &Place,
    (inode, file): (Inode, &mut Node),
) -> FsResult<()> {
    let hour = Hour::of(asked.now);
    if transaction.get(&schema::node(hour.inode()))?.is_none() {
        open_hour(transaction, asked, hour)?;
    }
    let name = trash_name(place.parent, inode, &place.name);
    let kind = file.kind;
    let dentry = Dentry::new(hour.inode(), &name);
    operations::put_entry(transaction, dentry, Entry { inode, kind });
    operations::touch(transaction, hour.inode(), asked.now)?;
    count_for(transaction, asked, (inode, file), TRASH.0)
}

/// A file of the trash goes for good.
pub(crate) fn take_out(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (inode, file): (Inode, &mut Node),
) -> FsResult<()> {
    match file.is_in_trash() {
        true => count_for(transaction, asked, (inode, file), 0),
        false => Ok(()),
    }
}

fn count_for(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (inode, file): (Inode, &mut Node),
    project: u64,
) -> FsResult<()> {
    let before = file.clone();
    file.project = project;
    quotas::hand_over(transaction, asked, inode, (&before, file))
}

fn open_hour(transaction: &mut dyn Transaction, asked: &Asked, hour: Hour) -> FsResult<()> {
    super::make_directory(transaction, hour.inode(), TRASH)?;
    let entry = Entry {
        inode: hour.inode(),
        kind: FileKind::Directory,
    };
    operations::put_entry(transaction, Dentry::new(TRASH, &hour.name()), entry);
    operations::count_directories(transaction, TRASH, 1)?;
    operations::touch(transaction, TRASH, asked.now)
}

/// Removes the directory of an hour, in which nothing is and of which the entry is gone. It may be made again, so nobody
/// collects it.
pub(crate) fn close_hour(transaction: &mut dyn Transaction, hour: Hour) -> FsResult<()> {
    let inode = hour.inode();
    let node = operations::node(transaction, inode)?;
    for key in [
        schema::node(inode),
        schema::times(inode),
        schema::directories(inode),
    ] {
        transaction.delete(&key);
    }
    quotas::charge(transaction, Owner::of(inode, &node), Amount::FILE.back())
}
