//! The folder of one image, and its lock.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime},
};

use penstock_base::{clock, random};
use rustix::fs::{FlockOperation, flock};

use crate::private;

pub(super) const IMAGE: &str = "image";
pub(super) const OBJECTS: &str = "objects";
pub(super) const LOCK: &str = "lock";

/// What the names of folders begin with in which images are built.
pub(super) const NEW_PREFIX: &str = ".new-";

/// A folder without a lock may just be getting one, unless it is older than this.
const LOCKLESS_AGE_MAX: Duration = Duration::from_secs(3600);

/// Keeps a folder from being removed.
#[derive(Debug)]
pub(super) struct Locked(#[expect(dead_code, reason = "the lock is its descriptor")] File);

impl Locked {
    /// Makes the lock of a new folder, and holds it.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let file = private::create_new(&folder.join(LOCK))?;
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Self(file))
    }

    /// Holds the lock of a folder and notes that it is used; none if it is being removed.
    pub(super) fn hold(folder: &Path) -> io::Result<Option<Self>> {
        let Some(file) = lock(folder, FlockOperation::NonBlockingLockShared)? else {
            return Ok(None);
        };
        file.set_modified(clock::wall_time())?;
        Ok(Some(Self(file)))
    }
}

/// Removes a folder that nobody holds; says whether it did.
pub(super) fn remove_unused(folder: &Path) -> io::Result<bool> {
    match lock(folder, FlockOperation::NonBlockingLockExclusive) {
        // Held by us until it is gone.
        Ok(Some(_lock)) => remove(folder),
        Ok(None) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => remove_lockless(folder),
        Err(error) => Err(error),
    }
}

/// When a folder was last used.
pub(super) fn last_used(folder: &Path) -> io::Result<SystemTime> {
    fs::metadata(folder.join(LOCK))?.modified()
}

/// Bytes of the files in a folder.
pub(super) fn bytes(folder: &Path) -> io::Result<u64> {
    let sizes = fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum()
}

/// Makes the names in a folder durable.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Locks a folder, if nobody holds it who would mind and it is still there afterwards.
fn lock(folder: &Path, operation: FlockOperation) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new().write(true).open(&path)?;
    match flock(&file, operation) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let is_same = fs::metadata(&path).is_ok_and(|now| {
        file.metadata()
            .is_ok_and(|then| (now.dev(), now.ino()) == (then.dev(), then.ino()))
    });
    Ok(is_same.then_some(file))
}

/// Removes a folder, under another name, so that a crash leaves no part of an image.
fn remove(folder: &Path) -> io::Result<bool> {
    let gone = folder.with_file_name(format!("{NEW_PREFIX}{:016x}", random::number()));
    let removed = fs::rename(folder, &gone).and_then(|()| fs::remove_dir_all(&gone));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

fn remove_lockless(folder: &Path) -> io::Result<bool> {
    let Ok(metadata) = fs::metadata(folder) else {
        return Ok(false);
    };
    let age = clock::wall_time().duration_since(metadata.modified()?);
    if age.is_ok_and(|age| age > LOCKLESS_AGE_MAX) {
        return remove(folder);
    }
    Ok(false)
}
