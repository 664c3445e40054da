//! An archive in a file, which has its name when it is whole.

use std::{ffi::CString, fs::File, io, os::fd::AsFd, path::Path};

use crate::local::{Place, Temporary};

/// A file on its way. Dropped before it is published, it is gone.
#[derive(Debug)]
pub struct WholeFile {
    file: Temporary,
    name: CString,
    mode: rustix::fs::Mode,
}

impl WholeFile {
    /// A new file that will be `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = Place::of(path)?;
        let existing = place.directory.stat_if_any(&place.name)?;
        let mode = existing.map_or(0o644, |stat| stat.st_mode & 0o777);
        Ok(Self {
            file: Temporary::create(&place.directory, &place.name)?,
            name: place.name,
            mode: rustix::fs::Mode::from_raw_mode(mode),
        })
    }

    /// Writes to it.
    pub fn writer(&self) -> io::Result<File> {
        Ok(File::from(self.file.as_fd().try_clone_to_owned()?))
    }

    /// Gives it its name, in the place of what has it.
    pub fn publish(self) -> io::Result<()> {
        rustix::fs::fchmod(&self.file, self.mode)?;
        self.file.publish(&self.name)
    }
}
