//! One change of a file's object at a time.
//!
//! A change of metadata copies an object onto itself. If that ended after the object was renamed
//! or removed it would bring the object back; if two of them ran at once one would be lost. So
//! each takes a lock that inodes share in a fixed pattern, after the gate and before a file's
//! write stream.

use penstock_vfs::Inode;
use smallvec::SmallVec;
use tokio::sync::{Mutex, MutexGuard};

/// Locks that all inodes share; two files with the same lock wait for each other.
const STRIPES: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct MetadataLocks(Vec<Mutex<()>>);

/// The locks of up to two files.
pub(crate) type MetadataGuard<'locks> = SmallVec<[MutexGuard<'locks, ()>; 2]>;

impl Default for MetadataLocks {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl MetadataLocks {
    /// Waits until nobody else changes the objects of these inodes.
    pub(crate) async fn lock(&self, inodes: &[Inode]) -> MetadataGuard<'_> {
        let stripe = |inode: &Inode| usize::try_from(inode.0 % STRIPES as u64).unwrap_or(0);
        let mut stripes: SmallVec<[usize; 2]> = inodes.iter().map(stripe).collect();
        // Always in the same order, or two renames would wait for each other.
        stripes.sort_unstable();
        stripes.dedup();
        let mut guards = SmallVec::new();
        for stripe in stripes {
            guards.push(self.0[stripe].lock().await);
        }
        guards
    }
}
