//! Steps on files and their handles.

use std::collections::BTreeMap;

use super::{
    state::{Model, Node, NodeId, Rules},
    step::{Access, Content, OpenMode, Outcome, Slot},
};
use crate::system::{Errno, Status, SystemResult};

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    content: Vec<u8>,
}

impl File {
    /// What `stat` says.
    pub(super) fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// What somebody who opens it now reads.
    pub(super) fn content_for_new_reader(&self) -> &[u8] {
        &self.content
    }
}

/// An open handle.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    node: NodeId,
    access: Access,
    append: bool,
}

impl Model {
    pub(super) fn open(&mut self, slot: Slot, path: &str, mode: OpenMode) -> SystemResult<()> {
        let node = match self.find(path) {
            Ok(_) if mode.exclusive => return Err(Errno(libc::EEXIST)),
            Ok(node) if self.is_directory(node) && (mode.create || mode.access.writes()) => {
                return Err(Errno(libc::EISDIR));
            }
            Ok(node) => node,
            Err(Errno(libc::ENOENT)) if mode.create => self.create(path)?,
            Err(error) => return Err(error),
        };
        if mode.truncate
            && let Node::File(file) = &mut self.nodes[node]
        {
            file.content.clear();
        }
        let handle = Handle {
            node,
            access: mode.access,
            append: mode.append,
        };
        self.handles.insert(slot, handle);
        Ok(())
    }

    fn create(&mut self, path: &str) -> SystemResult<NodeId> {
        let (parent, name) = self.parent_of(path)?;
        let node = self.add(Node::File(File::default()));
        self.link(parent, name, node);
        Ok(node)
    }

    pub(super) fn write(&mut self, slot: Slot, offset: u64, data: &[u8]) -> Outcome {
        let handle = self.handles[&slot].clone();
        if !handle.access.writes() {
            return Outcome::Failed(Errno(libc::EBADF));
        }
        let Node::File(file) = &mut self.nodes[handle.node] else {
            return Outcome::Failed(Errno(libc::EBADF));
        };
        let offset = if handle.append {
            file.content.len()
        } else {
            offset as usize
        };
        if self.rules == Rules::Streaming && offset != file.content.len() {
            return Outcome::Failed(Errno(libc::EINVAL));
        }
        let end = offset + data.len();
        if file.content.len() < end {
            file.content.resize(end, 0);
        }
        file.content[offset..end].copy_from_slice(data);
        Outcome::Wrote(data.len())
    }

    pub(super) fn read(&mut self, slot: Slot, offset: u64, length: usize) -> Outcome {
        let handle = &self.handles[&slot];
        if !handle.access.reads() {
            return Outcome::Failed(Errno(libc::EBADF));
        }
        match &self.nodes[handle.node] {
            Node::Directory(_) => Outcome::Failed(Errno(libc::EISDIR)),
            Node::File(file) => {
                let start = file.content.len().min(offset as usize);
                let end = file.content.len().min(start + length);
                Outcome::Data(Content(file.content[start..end].to_vec()))
            }
        }
    }

    pub(super) fn truncate_open(&mut self, slot: Slot, size: u64) -> SystemResult<()> {
        let handle = self.handles[&slot].clone();
        if !handle.access.writes() {
            return Err(Errno(libc::EINVAL));
        }
        self.resize(handle.node, size)
    }

    pub(super) fn truncate(&mut self, path: &str, size: u64) -> SystemResult<()> {
        let node = self.find(path)?;
        self.resize(node, size)
    }

    fn resize(&mut self, node: NodeId, size: u64) -> SystemResult<()> {
        match &mut self.nodes[node] {
            Node::Directory(_) => Err(Errno(libc::EISDIR)),
            Node::File(file) => {
                file.content.resize(size as usize, 0);
                Ok(())
            }
        }
    }

    pub(super) fn sync(&mut self, _slot: Slot) -> SystemResult<()> {
        Ok(())
    }

    pub(super) fn close(&mut self, slot: Slot) -> SystemResult<()> {
        self.handles.remove(&slot);
        Ok(())
    }

    pub(super) fn status_open(&self, slot: Slot) -> SystemResult<Status> {
        Ok(self.status_of(self.handles[&slot].node))
    }

    /// A file lost its name.
    pub(super) fn on_removed(&mut self, _node: NodeId) {}

    /// A file or directory is about to get another name.
    pub(super) fn on_renaming(
        &mut self,
        _node: NodeId,
        _replaced: Option<NodeId>,
    ) -> SystemResult<()> {
        Ok(())
    }

    /// The open slots, oldest first.
    pub(super) fn open_slots(&self) -> Vec<Slot> {
        let handles: &BTreeMap<_, _> = &self.handles;
        handles.keys().copied().collect()
    }
}
