//! A bucket to mount: in a local directory, or on a server of the test's own.

use std::path::PathBuf;

use crate::{Mount, MountOptions, Scratch};

/// Where a bucket lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `file://`
    Local,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 1] = [Self::Local];
}

/// An empty bucket that goes away with the test.
#[derive(Debug)]
pub struct Bucket {
    folder: PathBuf,
    _scratch: Scratch,
}

impl Bucket {
    /// A new bucket of `kind`.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Local => Self::local(),
        }
    }

    /// A new bucket in a local directory.
    pub fn local() -> Self {
        let scratch = Scratch::new();
        Self {
            folder: scratch.folder("bucket"),
            _scratch: scratch,
        }
    }

    /// How the command line names it.
    pub fn source(&self) -> String {
        format!("file://{}", self.folder.display())
    }

    /// Mounts it with defaults.
    #[track_caller]
    pub fn mount(&self) -> Mount {
        self.mount_with(&MountOptions::new())
    }

    /// Mounts it with `options`.
    #[track_caller]
    pub fn mount_with(&self, options: &MountOptions) -> Mount {
        Mount::new(&self.source(), options)
    }
}
