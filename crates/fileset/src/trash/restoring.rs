//! Bringing a file back from the trash: a rename.

use std::sync::Arc;

use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{Inode, RenameMode};

use super::listing::{Found, find, is_there, path_in, walk};
use crate::{
    engine::{Engine, Reads, Transaction, transact},
    operations::{self, Asked, Place, Renaming},
    schema::Trashed,
    snapshots::{Preserving, check_place},
};

/// Brings a file back that [`list`](super::list) shows as `entry`: to where it was, or to the path `target` from the root on,
/// which may be a directory. It is durable when this returns; returns its path. Fails with `NotFound` if the file is not there,
/// or the directory of the target, and with `AlreadyExists` if there is another one. While a volume has the file system open
/// its [`restore`](crate::FilesetVolume::restore) does it.
pub async fn restore(
    engine: Arc<dyn Engine>,
    entry: String,
    target: Option<String>,
) -> FsResult<String> {
    let engine = Preserving::new(engine);
    let asked = Asked::by_itself(&engine);
    let restored = transact(&engine, move |transaction| {
        restore_now(transaction, &asked, (&entry, target.as_deref()))
    });
    let path = restored.await?;
    engine.sync().await?;
    Ok(path)
}

/// The same in an operation.
pub(crate) fn restore_now(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (entry, target): (&str, Option<&str>),
) -> FsResult<String> {
    let found = find(transaction, entry)?;
    let target = match target {
        Some(path) => named_place(transaction, &found, path)?,
        None => former_place(transaction, &found)?,
    };
    check_place(target.dentry())?;
    let name = FileName::new(&found.name).map_err(|_| FsError::NotFound)?;
    let renaming = Renaming {
        asked: asked.clone(),
        source: Place {
            parent: found.hour.inode(),
            name,
        },
        target: target.clone(),
        mode: RenameMode::NoReplace,
    };
    operations::rename(transaction, &renaming)?;
    path_in(transaction, target.parent, &target.name.to_string())
}

/// Where a file was.
fn former_place(reads: &dyn Reads, found: &Found) -> FsResult<Place> {
    let trashed = Trashed::of(&found.name).ok_or(FsError::NotFound)?;
    match is_there(reads, trashed.parent)? {
        true => in_directory(trashed.parent, found),
        false => Err(FsError::InvalidArgument(
            "the directory that it was in is gone: say where it is to go",
        )),
    }
}

fn named_place(reads: &dyn Reads, found: &Found, path: &str) -> FsResult<Place> {
    match walk(reads, path)? {
        Err((parent, name)) => Ok(Place { parent, name }),
        Ok(inode) if is_there(reads, inode)? => in_directory(inode, found),
        Ok(_) => Err(FsError::AlreadyExists),
    }
}

/// Under the name that it had.
fn in_directory(parent: Inode, found: &Found) -> FsResult<Place> {
    let trashed = Trashed::of(&found.name).ok_or(FsError::NotFound)?;
    let name = FileName::new(trashed.name);
    let name =
        name.map_err(|_| FsError::InvalidArgument("its name is gone: say where it is to go"))?;
    Ok(Place { parent, name })
}
