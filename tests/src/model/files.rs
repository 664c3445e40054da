//! Steps on files and their handles.
//!
//! Under [`Rules::Streaming`] a file that was written has a *draft*, which belongs to the handle
//! that writes it, until that handle is closed or synced. Then the draft is *stored*. Under
//! [`Rules::Posix`] there are no drafts.

use super::{
    state::{Model, Node, NodeId, Rules},
    step::{Access, Content, Expected, OpenMode, Outcome, Slot},
};
use crate::system::{Errno, Status, SystemResult};

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    stored: Vec<u8>,
    draft: Option<Draft>,
    removed: bool,
}

/// What a handle wrote and nobody may read yet.
#[derive(Debug, Clone)]
struct Draft {
    owner: Slot,
    content: Vec<u8>,
}

/// An open handle.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    node: NodeId,
    access: Access,
    append: bool,
}

impl File {
    /// A file that somebody else wrote.
    pub(super) fn planted(path: &str) -> Self {
        Self {
            stored: path.as_bytes().to_vec(),
            ..Self::default()
        }
    }

    /// What `stat` says.
    pub(super) fn size(&self) -> u64 {
        self.content().len() as u64
    }

    /// The newest content.
    pub(super) fn content(&self) -> &[u8] {
        match &self.draft {
            Some(draft) => &draft.content,
            None => &self.stored,
        }
    }

    /// Stores the draft, if there is one.
    fn store(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.stored = draft.content;
        }
    }

    /// Whether another handle than `slot` is writing.
    fn is_written_by_other(&self, slot: Option<Slot>) -> bool {
        self.draft
            .as_ref()
            .is_some_and(|draft| Some(draft.owner) != slot)
    }

    /// The content to change on behalf of `slot`.
    fn content_mut(&mut self, rules: Rules, slot: Slot) -> &mut Vec<u8> {
        match rules {
            Rules::Posix => &mut self.stored,
            Rules::Streaming => {
                let content = self.stored.clone();
                let draft = self.draft.get_or_insert(Draft {
                    owner: slot,
                    content,
                });
                &mut draft.content
            }
        }
    }

    fn slice(&self, offset: u64, length: usize) -> Outcome {
        let content = self.content();
        let start = content.len().min(offset as usize);
        let end = content.len().min(start + length);
        Outcome::Data(Content(content[start..end].to_vec()))
    }
}

impl Model {
    pub(super) fn open(&mut self, slot: Slot, path: &str, mode: OpenMode) -> SystemResult<()> {
        let node = match self.find(path) {
            Ok(_) if mode.exclusive => return Err(Errno(libc::EEXIST)),
            Ok(node) if self.is_directory(node) && (mode.create || mode.access.writes()) => {
                return Err(Errno(libc::EISDIR));
            }
            Ok(node) => node,
            Err(Errno(libc::ENOENT)) if mode.create => self.create(path, slot)?,
            Err(error) => return Err(error),
        };
        if mode.truncate {
            self.empty(node, slot)?;
        }
        let handle = Handle {
            node,
            access: mode.access,
            append: mode.append,
        };
        self.handles.insert(slot, handle);
        Ok(())
    }

    fn create(&mut self, path: &str, slot: Slot) -> SystemResult<NodeId> {
        let (parent, name) = self.parent_of(path)?;
        let mut file = File::default();
        file.content_mut(self.rules, slot);
        let node = self.add(Node::File(file));
        self.link(parent, name, node);
        Ok(node)
    }

    pub(super) fn write(&mut self, slot: Slot, offset: u64, data: &[u8]) -> SystemResult<usize> {
        let handle = self.handles[&slot].clone();
        let rules = self.rules;
        if !handle.access.writes() {
            return Err(Errno(libc::EBADF));
        }
        let file = self.file_mut(handle.node)?;
        let length = file.content().len();
        let offset = if handle.append {
            length
        } else {
            offset as usize
        };
        if rules == Rules::Streaming {
            check_stream(file, slot, offset)?;
        }
        let content = file.content_mut(rules, slot);
        let end = offset + data.len();
        content.resize(length.max(end), 0);
        content[offset..end].copy_from_slice(data);
        Ok(data.len())
    }

    pub(super) fn read(&mut self, slot: Slot, offset: u64, length: usize) -> Expected {
        let handle = &self.handles[&slot];
        if !handle.access.reads() {
            return Outcome::Failed(Errno(libc::EBADF)).into();
        }
        let Node::File(file) = &self.nodes[handle.node] else {
            return Outcome::Failed(Errno(libc::EISDIR)).into();
        };
        let data = file.slice(offset, length);
        // The kernel may know the answer already, from its cache or because it lies beyond the
        // end; then nobody is asked.
        if file.draft.is_some() {
            return Expected(vec![Outcome::Failed(Errno(libc::EBUSY)), data]);
        }
        if file.removed && self.rules == Rules::Streaming {
            return Expected(vec![Outcome::Failed(Errno(libc::ESTALE)), data]);
        }
        data.into()
    }

    pub(super) fn truncate_open(&mut self, slot: Slot, size: u64) -> SystemResult<()> {
        let handle = self.handles[&slot].clone();
        if !handle.access.writes() {
            return Err(Errno(libc::EINVAL));
        }
        if self.rules == Rules::Posix || size != 0 {
            return self.resize(handle.node, size);
        }
        self.empty(handle.node, slot)
    }

    pub(super) fn truncate(&mut self, path: &str, size: u64) -> SystemResult<()> {
        const NOBODY: Slot = Slot::MAX;
        let node = self.find(path)?;
        if self.is_directory(node) {
            return Err(Errno(libc::EISDIR));
        }
        if self.rules == Rules::Posix || size != 0 {
            return self.resize(node, size);
        }
        self.empty(node, NOBODY)?;
        self.file_mut(node)?.store();
        Ok(())
    }

    fn resize(&mut self, node: NodeId, size: u64) -> SystemResult<()> {
        let rules = self.rules;
        let file = self.file_mut(node)?;
        if rules == Rules::Posix {
            file.stored.resize(size as usize, 0);
        } else if file.size() != size {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(())
    }

    /// Truncates to nothing on behalf of `slot`.
    fn empty(&mut self, node: NodeId, slot: Slot) -> SystemResult<()> {
        let rules = self.rules;
        let file = self.file_mut(node)?;
        if file.is_written_by_other(Some(slot)) {
            return Err(Errno(libc::EBUSY));
        }
        if file.size() == 0 {
            return Ok(());
        }
        if file.removed && rules == Rules::Streaming {
            return Err(Errno(libc::ESTALE));
        }
        file.content_mut(rules, slot).clear();
        Ok(())
    }

    pub(super) fn sync(&mut self, slot: Slot) -> SystemResult<()> {
        let node = self.handles[&slot].node;
        if let Node::File(file) = &mut self.nodes[node]
            && !file.is_written_by_other(Some(slot))
        {
            file.store();
        }
        Ok(())
    }

    pub(super) fn close(&mut self, slot: Slot) -> SystemResult<()> {
        self.sync(slot)?;
        self.handles.remove(&slot);
        Ok(())
    }

    pub(super) fn status_open(&self, slot: Slot) -> SystemResult<Status> {
        Ok(self.status_of(self.handles[&slot].node))
    }

    /// A file lost its name. What was written to it and not stored is gone.
    pub(super) fn on_removed(&mut self, node: NodeId) {
        if let Node::File(file) = &mut self.nodes[node] {
            file.draft = None;
            file.removed = true;
        }
    }

    /// A file or directory is about to get another name: what is written below it is stored.
    pub(super) fn on_renaming(&mut self, node: NodeId) {
        match &mut self.nodes[node] {
            Node::File(file) => file.store(),
            Node::Directory(entries) => {
                for entry in entries.clone().into_values() {
                    self.on_renaming(entry);
                }
            }
        }
    }

    /// The open slots, oldest first.
    pub(super) fn open_slots(&self) -> Vec<Slot> {
        self.handles.keys().copied().collect()
    }

    fn file_mut(&mut self, node: NodeId) -> SystemResult<&mut File> {
        match &mut self.nodes[node] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(Errno(libc::EISDIR)),
        }
    }
}

/// Whether `slot` may write at `offset` of a file that can only grow, from one end.
fn check_stream(file: &File, slot: Slot, offset: usize) -> SystemResult<()> {
    if file.is_written_by_other(Some(slot)) {
        return Err(Errno(libc::EBUSY));
    }
    if file.removed {
        return Err(Errno(libc::ESTALE));
    }
    if offset != file.content().len() {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}
