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
use crate::{
    report::reason,
    tree::{Found, Listing, Target},
};

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
            note(direct, branch, &branch.relative(&extra.name), &error);
        }
    }
    Ok(())
}

/// Tells what stays although it should not; not what went by itself, nor that the work is to end.
fn note(direct: &Direct<'_>, branch: &Branch, path: &[u8], error: &io::Error) {
    if error.kind() == io::ErrorKind::NotFound || direct.stop.is_set() {
        return;
    }
    branch.fail();
    direct.report.fail(format_args!(
        "cannot remove '{}' of the target: {}",
        String::from_utf8_lossy(path),
        reason(error)
    ));
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
    /// Something in it stays.
    is_kept: bool,
}

/// Removes the directory `name` of the copy of `branch` with what is below it. Says whether it went: not if something
/// stays in it. Ends with `Interrupted` when the work is to end.
pub(super) fn remove_tree(
    direct: &Direct<'_>,
    branch: &Branch,
    above: &Arc<dyn Target>,
    name: &CStr,
) -> io::Result<bool> {
    let mut levels = vec![empty(direct, &**above, name, branch.relative(name))?];
    while let Some(mut level) = levels.pop() {
        if direct.stop.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(name) = level.directories.pop() {
            let path = [&level.path, &b"/"[..], name.to_bytes()].concat();
            let inner = empty(direct, &*level.directory, &name, path)?;
            levels.extend([level, inner]);
            continue;
        }
        let directory = levels.last().map_or(above, |parent| &parent.directory);
        if !level.is_kept {
            directory.remove_directory(&level.name)?;
            direct.report.removed.add(1);
        }
        match levels.last_mut() {
            Some(parent) => parent.is_kept |= level.is_kept,
            None => return Ok(!level.is_kept),
        }
    }
    Ok(false)
}

/// Opens a directory and removes the files in it.
fn empty(direct: &Direct<'_>, above: &dyn Target, name: &CStr, path: Vec<u8>) -> io::Result<Level> {
    if above.is_mount_point(name)? {
        return Err(io::Error::other(
            "something is mounted below what --delete would remove: unmount it, or leave it out with --exclude",
        ));
    }
    let directory = above.open_in(name)?;
    let mut level = Level {
        name: name.to_owned(),
        path,
        directories: Vec::new(),
        is_kept: false,
        directory,
    };
    for found in all(&*level.directory.as_source().listing()?)? {
        let path = [&level.path, &b"/"[..], found.name.to_bytes()].concat();
        if direct.settings.exclude.leave_out(&path, found.is_directory) {
            level.is_kept = true;
        } else if found.is_directory {
            level.directories.push(found.name);
        } else {
            level.directory.remove_file(&found.name)?;
            direct.report.removed.add(1);
        }
    }
    Ok(level)
}
