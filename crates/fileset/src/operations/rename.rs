//! Moving names.

use std::iter;

use penstock_base::{FsError, FsResult};
use penstock_vfs::{AccessMask, Attributes, Inode, RenameMode, Renamed, permission};

use super::{
    Asked, Place, Unnamed, above, check_empty, count_directories, directory, enterable, find, node,
    put_entry, put_node, ruling, touch, unlink,
};
use crate::{
    engine::{Reads, Transaction},
    quotas,
    schema::{self, Entry, is_of_trash},
    trash,
};

/// What is moved where.
#[derive(Debug, Clone)]
pub(crate) struct Renaming {
    pub(crate) asked: Asked,
    pub(crate) source: Place,
    pub(crate) target: Place,
    pub(crate) mode: RenameMode,
}

/// What a rename did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moved {
    pub(crate) renamed: Renamed,
    /// What was replaced, if that was its last name.
    pub(crate) unnamed: Option<Unnamed>,
}

/// Moves a name, or swaps two. All of it happens at once.
pub(crate) fn rename(transaction: &mut dyn Transaction, renaming: &Renaming) -> FsResult<Moved> {
    let Renaming {
        asked,
        source,
        target,
        mode,
    } = renaming;
    let (from_node, to_node) = (
        directory(transaction, source.parent)?,
        directory(transaction, target.parent)?,
    );
    let (from, to) = (
        from_node.attributes(source.parent),
        to_node.attributes(target.parent),
    );
    let (from_before, to_before) = (
        super::before(transaction, (source.parent, &from_node))?,
        super::before(transaction, (target.parent, &to_node))?,
    );
    permission::check(&from, &asked.by, AccessMask::EXECUTE)?;
    permission::check(&to, &asked.by, AccessMask::EXECUTE)?;
    let moved = find(transaction, source.dentry())?.ok_or(FsError::NotFound)?;
    let there = find(transaction, target.dentry())?;
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => return Err(FsError::AlreadyExists),
        (RenameMode::Exchange, None) => return Err(FsError::NotFound),
        // Two names of one file: nothing is done, as rename(2) says.
        (_, Some(there)) if there.inode == moved.inode => return Ok(Moved::default()),
        _ => {}
    }
    trash::check_rename(renaming, moved, there)?;
    let project = to_node.project;
    // As with quotas of projects elsewhere: who moves it copies it. What comes back from the trash counts anew.
    if from_node.project != project && !is_of_trash(source.parent) {
        return Err(FsError::CrossDevice);
    }
    check_taken(transaction, renaming, (&from, moved.inode))?;
    check_move(transaction, moved.inode, target.parent)?;
    let mut unnamed = None;
    match (mode, there) {
        (RenameMode::Exchange, Some(there)) => {
            check_taken(transaction, renaming, (&to, there.inode))?;
            check_move(transaction, there.inode, source.parent)?;
            place(transaction, asked, (there, project), (target, source))?;
        }
        (_, there) => {
            enterable(&asked.by, target.parent, &to_node)?;
            if let Some(there) = there {
                unnamed = replace(transaction, renaming, (moved, there), &to)?;
            }
            transaction.delete(&schema::entry(source.dentry()));
        }
    }
    place(transaction, asked, (moved, project), (source, target))?;
    touch(transaction, source.parent, asked.now)?;
    if target.parent != source.parent {
        touch(transaction, target.parent, asked.now)?;
    }
    let renamed = Renamed {
        source: super::change(from_before.as_ref(), transaction)?,
        target: super::change(to_before.as_ref(), transaction)?,
    };
    Ok(Moved { renamed, unnamed })
}

/// Fails unless the caller may take a file out of its directory, and, where that is another one then, change what is
/// above it.
fn check_taken(
    reads: &dyn Reads,
    renaming: &Renaming,
    (directory, inode): (&Attributes, Inode),
) -> FsResult<()> {
    let file = ruling(reads, inode)?;
    permission::check_removal(directory, &file, &renaming.asked.by)?;
    let is_directory = file.kind == penstock_vfs::FileKind::Directory;
    if is_directory && renaming.source.parent != renaming.target.parent {
        permission::check(&file, &renaming.asked.by, AccessMask::WRITE)?;
    }
    Ok(())
}

/// Fails if `moved` would come to lie in itself.
fn check_move(reads: &dyn Reads, moved: Inode, into: Inode) -> FsResult<()> {
    for at in iter::once(Ok(into)).chain(above(reads, into)) {
        if at? == moved {
            return Err(FsError::InvalidArgument(
                "a directory cannot be moved into itself",
            ));
        }
    }
    Ok(())
}

/// Removes what is in the way.
fn replace(
    transaction: &mut dyn Transaction,
    renaming: &Renaming,
    (moved, there): (Entry, Entry),
    directory: &Attributes,
) -> FsResult<Option<Unnamed>> {
    let asked = &renaming.asked;
    let file = ruling(transaction, there.inode)?;
    let is_directory = |entry: Entry| entry.kind == penstock_vfs::FileKind::Directory;
    match (is_directory(moved), is_directory(there)) {
        (true, false) => return Err(FsError::NotADirectory),
        (false, true) => return Err(FsError::IsADirectory),
        (true, true) => {
            check_empty(transaction, there.inode)?;
            count_directories(transaction, directory.inode, -1)?;
        }
        (false, false) => {}
    }
    permission::check_removal(directory, &file, &asked.by)?;
    unlink(transaction, asked, &renaming.target, there.inode)
}

/// Puts an entry into its new place, whose directory counts for `project`. The old one is the caller's business.
fn place(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (entry, project): (Entry, u64),
    (from, to): (&Place, &Place),
) -> FsResult<()> {
    put_entry(transaction, to.dentry(), entry);
    let mut file = node(transaction, entry.inode)?;
    quotas::follow(transaction, asked, (entry.inode, &mut file), project)?;
    file.changed = asked.now;
    if file.is_directory() && from.parent != to.parent {
        file.parent = to.parent.0;
        count_directories(transaction, from.parent, -1)?;
        count_directories(transaction, to.parent, 1)?;
    }
    put_node(transaction, entry.inode, &file);
    Ok(())
}
