//! The seam between volumes that are disks and the block door.

use async_trait::async_trait;
use penstock_base::{FsResult, Payload};

/// A read-only disk whose blocks come from somewhere else.
///
/// A door may have any number of reads under way at once, and drops the future of one that nobody
/// waits for any more.
#[async_trait]
pub trait Disk: Send + Sync + 'static {
    /// Bytes on the disk; a multiple of 4096 that never changes.
    fn size(&self) -> u64;

    /// Reads exactly the `length` bytes at `offset`, which lie on the disk. What no file occupies
    /// is zeros. Fails with `Stale` where the object behind it is another one by now.
    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload>;
}
