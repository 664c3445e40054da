//! What a file system says of itself.

use bytes::{Buf, BufMut, Bytes};
use penstock_base::{FsError, FsResult};

/// The version of the layout of keys and values, and of objects.
pub const FORMAT_VERSION: u32 = 1;
/// The same once there were snapshots: who does not know them would change what they keep.
const WITH_SNAPSHOTS: u32 = 2;
/// The same once there were quotas: who does not know them would not count what they limit.
const WITH_QUOTAS: u32 = 3;
/// The same once there were access lists: who does not know them would let in whom they keep out.
const WITH_ACCESS_LISTS: u32 = 4;
/// The same once compression was set: who does not know it would take frames for bytes of files.
const WITH_COMPRESSION: u32 = 5;
/// The same once removed files came into the trash: who does not know it would collect none, and count them for nobody.
const WITH_TRASH: u32 = 6;
/// The same once calls were remembered: who does not know them would carry one out twice.
const WITH_CALLS: u32 = 7;
/// The same once bytes of small files were with the metadata: who does not know that would look for them in the bucket.
const WITH_CONTENT: u32 = 8;
/// Bytes in a chunk of a file, and in the largest object: large enough that a bucket is as fast as it can be with a
/// few requests under way, small enough that one in memory for each of many writers is bearable.
pub const BLOCK_SIZE: u64 = 4 << 20;

/// What a file system says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// [`FORMAT_VERSION`] of who made it.
    pub version: u32,
    /// Which file system, among all that there are.
    pub identity: u64,
    /// [`BLOCK_SIZE`] of who made it.
    pub block_size: u64,
}

impl Format {
    /// A new one.
    pub fn new(identity: u64) -> Self {
        Self {
            version: FORMAT_VERSION,
            identity,
            block_size: BLOCK_SIZE,
        }
    }

    /// What it says of itself from the first snapshot on.
    pub(crate) fn with_snapshots(self) -> Self {
        self.at_least(WITH_SNAPSHOTS)
    }

    /// The same from the first quota on.
    pub(crate) fn with_quotas(self) -> Self {
        self.at_least(WITH_QUOTAS)
    }

    /// The same from the first access list on.
    pub(crate) fn with_access_lists(self) -> Self {
        self.at_least(WITH_ACCESS_LISTS)
    }

    /// The same once compression was set.
    pub(crate) fn with_compression(self) -> Self {
        self.at_least(WITH_COMPRESSION)
    }

    /// The same from the first time on that removed files are kept.
    pub(crate) fn with_trash(self) -> Self {
        self.at_least(WITH_TRASH)
    }

    /// The same from the first call on that is carried out once.
    pub(crate) fn with_calls(self) -> Self {
        self.at_least(WITH_CALLS)
    }

    /// The same once bytes of files may be with the metadata.
    pub(crate) fn with_content(self) -> Self {
        self.at_least(WITH_CONTENT)
    }

    fn at_least(self, version: u32) -> Self {
        Self {
            version: self.version.max(version),
            ..self
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(20);
        bytes.put_u32_le(self.version);
        bytes.put_u64_le(self.identity);
        bytes.put_u64_le(self.block_size);
        bytes.into()
    }

    /// Fails with `Unsupported` if another version of Penstock is needed.
    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        let damaged = |_| super::damaged("the head");
        let version = value.try_get_u32_le().map_err(damaged)?;
        let format = Self {
            version,
            identity: value.try_get_u64_le().map_err(damaged)?,
            block_size: value.try_get_u64_le().map_err(damaged)?,
        };
        let is_known = (FORMAT_VERSION..=WITH_CONTENT).contains(&version);
        if !is_known || format.block_size != BLOCK_SIZE {
            return Err(FsError::Unsupported(
                "the file system has another format: use the version of penstock that made it",
            ));
        }
        Ok(format)
    }
}
