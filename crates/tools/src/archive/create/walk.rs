//! In which order members come: that of their names, each directory before what is in it.

use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use rustix::fs::FileType;

use super::{CreateSettings, volume};
use crate::{
    Report,
    archive::{Sources, names},
    direct,
    local::{Directory, Entry, Place},
    tree::Source,
};

/// A member to come.
pub(super) struct Planned {
    pub(super) origin: Origin,
    /// What it is called in the archive.
    pub(super) path: Vec<u8>,
}

/// Where a member is.
pub(super) enum Origin {
    Local(Named),
    Volume(Arc<dyn Source>),
}

/// A name in a directory of this machine.
pub(super) struct Named {
    pub(super) directory: Arc<Directory>,
    pub(super) name: CString,
    /// What it was when the directory was listed.
    pub(super) kind: FileType,
}

/// A directory on the way, with the names that are still to come, last first.
struct Level {
    directory: Arc<Directory>,
    path: Vec<u8>,
    names: Vec<Entry>,
}

/// Tells `take` of each member, until that says no.
pub(super) fn walk(
    sources: &Sources,
    settings: &CreateSettings,
    report: &Report,
    take: &mut dyn FnMut(Planned) -> bool,
) {
    let base = match &sources.base {
        direct::Place::Local(base) => base,
        direct::Place::Volume(base) => {
            return volume::walk((base, &sources.paths), settings, report, take);
        }
    };
    for path in &sources.paths {
        let whole = base.join(path);
        let place = match Place::of(&whole) {
            Ok(place) => place,
            Err(error) => {
                report.fail_at("cannot archive", path, error);
                continue;
            }
        };
        if !walk_from(place, path, settings, report, take) {
            return;
        }
    }
}

fn walk_from(
    place: Place,
    path: &Path,
    settings: &CreateSettings,
    report: &Report,
    take: &mut dyn FnMut(Planned) -> bool,
) -> bool {
    let stat = match place.directory.stat(&place.name) {
        Ok(stat) => stat,
        Err(error) => {
            report.fail_at("cannot archive", path, error);
            return true;
        }
    };
    let device = stat.st_dev;
    let first = Entry {
        name: place.name,
        kind: FileType::from_raw_mode(stat.st_mode),
    };
    let above = inside(path);
    let mut levels = vec![Level {
        directory: place.directory,
        path: above,
        names: vec![first],
    }];
    let mut is_first = true;
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.names.pop() else {
            levels.pop();
            continue;
        };
        let member = match std::mem::take(&mut is_first) {
            true => level.path.clone(),
            false => join(&level.path, entry.name.to_bytes()),
        };
        let kind = level.directory.kind(&entry);
        let is_directory = kind == Ok(FileType::Directory);
        if is_left_out(&member, is_directory, settings) {
            continue;
        }
        let kind = match kind {
            Ok(kind) => kind,
            Err(error) => {
                report.fail_at("cannot archive", as_path(&member), error);
                continue;
            }
        };
        let directory = Arc::clone(&level.directory);
        let planned = Planned {
            origin: Origin::Local(Named {
                directory: Arc::clone(&directory),
                name: entry.name.clone(),
                kind,
            }),
            path: member.clone(),
        };
        if !take(planned) {
            return false;
        }
        if is_directory {
            match open(&directory, &entry, device, settings) {
                Ok(Some((directory, names))) => levels.push(Level {
                    directory,
                    path: member,
                    names,
                }),
                Ok(None) => {}
                Err(error) => report.fail_at("cannot list", as_path(&member), error),
            }
        }
    }
    true
}

/// Whether patterns leave a member out: they say of paths what they are without `.`, as they do where it is extracted.
pub(super) fn is_left_out(member: &[u8], is_directory: bool, settings: &CreateSettings) -> bool {
    if settings.exclude.is_empty() {
        return false;
    }
    let steps: Vec<&[u8]> = names::steps(member).collect();
    let path = steps.join(&b'/');
    !path.is_empty() && settings.exclude.leave_out(&path, is_directory)
}

/// Opens a directory and lists it; none if it belongs to another file system.
fn open(
    above: &Arc<Directory>,
    entry: &Entry,
    device: u64,
    settings: &CreateSettings,
) -> rustix::io::Result<Option<(Arc<Directory>, Vec<Entry>)>> {
    let directory = above.open_in(&entry.name)?;
    if settings.one_file_system && directory.own_stat()?.st_dev != device {
        return Ok(None);
    }
    let mut names = directory.list()?;
    names.sort_by(|left, right| right.name.cmp(&left.name));
    Ok(Some((directory, names)))
}

/// A path as an archive has it: without a beginning that leads out of where it is extracted.
pub(super) fn inside(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let parts: Vec<&[u8]> = bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect();
    let begin = parts
        .iter()
        .rposition(|part| *part == b"..")
        .map_or(0, |at| at + 1);
    match parts[begin..].join(&b'/') {
        empty if empty.is_empty() => b".".to_vec(),
        path => path,
    }
}

pub(super) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    [above, b"/", name].concat()
}

pub(super) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
