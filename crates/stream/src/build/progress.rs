//! How far a build is, and whether it goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shared between a build and those who watch it.
#[derive(Debug, Default)]
pub struct BuildProgress {
    objects: AtomicU64,
    bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl BuildProgress {
    /// Objects that are in the index.
    pub fn objects(&self) -> u64 {
        self.objects.load(Relaxed)
    }

    /// Bytes of these objects.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Makes the build fail soon; a source that waits for the store has a say of its own.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether somebody cancelled the build.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    pub(super) fn report(&self, objects: u64, bytes: u64) {
        self.objects.store(objects, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }
}
