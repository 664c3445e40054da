//! Nodes and names.

use std::{
    collections::{BTreeMap, HashMap},
    time::SystemTime,
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{Attributes, CallId, Dentry, FileKind, Identity, Inode};

/// Bytes in the largest file: they are all in memory.
const FILE_MAX: u64 = 1 << 30;

/// What a node holds.
#[derive(Debug)]
pub(super) enum Content {
    File(Vec<u8>),
    Directory {
        names: BTreeMap<FileName, Inode>,
        parent: Inode,
    },
    Symlink(Bytes),
    /// A pipe, a socket or a device.
    Nothing,
}

impl Content {
    pub(super) fn directory(parent: Inode) -> Self {
        Self::Directory {
            names: BTreeMap::new(),
            parent,
        }
    }
}

#[derive(Debug)]
struct Node {
    attributes: Attributes,
    content: Content,
    xattrs: BTreeMap<Vec<u8>, Bytes>,
    /// References and open handles. A node without a name stays as long as there are some.
    held: u64,
    /// With which number it was made.
    verifier: Option<u64>,
}

/// All nodes of a volume.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<Inode, Node>,
    last: u64,
    /// The calls in which names were changed, with the file that it was about.
    pub(super) calls: HashMap<CallId, Inode>,
}

impl Tree {
    pub(super) fn new(now: SystemTime) -> Self {
        let root = Inode::ROOT;
        let mut attributes = Attributes::new(root, FileKind::Directory, now);
        attributes.permissions = 0o755;
        let node = Node {
            attributes,
            content: Content::directory(root),
            xattrs: BTreeMap::new(),
            held: 1,
            verifier: None,
        };
        Self {
            nodes: HashMap::from([(root, node)]),
            last: root.0,
            calls: HashMap::new(),
        }
    }

    /// The file of the change that `by` asks for, if it was made before.
    pub(super) fn made_before(&self, by: &Identity) -> Option<Inode> {
        self.calls.get(&by.call?).copied()
    }

    /// A change that `by` asked for was made.
    pub(super) fn remember(&mut self, by: &Identity, inode: Inode) {
        if let Some(call) = by.call {
            self.calls.insert(call, inode);
        }
    }

    fn node(&self, inode: Inode) -> FsResult<&Node> {
        self.nodes.get(&inode).ok_or(FsError::Stale)
    }

    fn node_mut(&mut self, inode: Inode) -> FsResult<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(FsError::Stale)
    }

    pub(super) fn attributes(&self, inode: Inode) -> FsResult<Attributes> {
        Ok(self.node(inode)?.attributes.clone())
    }

    pub(super) fn attributes_mut(&mut self, inode: Inode) -> FsResult<&mut Attributes> {
        Ok(&mut self.node_mut(inode)?.attributes)
    }

    pub(super) fn content(&self, inode: Inode) -> FsResult<&Content> {
        Ok(&self.node(inode)?.content)
    }

    pub(super) fn xattrs(&mut self, inode: Inode) -> FsResult<&mut BTreeMap<Vec<u8>, Bytes>> {
        Ok(&mut self.node_mut(inode)?.xattrs)
    }

    pub(super) fn verifier(&self, inode: Inode) -> FsResult<Option<u64>> {
        Ok(self.node(inode)?.verifier)
    }

    pub(super) fn verify(&mut self, inode: Inode, number: u64) -> FsResult<()> {
        self.node_mut(inode)?.verifier = Some(number);
        Ok(())
    }

    pub(super) fn forget_verifier(&mut self, inode: Inode) -> FsResult<()> {
        self.node_mut(inode)?.verifier = None;
        Ok(())
    }

    pub(super) fn hold(&mut self, inode: Inode) -> FsResult<()> {
        self.node_mut(inode)?.held += 1;
        Ok(())
    }

    pub(super) fn forget(&mut self, inode: Inode, count: u64) {
        if let Ok(node) = self.node_mut(inode) {
            node.held = node.held.saturating_sub(count);
            self.drop_unused(inode);
        }
    }

    fn drop_unused(&mut self, inode: Inode) {
        let is_unused = |node: &Node| node.held == 0 && node.attributes.links == 0;
        if self.nodes.get(&inode).is_some_and(is_unused) {
            self.nodes.remove(&inode);
        }
    }

    fn names_mut(&mut self, directory: Inode) -> FsResult<&mut BTreeMap<FileName, Inode>> {
        match &mut self.node_mut(directory)?.content {
            Content::Directory { names, .. } => Ok(names),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// The names in a directory, in order.
    pub(super) fn names(
        &mut self,
        directory: Inode,
    ) -> FsResult<impl Iterator<Item = (FileName, Inode)> + use<>> {
        Ok(self.names_mut(directory)?.clone().into_iter())
    }

    pub(super) fn find(&mut self, dentry: Dentry<'_>) -> FsResult<Option<Inode>> {
        Ok(self.names_mut(dentry.parent)?.get(dentry.name).copied())
    }

    pub(super) fn parent(&self, directory: Inode) -> FsResult<Inode> {
        match self.content(directory)? {
            Content::Directory { parent, .. } => Ok(*parent),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Makes a node under a free name.
    pub(super) fn add(
        &mut self,
        dentry: Dentry<'_>,
        (kind, content): (FileKind, Content),
        now: SystemTime,
    ) -> FsResult<Inode> {
        self.last += 1;
        let inode = Inode(self.last);
        let mut attributes = Attributes::new(inode, kind, now);
        attributes.links = 0;
        if let Content::Symlink(target) = &content {
            attributes.size = target.len() as u64;
        }
        let node = Node {
            attributes,
            content,
            xattrs: BTreeMap::new(),
            held: 0,
            verifier: None,
        };
        self.nodes.insert(inode, node);
        self.link(dentry, inode, now)?;
        Ok(inode)
    }

    /// Gives a node one more name, which is free.
    pub(super) fn link(
        &mut self,
        dentry: Dentry<'_>,
        inode: Inode,
        now: SystemTime,
    ) -> FsResult<()> {
        self.names_mut(dentry.parent)?
            .insert(dentry.name.clone(), inode);
        let file = self.attributes_mut(inode)?;
        file.links += 1;
        file.changed = now;
        self.touch(dentry.parent, now)
    }

    /// Takes a name away.
    pub(super) fn unlink(&mut self, dentry: Dentry<'_>, now: SystemTime) -> FsResult<()> {
        let removed = self.names_mut(dentry.parent)?.remove(dentry.name);
        let inode = removed.ok_or(FsError::NotFound)?;
        let file = self.attributes_mut(inode)?;
        file.links -= 1;
        file.changed = now;
        self.touch(dentry.parent, now)?;
        self.drop_unused(inode);
        Ok(())
    }

    fn touch(&mut self, directory: Inode, now: SystemTime) -> FsResult<()> {
        let attributes = self.attributes_mut(directory)?;
        (attributes.modified, attributes.changed) = (now, now);
        Ok(())
    }

    pub(super) fn check_directory(&self, inode: Inode) -> FsResult<()> {
        self.parent(inode).map(drop)
    }

    pub(super) fn check_empty(&mut self, directory: Inode) -> FsResult<()> {
        if self.names_mut(directory)?.is_empty() {
            Ok(())
        } else {
            Err(FsError::DirectoryNotEmpty)
        }
    }

    /// Fails if `moved` would come to lie in itself.
    pub(super) fn check_move(&self, moved: Inode, into: Inode) -> FsResult<()> {
        let mut at = into;
        while at != Inode::ROOT {
            if at == moved {
                return Err(FsError::InvalidArgument(
                    "a directory cannot be moved into itself",
                ));
            }
            at = self.parent(at)?;
        }
        Ok(())
    }

    /// Fails if `moved` cannot take the place of what is `there`.
    pub(super) fn check_replaced(&mut self, moved: Inode, there: Inode) -> FsResult<()> {
        let moves_directory = self.attributes(moved)?.kind == FileKind::Directory;
        let replaces_directory = self.attributes(there)?.kind == FileKind::Directory;
        match (moves_directory, replaces_directory) {
            (true, false) => Err(FsError::NotADirectory),
            (false, true) => Err(FsError::IsADirectory),
            (true, true) => self.check_empty(there),
            (false, false) => Ok(()),
        }
    }

    /// Notes in which directory a directory is now.
    pub(super) fn moved(&mut self, inode: Inode, into: Inode) {
        if let Ok(node) = self.node_mut(inode)
            && let Content::Directory { parent, .. } = &mut node.content
        {
            *parent = into;
        }
    }

    pub(super) fn bytes(&mut self, inode: Inode) -> FsResult<&mut Vec<u8>> {
        match &mut self.node_mut(inode)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory { .. } => Err(FsError::IsADirectory),
            _ => Err(FsError::InvalidArgument("only files have bytes")),
        }
    }

    pub(super) fn resize(&mut self, inode: Inode, size: u64, now: SystemTime) -> FsResult<()> {
        if size > FILE_MAX {
            return Err(FsError::FileTooLarge);
        }
        self.bytes(inode)?.resize(size as usize, 0);
        self.note_written(inode, now)
    }

    pub(super) fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: SystemTime,
    ) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64);
        let end = end
            .filter(|end| *end <= FILE_MAX)
            .ok_or(FsError::FileTooLarge)? as usize;
        let bytes = self.bytes(inode)?;
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        self.note_written(inode, now)
    }

    fn note_written(&mut self, inode: Inode, now: SystemTime) -> FsResult<()> {
        let size = self.bytes(inode)?.len() as u64;
        let attributes = self.attributes_mut(inode)?;
        (attributes.size, attributes.allocated) = (size, size);
        (attributes.modified, attributes.changed) = (now, now);
        Ok(())
    }
}
