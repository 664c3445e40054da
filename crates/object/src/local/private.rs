//! Penstock's own directory in the bucket: `.penstock`, hidden from listings.
//!
//! - `staging/`: files on their way to becoming objects. What a killed process left here is
//!   removed when the bucket is next opened, once it is old enough that no living process can
//!   still be writing it.
//! - `uploads/`: unfinished multipart uploads, a directory each.
//! - `appends/`: a record for each append that is under way; see [`super::append`].
//! - `lock`: held by the process that turns names into directories; see [`super::placing`].
//!
//! The directories are made when first needed, so that a bucket can be read without the right
//! to write to it.

use std::{
    mem::MaybeUninit,
    sync::OnceLock,
    thread,
    time::{Duration, SystemTime},
};

use penstock_base::clock;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, flock, mkdirat, openat, statat,
        unlinkat,
    },
    io::Errno,
};

use super::{
    name::PRIVATE_NAME,
    problem::{Attempt, Problem},
    version::Version,
};
use crate::ErrorKind;

/// The directory of files that are being written.
pub(super) const STAGING: &str = "staging";
/// The directory of multipart uploads.
pub(super) const UPLOADS: &str = "uploads";
/// The directory of records of appends.
pub(super) const APPENDS: &str = "appends";

/// The file whose lock keeps processes apart.
const LOCK: &str = "lock";

/// How often a lock that another process holds is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// How often it is tried in all, some seconds: others hold it for a few system calls.
const LOCK_ATTEMPTS: u32 = 5000;

/// Only the bucket's owner looks in here.
const PRIVATE_MODE: Mode = Mode::RWXU;

/// Open directories.
#[derive(Default)]
pub(super) struct Private {
    staging: OnceLock<OwnedFd>,
    uploads: OnceLock<OwnedFd>,
    appends: OnceLock<OwnedFd>,
}

impl Private {
    /// One of the directories, made if it is not there.
    pub(super) fn directory(
        &self,
        root: BorrowedFd<'_>,
        name: &'static str,
    ) -> Attempt<BorrowedFd<'_>> {
        let cell = self.cell(name);
        if let Some(directory) = cell.get() {
            return Ok(directory.as_fd());
        }
        make(root, PRIVATE_NAME)?;
        let private = open(root, PRIVATE_NAME)?;
        make(private.as_fd(), name)?;
        let opened = open(private.as_fd(), name)?;
        Ok(cell.get_or_init(|| opened).as_fd())
    }

    /// One of the directories, if it is there.
    pub(super) fn existing(
        &self,
        root: BorrowedFd<'_>,
        name: &'static str,
    ) -> Attempt<Option<BorrowedFd<'_>>> {
        let cell = self.cell(name);
        if let Some(directory) = cell.get() {
            return Ok(Some(directory.as_fd()));
        }
        let opened = open(root, PRIVATE_NAME).and_then(|private| open(private.as_fd(), name));
        match opened {
            Ok(opened) => Ok(Some(cell.get_or_init(|| opened).as_fd())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn cell(&self, name: &'static str) -> &OnceLock<OwnedFd> {
        match name {
            STAGING => &self.staging,
            UPLOADS => &self.uploads,
            _ => &self.appends,
        }
    }
}

/// Waits until no other process holds the bucket's lock and holds it until the result is dropped.
pub(super) fn lock(root: BorrowedFd<'_>) -> Attempt<OwnedFd> {
    make(root, PRIVATE_NAME)?;
    let private = open(root, PRIVATE_NAME)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&private, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
    for _ in 0..LOCK_ATTEMPTS {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Where there are no locks there are rarely two processes either.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(file),
            // A lock that is waited for in the kernel could not be given up.
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::park_timeout(LOCK_PAUSE),
            Err(errno) => return Err(errno.into()),
        }
    }
    let message = "another process holds `.penstock/lock` and does not let go";
    Err(Problem::new(ErrorKind::Unavailable, message))
}

fn make(parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match mkdirat(parent, name, PRIVATE_MODE) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Opens a directory of ours; a link in its place is not followed.
pub(super) fn open(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// The names in a directory of ours.
pub(super) fn names(directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    const BUFFER: usize = 8 << 10;
    let directory = open(directory, ".")?;
    let mut memory = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(&directory, &mut memory);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = match entry {
            // The directory was removed since it was opened.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

/// Removes a file or a directory with everything in it. What is gone already is no failure.
pub(super) fn remove_all(parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let gone = |removed| match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    };
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {
            let directory = match open(parent, name) {
                Err(Errno::NOENT) => return Ok(()),
                opened => opened?,
            };
            for inner in names(directory.as_fd())? {
                remove_all(directory.as_fd(), &inner)?;
            }
            gone(unlinkat(parent, name, AtFlags::REMOVEDIR))
        }
        removed => gone(removed),
    }
}

/// Removes what has lain in `staging` for longer than `age_max`. Returns how much that was.
pub(super) fn sweep(staging: BorrowedFd<'_>, age_max: Duration) -> Result<usize, Errno> {
    let now = clock::wall_time();
    let mut swept = 0;
    for name in names(staging)? {
        if is_stale(staging, &name, now, age_max)? {
            remove_all(staging, &name)?;
            swept += 1;
        }
    }
    Ok(swept)
}

fn is_stale(
    staging: BorrowedFd<'_>,
    name: &str,
    now: SystemTime,
    age_max: Duration,
) -> Result<bool, Errno> {
    let version = match statat(staging, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Version::of(&stat),
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    let known = matches!(
        version.file_type,
        FileType::RegularFile | FileType::Directory
    );
    let age = now.duration_since(version.modified()).unwrap_or_default();
    Ok(known && age >= age_max)
}
