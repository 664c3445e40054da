//! What a mirror has and its source has not, goes.
//!
//! That happens before anything is copied into a directory, which makes room and keeps apart what was there and
//! what is made now. What patterns leave out is no business of the copy, and stays.

use std::{collections::HashSet, ffi::CStr, io, sync::Arc};

use rustix::{fs::FileType, io::Errno};

use super::{branch::Branch, job::Copying};
use crate::local::{Directory, Entry};

/// Removes from the counterpart of `branch` what is not there any more.
pub(super) fn prune(copying: &Copying<'_>, branch: &Branch) {
    if let Err(error) = prune_directory(copying, branch) {
        branch.fail();
        copying
            .report
            .fail_at("cannot compare", &branch.path(), error);
    }
}

fn prune_directory(copying: &Copying<'_>, branch: &Branch) -> io::Result<()> {
    let Some(target) = &branch.data.target else {
        return Ok(());
    };
    let names: HashSet<_> = {
        let entries = branch.data.source.list()?;
        branch.data.source.rewind()?;
        entries.into_iter().map(|entry| entry.name).collect()
    };
    loop {
        let page = target.next_page()?;
        if page.is_empty() {
            return Ok(());
        }
        for entry in page {
            if copying.stop.is_set() {
                return Ok(());
            }
            if !names.contains(&entry.name) {
                remove_extra(copying, branch, target, &entry)?;
            }
        }
    }
}

fn remove_extra(
    copying: &Copying<'_>,
    branch: &Branch,
    target: &Arc<Directory>,
    entry: &Entry,
) -> io::Result<()> {
    let is_directory = target.kind(entry)? == FileType::Directory;
    if copying.is_left_out(branch, &entry.name, is_directory) {
        return Ok(());
    }
    copying.report.tell(|| {
        let path = branch.path_of(&entry.name);
        format!("deleting the copy of {}", path.display())
    });
    if copying.settings.dry_run {
        copying.report.removed.add(1);
        return Ok(());
    }
    let removed = remove_tree(target, &entry.name, is_directory)?;
    copying.report.removed.add(removed);
    Ok(())
}

/// Removes `name` with all that is below it. Returns how many entries that were.
pub(super) fn remove_tree(
    above: &Arc<Directory>,
    name: &CStr,
    is_directory: bool,
) -> rustix::io::Result<u64> {
    if !is_directory {
        above.remove_file(name)?;
        return Ok(1);
    }
    let mut removed = 0;
    let mut open = vec![(Arc::clone(above), name.to_owned(), above.open_in(name)?)];
    while let Some((_, _, directory)) = open.last() {
        let directory = Arc::clone(directory);
        let page = directory.next_page()?;
        if page.is_empty() {
            let Some((above, name, _)) = open.pop() else {
                break;
            };
            above.remove_directory(&name)?;
            removed += 1;
            continue;
        }
        let mut below = None;
        for entry in page {
            match directory.remove_file(&entry.name) {
                Ok(()) => removed += 1,
                Err(Errno::ISDIR | Errno::PERM) => below = Some(entry.name),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(name) = below {
            // Other directories of the page come again.
            directory.rewind()?;
            let inner = directory.open_in(&name)?;
            open.push((directory, name, inner));
        }
    }
    Ok(removed)
}
