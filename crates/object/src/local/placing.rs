//! Putting files in their places and taking them away.
//!
//! A rename makes a finished file visible. Around it the directories have to be right: parents
//! are made on the way in and removed on the way out when they are empty, and a file becomes a
//! directory when something is written below it.
//!
//! Within a process a lock keeps those changes apart from files being placed. Between processes
//! each step is atomic, what finds its directory gone starts over, and names become directories
//! under the lock of [`private::lock`]. What remains: while one process turns a file into a
//! directory, two overwrites of that object by others at that moment may take effect in the
//! wrong order.
//!
//! Order of locks: that of the process, then the file's.

use std::sync::{PoisonError, RwLock};

use penstock_base::random;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, FileType, Mode, RenameFlags, fsync, linkat, mkdirat, renameat_with, statat,
        unlinkat,
    },
    io::Errno,
};

use super::{
    draft::Draft,
    name::{Location, OBJECT_NAME},
    private::{self, remove_all},
    problem::{Attempt, Problem},
    tree::Tree,
    version::Version,
};
use crate::{ErrorKind, WriteCondition};

/// Times that a change starts over because another process changed the same directories.
const ATTEMPTS_MAX: u32 = 100;

/// Keeps changes of directories apart from files being placed in them.
#[derive(Default)]
pub(super) struct Shape(RwLock<()>);

/// Where changes are made and how.
pub(super) struct Placing<'a> {
    pub(super) tree: &'a Tree,
    pub(super) shape: &'a Shape,
    pub(super) staging: BorrowedFd<'a>,
    pub(super) durable: bool,
}

/// Where objects are removed, which needs no directory of our own.
pub(super) struct Removing<'a> {
    pub(super) tree: &'a Tree,
    pub(super) shape: &'a Shape,
}

/// The outcome of one attempt.
enum Step {
    Done,
    StartOver,
}

impl Placing<'_> {
    /// Makes `draft` the object at `location`.
    pub(super) fn place(
        &self,
        draft: &mut Draft<'_>,
        location: &Location,
        condition: &WriteCondition,
    ) -> Attempt<()> {
        for _ in 0..ATTEMPTS_MAX {
            if let Step::Done = self.try_place(draft, location, condition)? {
                return Ok(());
            }
        }
        Err(disturbed())
    }

    fn try_place(
        &self,
        draft: &mut Draft<'_>,
        location: &Location,
        condition: &WriteCondition,
    ) -> Attempt<Step> {
        let directory = match self.move_in(draft, location, condition) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                self.make_directories(location.parents())?;
                return Ok(Step::StartOver);
            }
            Err(Errno::AGAIN) => return Ok(Step::StartOver),
            Err(Errno::EXIST) => {
                return Err(Problem::new(ErrorKind::AlreadyExists, "the key is taken"));
            }
            Err(Errno::XDEV) => {
                let message = "the key lies on another file system or behind a symbolic link that \
                     leads out of the bucket's directory";
                return Err(Problem::new(ErrorKind::PermissionDenied, message));
            }
            Err(errno) => return Err(errno.into()),
        };
        if self.durable {
            fsync(directory)?;
        }
        Ok(Step::Done)
    }

    /// Moves the file in and returns the directory that holds it now.
    fn move_in(
        &self,
        draft: &mut Draft<'_>,
        location: &Location,
        condition: &WriteCondition,
    ) -> Result<OwnedFd, Errno> {
        let _steady = self.shape.0.read().unwrap_or_else(PoisonError::into_inner);
        let parent = self.tree.directory(location.parents())?;
        let moved = draft.move_to(parent.as_fd(), location.name(), condition);
        match moved {
            Ok(()) => return Ok(parent),
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {}
            Err(errno) => return Err(errno),
        }
        let stat = statat(&parent, location.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(match condition {
                WriteCondition::IfAbsent => Errno::EXIST,
                WriteCondition::Always | WriteCondition::IfMatch(_) => Errno::AGAIN,
            });
        }
        // An empty directory is no object and may go.
        if unlinkat(&parent, location.name(), AtFlags::REMOVEDIR).is_ok() {
            return Err(Errno::AGAIN);
        }
        let directory = self.tree.directory(location.names())?;
        draft.move_to(directory.as_fd(), OBJECT_NAME, condition)?;
        Ok(directory)
    }

    fn make_directories(&self, names: &[String]) -> Attempt<()> {
        for depth in 1..=names.len() {
            match self.tree.directory(&names[..depth]) {
                Ok(_) => {}
                Err(Errno::NOENT) => self.make_directory(&names[..depth])?,
                Err(Errno::NOTDIR) => self.make_room(&names[..depth])?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn make_directory(&self, names: &[String]) -> Attempt<()> {
        let _alone = private::lock(self.tree.root())?;
        let (name, parents) = names.split_last().expect("the bucket's directory exists");
        let made = self.tree.directory(parents).and_then(|parent| {
            mkdirat(&parent, name, Mode::from_raw_mode(0o777))?;
            if self.durable { fsync(&parent) } else { Ok(()) }
        });
        match made {
            // Somebody else made it, or removed its parent: the next attempt will see.
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Turns the file at `names` into a directory that holds it as [`OBJECT_NAME`].
    ///
    /// The directory is prepared aside with a link to the file in it and then exchanged for the
    /// file, so at every moment the object is found in one of the two ways.
    fn make_room(&self, names: &[String]) -> Attempt<()> {
        let _steady = self.shape.0.write().unwrap_or_else(PoisonError::into_inner);
        let _alone = private::lock(self.tree.root())?;
        let (name, parents) = names
            .split_last()
            .expect("the bucket's directory is no file");
        let parent = match self.tree.directory(parents) {
            // It was replaced or removed meanwhile: the next attempt will see.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if Version::of(&stat).is_file() => {}
            Ok(stat) if Version::of(&stat).is_directory() => return Ok(()),
            Ok(_) => return Err(blocked(name)),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let aside = random::token();
        mkdirat(self.staging, &aside, Mode::from_raw_mode(0o777))?;
        let exchanged = self.exchange(parent.as_fd(), name, &aside);
        remove_all(self.staging, &aside)?;
        match exchanged {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno @ (Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)) => {
                let message = format!(
                    "this file system cannot hold `{name}` and keys below it at once (it lacks \
                     hard links or exchanging renames: {errno}): use ext4, xfs, btrfs or tmpfs"
                );
                Err(Problem::new(ErrorKind::Unsupported, message))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn exchange(&self, parent: BorrowedFd<'_>, name: &str, aside: &str) -> Result<(), Errno> {
        let directory = private::open(self.staging, aside)?;
        linkat(parent, name, &directory, OBJECT_NAME, AtFlags::empty())?;
        if self.durable {
            fsync(&directory)?;
        }
        renameat_with(self.staging, aside, parent, name, RenameFlags::EXCHANGE)?;
        let out = statat(self.staging, aside, AtFlags::SYMLINK_NOFOLLOW)?;
        if !Version::of(&out).is_file() {
            // Another program put something else there in between, which is not ours to remove.
            renameat_with(self.staging, aside, parent, name, RenameFlags::EXCHANGE)?;
            return Err(Errno::NOENT);
        }
        // What came out is the same file, unless another process replaced it in between: then
        // its version is the newer one. If nothing is there to exchange it for, another process
        // deleted the object since.
        let newest = RenameFlags::EXCHANGE;
        match renameat_with(self.staging, aside, &directory, OBJECT_NAME, newest) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        if self.durable {
            fsync(parent)?;
        }
        Ok(())
    }
}

impl Removing<'_> {
    /// Removes the object at `location`, and its directory if nothing else is in it. Succeeds
    /// when there is none.
    pub(super) fn remove(&self, location: &Location) -> Attempt<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.unlink(location) {
                Ok(emptied) => {
                    self.prune(emptied);
                    return Ok(());
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => return Ok(()),
                // Another process turned the file into a directory.
                Err(Errno::ISDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(disturbed())
    }

    /// Removes the object and returns the directory that may be empty now.
    fn unlink<'a>(&self, location: &'a Location) -> Result<&'a [String], Errno> {
        let _steady = self.shape.0.read().unwrap_or_else(PoisonError::into_inner);
        let parent = self.tree.directory(location.parents())?;
        let stat = statat(&parent, location.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => {
                unlinkat(&parent, location.name(), AtFlags::empty())?;
                Ok(location.parents())
            }
            FileType::Directory => {
                let directory = self.tree.directory(location.names())?;
                unlinkat(&directory, OBJECT_NAME, AtFlags::empty())?;
                Ok(location.names())
            }
            // What is hidden is not deleted either.
            _ => Err(Errno::NOENT),
        }
    }

    /// Removes the directory at `names` and those above it for as long as they are empty.
    fn prune(&self, names: &[String]) {
        let _alone = self.shape.0.write().unwrap_or_else(PoisonError::into_inner);
        for depth in (1..=names.len()).rev() {
            let Ok(parent) = self.tree.directory(&names[..depth - 1]) else {
                return;
            };
            if unlinkat(&parent, &names[depth - 1], AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }
}

fn disturbed() -> Problem {
    let message = "other processes keep changing this directory";
    Problem::new(ErrorKind::Unavailable, message)
}

fn blocked(name: &str) -> Problem {
    let message = format!("`{name}` is neither a file nor a directory, so no key can lie below it");
    Problem::new(ErrorKind::InvalidRequest, message)
}
