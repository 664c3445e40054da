//! A directory for a mount that stands in the file tree only for a moment.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::BlockError;

/// A directory that is removed when this is dropped, if nothing is mounted on it any more.
#[derive(Debug)]
pub(crate) struct PrivatePlace(PathBuf);

impl PrivatePlace {
    /// `name` below `parent`, for root alone.
    pub(crate) fn new(parent: &Path, name: &str) -> Result<Self, BlockError> {
        let path = parent.join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(BlockError::system(format!(
            "cannot make {}",
            path.display()
        )))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivatePlace {
    fn drop(&mut self) {
        // Only an empty directory can be removed, and only one that nobody mounted on.
        let _ = fs::remove_dir(&self.0);
    }
}
