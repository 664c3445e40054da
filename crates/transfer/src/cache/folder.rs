//! The directory of a cache.
//!
//! ```text
//! DIRECTORY/objects/            0700: copies of what may be private
//!     lock                      held by the one process that uses the cache; names it
//!     CACHEDIR.TAG              tells backups to leave it out
//!     5e/0123...ef.index        which version, and the state of each block
//!     5e/0123...ef.data         a sparse copy of the object
//! ```

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use penstock_base::{
    DirectoryLock, DirectoryLockError, make_named_directory, make_private_directory,
};
use rustix::fs::statvfs;

use super::{CacheError, name::VersionName};

const DATA: &str = "data";
const INDEX: &str = "index";

/// What the published convention for cache directories asks for.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                   # Copies of objects, kept by penstock. They can be removed while nobody uses them.\n";

/// `stat` counts in these, whatever the file system's own blocks are.
const SECTOR: u64 = 512;

/// The directory of a cache.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    objects: PathBuf,
}

/// A version that has both of its files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) name: VersionName,
    /// Bytes that the files occupy on the disk.
    pub(super) bytes: u64,
    /// When it was used last, to about a minute.
    pub(super) used: SystemTime,
}

/// How full a file system is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskSpace {
    /// What we may still write.
    pub(super) free: u64,
    pub(super) total: u64,
}

impl Folder {
    /// The cache in `directory`, which need not exist.
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            objects: directory.join("objects"),
        }
    }

    /// Makes the directory, private to its user, and takes its lock, which holds as long as
    /// what is returned lives.
    pub(super) fn take(&self) -> Result<DirectoryLock, CacheError> {
        let failed =
            |error| CacheError::io("cannot make the cache directory", &self.objects, error);
        if let Some(named) = self.objects.parent() {
            make_named_directory(named).map_err(failed)?;
        }
        make_private_directory(&self.objects).map_err(failed)?;
        let lock = DirectoryLock::take(&self.objects).map_err(|error| match error {
            DirectoryLockError::InUse { pid } => CacheError::InUse {
                directory: self.objects.clone(),
                pid,
            },
            DirectoryLockError::Io(error) => {
                CacheError::io("cannot lock the cache directory", &self.objects, error)
            }
        })?;
        let tag = self.objects.join("CACHEDIR.TAG");
        if !tag.exists() {
            fs::write(tag, TAG).map_err(failed)?;
        }
        Ok(lock)
    }

    /// Fails when there is no cache.
    pub(super) fn check(&self) -> Result<(), CacheError> {
        let found = fs::read_dir(&self.objects).map(|_| ());
        found.map_err(|error| {
            CacheError::io("there is no cache that can be read", &self.objects, error)
        })
    }

    /// The process that holds the lock, if one does.
    pub(super) fn holder(&self) -> Option<u32> {
        DirectoryLock::holder(&self.objects)
    }

    pub(super) fn data(&self, name: VersionName) -> PathBuf {
        self.file(name, DATA)
    }

    pub(super) fn index(&self, name: VersionName) -> PathBuf {
        self.file(name, INDEX)
    }

    fn file(&self, name: VersionName, ending: &str) -> PathBuf {
        let folder = format!("{:02x}", name.folder());
        self.objects.join(folder).join(format!("{name}.{ending}"))
    }

    /// Makes the folder that the files of `name` lie in.
    pub(super) fn prepare(&self, name: VersionName) -> io::Result<()> {
        let folder = self.objects.join(format!("{:02x}", name.folder()));
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the files of a version, if they are there. Who has them open may read on.
    pub(super) fn remove(&self, name: VersionName) {
        // The index first: data without one is swept at the next start.
        let _ = fs::remove_file(self.index(name));
        let _ = fs::remove_file(self.data(name));
    }

    /// Calls `found` with every version. With `sweep` it removes what a crash left half made;
    /// only who holds the lock may ask for that. Files that are not a cache's are left alone.
    pub(super) fn scan(&self, sweep: bool, mut found: impl FnMut(Found)) -> io::Result<()> {
        for folder in 0..=u8::MAX {
            let folder = self.objects.join(format!("{folder:02x}"));
            let entries = match fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let path = entry?.path();
                if let Some(name) = VersionName::of_file(&path, INDEX) {
                    match self.look(name) {
                        Some(version) => found(version),
                        None if sweep => {
                            self.remove(name);
                            let _ = fs::remove_file(&path);
                        }
                        None => {}
                    }
                } else if let Some(name) = VersionName::of_file(&path, DATA)
                    && sweep
                    && !self.index(name).exists()
                {
                    let _ = fs::remove_file(&path);
                }
            }
        }
        Ok(())
    }

    /// What the files of a version say; `None` when one is missing or empty.
    fn look(&self, name: VersionName) -> Option<Found> {
        let index = fs::metadata(self.index(name)).ok()?;
        let data = fs::metadata(self.data(name)).ok()?;
        (index.len() > 0).then_some(Found {
            name,
            bytes: (index.blocks() + data.blocks()) * SECTOR,
            used: index.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        })
    }

    /// How full the file system is.
    pub(super) fn space(&self) -> io::Result<DiskSpace> {
        let disk = statvfs(&self.objects)?;
        Ok(DiskSpace {
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
        })
    }
}

/// Bytes that a file occupies on the disk.
pub(super) fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * SECTOR)
}
