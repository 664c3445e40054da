//! A folder for one test.

use std::path::{Path, PathBuf};

/// The beginning of every scratch folder's name; `make clean-mounts` knows it too.
const PREFIX: &str = "penstock-test-";

/// A folder that is removed with everything in it.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// A new, empty folder.
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir()
                .expect("the temporary directory is writable"),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A new folder in it.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).expect("the scratch folder is writable");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
