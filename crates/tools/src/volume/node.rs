//! A file of any kind, held by one reference.

use std::io;

use bytes::Bytes;
use penstock_vfs::{AttributeChanges, Attributes, OpenOptions, XattrMode};

use super::{VolumeFile, VolumeTree};

/// A file of any kind. It can be asked for as long as this lives, whatever becomes of its name.
#[derive(Debug)]
pub struct VolumeNode {
    pub(super) tree: VolumeTree,
    attributes: Attributes,
}

impl VolumeNode {
    /// Takes over the reference that came with `attributes`.
    pub(super) fn holding(tree: &VolumeTree, attributes: Attributes) -> Self {
        Self {
            tree: tree.clone(),
            attributes,
        }
    }

    /// What it was when it was found.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The tree that it is in.
    pub fn tree(&self) -> &VolumeTree {
        &self.tree
    }

    /// What it is now.
    pub fn stat(&self) -> io::Result<Attributes> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let entry = self.tree.wait(volume.attributes(by, self.attributes.inode));
        entry.map(|entry| entry.attributes)
    }

    /// Changes mode, owner, size or times.
    pub fn set_attributes(&self, changes: AttributeChanges) -> io::Result<Attributes> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let changed = volume.set_attributes(by, self.attributes.inode, changes);
        self.tree.wait(changed).map(|entry| entry.attributes)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self) -> io::Result<Bytes> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let target = volume.read_symlink(by, self.attributes.inode);
        self.tree.wait(target)
    }

    /// Opens what is a regular file.
    pub fn open(&self, options: OpenOptions) -> io::Result<VolumeFile> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let opened = volume.open(by, self.attributes.inode, options);
        let opened = self.tree.wait(opened)?;
        Ok(VolumeFile::new(&self.tree, opened.handle))
    }

    /// The names of its extended attributes.
    pub fn xattrs(&self) -> io::Result<Vec<Bytes>> {
        let VolumeTree { volume, by, .. } = &self.tree;
        self.tree.wait(volume.xattrs(by, self.attributes.inode))
    }

    /// The value of one.
    pub fn xattr(&self, name: &[u8]) -> io::Result<Bytes> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let value = volume.xattr(by, self.attributes.inode, name);
        self.tree.wait(value)
    }

    /// Sets one, whether it is there or not.
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let inode = self.attributes.inode;
        let set = volume.set_xattr(by, inode, name, value, XattrMode::Set);
        self.tree.wait(set)
    }

    /// Removes one.
    pub fn remove_xattr(&self, name: &[u8]) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let removed = volume.remove_xattr(by, self.attributes.inode, name);
        self.tree.wait(removed)
    }
}

impl Drop for VolumeNode {
    fn drop(&mut self) {
        self.tree.volume.forget(self.attributes.inode, 1);
    }
}
