//! Telling versions of a file apart.
//!
//! A tag is made of inode number, modification time and size, which `stat` knows, so that a
//! listing needs no more than a directory's own records and files that other tools wrote have
//! tags too. Inode numbers are reused and a kernel's clock may tick only every few milliseconds;
//! therefore what is written here gets a modification time of its own, in nanoseconds, later
//! than any that this process gave before.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::clock;
use rustix::fs::{FileType, Stat, Timespec, Timestamps, UTIME_OMIT};

use super::attributes::Attributes;
use crate::{ETag, ObjectInfo, ObjectKind};

/// Marks a file that was begun by an append. The bit means nothing on files to Linux.
pub(super) const APPENDABLE_BIT: u32 = 0o1000;

/// One version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) file_type: FileType,
    /// Device and inode number.
    pub(super) identity: (u64, u64),
    pub(super) size: u64,
    seconds: i64,
    nanoseconds: u32,
    pub(super) appendable: bool,
    /// Names that lead to it; none once it was replaced or deleted.
    pub(super) links: u64,
}

impl Version {
    // The types of some fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            file_type: FileType::from_raw_mode(stat.st_mode),
            identity: (stat.st_dev as u64, stat.st_ino as u64),
            size: stat.st_size as u64,
            seconds: stat.st_mtime as i64,
            nanoseconds: stat.st_mtime_nsec as u32,
            appendable: stat.st_mode & APPENDABLE_BIT != 0,
            links: stat.st_nlink as u64,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        self.file_type == FileType::RegularFile
    }

    pub(super) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub(super) fn etag(&self) -> ETag {
        ETag::new(&format!(
            "{:x}-{:x}.{:08x}-{:x}",
            self.identity.1, self.seconds, self.nanoseconds, self.size
        ))
    }

    pub(super) fn modified(&self) -> SystemTime {
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = if self.seconds < 0 {
            UNIX_EPOCH - seconds
        } else {
            UNIX_EPOCH + seconds
        };
        whole + Duration::from_nanos(self.nanoseconds.into())
    }

    pub(super) fn kind(&self) -> ObjectKind {
        if self.appendable {
            ObjectKind::Appendable
        } else {
            ObjectKind::Normal
        }
    }

    pub(super) fn info(&self, attributes: Attributes) -> ObjectInfo {
        ObjectInfo {
            size: self.size,
            etag: self.etag(),
            modified: self.modified(),
            kind: self.kind(),
            storage_class: String::new(),
            content_type: attributes.content_type,
            metadata: attributes.metadata,
            checksum: None,
        }
    }

    /// What sets a file's modification time back to that of this version.
    pub(super) fn timestamps(&self) -> Timestamps {
        timestamps(self.seconds, self.nanoseconds)
    }
}

/// A modification time that no version written by this process had before.
pub(super) fn unique_timestamps() -> Timestamps {
    static LAST: AtomicU64 = AtomicU64::new(0);
    const PER_SECOND: u64 = 1_000_000_000;
    let since_epoch = clock::wall_time().duration_since(UNIX_EPOCH);
    let now = since_epoch.map_or(0, |passed| passed.as_nanos() as u64);
    let later = |last: u64| Some(now.max(last + 1));
    let last = match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later) {
        Ok(last) | Err(last) => last,
    };
    let stamp = now.max(last + 1);
    timestamps((stamp / PER_SECOND) as i64, (stamp % PER_SECOND) as u32)
}

fn timestamps(seconds: i64, nanoseconds: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_versions_get_one_modification_time() {
        let stamps = (0..10_000).map(|_| {
            let stamp = unique_timestamps().last_modification;
            (stamp.tv_sec, stamp.tv_nsec)
        });
        let stamps: Vec<_> = stamps.collect();
        assert!(stamps.is_sorted());
        assert_eq!(stamps.iter().collect::<HashSet<_>>().len(), stamps.len());
    }
}
