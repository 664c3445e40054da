//! Members out of a volume: in the order in which the volume lists names, each directory before what is in it.
//!
//! A listing is taken page by page, so that of a directory no more is held than one page.

use std::{
    collections::VecDeque,
    ffi::CString,
    io,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
    sync::Arc,
};

use super::{
    CreateSettings,
    walk::{Origin, Planned, as_path, inside, is_left_out, join},
};
use crate::{
    Report,
    direct::VolumePlace,
    local::c_string,
    tree::{Found, Listing, Source},
};

/// What a walk needs all the way.
struct Walk<'a> {
    settings: &'a CreateSettings,
    report: &'a Report,
    take: &'a mut dyn FnMut(Planned) -> bool,
}

/// A directory on the way, with names that are still to come.
struct Level {
    path: Vec<u8>,
    listing: Box<dyn Listing>,
    page: VecDeque<Found>,
}

/// Tells `take` of each member below `paths`, which begin at `base`, until that says no.
pub(super) fn walk(
    (base, paths): (&VolumePlace, &[std::path::PathBuf]),
    settings: &CreateSettings,
    report: &Report,
    take: &mut dyn FnMut(Planned) -> bool,
) {
    let mut walk = Walk {
        settings,
        report,
        take,
    };
    for path in paths {
        let walked = match find(base, path) {
            Ok((found, member)) => walk.walk_from(found, member),
            Err(error) => {
                report.fail_at("cannot archive", path, error);
                ControlFlow::Continue(())
            }
        };
        if walked.is_break() {
            return;
        }
    }
}

/// What a path leads to, and what it is called in an archive: a file that the base itself is has the name of that.
fn find(base: &VolumePlace, path: &Path) -> io::Result<(Found, Vec<u8>)> {
    let mut names = base.path.clone();
    names.extend(below(path)?);
    let file = base.source(&names)?;
    let is_directory = file.facts()?.attributes.kind == penstock_vfs::FileKind::Directory;
    let member = match inside(path) {
        itself if itself == b"." && !is_directory => base.name.to_bytes().to_vec(),
        member => member,
    };
    let name = names.pop().unwrap_or_default();
    let found = Found {
        name,
        is_directory,
        file,
    };
    Ok((found, member))
}

/// The names of a path below its base.
fn below(path: &Path) -> io::Result<Vec<CString>> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(c_string(name.as_bytes())),
        Component::ParentDir => Some(Err(io::Error::other("it leads out of the URL"))),
        _ => None,
    });
    names.collect()
}

impl Walk<'_> {
    fn walk_from(&mut self, first: Found, member: Vec<u8>) -> ControlFlow<()> {
        let mut levels: Vec<Level> = self.pass(first, member)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            match self.next(level) {
                None => drop(levels.pop()),
                Some(found) => {
                    let member = join(&level.path, found.name.to_bytes());
                    levels.extend(self.pass(found, member)?);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The next name of a directory; none at its end, and where it cannot be listed.
    fn next(&self, level: &mut Level) -> Option<Found> {
        if level.page.is_empty() {
            match level.listing.next_page() {
                Ok(page) => level.page = page.into(),
                Err(error) => self
                    .report
                    .fail_at("cannot list", as_path(&level.path), error),
            }
        }
        level.page.pop_front()
    }

    /// Passes a member on, and lists it if it is a directory.
    fn pass(&mut self, found: Found, path: Vec<u8>) -> ControlFlow<(), Option<Level>> {
        let Found {
            is_directory, file, ..
        } = found;
        if is_left_out(&path, is_directory, self.settings) {
            return ControlFlow::Continue(None);
        }
        let file: Arc<dyn Source> = file.into();
        let planned = Planned {
            origin: Origin::Volume(Arc::clone(&file)),
            path: path.clone(),
        };
        if !(self.take)(planned) {
            return ControlFlow::Break(());
        }
        if !is_directory {
            return ControlFlow::Continue(None);
        }
        match file.listing() {
            Ok(listing) => ControlFlow::Continue(Some(Level {
                path,
                listing,
                page: VecDeque::new(),
            })),
            Err(error) => {
                self.report.fail_at("cannot list", as_path(&path), error);
                ControlFlow::Continue(None)
            }
        }
    }
}
