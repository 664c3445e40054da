//! When reading a file sets the time of its last access.
//!
//! Opening is what counts: a kernel answers reads of what it keeps by itself. A time is an operation of the engine, so that by
//! default reading sets none.

use std::time::{Duration, SystemTime};

use penstock_base::clock;
use penstock_vfs::{Attributes, OpenOptions};

use super::FilesetVolume;
use crate::{operations, schema::is_in_snapshot};

/// How old the time of an access becomes with [`AccessTimes::Relative`] though the file is read: as long as Linux has it.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never, as with the mount option `noatime`.
    #[default]
    Never,
    /// When it is not behind that of the last change, or a day old, as with `relatime`.
    Relative,
    /// Each time, as with `strictatime`.
    Always,
}

impl AccessTimes {
    fn is_due(self, file: &Attributes, now: SystemTime) -> bool {
        match self {
            Self::Never => false,
            Self::Relative => {
                let age = now.duration_since(file.accessed).unwrap_or_default();
                file.accessed <= file.modified || file.accessed <= file.changed || age >= AGE_MAX
            }
            Self::Always => true,
        }
    }
}

impl FilesetVolume {
    /// Notes that a file that was there is opened so.
    pub(super) async fn note_open(&self, file: Attributes, options: OpenOptions) {
        if options.access.reads() && !options.unnoted {
            self.note_access(file).await;
        }
    }

    /// Notes that somebody begins to read what has these attributes. That fails nothing: who may read gets the bytes of a file
    /// system that takes no changes.
    pub(super) async fn note_access(&self, mut file: Attributes) {
        let inode = file.inode;
        if self.access_times == AccessTimes::Never || is_in_snapshot(inode) {
            return;
        }
        self.parts.files.show(&mut file);
        let now = clock::wall_time();
        if !self.access_times.is_due(&file, now) {
            return;
        }
        let set =
            self.transact(move |transaction| operations::set_accessed(transaction, inode, now));
        if let Err(error) = set.await {
            tracing::debug!(inode = inode.0, %error, "the time of an access is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_vfs::{FileKind, Inode};

    use super::*;

    #[test]
    fn a_time_that_says_nothing_any_more_is_set_anew() {
        let start = SystemTime::UNIX_EPOCH + 9 * AGE_MAX;
        let second = Duration::from_secs(1);
        let file = |accessed, modified, changed| Attributes {
            accessed,
            modified,
            changed,
            ..Attributes::new(Inode(2), FileKind::Regular, start)
        };
        let read_since = file(start + second, start, start);
        let cases = [
            (file(start, start, start), second, true),
            (
                file(start + second, start + 2 * second, start),
                3 * second,
                true,
            ),
            (
                file(start + second, start, start + 2 * second),
                3 * second,
                true,
            ),
            (read_since.clone(), 2 * second, false),
            (read_since.clone(), AGE_MAX, false),
            (read_since.clone(), AGE_MAX + second, true),
            // A clock that went back.
            (read_since, Duration::ZERO, false),
        ];
        for (file, later, is_due) in cases {
            let now = start + later;
            assert_eq!(AccessTimes::Relative.is_due(&file, now), is_due, "{file:?}");
            assert!(AccessTimes::Always.is_due(&file, now));
            assert!(!AccessTimes::Never.is_due(&file, now));
        }
    }
}
