//! What becomes what, and what cannot be right.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
};

use penstock_vfs::FileKind;
use rustix::io::Errno;

use super::{
    Place, VolumePlace,
    job::{Branch, Direct, Item, OpenedSource, Pair, Task},
};
use crate::{
    local::{self, Directory, c_string},
    report::reason,
    tree::{
        Facts, Found, Source, Target,
        local::{LocalSource, LocalTarget, facts},
        volume::{DirectorySource, VolumeSource, VolumeTarget},
    },
    volume::VolumeDirectory,
    work::Node,
};

/// Why a copy does not begin.
#[derive(Debug)]
pub(super) struct Refused(String);

impl Refused {
    fn failed(action: &str, place: &Place, error: &io::Error) -> Self {
        Self(format!("{action} '{place}': {}", reason(error)))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Volume(place) => f.write_str(&place.shown),
        }
    }
}

/// Where copies go.
enum To {
    /// Into this directory, under their names.
    Into(Arc<dyn Target>),
    /// The one source becomes this name.
    Becomes(Arc<dyn Target>, CString),
    /// The one source becomes the root of a volume.
    Root(Arc<dyn Target>),
}

/// A source that was found.
struct Start {
    file: Box<dyn Source>,
    facts: Facts,
    /// What its copy is called in a directory.
    name: CString,
    /// Where it lies, as the user said it.
    above: CString,
}

/// The tasks with which a copy begins. What is refused of several sources stands in the report.
pub(super) fn plan(
    sources: &[Place],
    target: &Place,
    direct: &Direct<'_>,
) -> Result<Vec<Task>, Refused> {
    let to = destination(sources, target, direct)
        .map_err(|error| Refused::failed("cannot create", target, &error))?;
    if sources.len() > 1 && !matches!(to, To::Into(_)) {
        return Err(Refused(match direct.settings.exact {
            true => format!(
                "several sources cannot become '{target}': name one, or leave out --no-target-directory"
            ),
            false => format!("target '{target}' is not a directory"),
        }));
    }
    let mut names = HashSet::new();
    let mut tasks = Vec::new();
    for source in sources {
        match plan_one(source, target, &to, direct, &mut names) {
            Ok(task) => tasks.push(task),
            Err(refused) => direct.report.fail(refused),
        }
    }
    Ok(tasks)
}

fn destination(sources: &[Place], target: &Place, direct: &Direct<'_>) -> io::Result<To> {
    match target {
        Place::Local(path) => local_destination(path, direct.settings.exact),
        Place::Volume(place) => volume_destination(sources, place, direct.settings.exact),
    }
}

fn local_destination(path: &Path, is_exact: bool) -> io::Result<To> {
    if path.is_dir() && !is_exact {
        return Ok(To::Into(Arc::new(LocalTarget(Directory::open(path)?))));
    }
    let place = local::Place::through(path)?;
    Ok(To::Becomes(
        Arc::new(LocalTarget(place.directory)),
        place.name,
    ))
}

fn volume_destination(sources: &[Place], place: &VolumePlace, is_exact: bool) -> io::Result<To> {
    let target = |directory| place.target(directory);
    let Some((name, above)) = place.path.split_last() else {
        let root = target(place.tree.root()?);
        // A file never becomes a root.
        return Ok(match is_exact && sources.len() == 1 {
            true => To::Root(root),
            false => To::Into(root),
        });
    };
    let above = place.walk(above)?;
    if !is_exact
        && let Some(found) = above.find_if_any(name)?
        && found.attributes().kind == FileKind::Directory
    {
        return Ok(To::Into(target(VolumeDirectory::of(found)?)));
    }
    Ok(To::Becomes(target(above), name.clone()))
}

impl VolumePlace {
    /// The directory to which names lead from the root.
    pub(crate) fn walk(&self, names: &[CString]) -> io::Result<Arc<VolumeDirectory>> {
        let mut directory = self.tree.root()?;
        for name in names {
            directory = directory.open_in(name)?;
        }
        Ok(directory)
    }

    /// What names lead to from the root.
    pub(crate) fn source(&self, names: &[CString]) -> io::Result<Box<dyn Source>> {
        Ok(match names.split_last() {
            None => Box::new(DirectorySource(self.tree.root()?)),
            Some((name, above)) => Box::new(VolumeSource::new(self.walk(above)?.find(name)?)),
        })
    }

    /// A directory of its volume.
    pub(crate) fn target(&self, directory: Arc<VolumeDirectory>) -> Arc<dyn Target> {
        Arc::new(VolumeTarget {
            directory,
            keeps_metadata: self.keeps_metadata,
        })
    }
}

fn plan_one(
    source: &Place,
    target: &Place,
    to: &To,
    direct: &Direct<'_>,
    names: &mut HashSet<CString>,
) -> Result<Task, Refused> {
    let failed = |error: io::Error| Refused::failed("cannot stat", source, &error);
    let start = find(source, direct.settings.recursive).map_err(failed)?;
    let is_directory = start.facts.attributes.kind == FileKind::Directory;
    if is_directory && !direct.settings.recursive {
        return Err(Refused(format!(
            "-r not specified; omitting directory '{source}'"
        )));
    }
    let (directory, name) = match to {
        To::Into(directory) => (directory, &start.name),
        To::Becomes(directory, name) => (directory, name),
        To::Root(directory) => (directory, &start.name),
    };
    if !names.insert(name.clone()) {
        return Err(Refused(format!(
            "will not copy '{source}' over what was just copied to the same name in '{target}'"
        )));
    }
    let failed = |error: io::Error| Refused::failed("cannot open", target, &error);
    refuse_overlap(source, target, &start, to, direct)?;
    if direct.settings.delete
        && !is_directory
        && is_directory_in(directory, name).map_err(failed)?
    {
        return Err(Refused(format!(
            "'{source}' is no directory: --delete would remove all of '{target}' for it"
        )));
    }
    let top = top(&start, directory).map_err(failed)?;
    let item = Item {
        renamed: Some(name.clone()).filter(|name| *name != start.name),
        found: Found {
            name: start.name,
            is_directory,
            file: start.file,
        },
    };
    match to {
        To::Root(root) if is_directory => begin_in_root(top, item, root).map_err(failed),
        To::Root(_) => Err(failed(Errno::ISDIR.into())),
        _ if is_directory => Ok(Task::Enter(top, item)),
        _ => Ok(Task::Files(top, vec![item])),
    }
}

fn begin_in_root(top: Branch, item: Item, root: &Arc<dyn Target>) -> io::Result<Task> {
    let pair = Pair {
        source: Some(OpenedSource::open(item.found.file, None)?),
        target: Some(Arc::clone(root)),
        is_fresh: false,
        target_name: None,
        destination: top.data.destination,
    };
    let node = Node::new(Some(top), item.found.name, pair);
    Ok(Task::Begin(node, true))
}

fn find(source: &Place, is_recursive: bool) -> io::Result<Start> {
    match source {
        Place::Local(path) => find_local(path, is_recursive),
        Place::Volume(place) => find_in_volume(place),
    }
}

fn find_local(path: &Path, is_recursive: bool) -> io::Result<Start> {
    let mut place = local::Place::through(path)?;
    let mut stat = place.directory.stat(&place.name)?;
    // Without -r a link that the user names stands for what it leads to.
    if !is_recursive && facts(&stat).attributes.kind == FileKind::Symlink {
        place = local::Place::of(&std::fs::canonicalize(path)?)?;
        stat = place.directory.stat(&place.name)?;
    }
    let is_itself = place.name.as_c_str() == c".";
    let name = local::last_name(path)?;
    let above = match is_itself {
        true => path,
        false => path.parent().unwrap_or(Path::new("")),
    };
    Ok(Start {
        facts: facts(&stat),
        name: name.unwrap_or_else(|| place.name.clone()),
        above: c_string(above.as_os_str().as_bytes())?,
        file: Box::new(LocalSource {
            directory: place.directory,
            name: place.name,
        }),
    })
}

fn find_in_volume(place: &VolumePlace) -> io::Result<Start> {
    let file = place.source(&place.path)?;
    if place.is_directory && file.listing()?.next_page()?.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let shown = place.shown.trim_end_matches('/');
    let above = shown.strip_suffix(place.name.to_str().unwrap_or_default());
    Ok(Start {
        facts: file.facts()?,
        name: place.name.clone(),
        above: c_string(above.unwrap_or(shown).as_bytes())?,
        file,
    })
}

fn top(start: &Start, target: &Arc<dyn Target>) -> io::Result<Branch> {
    let pair = Pair {
        source: None,
        target: Some(Arc::clone(target)),
        is_fresh: false,
        target_name: None,
        destination: target.facts()?.key(),
    };
    Ok(Node::new(None, start.above.clone(), pair))
}

fn is_directory_in(directory: &Arc<dyn Target>, name: &CStr) -> io::Result<bool> {
    let found = directory.find(name)?;
    Ok(found.is_some_and(|facts| facts.attributes.kind == FileKind::Directory))
}

/// Refuses a file that would become itself, a directory that would be copied into itself without end, and a mirror
/// that would remove its own source.
fn refuse_overlap(
    source: &Place,
    target: &Place,
    start: &Start,
    to: &To,
    direct: &Direct<'_>,
) -> Result<(), Refused> {
    let (Place::Volume(from), Place::Volume(into)) = (source, target) else {
        return Ok(());
    };
    if from.tree.id() != into.tree.id() {
        return Ok(());
    }
    let mut copy = into.path.clone();
    if matches!(to, To::Into(_)) {
        copy.push(start.name.clone());
    }
    if copy == from.path {
        return Err(Refused(format!(
            "'{source}' and '{target}' are the same file"
        )));
    }
    if copy.starts_with(&from.path) {
        return Err(Refused(format!(
            "cannot copy a directory, '{source}', into itself, '{target}'"
        )));
    }
    if direct.settings.delete && from.path.starts_with(&copy) {
        return Err(Refused(format!(
            "'{source}' lies in '{target}', where --delete would remove it"
        )));
    }
    Ok(())
}
