//! What a removal asks of a directory, on this machine or in a volume.

use std::{
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use penstock_base::Mutex;
use penstock_vfs::{Detail, FileKind};
use rustix::{fs::FileType, io::Errno};

use crate::{
    local::Directory,
    volume::{VolumeDirectory, VolumeListing, errno_of},
};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: CString,
    pub(super) is_directory: bool,
}

/// A directory that is held, so that nobody leads a removal out of it.
pub(super) trait Folder: Send + Sync {
    /// The next names; none at the end.
    fn next_names(&self) -> io::Result<Vec<Named>>;

    /// Lists from the beginning again.
    fn rewind(&self) -> io::Result<()>;

    /// Opens a directory in it; none if that is something else.
    fn enter(&self, name: &CStr) -> io::Result<Option<Arc<Self>>>;

    /// Whether another file system is mounted on `name`.
    fn is_mount_point(&self, name: &CStr) -> io::Result<bool>;

    /// Removes `name`, which is no directory.
    fn remove_file(&self, name: &CStr) -> io::Result<()>;

    /// Removes the empty directory `name`.
    fn remove_directory(&self, name: &CStr) -> io::Result<()>;
}

impl Folder for Directory {
    fn next_names(&self) -> io::Result<Vec<Named>> {
        let page = self.next_page()?.into_iter();
        let named = page.map(|entry| Named {
            // What cannot be looked at may still be removed.
            is_directory: self
                .kind(&entry)
                .is_ok_and(|kind| kind == FileType::Directory),
            name: entry.name,
        });
        Ok(named.collect())
    }

    fn rewind(&self) -> io::Result<()> {
        Ok(self.rewind()?)
    }

    fn enter(&self, name: &CStr) -> io::Result<Option<Arc<Self>>> {
        match self.open_in(name) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_mount_point(&self, name: &CStr) -> io::Result<bool> {
        Ok(self.is_mount_point(name)?)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()> {
        Ok(self.remove_file(name)?)
    }

    fn remove_directory(&self, name: &CStr) -> io::Result<()> {
        Ok(self.remove_directory(name)?)
    }
}

/// A directory of a volume, and how far it is listed.
pub(super) struct InVolume {
    directory: Arc<VolumeDirectory>,
    listing: Mutex<Option<Arc<VolumeListing>>>,
}

impl InVolume {
    pub(super) fn new(directory: Arc<VolumeDirectory>) -> Arc<Self> {
        Arc::new(Self {
            directory,
            listing: Mutex::default(),
        })
    }

    fn listing(&self) -> io::Result<Arc<VolumeListing>> {
        let mut listing = self.listing.lock();
        match &*listing {
            Some(listing) => Ok(Arc::clone(listing)),
            None => {
                let opened = Arc::new(self.directory.open_listing(Detail::Names)?);
                Ok(Arc::clone(listing.insert(opened)))
            }
        }
    }
}

impl Folder for InVolume {
    fn next_names(&self) -> io::Result<Vec<Named>> {
        let page = self.listing()?.next_page()?.into_iter();
        let named = page.map(|entry| Named {
            name: entry.name,
            is_directory: entry.attributes.kind == FileKind::Directory,
        });
        Ok(named.collect())
    }

    fn rewind(&self) -> io::Result<()> {
        *self.listing.lock() = None;
        Ok(())
    }

    fn enter(&self, name: &CStr) -> io::Result<Option<Arc<Self>>> {
        match self.directory.open_in(name) {
            Ok(directory) => Ok(Some(Self::new(directory))),
            Err(error) if errno_of(&error) == Some(Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_mount_point(&self, _: &CStr) -> io::Result<bool> {
        Ok(false)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()> {
        self.directory.remove_file(name)
    }

    fn remove_directory(&self, name: &CStr) -> io::Result<()> {
        self.directory.remove_directory(name)
    }
}
