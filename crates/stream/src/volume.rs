//! The snapshot as a plain file system, without a disk and without a kernel's driver for one.
//!
//! The tree is an image of our own ([`DirectoryIndex`]), written by the same pass that writes an
//! EROFS image, so both show the same names. Bytes come through the same [`DataPath`] as those of
//! the disks. No request but a GET ever leaves: names, sizes and times are in the index.
//!
//! Nothing changes while the volume is mounted. The kernel is therefore told to believe everything
//! for [`TTL`] and to keep what it read. In direct mode it keeps nothing: each read of a program
//! becomes one request, and each request one GET.
//!
//! Inode numbers are places in the index, and so are handles. No table of either is kept: nothing
//! grows with the number of files that were looked at, and forgetting is free.

mod answers;
mod index;
mod node;
#[cfg(test)]
mod tests;
mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, NAME_LENGTH_MAX, Payload};
use penstock_vfs::{
    Dentry, DirectorySink, Entry, Features, FileKind, HandleId, Identity, Inode, ListFrom, Lookup,
    NodeId, OpenOptions, Opened, Position, Statistics, Volume,
};

use self::answers::Answers;
pub use self::{index::DirectoryIndex, writer::DirectoryIndexWriter};
use crate::{
    BLOCK_SIZE, DataPath, MappedObject, Permissions, disk::damaged_map, volume::node::Node,
};

/// How long the kernel may believe what it was told.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A snapshot as files and directories.
#[derive(Debug)]
pub struct StreamVolume {
    index: DirectoryIndex,
    data: Arc<DataPath>,
    answers: Answers,
}

impl StreamVolume {
    /// Shows the tree of `index`, whose files lie where the map of `data` says.
    pub fn new(index: DirectoryIndex, data: Arc<DataPath>, permissions: Permissions) -> Self {
        // Another index has other files in the same slots.
        let generation = index.checksum();
        Self {
            index,
            data,
            answers: Answers::new(permissions, generation),
        }
    }

    fn node(&self, inode: Inode) -> FsResult<Node> {
        let slot = match inode {
            Inode::ROOT => self.index.root(),
            Inode(number) => Answers::slot_of(number).ok_or(FsError::Stale)?,
        };
        self.index.node(slot).map_err(|error| damaged_map(&error))
    }

    fn file(&self, handle: HandleId) -> FsResult<(Node, MappedObject)> {
        let node = self.node(Inode(handle.0)).map_err(|_| FsError::BadHandle)?;
        let start = node.start().ok_or(FsError::BadHandle)?;
        let found = self.data.map().find(start);
        let found = found.map_err(|error| damaged_map(&error))?;
        let object = found.filter(|object| object.size == node.size);
        let object = object.ok_or_else(|| {
            let why = "the tree and the map of objects do not fit together: build both again";
            FsError::Corrupt(why.to_owned())
        })?;
        Ok((node, object))
    }

    fn directory(&self, inode: Inode) -> FsResult<Node> {
        let node = self.node(inode)?;
        match node.kind {
            FileKind::Directory => Ok(node),
            _ => Err(FsError::NotADirectory),
        }
    }
}

#[async_trait]
impl Volume for StreamVolume {
    fn features(&self) -> Features {
        Features {
            persistent_ids: true,
            ..Features::READ_ONLY
        }
    }

    async fn lookup(&self, _by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let directory = self.directory(dentry.parent)?;
        let found = self.index.lookup(&directory, dentry.name.as_bytes());
        let found = found.map_err(|error| damaged_map(&error))?;
        Ok(match found {
            Some((slot, node)) => Lookup::Found(self.answers.entry(Answers::inode(slot), &node)),
            None => Lookup::Absent(TTL),
        })
    }

    /// No node says where it hangs: the directories are searched for it, which takes a second for millions of names.
    async fn parent(&self, by: &Identity, directory: Inode) -> FsResult<Entry> {
        self.directory(directory)?;
        let parent = match Answers::slot_of(directory.0) {
            Some(slot) if directory != Inode::ROOT => self.index.parent_of(slot),
            _ => Ok(Some(self.index.root())),
        };
        let slot = parent.map_err(|error| damaged_map(&error))?;
        let slot = slot.ok_or(FsError::Stale)?;
        let inode = if slot == self.index.root() {
            Inode::ROOT
        } else {
            Answers::inode(slot)
        };
        self.attributes(by, inode).await
    }

    /// Which index, and where in it.
    fn node_id(&self, inode: Inode) -> Option<NodeId> {
        let index = self.index.checksum().to_be_bytes();
        NodeId::new(&[&index[..], &inode.0.to_be_bytes()].concat())
    }

    async fn resolve(&self, by: &Identity, id: &NodeId) -> FsResult<Entry> {
        let (index, number) = id.as_bytes().split_at_checked(4).ok_or(FsError::Stale)?;
        let number = number.try_into().map_err(|_| FsError::Stale)?;
        let inode = Inode(u64::from_be_bytes(number));
        let is_there = match Answers::slot_of(inode.0) {
            Some(slot) => slot < self.index.nodes(),
            None => inode == Inode::ROOT,
        };
        if index != self.index.checksum().to_be_bytes() || !is_there {
            return Err(FsError::Stale);
        }
        self.attributes(by, inode).await
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        Ok(self.answers.entry(inode, &self.node(inode)?))
    }

    async fn read_symlink(&self, _by: &Identity, inode: Inode) -> FsResult<Bytes> {
        let node = self.node(inode)?;
        let target = self.index.target(&node);
        let target = target.map_err(|error| damaged_map(&error))?;
        target
            .map(Bytes::copy_from_slice)
            .ok_or(FsError::InvalidArgument("only symbolic links have targets"))
    }

    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        let entry = self.attributes(by, inode).await?;
        Ok(Opened {
            passes_once: self.data.settings().direct,
            is_unchanged: true,
            ..Opened::to_read(&entry.attributes, options)?
        })
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let Position { handle, offset } = at;
        let size = self.node(Inode(handle.0))?.size;
        let end = size.min(offset.saturating_add(length.into()));
        if offset >= end {
            return Ok(Payload::new());
        }
        let (_, object) = self.file(handle)?;
        self.data.read(&object, offset..end).await
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let directory = self.directory(Inode(handle.0))?;
        let position = match from {
            ListFrom::Position(position) => position,
            ListFrom::After(name) => {
                let after = self.index.after(&directory, name.as_bytes());
                after.map_err(|error| damaged_map(&error))?
            }
        };
        for position in position..directory.size {
            let entry = self.index.entry(&directory, position);
            let (name, slot) = entry.map_err(|error| damaged_map(&error))?;
            let Ok(name) = FileName::new(name) else {
                continue;
            };
            let node = self.index.node(slot);
            let node = node.map_err(|error| damaged_map(&error))?;
            let entry = self.answers.entry(Answers::inode(slot), &node);
            if sink.push(position + 1, &name, &entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn statistics(&self, _by: &Identity, _inode: Inode) -> FsResult<Statistics> {
        let map = self.data.map();
        let blocks = (0..map.disks()).map(|disk| map.disk_blocks(disk)).sum();
        Ok(Statistics {
            block_size: BLOCK_SIZE as u32,
            blocks,
            blocks_free: 0,
            blocks_available: 0,
            files: self.index.nodes(),
            files_free: 0,
            name_length_max: NAME_LENGTH_MAX as u32,
        })
    }
}
