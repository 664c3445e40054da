//! What a copy has dealt with in one directory.
//!
//! Two names of the source can be one there, as where upper and lower case are one: the second would replace the first, or go
//! into its directory.

use std::{collections::HashSet, io};

use penstock_base::Mutex;
use rustix::fs::{FileType, Stat};

use crate::local::{FileId, kind_of};

/// Files that are or became copies in a directory.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<HashSet<FileId>>);

impl Made {
    pub(super) fn add(&self, file: FileId) {
        self.0.lock().insert(file);
    }

    /// The same of what was there. One with several names may be met under each of them.
    pub(super) fn add_existing(&self, stat: &Stat) {
        if stat.st_nlink == 1 || kind_of(stat) == FileType::Directory {
            self.add(FileId::from(stat));
        }
    }

    /// Refuses what is the copy of another name.
    pub(super) fn check(&self, existing: &Stat) -> io::Result<()> {
        match self.0.lock().contains(&FileId::from(existing)) {
            false => Ok(()),
            true => Err(io::Error::other(
                "another name of the source is the same name in the target, and was copied; rename one of them",
            )),
        }
    }
}
