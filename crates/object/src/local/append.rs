//! Growing an object in place.
//!
//! Only files that were begun by an append grow ([`APPENDABLE_BIT`]): others may have hard links
//! or readers who rely on their staying as they are.
//!
//! An append is visible whole or not at all, also after a kill -9:
//! - readers of this process see the version before it until it is done ([`Tree::hold_back`]);
//! - a record in `.penstock/appends` says where the object ended before. Whoever opens the bucket
//!   next finds the record of a process that died, by its lock on the file being free, and cuts
//!   the file back.
//!
//! Other processes that read the file while it grows see it grow. After a power failure the
//! beginning of an append that had not returned may be there.
//!
//! [`APPENDABLE_BIT`]: super::version::APPENDABLE_BIT
//! [`Tree::hold_back`]: super::tree::Tree::hold_back

use penstock_base::{Payload, random};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, FlockOperation, Mode, OFlags, flock, fstat, fsync, ftruncate, futimens, openat,
        unlinkat,
    },
    io::{Errno, pread},
};
use serde::{Deserialize, Serialize};

use super::{
    draft::write_all,
    name::Location,
    private,
    problem::{Attempt, Problem},
    tree::Tree,
    version::{Version, unique_timestamps},
};
use crate::{Appended, ErrorKind, Key};

/// Bytes in the longest record: a key, escaped as JSON does, and two numbers.
const RECORD_MAX: usize = 8 << 10;

/// Where an object ended before an append. The name of its file begins with the inode number.
#[derive(Serialize, Deserialize)]
struct Record {
    key: String,
    position: u64,
}

/// An object that an append may grow, held by this process alone.
pub(super) struct Growing {
    file: OwnedFd,
    version: Version,
}

impl Drop for Growing {
    /// Closing the file would leave it locked for as long as a child that this process is just starting
    /// has it open, too.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Growing {
    /// Takes hold of the object at `location`. `None` when it was replaced in that moment.
    pub(super) fn hold(tree: &Tree, location: &Location) -> Attempt<Option<Self>> {
        let (file, _) = tree.object(location, OFlags::RDWR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let message = "another process is appending to this object";
                return Err(Problem::new(ErrorKind::Unavailable, message));
            }
            locked => locked?,
        }
        let version = Version::of(&fstat(&file)?);
        Ok((version.links > 0).then_some(Self { file, version }))
    }

    pub(super) fn check(&self, position: u64) -> Attempt<()> {
        if !self.version.appendable {
            let message = "the object was not begun by an append; write it anew";
            return Err(Problem::new(ErrorKind::Unsupported, message));
        }
        check_position(position, self.version.size)
    }

    /// Adds `body` at the end, or leaves everything as it was.
    pub(super) fn grow(
        &self,
        tree: &Tree,
        (appends, key): (BorrowedFd<'_>, &Key),
        body: &Payload,
        durable: bool,
    ) -> Attempt<Appended> {
        let record = self.record(appends, key)?;
        let held_back = tree.hold_back(self.version);
        let written = self.write(body, durable);
        if written.is_err() {
            self.cut_back();
        }
        drop(held_back);
        unlinkat(appends, &record, AtFlags::empty())?;
        written?;
        let version = Version::of(&fstat(&self.file)?);
        Ok(Appended {
            next_position: version.size,
            etag: Some(version.etag()),
            checksum: None,
        })
    }

    fn record(&self, appends: BorrowedFd<'_>, key: &Key) -> Attempt<String> {
        let record = Record {
            key: key.as_str().to_owned(),
            position: self.version.size,
        };
        let name = record_prefix(&self.version) + &random::token();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(appends, &name, flags, Mode::from_raw_mode(0o600))?;
        let text = serde_json::to_vec(&record).expect("text and numbers are valid JSON");
        let written = write_all(file.as_fd(), &Payload::from(text), 0);
        if written.is_err() {
            let _ = unlinkat(appends, &name, AtFlags::empty());
        }
        written.map(|()| name)
    }

    fn write(&self, body: &Payload, durable: bool) -> Attempt<()> {
        write_all(self.file.as_fd(), body, self.version.size)?;
        futimens(&self.file, &unique_timestamps())?;
        if durable {
            fsync(&self.file)?;
        }
        Ok(())
    }

    fn cut_back(&self) {
        let cut = ftruncate(&self.file, self.version.size)
            .and_then(|()| futimens(&self.file, &self.version.timestamps()));
        if let Err(error) = cut {
            tracing::error!(%error, "a failed append could not be taken back");
        }
    }

    /// Takes back the append of a process that died in it: this one has the lock, so a record
    /// that is still there belongs to nobody.
    pub(super) fn settle(&mut self, appends: BorrowedFd<'_>) -> Attempt<()> {
        for name in records_of(appends, &self.version)? {
            if let Some(record) = read_record(appends, &name)?
                && self.version.size > record.position
            {
                ftruncate(&self.file, record.position)?;
                futimens(&self.file, &unique_timestamps())?;
                self.version = Version::of(&fstat(&self.file)?);
            }
            unlinkat(appends, &name, AtFlags::empty())?;
        }
        Ok(())
    }
}

pub(super) fn check_position(position: u64, size: u64) -> Attempt<()> {
    if position != size {
        let message = format!("append at {position}, but the object has {size} bytes");
        return Err(Problem::new(ErrorKind::PositionMismatch, message));
    }
    Ok(())
}

/// Takes back every append whose process died in it.
pub(super) fn recover(tree: &Tree, appends: BorrowedFd<'_>) -> Attempt<()> {
    for name in private::names(appends)? {
        let record = read_record(appends, &name)?;
        let Some(key) = record.and_then(|record| Key::new(record.key).ok()) else {
            continue;
        };
        match Growing::hold(tree, &Location::of(&key)) {
            Ok(Some(mut growing)) => growing.settle(appends)?,
            Ok(None) => {}
            // The object is gone, or the process that appends to it is alive.
            Err(problem)
                if matches!(problem.kind, ErrorKind::NotFound | ErrorKind::Unavailable) => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(())
}

/// Removes records about an earlier file that had the inode number of the new file `version`.
pub(super) fn forget_records(appends: BorrowedFd<'_>, version: &Version) -> Attempt<()> {
    for name in records_of(appends, version)? {
        unlinkat(appends, &name, AtFlags::empty())?;
    }
    Ok(())
}

fn record_prefix(version: &Version) -> String {
    format!("{:x}-", version.identity.1)
}

fn records_of(appends: BorrowedFd<'_>, version: &Version) -> Result<Vec<String>, Errno> {
    let mut names = private::names(appends)?;
    let prefix = record_prefix(version);
    names.retain(|name| name.starts_with(&prefix));
    Ok(names)
}

/// `None` when it is gone, or not written whole: then its append never began.
fn read_record(appends: BorrowedFd<'_>, name: &str) -> Attempt<Option<Record>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(appends, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = vec![0; RECORD_MAX];
    let length = pread(&file, &mut text[..], 0)?;
    Ok(serde_json::from_slice(&text[..length]).ok())
}

#[cfg(test)]
pub(super) fn leave_half_an_append(
    tree: &Tree,
    appends: BorrowedFd<'_>,
    key: &Key,
    bytes: &[u8],
) -> Attempt<()> {
    let growing = Growing::hold(tree, &Location::of(key))?.expect("it is there");
    growing.record(appends, key)?;
    write_all(
        growing.file.as_fd(),
        &Payload::from(bytes.to_vec()),
        growing.version.size,
    )
}
