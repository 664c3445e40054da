//! What a copy has dealt with in one directory, where two names can be one.
//!
//! Where upper and lower case are one, two names of the source can be, too: the second would replace the first, or go into its
//! directory. Whether a directory is such is seen by the first name with a letter that is there: with the other case it leads
//! to the same file. In all others nothing is kept, and no copy waits for another.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
};

use penstock_base::Mutex;
use rustix::fs::{self, FileType, Stat};

use crate::local::{Directory, FileId, Temporary, kind_of};

/// Files that are or became copies in a directory.
#[derive(Debug, Default)]
pub(super) struct Made {
    files: Mutex<Files>,
    /// Held by who gives a file its name.
    naming: Mutex<()>,
}

/// What is known of case in a directory.
#[derive(Debug)]
enum Files {
    /// Nothing yet, and these are there.
    Unknown(HashSet<FileId>),
    /// It counts.
    Apart,
    /// It does not, and these are there.
    Folded(HashSet<FileId>),
}

impl Default for Files {
    fn default() -> Self {
        Self::Unknown(HashSet::new())
    }
}

impl Files {
    fn known(&self) -> Option<&HashSet<FileId>> {
        match self {
            Self::Unknown(known) | Self::Folded(known) => Some(known),
            Self::Apart => None,
        }
    }

    /// Learns from a name that is there.
    fn learn(&mut self, directory: &Directory, (name, own): (&CStr, FileId)) -> io::Result<()> {
        let (Self::Unknown(known), Some(other)) = (&mut *self, with_other_case(name)) else {
            return Ok(());
        };
        let found = directory.stat_if_any(&other)?;
        *self = match found.is_some_and(|found| FileId::from(&found) == own) {
            true => Self::Folded(std::mem::take(known)),
            false => Self::Apart,
        };
        Ok(())
    }

    fn add(&mut self, file: FileId) {
        if let Self::Unknown(known) | Self::Folded(known) = self {
            known.insert(file);
        }
    }
}

impl Made {
    /// Of a directory where case does not count.
    #[cfg(test)]
    pub(super) fn folded() -> Self {
        Self {
            files: Mutex::new(Files::Folded(HashSet::new())),
            naming: Mutex::default(),
        }
    }

    /// Gives a copy its name, if what has it may go.
    pub(super) fn publish(&self, copy: Temporary, name: &CStr) -> io::Result<()> {
        copy.publish_by(name, &|directory, on_its_way, own| {
            let is_apart = {
                let mut files = self.files.lock();
                files.learn(directory, (on_its_way, own))?;
                matches!(*files, Files::Apart)
            };
            if is_apart {
                return Ok(fs::renameat(directory, on_its_way, directory, name)?);
            }
            let _one = self.naming.lock();
            if let Some(existing) = directory.stat_if_any(name)? {
                self.check(&existing)?;
            }
            fs::renameat(directory, on_its_way, directory, name)?;
            self.files.lock().add(own);
            Ok(())
        })
    }

    /// What is there is a copy, too. One with several names may be met under each of them.
    pub(super) fn add_existing(
        &self,
        directory: &Directory,
        (name, stat): (&CStr, &Stat),
    ) -> io::Result<()> {
        let mut files = self.files.lock();
        files.learn(directory, (name, FileId::from(stat)))?;
        if stat.st_nlink == 1 || kind_of(stat) == FileType::Directory {
            files.add(FileId::from(stat));
        }
        Ok(())
    }

    /// Refuses what is the copy of another name.
    pub(super) fn check(&self, existing: &Stat) -> io::Result<()> {
        let files = self.files.lock();
        let is_copy = |known: &HashSet<FileId>| known.contains(&FileId::from(existing));
        match files.known().is_some_and(is_copy) {
            false => Ok(()),
            true => Err(io::Error::other(
                "another name of the source is the same name in the target, and was copied; rename one of them",
            )),
        }
    }
}

/// The name with its letters in the other case; none if it has no letters.
fn with_other_case(name: &CStr) -> Option<CString> {
    let flip = |byte: &u8| match byte.is_ascii_lowercase() {
        true => byte.to_ascii_uppercase(),
        false => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.to_bytes().iter().map(flip).collect();
    (other != name.to_bytes()).then(|| CString::new(other).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn case_that_does_not_count_is_seen_by_a_name_with_the_other_case() {
        for (is_folded, other) in [(true, "nAME.1"), (false, "other")] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let directory = Directory::open(folder.path()).unwrap();
            fs::write(at("12"), "").unwrap();
            fs::write(at("Name.1"), "").unwrap();
            fs::hard_link(at("Name.1"), at(other)).unwrap();
            let stat = |name: &CStr| directory.stat(name).unwrap();
            let made = Made::default();
            made.add_existing(&directory, (c"12", &stat(c"12")))
                .unwrap();
            assert!(
                made.check(&stat(c"12")).is_err(),
                "nothing is known by digits"
            );
            let found = (c"Name.1", &stat(c"Name.1"));
            made.add_existing(&directory, found).unwrap();
            assert_eq!(made.check(&stat(c"12")).is_err(), is_folded);
        }
    }
}
