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
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use thiserror::Error;

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
    _file: File,
}

impl DirectoryLock {
    /// Locks `directory`, which must exist, and writes which process that is. Never waits.
    ///
    /// Fails when somebody else has the lock, when the directory belongs to another user than its
    /// lock, and when the disk refuses it.
    pub fn take(directory: &Path) -> Result<Self, DirectoryLockError> {
        let mut file = open(directory)?;
        check_owner(directory, &file)?;
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
        Ok(Self { _file: file })
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

/// Makes a directory, and those above it that are missing, and one that is there already private to
/// its user. What is no directory, a symbolic link to one included, is refused.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    let mode = 0o700;
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn open(directory: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(NAME))
}

/// Compares owners with what we just made, and not with who we are: file systems of a network give
/// files to others than who makes them.
fn check_owner(directory: &Path, lock: &File) -> io::Result<()> {
    if fs::metadata(directory)?.uid() == lock.metadata()?.uid() {
        return Ok(());
    }
    let text = "it belongs to another user";
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

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
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let elsewhere = scratch.path().join("elsewhere");
        symlink(&elsewhere, scratch.path().join(NAME)).expect("a link");
        DirectoryLock::take(scratch.path()).expect_err("a link");
        assert!(!elsewhere.exists());
    }

    #[test]
    fn a_private_directory_is_private_and_no_link() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a/b");
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        make_private_directory(&path).expect("there");
        let mode = fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o700);
        let link = scratch.path().join("link");
        symlink(&path, &link).expect("a link");
        make_private_directory(&link).expect_err("a link");
    }
}
