//! What lies in a cache directory, for people, and taking it away.

use std::{fs::File, path::Path, time::SystemTime};

use super::{
    CacheError, entry,
    folder::{Folder, Found},
};

/// What a cache directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheContents {
    /// Versions of objects.
    pub objects: u64,
    /// Bytes that they occupy on the disk.
    pub bytes: u64,
    /// When the version that will go first was used, to about a minute.
    pub oldest: Option<SystemTime>,
    /// When the last one was used.
    pub newest: Option<SystemTime>,
    /// The process that uses the directory now.
    pub user: Option<u32>,
}

impl CacheContents {
    fn count(&mut self, found: &Found) {
        self.objects += 1;
        self.bytes += found.bytes;
        self.oldest = Some(
            self.oldest
                .map_or(found.used, |known| known.min(found.used)),
        );
        self.newest = self.newest.max(Some(found.used));
    }

    /// Looks at the cache in `directory`, whether or not somebody uses it. Fails when there is
    /// none or it cannot be read.
    pub fn of(directory: &Path) -> Result<Self, CacheError> {
        let folder = Folder::of(directory);
        folder.check()?;
        let mut contents = Self {
            user: folder.holder(),
            ..Self::default()
        };
        folder
            .scan(false, |found| contents.count(&found))
            .map_err(|error| CacheError::io("cannot read the cache directory", directory, error))?;
        Ok(contents)
    }

    /// Removes from the cache in `directory`, which nobody uses, the versions of objects whose keys
    /// start with `prefix`, and returns what that was. Fails with [`CacheError::InUse`].
    pub fn remove(directory: &Path, prefix: &str) -> Result<Self, CacheError> {
        let folder = Folder::of(directory);
        folder.check()?;
        let _lock = folder.take()?;
        let mut removed = Self::default();
        let scanned = folder.scan(true, |found| {
            if prefix.is_empty() || is_below(&folder, &found, prefix) {
                folder.remove(found.name);
                removed.count(&found);
            }
        });
        scanned
            .map_err(|error| CacheError::io("cannot read the cache directory", directory, error))?;
        Ok(removed)
    }
}

/// Whether the key of a version starts with `prefix`. One whose header cannot be read is of no use
/// and counts as if it did.
pub(super) fn is_below(folder: &Folder, found: &Found, prefix: &str) -> bool {
    let opened = File::open(folder.index(found.name));
    match opened.and_then(|index| entry::read_header(&index)) {
        Ok(Some((header, _))) => header.key.starts_with(prefix),
        Ok(None) => true,
        Err(_) => false,
    }
}
