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

mod image;
mod listing;
mod manifest;
mod placement;
mod snapshot;
mod spool;

pub use image::{FileNode, ImageSummary, ImageWriter};
pub use listing::{
    LIST_CONCURRENCY_DEFAULT, LIST_CONCURRENCY_MAX, LIST_REQUESTS_MAX_DEFAULT, ListingProgress,
    ListingSettings, ListingStatus, list_all,
};
pub use manifest::{
    HEAD_CONCURRENCY_DEFAULT, ManifestLocation, ManifestSettings, ManifestSummary, MissingSizes,
    load_manifest,
};
pub use placement::{BlockAddress, Placement};
pub use snapshot::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};
pub use spool::{AGE_MAX_DEFAULT, SPOOLED_KEY_MAX, Spool, SpoolSettings, SpoolSource};

/// Bytes in a block of every image and disk.
pub const BLOCK_SIZE: u64 = 4096;
