//! Memory for object bodies, in a few files that live in memory only.
//!
//! A body gets a range of one of the files, page by page, and ranges are never handed out
//! twice: the files are sparse and their offsets do not run out. When the last reference to a
//! range goes, its pages are given back by punching a hole. So there is no allocator to get
//! wrong, ten thousand small objects need no descriptors of their own, and `sendfile` can
//! serve any of them.
//!
//! There are several files because writers to one file wait for each other in the kernel.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::system;

/// How many files: enough that two writers on a small machine seldom meet.
const LANES: usize = 16;

/// Ranges begin at multiples of this, so that every page belongs to one range only.
const PAGE: u64 = 4096;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Arena {
    lanes: Vec<Arc<Lane>>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Lane {
    file: File,
    cursor: AtomicU64,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Self> {
        let lane = || {
            let file = system::memory_file(c"penstock-devserver")?;
            Ok(Arc::new(Lane {
                file,
                cursor: AtomicU64::new(0),
            }))
        };
        let lanes = (0..LANES).map(|_| lane()).collect::<io::Result<_>>()?;
        Ok(Self {
            lanes,
            next: AtomicUsize::new(0),
        })
    }

    /// A range for `length` bytes that nobody else has.
    pub(crate) fn reserve(&self, length: u64) -> Extent {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % LANES;
        let lane = Arc::clone(&self.lanes[index]);
        let span = length.next_multiple_of(PAGE);
        let offset = lane.cursor.fetch_add(span, Ordering::Relaxed);
        Extent {
            lane,
            offset,
            length,
        }
    }
}

/// A range of an arena's memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Extent {
    lane: Arc<Lane>,
    offset: u64,
    length: u64,
}

impl Extent {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The file that the range lies in, and where it begins there.
    pub(crate) fn place(&self) -> (&File, u64) {
        (&self.lane.file, self.offset)
    }

    /// Writes inside the range, which is not yet shared with readers.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        debug_assert!(
            at + bytes.len() as u64 <= self.length,
            "writes stay inside the range"
        );
        self.lane.file.write_all_at(bytes, self.offset + at)
    }

    /// Reads what was written inside the range; fails where nothing was.
    pub(crate) fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        debug_assert!(
            at + bytes.len() as u64 <= self.length,
            "reads stay inside the range"
        );
        self.lane.file.read_exact_at(bytes, self.offset + at)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        let end = self.offset + self.length.next_multiple_of(PAGE);
        if let Err(error) = system::punch_hole(&self.lane.file, self.offset..end) {
            tracing::warn!(%error, "memory of a deleted object could not be given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_are_given_back() {
        let arena = Arena::new().expect("memory files");
        let extents: Vec<_> = (0..40).map(|_| arena.reserve(5000)).collect();
        for (index, extent) in extents.iter().enumerate() {
            extent
                .write(&[u8::try_from(index).expect("small"); 5000], 0)
                .expect("write");
        }
        for (index, extent) in extents.iter().enumerate() {
            let mut bytes = [0; 5000];
            extent.read(&mut bytes, 0).expect("read");
            assert!(bytes.iter().all(|byte| usize::from(*byte) == index));
        }
        let blocks = |arena: &Arena| -> u64 {
            arena
                .lanes
                .iter()
                .map(|lane| lane.file.metadata().expect("stat").blocks())
                .sum()
        };
        assert!(blocks(&arena) > 0);
        drop(extents);
        assert_eq!(blocks(&arena), 0);
    }
}
