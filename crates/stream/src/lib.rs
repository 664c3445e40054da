//! The stream volume: a read-only snapshot of a bucket path as a virtual disk.
//!
//! The path is listed once. From the listing an index is built: a file-system image of all names,
//! sizes and times, whose data blocks lie on a disk that nobody stores. A read of such a block
//! becomes a read of the object that it belongs to.
//!
//! - [`snapshot`]: the objects of a path, in byte order of their keys.
//! - [`placement`]: which blocks of which disk an object occupies.
//! - [`listing`]: all keys of a path, listed in parallel.
//! - [`manifest`]: all keys of a path, read from a file that lists them.
//! - [`spool`]: objects on their way from a listing to an index, in files.
//! - [`image`]: what a writer of a file-system image takes.
//! - [`tree`]: from keys to directories, and which keys no file can have.
//! - [`erofs`]: writes an EROFS image.
//! - [`ext4`]: writes an ext4 image, for kernels without EROFS.
//! - [`build`]: the one pass from a snapshot to an image and the map of its objects.
//! - [`index`]: the life of an index, from a request to an image that is kept.
//! - [`kept`]: images that outlive their mount, and are taken again for the same path.
//! - [`object_map`]: which block of a disk is which byte of an object.
//! - [`disk`]: reads of blocks as reads of objects, through a cache of small ones.
//! - [`volume`]: the same snapshot as a plain file system.
//! - [`tier`]: how much of the machine a volume may take.

mod build;
mod cache;
mod checked_file;
mod disk;
mod erofs;
mod ext4;
mod image;
mod index;
mod kept;
mod listing;
mod manifest;
mod object_map;
mod placement;
mod prefetch;
mod private;
mod snapshot;
mod spool;
mod tier;
mod tree;
mod volume;

pub use build::{
    BuildError, BuildParts, BuildProgress, BuildSummary, ListingDigest, PlacedObjects, build_index,
};
pub use disk::{DataPath, DataSettings, SMALL_OBJECT_MAX, StreamDisk};
pub use erofs::{ErofsSettings, ErofsWriter};
pub use ext4::{Ext4Settings, Ext4Writer};
pub use image::{FileNode, ImageSummary, ImageWriter, Permissions};
pub use index::{Index, IndexError, IndexProgress, IndexRequest, IndexStage, Layout, Manifest};
pub use kept::{
    AboutImage, Changes, ImageRequest, Kept, KeptError, KeptImage, KeptImages, KeptLimits,
    NewImage, Refresh, compare,
};
pub use listing::{
    LIST_CONCURRENCY_DEFAULT, LIST_CONCURRENCY_MAX, LIST_REQUESTS_MAX_DEFAULT, ListingProgress,
    ListingSettings, ListingStatus, list_all,
};
pub use manifest::{
    HEAD_CONCURRENCY_DEFAULT, ManifestLocation, ManifestSettings, ManifestSummary, MissingSizes,
    load_manifest,
};
pub use object_map::{MappedObject, MappedObjects, ObjectMap, ObjectMapWriter, PlacedObject};
pub use placement::{BlockAddress, DISK_BLOCKS_MAX, Placement};
pub use snapshot::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};
pub use spool::{AGE_MAX_DEFAULT, SPOOLED_KEY_MAX, Spool, SpoolSettings, SpoolSource};
pub use tier::{
    Confined, ControlGroups, NotConfined, ParseTierError, ResourceLimits, Tier, keep_to_processors,
};
pub use tree::{Hidden, HiddenReason, TreeBuilder};
pub use volume::{DirectoryIndex, DirectoryIndexWriter, StreamVolume};

/// Bytes in a block of every image and disk.
pub const BLOCK_SIZE: u64 = 4096;
