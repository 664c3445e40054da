//! Where directories with quotas are.

use std::{collections::VecDeque, ops::ControlFlow};

use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{Dentry, Inode};

use crate::{
    engine::{Engine, Reads, query},
    operations,
};

/// The directory at a path from the root on.
pub async fn directory_at(engine: &dyn Engine, path: &str) -> FsResult<Inode> {
    query(engine, |reads| {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut at = Inode::ROOT;
        for name in names {
            let name = FileName::new(name.as_bytes()).map_err(|_| FsError::NotFound)?;
            let found = operations::find(reads, Dentry::new(at, &name))?;
            at = found.ok_or(FsError::NotFound)?.inode;
            operations::directory(reads, at)?;
        }
        Ok(at)
    })
    .await
}

/// The directories above one, the root last.
pub(super) fn above(reads: &dyn Reads, directory: Inode) -> FsResult<Vec<Inode>> {
    operations::above(reads, directory).collect()
}

/// Whether a directory is below another one. One that is gone is below none.
pub(super) fn is_below(reads: &dyn Reads, directory: Inode, other: Inode) -> FsResult<bool> {
    match above(reads, directory) {
        Ok(above) => Ok(above.contains(&other)),
        Err(FsError::Stale) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path of a directory from the root on; of one without a name what is known of it.
pub(crate) fn path_of(reads: &dyn Reads, directory: Inode) -> FsResult<String> {
    let above = match above(reads, directory) {
        Err(FsError::Stale) => return Ok(unnamed(directory)),
        above => above?,
    };
    let (mut names, mut at) = (VecDeque::new(), directory);
    for parent in above {
        names.push_front(name_in(reads, parent, at)?);
        at = parent;
    }
    let names: Vec<_> = names.into();
    Ok(format!("/{}", names.join("/")))
}

fn name_in(reads: &dyn Reads, parent: Inode, inode: Inode) -> FsResult<String> {
    let mut found = None;
    operations::visit(reads, parent, None, &mut |name, entry| {
        if entry.inode != inode {
            return ControlFlow::Continue(());
        }
        found = Some(String::from_utf8_lossy(name).into_owned());
        ControlFlow::Break(())
    })?;
    Ok(found.unwrap_or_else(|| unnamed(inode)))
}

fn unnamed(inode: Inode) -> String {
    format!("(inode {})", inode.0)
}
