//! What becomes what, and what cannot be right.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString},
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, FileType, Stat, statat};

use super::{
    Settings,
    branch::{Branch, Item, Pair},
    job::Task,
    made::Made,
};
use crate::{
    Report,
    local::{self, Directory, FileId, Place, c_string, kind_of},
    report::reason,
    work::Node,
};

/// Why nothing is copied, or not one of the sources, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Refused {
    fn failed(action: &str, path: &Path, error: impl Into<io::Error>) -> Self {
        let reason = reason(&error.into());
        Self(format!("{action} '{}': {reason}", path.display()))
    }
}

/// Where copies go.
enum Target {
    /// Into this directory, each under its own name, with what was copied into it already.
    Into(Arc<Directory>, Arc<Made>),
    /// The one source becomes this.
    Becomes(Place),
}

/// The tasks that begin the copy. Sources that cannot be copied are noted in `report`.
pub(super) fn plan(
    sources: &[PathBuf],
    target: &Path,
    settings: &Settings,
    report: &Report,
) -> Result<Vec<Task>, Refused> {
    let to = find_target(sources, target, settings)?;
    let mut tasks = Vec::new();
    let mut taken = HashMap::new();
    for source in sources {
        let planned = plan_one(source, target, &to, settings);
        match planned.and_then(|(task, name)| take(&mut taken, name, source).map(|()| task)) {
            Ok(task) => tasks.push(task),
            Err(refused) => report.fail(refused),
        }
    }
    Ok(tasks)
}

/// Takes the name of a copy. Refuses it if another source has taken it, of which one would be lost.
fn take<'a>(
    taken: &mut HashMap<CString, &'a Path>,
    name: CString,
    source: &'a Path,
) -> Result<(), Refused> {
    match taken.entry(name) {
        Entry::Vacant(free) => {
            free.insert(source);
            Ok(())
        }
        Entry::Occupied(first) => Err(Refused(format!(
            "'{}' is not copied to where '{}' goes; copy one after the other",
            source.display(),
            first.get().display()
        ))),
    }
}

fn find_target(sources: &[PathBuf], path: &Path, settings: &Settings) -> Result<Target, Refused> {
    let is_directory = path.is_dir();
    if settings.exact && sources.len() > 1 {
        return Err(Refused(format!(
            "several sources cannot become '{}': name one, or leave out --no-target-directory",
            path.display()
        )));
    }
    if is_directory && !settings.exact {
        let directory = Directory::open(path);
        return Ok(Target::Into(
            directory.map_err(|error| Refused::failed("cannot open", path, error))?,
            Arc::default(),
        ));
    }
    if sources.len() > 1 {
        return Err(Refused(format!(
            "target '{}' is not a directory",
            path.display()
        )));
    }
    if path.as_os_str().as_bytes().ends_with(b"/") && !is_directory && !sources[0].is_dir() {
        return Err(Refused(format!(
            "cannot create '{}': Not a directory",
            path.display()
        )));
    }
    let place =
        Place::through(path).map_err(|error| Refused::failed("cannot create", path, error))?;
    Ok(Target::Becomes(place))
}

/// The task that begins with one source, and what its copy is called.
fn plan_one(
    source: &Path,
    target: &Path,
    to: &Target,
    settings: &Settings,
) -> Result<(Task, CString), Refused> {
    let failed = |error: io::Error| Refused::failed("cannot stat", source, error);
    let place = Place::through(source).map_err(failed)?;
    // Without -r a link that the user names stands for what it leads to.
    let flags = match settings.recursive {
        true => AtFlags::SYMLINK_NOFOLLOW,
        false => AtFlags::empty(),
    };
    let stat =
        statat(&place.directory, &place.name, flags).map_err(|error| failed(error.into()))?;
    let place = match settings.recursive {
        true => place,
        false => resolved(source, place).map_err(failed)?,
    };
    let kind = kind_of(&stat);
    if kind == FileType::Directory && !settings.recursive {
        return Err(Refused(format!(
            "-r not specified; omitting directory '{}'",
            source.display()
        )));
    }
    let (directory, made, name) = match to {
        // What the user called it, also where that is a link.
        Target::Into(directory, made) => {
            let name = local::last_name(source).map_err(failed)?;
            let name = name.unwrap_or_else(|| place.name.clone());
            (directory, Arc::clone(made), name)
        }
        Target::Becomes(place) => (&place.directory, Arc::default(), place.name.clone()),
    };
    refuse_overlap(
        source,
        target,
        (&place, &stat),
        (directory, &name),
        settings,
    )?;
    let branch = top(source, &place, &stat, (directory, made))
        .map_err(|error| Refused::failed("cannot open", target, error))?;
    let item = Item {
        renamed: (name != place.name).then(|| name.clone()),
        name: place.name,
    };
    let task = match kind {
        FileType::Directory => Task::Enter(branch, item),
        _ => Task::Files(branch, vec![item]),
    };
    Ok((task, name))
}

/// What a path leads to, so that it can be opened without following links.
fn resolved(path: &Path, place: Place) -> io::Result<Place> {
    let stat = place.directory.stat(&place.name)?;
    match kind_of(&stat) {
        FileType::Symlink => Place::of(&std::fs::canonicalize(path)?),
        _ => Ok(place),
    }
}

fn top(
    source: &Path,
    place: &Place,
    stat: &Stat,
    (target, made): (&Arc<Directory>, Arc<Made>),
) -> rustix::io::Result<Branch> {
    let own = target.own_stat()?;
    let pair = Pair {
        source: Arc::clone(&place.directory),
        target: Some(Arc::clone(target)),
        stat: None,
        is_fresh: false,
        left: None,
        made,
        hands_down: crate::local::hands_down(target),
        target_name: CString::default(),
        device: stat.st_dev,
        destination: FileId::from(&own),
    };
    let above = source.parent().unwrap_or(Path::new(""));
    let shown = match place.name.as_c_str() == c"." {
        true => source,
        false => above,
    };
    let shown = c_string(shown.as_os_str().as_bytes()).unwrap_or_default();
    Ok(Node::new(None, shown, pair))
}

/// Refuses a file that would become itself, a directory that would be copied into itself without end, and a mirror
/// that would remove its own source.
fn refuse_overlap(
    source: &Path,
    target: &Path,
    (from, stat): (&Place, &Stat),
    (directory, name): (&Arc<Directory>, &CStr),
    settings: &Settings,
) -> Result<(), Refused> {
    let failed = |error: rustix::io::Errno| Refused::failed("cannot stat", target, error);
    let source_id = FileId::from(stat);
    let existing = directory.stat_if_any(name).map_err(failed)?;
    let existing_id = existing.as_ref().map(FileId::from);
    if existing_id == Some(source_id) {
        return Err(Refused(format!(
            "'{}' and '{}' are the same file",
            source.display(),
            target.display()
        )));
    }
    let (source, target) = (source.display(), target.display());
    if kind_of(stat) != FileType::Directory {
        let in_the_way = existing.filter(|existing| kind_of(existing) == FileType::Directory);
        return match in_the_way.filter(|_| settings.delete) {
            Some(_) => Err(Refused(format!(
                "'{source}' is no directory: --delete would remove all of '{target}' for it"
            ))),
            None => Ok(()),
        };
    }
    let copy = match &existing {
        Some(existing) => existing.st_dev,
        None => directory.own_stat().map_err(failed)?.st_dev,
    };
    // What is mounted below the source is left out, and with it the copy.
    let is_left_out = settings.one_file_system && copy != stat.st_dev;
    if !is_left_out && is_above(source_id, directory).map_err(failed)? {
        return Err(Refused(format!(
            "cannot copy a directory, '{source}', into itself, '{target}'"
        )));
    }
    if let Some(existing) = existing_id
        && settings.delete
        && is_above(existing, &from.directory).map_err(failed)?
    {
        return Err(Refused(format!(
            "'{source}' lies in '{target}', where --delete would remove it"
        )));
    }
    Ok(())
}

/// Whether the directory of this identity is `directory` or one above it.
fn is_above(identity: FileId, directory: &Arc<Directory>) -> rustix::io::Result<bool> {
    let mut at = Arc::clone(directory);
    let mut stat = at.own_stat()?;
    loop {
        let own = FileId::from(&stat);
        if own == identity {
            return Ok(true);
        }
        at = at.open_in(c"..")?;
        stat = at.own_stat()?;
        if FileId::from(&stat) == own {
            return Ok(false);
        }
    }
}
