//! `rm -r` by many threads.
//!
//! A directory is listed a page at a time; its files are removed in batches by whoever is free, and the directory
//! itself by who leaves it last. What is dangerous is refused before anything is removed: the root, `.` and `..`,
//! and whatever another file system is mounted on, unless the caller said that it may go. In a bucket there are no
//! directories: [`objects`] lists and deletes.

mod folder;
mod job;
pub mod objects;
mod safety;
mod volumes;

use std::{
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{fs::FileType, io::Errno};

use crate::{
    Report, Stop, Threads,
    local::{Directory, Place, kind_of},
    work::{Crew, Order},
};

use folder::Named;
use job::{Removal, Removing, Task};

pub use safety::Refused;
pub use volumes::{VolumePath, remove_in_volumes};

/// What may be removed, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories with what is in them.
    pub recursive: bool,
    /// Empty directories.
    pub directories: bool,
    /// A name that is not there is no failure.
    pub force: bool,
    /// Also `/`.
    pub root: bool,
    /// What is mounted on a directory stays, and that directory with what is above it.
    pub one_file_system: bool,
    /// What is mounted on a directory goes too.
    pub mounts: bool,
    /// How many threads.
    pub threads: Threads,
}

/// Removes what `paths` name. What could not be removed stands in `report`.
pub fn remove(paths: &[PathBuf], settings: &Settings, report: &Report, stop: &Stop) {
    let removal = &Removal::new(settings, report, stop);
    let kind = PhantomData;
    let job = Removing { removal, kind };
    Crew::run(&job, settings.threads, Order::Newest, stop, |crew| {
        for path in paths {
            match removal.first(path) {
                Ok(Some(task)) => drop(crew.submit(task)),
                Ok(None) => {}
                Err(refused) => report.fail(refused),
            }
        }
    });
}

impl Removal<'_> {
    /// What begins the removal of `path`; none if there is nothing to do.
    fn first(&self, path: &Path) -> Result<Option<Task<Directory>>, Refused> {
        safety::check_name(path)?;
        let failed = |error: std::io::Error| Refused::failed(path, &error);
        let place = match Place::of(path) {
            Err(error) if self.is_forgiven(&error) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let stat = match place.directory.stat(&place.name) {
            Err(Errno::NOENT) if self.settings.force => return Ok(None),
            other => other.map_err(|error| failed(error.into()))?,
        };
        let is_directory = kind_of(&stat) == FileType::Directory;
        if is_directory {
            safety::check_directory(path, &place, self.settings)?;
        } else if path.as_os_str().as_bytes().ends_with(b"/") {
            // As rm(1): there is no such directory, which -f forgives.
            let is_forgiven = self.settings.force && kind_of(&stat) != FileType::Symlink;
            return is_forgiven
                .then_some(None)
                .ok_or_else(|| failed(Errno::NOTDIR.into()));
        }
        let Place { directory, name } = place;
        Ok(Some(self.task_at(
            path,
            directory,
            Named { name, is_directory },
        )))
    }

    fn is_forgiven(&self, error: &std::io::Error) -> bool {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        self.settings.force && matches!(error.kind(), NotFound | NotADirectory)
    }
}
