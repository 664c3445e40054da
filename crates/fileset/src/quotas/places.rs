//! Where directories with quotas are.

use std::{
    collections::{HashMap, HashSet},
    iter,
    ops::ControlFlow,
};

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
    let path = paths_of(reads, [directory])?.remove(&directory);
    Ok(path.unwrap_or_else(|| unnamed(directory)))
}

/// The same of several. Each directory above them is looked through once at most.
pub(crate) fn paths_of(
    reads: &dyn Reads,
    directories: impl IntoIterator<Item = Inode>,
) -> FsResult<HashMap<Inode, String>> {
    let (mut ways, mut wanted) = (Vec::new(), HashMap::<Inode, HashSet<Inode>>::new());
    let mut paths = HashMap::new();
    for directory in directories {
        let above = match above(reads, directory) {
            Err(FsError::Stale) => {
                paths.insert(directory, unnamed(directory));
                continue;
            }
            above => above?,
        };
        // The root has no name.
        let way = iter::once(directory).chain(above.clone());
        let way: Vec<_> = way.take(above.len()).collect();
        for (inode, parent) in way.iter().zip(above) {
            wanted.entry(parent).or_default().insert(*inode);
        }
        ways.push((directory, way));
    }
    let names = names_in(reads, wanted)?;
    paths.extend(ways.into_iter().map(|(directory, way)| {
        let names = way.iter().rev().map(|inode| match names.get(inode) {
            Some(name) => name.clone(),
            None => unnamed(*inode),
        });
        let names: Vec<_> = names.collect();
        (directory, format!("/{}", names.join("/")))
    }));
    Ok(paths)
}

/// The names of those who are wanted, by the directories they are in.
fn names_in(
    reads: &dyn Reads,
    wanted: HashMap<Inode, HashSet<Inode>>,
) -> FsResult<HashMap<Inode, String>> {
    let mut names = HashMap::new();
    for (parent, mut wanted) in wanted {
        operations::visit(reads, parent, None, &mut |name, entry| {
            if wanted.remove(&entry.inode) {
                names.insert(entry.inode, String::from_utf8_lossy(name).into_owned());
            }
            match wanted.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
    }
    Ok(names)
}

fn unnamed(inode: Inode) -> String {
    format!("(inode {})", inode.0)
}
