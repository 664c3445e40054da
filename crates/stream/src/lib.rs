//! The stream volume: a read-only snapshot of a bucket path as a virtual disk.
//!
//! The path is listed once. From the listing an index is built: a file-system image of all names,
//! sizes and times, whose data blocks lie on a disk that nobody stores. A read of such a block
//! becomes a read of the object that it belongs to.
//!
//! - [`snapshot`]: the objects of a path, in byte order of their keys.
//! - [`placement`]: which blocks of which disk an object occupies.
//! - [`image`]: what a writer of a file-system image takes.
//! - [`tree`]: from keys to directories, and which keys no file can have.
//! - [`erofs`]: writes an EROFS image.
//! - [`ext4`]: writes an ext4 image, for kernels without EROFS.
//! - [`build`]: the one pass from a snapshot to an image and the map of its objects.
//! - [`kept`]: images that outlive their mount, and are taken again for the same path.

mod build;
mod erofs;
mod ext4;
mod image;
mod kept;
mod placement;
mod snapshot;
mod tree;

pub use build::{
    BuildError, BuildParts, BuildProgress, BuildSummary, ListingDigest, PlacedObjects, build_index,
};
pub use erofs::{ErofsSettings, ErofsWriter};
pub use ext4::{Ext4Settings, Ext4Writer};
pub use image::{FileNode, ImageSummary, ImageWriter, Permissions};
pub use kept::{
    AboutImage, Changes, ImageRequest, Kept, KeptError, KeptImage, KeptImages, KeptLimits,
    NewImage, Refresh, compare,
};
pub use placement::{BlockAddress, Placement};
pub use snapshot::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};
pub use tree::{Hidden, HiddenReason, TreeBuilder};

/// Bytes in a block of every image and disk.
pub const BLOCK_SIZE: u64 = 4096;
