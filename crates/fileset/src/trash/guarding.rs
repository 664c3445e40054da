//! What may be done in the trash: names are taken out of it, and nothing else.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Inode, RenameMode};

use crate::{
    operations::Renaming,
    schema::{Entry, TRASH, is_of_trash},
};

/// Fails unless names may be made in a directory, or attributes of a file changed: in the trash and its hours they may not.
pub(crate) fn check_changeable(inode: Inode) -> FsResult<()> {
    match is_of_trash(inode) {
        true => Err(FsError::ReadOnly),
        false => Ok(()),
    }
}

/// Fails unless a name may be removed: the trash itself stays.
pub(crate) fn check_removal(entry: Entry) -> FsResult<()> {
    match entry.inode == TRASH {
        true => Err(stays()),
        false => Ok(()),
    }
}

/// Fails unless a rename leaves the trash and its hours where they are, and brings nothing into it.
pub(crate) fn check_rename(
    renaming: &Renaming,
    moved: Entry,
    there: Option<Entry>,
) -> FsResult<()> {
    let mut entries = [Some(moved), there].into_iter().flatten();
    if entries.any(|entry| is_of_trash(entry.inode)) {
        return Err(stays());
    }
    if renaming.mode == RenameMode::Exchange {
        check_changeable(renaming.source.parent)?;
    }
    check_changeable(renaming.target.parent)
}

fn stays() -> FsError {
    FsError::NotPermitted("the trash and its directories stay where they are")
}
