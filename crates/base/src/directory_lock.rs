//! A directory that one process uses at a time.
//!
//! Staging directories and caches hold what programs wrote and read, and two processes that kept
//! their books in the same one would ruin both. So whoever uses such a directory holds a lock on the
//! file `lock` in it, as long as the process lives and however it ends: the kernel drops the lock
//! with the open file. The file names the process, for people and for messages; only the lock
//! counts.
//!
//! A directory of another user is refused: who owns it could exchange what lies in it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use thiserror::Error;

use crate::{
    private_directory::{foreign, identity_in, refuse_link},
    user_id,
};

/// The file in the directory that is locked.
const NAME: &str = "lock";
/// Bytes of the file that are read: a number of a process.
const NUMBER_MAX: u64 = 32;

/// Why a directory was not locked.
#[derive(Debug, Error)]
pub enum DirectoryLockError {
    /// Another process, or another part of this one, has it.
    #[error("it is in use by process {pid}")]
    InUse {
        /// Who has it; 0 if that cannot be seen.
        pid: u32,
    },
    /// The disk refuses it, or the directory belongs to another user.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The lock of a directory, held while this lives.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    owner: u32,
}

impl Drop for DirectoryLock {
    /// Gives the lock back by word: a child that this process began and that has not called execve(2) yet has the
    /// open file too, and would keep the lock until then.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl DirectoryLock {
    /// Locks `directory`, which must exist, and writes which process that is. Never waits.
    ///
    /// Fails when somebody else has the lock, when the directory or a lock that lay in it belongs to
    /// another user, and when the disk refuses it.
    pub fn take(directory: &Path) -> Result<Self, DirectoryLockError> {
        let owner = owner_of(directory)?;
        let mut file = open(directory)?;
        let found = file.metadata()?.uid();
        if found != owner {
            return Err(foreign(&directory.join(NAME), found).into());
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = Self::user(directory).unwrap_or_default();
                return Err(DirectoryLockError::InUse { pid });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { file, owner })
    }

    /// Whose the directory is: who this user is on its file system.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The process that holds the lock of `directory`, if one does.
    pub fn holder(directory: &Path) -> Option<u32> {
        let file = File::open(directory.join(NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Self::user(directory),
            _ => None,
        }
    }

    /// The process that the lock of `directory` names, alive or not.
    pub fn user(directory: &Path) -> Option<u32> {
        let mut text = String::new();
        let file = File::open(directory.join(NAME)).ok()?;
        file.take(NUMBER_MAX).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

fn open(directory: &Path) -> io::Result<File> {
    refuse_link(&directory.join(NAME))?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(NAME))
}

/// Who owns a directory, which must be who we are on its file system. A lock that lies in it already
/// proves nothing.
fn owner_of(directory: &Path) -> io::Result<u32> {
    let owner = fs::metadata(directory)?.uid();
    if owner != user_id() && owner != identity_in(directory)? {
        return Err(foreign(directory, owner));
    }
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use std::{
        io::ErrorKind,
        os::unix::fs::{chown, symlink},
    };

    use super::*;

    /// Somebody who is not us.
    const NOBODY: u32 = 65_534;

    #[test]
    fn a_directory_is_locked_by_one_at_a_time() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path();
        assert_eq!(DirectoryLock::holder(path), None);
        let first = DirectoryLock::take(path).expect("free");
        let own = std::process::id();
        let second = DirectoryLock::take(path);
        assert!(matches!(second, Err(DirectoryLockError::InUse { pid }) if pid == own));
        assert_eq!(DirectoryLock::holder(path), Some(own));
        drop(first);
        assert_eq!(DirectoryLock::holder(path), None);
        assert_eq!(DirectoryLock::user(path), Some(own));
        DirectoryLock::take(path).expect("free again");
    }

    #[test]
    fn a_lock_goes_back_also_while_a_child_has_not_let_go_of_its_file() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let first = DirectoryLock::take(scratch.path()).expect("free");
        let of_the_child = first.file.try_clone().expect("as fork does");
        drop(first);
        DirectoryLock::take(scratch.path()).expect("free again");
        drop(of_the_child);
    }

    #[test]
    fn a_directory_of_another_user_is_not_locked() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        if chown(scratch.path(), Some(NOBODY), None).is_err() {
            penstock_skips::skipped("only root can give directories away");
            return;
        }
        let Err(DirectoryLockError::Io(error)) = DirectoryLock::take(scratch.path()) else {
            panic!("locked");
        };
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_directory_of_another_user_is_not_locked_for_the_lock_that_he_left_in_it() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let lock = scratch.path().join(NAME);
        File::create(&lock).expect("made");
        for given in [scratch.path(), &lock] {
            if chown(given, Some(NOBODY), None).is_err() {
                eprintln!("skipped: only root can give directories away");
                return;
            }
        }
        let refused = |taken| match taken {
            Err(DirectoryLockError::Io(error)) => error.kind() == ErrorKind::PermissionDenied,
            _ => false,
        };
        assert!(refused(DirectoryLock::take(scratch.path())));
        chown(scratch.path(), Some(0), None).expect("root may");
        assert!(refused(DirectoryLock::take(scratch.path())), "his lock");
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let elsewhere = scratch.path().join("elsewhere");
        symlink(&elsewhere, scratch.path().join(NAME)).expect("a link");
        let error = DirectoryLock::take(scratch.path()).expect_err("a link");
        assert!(error.to_string().contains("symbolic link of user"));
        assert!(!elsewhere.exists());
    }
}
