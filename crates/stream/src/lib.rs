//! The stream volume: a read-only snapshot of a bucket path as a virtual disk.
//!
//! The path is listed once. From the listing an index is built: a file-system image of all names,
//! sizes and times, whose data blocks lie on a disk that nobody stores. A read of such a block
//! becomes a read of the object that it belongs to.
//!
//! - [`snapshot`]: the objects of a path, in byte order of their keys.
//! - [`placement`]: which blocks of which disk an object occupies.
//! - [`image`]: what a writer of a file-system image takes.

mod image;
mod placement;
mod snapshot;

pub use image::{FileNode, ImageSummary, ImageWriter};
pub use placement::{BlockAddress, Placement};
pub use snapshot::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};

/// Bytes in a block of every image and disk.
pub const BLOCK_SIZE: u64 = 4096;
