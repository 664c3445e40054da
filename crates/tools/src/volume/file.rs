//! An open file.

use std::io;

use bytes::Bytes;
use penstock_base::Payload;
use penstock_vfs::{HandleId, Position, WritePlace};

use super::VolumeTree;

/// An open file. Dropped before it is finished, what was written is given up where the volume can do that.
#[derive(Debug)]
pub struct VolumeFile {
    tree: VolumeTree,
    handle: HandleId,
    is_finished: bool,
}

impl VolumeFile {
    pub(super) fn new(tree: &VolumeTree, handle: HandleId) -> Self {
        Self {
            tree: tree.clone(),
            handle,
            is_finished: false,
        }
    }

    /// The tree that it is in.
    pub fn tree(&self) -> &VolumeTree {
        &self.tree
    }

    /// The handle, for what is changed through it.
    pub fn handle(&self) -> HandleId {
        self.handle
    }

    /// Up to `length` bytes; fewer only at the end of the file.
    pub fn read_at(&self, offset: u64, length: u32) -> io::Result<Payload> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let at = self.position(offset);
        self.tree.wait(volume.read(by, at, length))
    }

    /// Writes all of `data`. Not every volume takes it elsewhere than at the end: see
    /// [`Features::random_writes`](penstock_vfs::Features::random_writes).
    pub fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let written = volume.write(by, self.handle, WritePlace::At(offset), data);
        self.tree.wait(written).map(drop)
    }

    /// Copies up to `length` bytes from one place to the same of another file, by the volume itself. Returns how many.
    pub fn copy_to(&self, target: &Self, offset: u64, length: u64) -> io::Result<u64> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let (from, to) = (self.position(offset), target.position(offset));
        self.tree.wait(volume.copy_range(by, from, to, length))
    }

    /// Ends what was written, and says whether that worked.
    pub fn finish(mut self) -> io::Result<()> {
        let VolumeTree { volume, .. } = &self.tree;
        let flushed = self.tree.wait(volume.flush(self.handle));
        if flushed.is_ok() {
            self.is_finished = true;
            self.tree.runtime.block_on(volume.release(self.handle));
        }
        flushed
    }

    fn position(&self, offset: u64) -> Position {
        Position {
            handle: self.handle,
            offset,
        }
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let VolumeTree { volume, .. } = &self.tree;
            self.tree.runtime.block_on(volume.abandon(self.handle));
        }
    }
}
