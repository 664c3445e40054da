//! Several names of one file.
//!
//! The first name that is met is copied, and who meets another one meanwhile waits for that. The table forgets a file
//! when all of its names were met.

use std::{collections::HashMap, ffi::CString, io, sync::Arc};

use penstock_base::Mutex;

use super::job::Branch;
use crate::tree::{FileKey, Target};

/// Files with several names that are being copied.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<FileKey, Link>>);

#[derive(Debug)]
struct Link {
    /// Names that were not met yet.
    left: u32,
    copy: Copied,
}

/// Where the copy is, once there is one. Whoever makes it holds the lock.
pub(super) type Copied = Arc<Mutex<Option<Spot>>>;

impl Links {
    /// Meets one of `names` names of a file.
    pub(super) fn meet(&self, key: FileKey, names: u32) -> Copied {
        let mut table = self.0.lock();
        let link = table.entry(key).or_insert_with(|| Link {
            left: names,
            copy: Copied::default(),
        });
        link.left = link.left.saturating_sub(1);
        let copy = Arc::clone(&link.copy);
        if link.left == 0 {
            table.remove(&key);
        }
        copy
    }
}

/// A copy that can be found again when its directory is no longer held: from the directory into which everything goes,
/// by names.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    top: Arc<dyn Target>,
    directories: Vec<CString>,
    pub(super) name: CString,
}

impl Spot {
    pub(super) fn of(branch: &Branch, name: CString) -> Option<Self> {
        let mut directories = Vec::new();
        let mut node = branch;
        while let Some(above) = &node.above {
            directories.extend(node.data.target_name.clone());
            node = above;
        }
        directories.reverse();
        Some(Self {
            top: Arc::clone(node.data.target.as_ref()?),
            directories,
            name,
        })
    }

    /// Opens its directory.
    pub(super) fn open(&self) -> io::Result<Arc<dyn Target>> {
        let mut directory = Arc::clone(&self.top);
        for name in &self.directories {
            directory = directory.open_in(name)?;
        }
        Ok(directory)
    }
}
