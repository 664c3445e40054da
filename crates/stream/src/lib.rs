//! The stream volume: a read-only snapshot of a bucket path as a virtual disk.
//!
//! The path is listed once. From the listing an index is built: a file-system image of all names,
//! sizes and times, whose data blocks lie on a disk that nobody stores. A read of such a block
//! becomes a read of the object that it belongs to.
//!
//! - [`snapshot`]: the objects of a path, in byte order of their keys.
//! - [`placement`]: which blocks of which disk an object occupies.
//! - [`image`]: what a writer of a file-system image takes.
//! - [`policy`]: which place in the tree a key stands for.
//! - [`object_map`]: which block of a disk is which byte of an object.
//! - [`disk`]: reads of blocks as reads of objects, through a cache of small ones.

mod cache;
mod checked_file;
pub mod disk;
mod image;
pub mod object_map;
mod placement;
pub mod policy;
mod prefetch;
mod snapshot;

pub use disk::{DataPath, DataSettings, StreamDisk};
pub use image::{FileNode, ImageSummary, ImageWriter};
pub use object_map::{MappedObject, MappedObjects, ObjectMap, ObjectMapWriter, PlacedObject};
pub use placement::{BlockAddress, Placement};
pub use snapshot::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};

/// Bytes in a block of every image and disk.
pub const BLOCK_SIZE: u64 = 4096;
