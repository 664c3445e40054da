//! Several names of one file.
//!
//! The first name that is met is copied, and who meets another one meanwhile waits for that. The table forgets a file
//! when all of its names were met, or once another file has its number: see [`crate::copy`].

use std::{collections::HashMap, ffi::CString, io, sync::Arc, time::SystemTime};

use penstock_base::Mutex;

use super::job::Branch;
use crate::tree::{Facts, FileKey, Target};

/// Files with several names that are being copied.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<FileKey, Link>>);

#[derive(Debug)]
struct Link {
    /// Generation, size and time of what was met first: another file with its number has others.
    version: (u32, u64, SystemTime),
    /// Names that were not met yet.
    left: u32,
    copy: Copied,
}

/// Where the copy is, once there is one. Whoever makes it holds the lock.
pub(super) type Copied = Arc<Mutex<Option<Spot>>>;

impl Links {
    /// Meets one of the names of a file.
    pub(super) fn meet(&self, facts: &Facts) -> Copied {
        let (key, attributes) = (facts.key(), &facts.attributes);
        let version = (attributes.generation, attributes.size, attributes.modified);
        let new = || Link {
            version,
            left: attributes.links,
            copy: Copied::default(),
        };
        let mut table = self.0.lock();
        let link = table.entry(key).or_insert_with(new);
        if link.version != version {
            *link = new();
        }
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

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{local::Directory, tree::local::facts};

    /// A file with three names, one of them elsewhere, is removed, and a new one gets its number.
    #[test]
    fn another_file_with_the_number_of_one_before_is_not_its_copy() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = Directory::open(folder.path()).expect("open");
        let mut first = facts(&directory.own_stat().expect("known"));
        first.attributes.links = 3;
        let mut second = first.clone();
        second.attributes.modified += Duration::from_nanos(1);
        let links = Links::default();
        let [one, again] = [(); 2].map(|()| links.meet(&first));
        assert!(Arc::ptr_eq(&one, &again));
        let [other, once_more] = [(); 2].map(|()| links.meet(&second));
        assert!(!Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&other, &once_more));
    }
}
