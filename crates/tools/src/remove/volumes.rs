//! `rm -r` in a volume, such as a fileset, without a mount.

use std::{ffi::CString, io, marker::PhantomData, path::PathBuf, sync::Arc};

use penstock_vfs::FileKind;
use rustix::io::Errno;

use super::{
    Refused, Settings,
    folder::{Folder, InVolume, Named},
    job::{Removal, Removing, Task},
};
use crate::{
    Report, Stop,
    volume::{VolumeDirectory, VolumeTree, errno_of},
    work::{Crew, Order},
};

/// A path in a volume.
#[derive(Debug, Clone)]
pub struct VolumePath {
    /// Where it is.
    pub tree: VolumeTree,
    /// The names that lead there from its root; none for the root itself.
    pub path: Vec<CString>,
    /// It was named with a slash at its end: it is a directory.
    pub is_directory: bool,
    /// As the user wrote it.
    pub shown: PathBuf,
}

/// Removes what `paths` name. What could not be removed stands in `report`.
pub fn remove_in_volumes(paths: &[VolumePath], settings: &Settings, report: &Report, stop: &Stop) {
    let removal = &Removal::new(settings, report, stop);
    let kind = PhantomData;
    let job = Removing { removal, kind };
    Crew::run(&job, settings.threads, Order::Newest, stop, |crew| {
        for path in paths {
            match removal.first_in(path, crew) {
                Ok(()) => {}
                Err(refused) => report.fail(refused),
            }
        }
    });
}

impl Removal<'_> {
    fn first_in(&self, path: &VolumePath, crew: &Crew<Task<InVolume>>) -> Result<(), Refused> {
        let failed = |error: io::Error| Refused::failed(&path.shown, &error);
        match path.path.split_last() {
            None => self.whole(path, crew),
            Some((last, above)) => match self.named(path, above, last) {
                Err(error) if self.is_nothing_lost(&error) => Ok(()),
                found => {
                    let _ = crew.submit(found.map_err(failed)?);
                    Ok(())
                }
            },
        }
    }

    fn is_nothing_lost(&self, error: &io::Error) -> bool {
        self.settings.force && matches!(errno_of(error), Some(Errno::NOENT | Errno::NOTDIR))
    }

    /// What removes `name` in the directory that `above` lead to. No link on the way is followed.
    fn named(
        &self,
        path: &VolumePath,
        above: &[CString],
        name: &CString,
    ) -> io::Result<Task<InVolume>> {
        let mut directory = path.tree.root()?;
        for name in above {
            directory = directory.open_in(name)?;
        }
        let is_directory = directory.stat(name)?.kind == FileKind::Directory;
        if is_directory && !self.settings.recursive && !self.settings.directories {
            return Err(Errno::ISDIR.into());
        }
        if !is_directory && path.is_directory {
            return Err(Errno::NOTDIR.into());
        }
        let named = Named {
            name: name.clone(),
            is_directory,
        };
        Ok(self.task_at(&path.shown, InVolume::new(directory), named))
    }

    /// Everything in the root, which stays.
    fn whole(&self, path: &VolumePath, crew: &Crew<Task<InVolume>>) -> Result<(), Refused> {
        let failed = |error: io::Error| Refused::failed(&path.shown, &error);
        if !self.settings.recursive {
            return Err(failed(Errno::ISDIR.into()));
        }
        if !self.settings.root {
            return Err(Refused::whole(path.shown.display()));
        }
        let root: Arc<VolumeDirectory> = path.tree.root().map_err(failed)?;
        let folder = InVolume::new(root);
        loop {
            let page = folder.next_names().map_err(failed)?;
            if page.is_empty() {
                return Ok(());
            }
            for named in page {
                let shown = path.shown.join(&*named.name.to_string_lossy());
                if !crew.submit(self.task_at(&shown, Arc::clone(&folder), named)) {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
