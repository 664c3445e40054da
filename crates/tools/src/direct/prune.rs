//! What a mirror has and its source has not, goes: see [`crate::copy`].
//!
//! The names of the source are taken once, and the copy goes on with what was listed.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use penstock_base::Mutex;

use super::job::{Branch, Direct};
use crate::copy::Kept;
use crate::tree::{Found, Listing, Target};

/// Names that are handed on at once.
const PAGE_NAMES: usize = 1000;

/// What was listed before.
struct Listed(Mutex<std::vec::IntoIter<Found>>);

impl Listing for Listed {
    fn next_page(&self) -> io::Result<Vec<Found>> {
        Ok(self.0.lock().by_ref().take(PAGE_NAMES).collect())
    }
}

/// Removes from the counterpart of `branch` what is not there any more.
pub(super) fn prune(
    direct: &Direct<'_>,
    branch: &Branch,
    target: &Arc<dyn Target>,
) -> io::Result<()> {
    let Some(source) = &branch.data.source else {
        return Ok(());
    };
    let mut listing = source.listing.lock();
    let found = all(&**listing)?;
    let names: HashSet<CString> = found.iter().map(|found| found.name.clone()).collect();
    *listing = Box::new(Listed(Mutex::new(found.into_iter())));
    drop(listing);
    for extra in all(&*target.as_source().listing()?)? {
        if direct.stop.is_set() {
            return Ok(());
        }
        if !names.contains(&extra.name)
            && let Err(error) = remove_extra(direct, branch, target, &extra)
        {
            stays(direct, branch, &branch.relative(&extra.name), &error);
        }
    }
    Ok(())
}

/// Tells what could not be removed, and says that it stays: not if it went by itself.
fn stays(direct: &Direct<'_>, branch: &Branch, path: &[u8], error: &io::Error) -> Option<Kept> {
    if error.kind() == io::ErrorKind::NotFound {
        return None;
    }
    if !direct.stop.is_set() {
        branch.fail();
        direct.report.fail_to_remove(path, error);
    }
    Some(Kept::Told)
}

fn all(listing: &dyn Listing) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    loop {
        let page = listing.next_page()?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

fn remove_extra(
    direct: &Direct<'_>,
    branch: &Branch,
    target: &Arc<dyn Target>,
    extra: &Found,
) -> io::Result<()> {
    if direct.is_left_out(branch, &extra.name, extra.is_directory) {
        return Ok(());
    }
    direct.report.tell(|| {
        let path = branch.path_of(&extra.name);
        format!("deleting the copy of {}", path.display())
    });
    if direct.settings.dry_run {
        direct.report.removed.add(1);
        return Ok(());
    }
    if extra.is_directory {
        remove_tree(direct, branch, target, &extra.name)?;
    } else {
        target.remove_file(&extra.name)?;
        direct.report.removed.add(1);
    }
    Ok(())
}

/// A directory that is being emptied.
struct Level {
    directory: Arc<dyn Target>,
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
    direct: &Direct<'_>,
    branch: &Branch,
    above: &Arc<dyn Target>,
    name: &CStr,
) -> io::Result<Option<Kept>> {
    let mut levels = vec![enter(&**above, name, branch.relative(name))?];
    while let Some(mut level) = levels.pop() {
        if direct.stop.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if !level.is_emptied {
            empty(direct, branch, &mut level);
            levels.push(level);
            continue;
        }
        if let Some(name) = level.directories.pop() {
            let path = [&level.path, &b"/"[..], name.to_bytes()].concat();
            let inner = enter(&*level.directory, &name, path.clone());
            let inner = inner.map_err(|error| stays(direct, branch, &path, &error));
            level.kept = level.kept.max(inner.as_ref().err().copied().flatten());
            levels.push(level);
            levels.extend(inner);
            continue;
        }
        let directory = levels.last().map_or(above, |parent| &parent.directory);
        let kept = leave(direct, branch, &level, &**directory);
        match levels.last_mut() {
            Some(parent) => parent.kept = parent.kept.max(kept),
            None => return Ok(kept),
        }
    }
    Ok(None)
}

/// Opens a directory to empty it.
fn enter(above: &dyn Target, name: &CStr, path: Vec<u8>) -> io::Result<Level> {
    if above.is_mount_point(name)? {
        return Err(io::Error::other(
            "something is mounted there: unmount it, or leave it out with --exclude",
        ));
    }
    Ok(Level {
        directory: above.open_in(name)?,
        name: name.to_owned(),
        path,
        directories: Vec::new(),
        is_emptied: false,
        kept: None,
    })
}

/// Removes the files in a directory, and notes the directories in it.
fn empty(direct: &Direct<'_>, branch: &Branch, level: &mut Level) {
    level.is_emptied = true;
    let listed = level.directory.as_source().listing();
    let found = listed.and_then(|listing| all(&*listing));
    let found = found.unwrap_or_else(|error| {
        level.kept = level.kept.max(stays(direct, branch, &level.path, &error));
        Vec::new()
    });
    for found in found {
        let path = [&level.path, &b"/"[..], found.name.to_bytes()].concat();
        if direct.settings.exclude.leave_out(&path, found.is_directory) {
            level.kept = level.kept.max(Some(Kept::LeftOut));
        } else if found.is_directory {
            level.directories.push(found.name);
        } else if let Err(error) = level.directory.remove_file(&found.name) {
            level.kept = level.kept.max(stays(direct, branch, &path, &error));
        } else {
            direct.report.removed.add(1);
        }
    }
}

/// Removes a directory that was emptied. Says why it stays, if it does.
fn leave(direct: &Direct<'_>, branch: &Branch, level: &Level, above: &dyn Target) -> Option<Kept> {
    if level.kept.is_some() {
        return level.kept;
    }
    match above.remove_directory(&level.name) {
        Ok(()) => {
            direct.report.removed.add(1);
            None
        }
        Err(error) => stays(direct, branch, &level.path, &error),
    }
}
