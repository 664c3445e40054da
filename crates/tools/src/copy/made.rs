//! What a copy has dealt with in one directory.
//!
//! Two names of the source can be one there, as where upper and lower case are one: the second would replace the first, or go
//! into its directory.

use std::{collections::HashSet, ffi::CStr, io};

use penstock_base::Mutex;
use rustix::fs::{self, FileType, Stat};

use crate::local::{FileId, Temporary, kind_of};

/// Files that are or became copies in a directory.
#[derive(Debug, Default)]
pub(super) struct Made {
    files: Mutex<HashSet<FileId>>,
    /// Held by who gives a file its name. Renames in one directory wait for each other in the system, too.
    naming: Mutex<()>,
}

impl Made {
    /// Gives a copy its name, if what has it may go.
    pub(super) fn publish(&self, copy: Temporary, name: &CStr) -> io::Result<()> {
        copy.publish_by(&|directory, on_its_way, own| {
            let _one = self.naming.lock();
            if let Some(existing) = directory.stat_if_any(name)? {
                self.check(&existing)?;
            }
            fs::renameat(directory, on_its_way, directory, name)?;
            self.add(own);
            Ok(())
        })
    }

    fn add(&self, stat: &Stat) {
        self.files.lock().insert(FileId::from(stat));
    }

    /// What was there is a copy, too. One with several names may be met under each of them.
    pub(super) fn add_existing(&self, stat: &Stat) {
        if stat.st_nlink == 1 || kind_of(stat) == FileType::Directory {
            self.add(stat);
        }
    }

    /// Refuses what is the copy of another name.
    pub(super) fn check(&self, existing: &Stat) -> io::Result<()> {
        match self.files.lock().contains(&FileId::from(existing)) {
            false => Ok(()),
            true => Err(io::Error::other(
                "another name of the source is the same name in the target, and was copied; rename one of them",
            )),
        }
    }
}
