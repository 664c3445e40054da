//! What `statfs` shows: how much is in use, and what seems to be free.

use penstock_base::FsResult;
use penstock_vfs::{Inode, Statistics, Volume};

use super::FilesetVolume;
use crate::{
    quotas::{self, Limits, Use},
    usage::usage_of,
};

/// Bytes that are counted in.
const BLOCK: u64 = 4096;
/// What a file system seems to hold, in bytes and in files: a bucket has no end.
const SEEMING: Use = Use {
    bytes: 1 << 60,
    files: 1 << 40,
};

/// Something that holds so much, of which so much is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    total: Use,
    free: Use,
}

impl Size {
    fn of(total: Use, used: Use) -> Self {
        Self {
            total,
            free: Use {
                bytes: total.bytes.saturating_sub(used.bytes),
                files: total.files.saturating_sub(used.files),
            },
        }
    }

    /// The same where this is limited, too: it is as large as what limits it closest.
    fn within(self, limits: &Limits, used: Use) -> Self {
        let part = |limit: &crate::quotas::Limit, (total, free): (u64, u64), used| {
            let limit = if limit.soft == 0 {
                limit.hard
            } else {
                limit.soft
            };
            match limit {
                0 => (total, free),
                limit => (total.min(limit), free.min(limit.saturating_sub(used))),
            }
        };
        let Self { total, free } = self;
        let bytes = part(&limits.bytes, (total.bytes, free.bytes), used.bytes);
        let files = part(&limits.files, (total.files, free.files), used.files);
        Self {
            total: Use {
                bytes: bytes.0,
                files: files.0,
            },
            free: Use {
                bytes: bytes.1,
                files: files.1,
            },
        }
    }
}

impl FilesetVolume {
    /// What is in use of what there seems to be at a file.
    pub(super) async fn statistics_at(&self, inode: Inode) -> FsResult<Statistics> {
        let found = self.query(|reads| Ok((usage_of(reads)?, quotas::sizes(reads, inode)?)));
        let (usage, limited) = found.await?;
        let used = Use {
            bytes: usage.bytes,
            files: usage.files,
        };
        let whole = Size::of(SEEMING, used);
        let size = limited.iter();
        let size = size.fold(whole, |size, (limits, used)| size.within(limits, *used));
        let free = size.free.bytes / BLOCK;
        Ok(Statistics {
            block_size: BLOCK as u32,
            blocks: size.total.bytes / BLOCK,
            blocks_free: free,
            blocks_available: free,
            files: size.total.files,
            files_free: size.free.files,
            name_length_max: self.features().name_bytes_max,
        })
    }
}
