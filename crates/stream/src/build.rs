//! The one pass from a snapshot to an image and the map of its objects.
//!
//! Each object gets its place when it comes, in the order of keys, goes into the map with it, and
//! into the tree. A file that turns out to be hidden by a directory of its name keeps its place,
//! which nobody reads. An object that no file can show has none, nor has a symbolic link.

mod digest;
mod progress;

#[cfg(test)]
mod tests;

use std::{io, time::Duration};

pub use digest::ListingDigest;
pub use progress::BuildProgress;

use penstock_base::clock;

use crate::{
    BlockAddress, FileNode, Hidden, ImageSummary, ImageWriter, ObjectSource, Placement,
    SnapshotError, SnapshotObject, TreeBuilder,
};

/// Objects between two looks at whether to stop, and two reports.
const REPORT_EVERY: u64 = 256;

/// What remembers which object lies where.
pub trait PlacedObjects {
    /// Adds an object that lies at `start`. Keys rise; on each disk, so do places.
    fn add(&mut self, object: &SnapshotObject<'_>, start: BlockAddress) -> io::Result<()>;
}

/// What a build is made of.
pub struct BuildParts<'a> {
    /// The objects.
    pub source: &'a mut dyn ObjectSource,
    /// Gives the objects their places; of as many disks as the image was begun with.
    pub placement: Placement,
    /// Writes the image.
    pub image: Box<dyn ImageWriter + Send>,
    /// Remembers the places. The caller finishes it.
    pub objects: &'a mut dyn PlacedObjects,
    /// Tells others how far it is, and is told by them to stop.
    pub progress: &'a BuildProgress,
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildSummary {
    /// The image.
    pub image: ImageSummary,
    /// What is not in it.
    pub hidden: Hidden,
    /// All objects of the path.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Blocks of each disk.
    pub disk_blocks: Vec<u64>,
    /// Made of the keys, sizes, times and versions of all objects.
    pub listing: ListingDigest,
    /// How long it took, with what the source made it wait.
    pub took: Duration,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The objects could not be had.
    #[error(transparent)]
    Source(#[from] SnapshotError),
    /// The image or the map could not be written.
    #[error("writing the index of the volume failed: {0}")]
    Write(#[from] io::Error),
    /// Somebody asked for it.
    #[error("the build of the index was cancelled")]
    Cancelled,
}

/// Builds an index: the image, and the map through `parts.objects`. Takes the thread it runs on.
///
/// What was begun stays behind when it fails or is cancelled; it is the caller's to remove.
pub fn build_index(mut parts: BuildParts<'_>) -> Result<BuildSummary, BuildError> {
    let began = clock::now();
    let mut tree = TreeBuilder::new(parts.image);
    let mut digest = digest::Digest::default();
    let mut order = KeyOrder::default();
    let (mut objects, mut bytes) = (0, 0);
    while let Some(object) = parts.source.next_object()? {
        if objects % REPORT_EVERY == 0 {
            parts.progress.report(objects, bytes);
            if parts.progress.is_cancelled() {
                return Err(BuildError::Cancelled);
            }
        }
        order.check(object.key)?;
        digest.add(&object);
        objects += 1;
        if !object.target.is_empty() && TreeBuilder::needs_place(object.key) {
            tree.add_link(object.key, object.target, object.modified)?;
            continue;
        }
        let mut start = BlockAddress { disk: 0, block: 0 };
        if TreeBuilder::needs_place(object.key) {
            start = parts.placement.place(object.size);
            parts.objects.add(&object, start)?;
        }
        let node = FileNode {
            size: object.size,
            modified: object.modified,
            start,
        };
        tree.add(object.key, &node)?;
        bytes += object.size;
    }
    parts.progress.report(objects, bytes);
    let disk_blocks = parts.placement.blocks().to_vec();
    let (image, hidden) = tree.finish(&disk_blocks)?;
    Ok(BuildSummary {
        image,
        hidden,
        objects,
        bytes,
        disk_blocks,
        listing: digest.finish(),
        took: began.elapsed(),
    })
}

/// Notices keys out of order, of which no tree could be made.
#[derive(Debug, Default)]
struct KeyOrder {
    last: Option<Vec<u8>>,
}

impl KeyOrder {
    fn check(&mut self, key: &[u8]) -> Result<(), SnapshotError> {
        match &mut self.last {
            Some(last) if last.as_slice() >= key => Err(SnapshotError::Invalid(format!(
                "the key {:?} comes after {:?}: the list of objects is not in byte order; list the \
                 path again, or sort the manifest with LC_ALL=C",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(last),
            ))),
            Some(last) => {
                last.clear();
                last.extend_from_slice(key);
                Ok(())
            }
            None => {
                self.last = Some(key.to_vec());
                Ok(())
            }
        }
    }
}
