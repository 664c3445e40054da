//! What a mirror has and its source has not, goes.
//!
//! That happens before anything is copied into a directory, which makes room and keeps apart what was there and
//! what is made now. What patterns leave out is no business of the copy, and stays, and so does what is mounted there.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use rustix::fs::FileType;

use super::{Kept, branch::Branch, job::Copying};
use crate::local::{Directory, Entry};

/// Removes from the counterpart of `branch` what is not there any more.
pub(super) fn prune(copying: &Copying<'_>, branch: &Branch) {
    if let Err(error) = prune_directory(copying, branch)
        && !copying.stop.is_set()
    {
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
    for extra in list_but(target, &names)? {
        if copying.stop.is_set() {
            return Ok(());
        }
        if let Err(error) = remove_extra(copying, branch, target, &extra) {
            stays(copying, branch, &branch.relative(&extra.name), &error);
        }
    }
    Ok(())
}

/// All names in a directory but these. To its end before anything is removed: listings of some file services leave out what
/// moves up meanwhile.
fn list_but(directory: &Directory, names: &HashSet<CString>) -> rustix::io::Result<Vec<Entry>> {
    let mut others = Vec::new();
    loop {
        let page = directory.next_page()?;
        if page.is_empty() {
            return Ok(others);
        }
        let page = page.into_iter();
        others.extend(page.filter(|entry| !names.contains(&entry.name)));
    }
}

/// Tells what could not be removed, and says that it stays: not if it went by itself.
fn stays(copying: &Copying<'_>, branch: &Branch, path: &[u8], error: &io::Error) -> Option<Kept> {
    if error.kind() == io::ErrorKind::NotFound {
        return None;
    }
    if !copying.stop.is_set() {
        branch.fail();
        copying.report.fail_to_remove(path, error);
    }
    Some(Kept::Told)
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
    if is_directory {
        remove_tree(copying, branch, target, &entry.name)?;
    } else {
        target.remove_file(&entry.name)?;
        copying.report.removed.add(1);
    }
    Ok(())
}

/// A directory that is being emptied.
struct Level {
    directory: Arc<Directory>,
    name: CString,
    /// From where the copy begins, as patterns have it.
    path: Vec<u8>,
    /// Directories in it that are still to go.
    directories: Vec<CString>,
    /// Its files went, and its directories are known.
    is_emptied: bool,
    /// Why something in it stays, if it does.
    kept: Option<Kept>,
}

/// Removes the directory `name` of the copy of `branch` with what is below it. Says why something
/// stays in it, if it does. Ends with `Interrupted` when the work is to end.
pub(super) fn remove_tree(
    copying: &Copying<'_>,
    branch: &Branch,
    above: &Arc<Directory>,
    name: &CStr,
) -> io::Result<Option<Kept>> {
    let path = branch.relative(name);
    let Some(first) = enter(copying, above, name, path)? else {
        return Ok(Some(Kept::Told));
    };
    let mut levels = vec![first];
    while let Some(mut level) = levels.pop() {
        if copying.stop.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(name) = level.directories.pop() {
            let path = [&level.path, &b"/"[..], name.to_bytes()].concat();
            let inner = enter(copying, &level.directory, &name, path.clone());
            let inner = inner.map_err(|error| stays(copying, branch, &path, &error));
            let stays = match &inner {
                Ok(Some(_)) => None,
                Ok(None) => Some(Kept::Told),
                Err(stays) => *stays,
            };
            level.kept = level.kept.max(stays);
            levels.push(level);
            levels.extend(inner.ok().flatten());
        } else if !level.is_emptied {
            empty(copying, branch, &mut level);
            levels.push(level);
        } else if let Some(parent) = levels.last_mut() {
            let stays = leave(copying, branch, &level, &parent.directory);
            parent.kept = parent.kept.max(stays);
        } else {
            return Ok(leave(copying, branch, &level, above));
        }
    }
    Ok(None)
}

/// Opens a directory to empty it; none if something is mounted there, which is told.
fn enter(
    copying: &Copying<'_>,
    above: &Directory,
    name: &CStr,
    path: Vec<u8>,
) -> io::Result<Option<Level>> {
    if above.is_mount_point(name)? {
        copying.report.fail(format_args!(
            "'{}' of the target is a mount point and stays: unmount it, or leave it out with --exclude",
            String::from_utf8_lossy(&path)
        ));
        return Ok(None);
    }
    Ok(Some(Level {
        directory: above.open_in(name)?,
        name: name.to_owned(),
        path,
        directories: Vec::new(),
        is_emptied: false,
        kept: None,
    }))
}

/// Removes the files in a directory, and notes the directories in it.
fn empty(copying: &Copying<'_>, branch: &Branch, level: &mut Level) {
    level.is_emptied = true;
    let listed = level.directory.list();
    let entries = listed.unwrap_or_else(|error| {
        let stays = stays(copying, branch, &level.path, &error.into());
        level.kept = level.kept.max(stays);
        Vec::new()
    });
    for entry in entries {
        if copying.stop.is_set() {
            return;
        }
        let path = [&level.path, &b"/"[..], entry.name.to_bytes()].concat();
        if let Err(error) = empty_name(copying, level, entry, &path) {
            level.kept = level.kept.max(stays(copying, branch, &path, &error.into()));
        }
    }
}

/// Removes a file, and notes a directory for later.
fn empty_name(
    copying: &Copying<'_>,
    level: &mut Level,
    entry: Entry,
    path: &[u8],
) -> rustix::io::Result<()> {
    let is_directory = level.directory.kind(&entry)? == FileType::Directory;
    if copying.settings.exclude.leave_out(path, is_directory) {
        level.kept = level.kept.max(Some(Kept::LeftOut));
    } else if is_directory {
        level.directories.push(entry.name);
    } else {
        level.directory.remove_file(&entry.name)?;
        copying.report.removed.add(1);
    }
    Ok(())
}

/// Removes a directory that was emptied. Says why it stays, if it does.
fn leave(copying: &Copying<'_>, branch: &Branch, level: &Level, above: &Directory) -> Option<Kept> {
    if level.kept.is_some() {
        return level.kept;
    }
    match above.remove_directory(&level.name) {
        Ok(()) => {
            copying.report.removed.add(1);
            None
        }
        Err(error) => stays(copying, branch, &level.path, &error.into()),
    }
}
