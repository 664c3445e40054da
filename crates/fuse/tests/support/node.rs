//! The tree of files.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Attributes, Entry, FileKind, HandleId, Inode};

use super::volume::TTL;

pub enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, Inode>),
    Symlink(Bytes),
}

pub struct Node {
    pub attributes: Attributes,
    pub content: Content,
    pub name: String,
    pub references: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Handle {
    pub inode: Inode,
    pub append: bool,
}

pub struct Tree {
    pub nodes: HashMap<Inode, Node>,
    pub handles: HashMap<HandleId, Handle>,
    next: u64,
    /// How long the kernel may believe entries.
    pub ttl: Duration,
    /// What a correct door never does.
    pub violations: Vec<String>,
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Self {
            nodes: HashMap::new(),
            handles: HashMap::new(),
            next: 1,
            ttl: TTL,
            violations: Vec::new(),
        };
        tree.add("", Content::Directory(BTreeMap::new()), 0o755);
        tree
    }

    pub fn add(&mut self, name: &str, content: Content, permissions: u16) -> Inode {
        let inode = Inode(self.number());
        let kind = match content {
            Content::File(_) => FileKind::Regular,
            Content::Directory(_) => FileKind::Directory,
            Content::Symlink(_) => FileKind::Symlink,
        };
        let now = clock::wall_time();
        let attributes = Attributes {
            permissions,
            ..Attributes::new(inode, kind, now)
        };
        let node = Node {
            attributes,
            content,
            name: name.into(),
            references: 0,
        };
        self.nodes.insert(inode, node);
        inode
    }

    pub fn open(&mut self, inode: Inode, append: bool) -> HandleId {
        let handle = HandleId(self.number());
        self.handles.insert(handle, Handle { inode, append });
        handle
    }

    pub fn close(&mut self, handle: HandleId) {
        if self.handles.remove(&handle).is_none() {
            self.violations.push(format!("{handle:?} released twice"));
        }
    }

    pub fn node(&mut self, inode: Inode) -> FsResult<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(FsError::Stale)
    }

    pub fn handle(&self, handle: HandleId) -> FsResult<Handle> {
        self.handles.get(&handle).copied().ok_or(FsError::BadHandle)
    }

    pub fn file(&mut self, inode: Inode) -> FsResult<&mut Vec<u8>> {
        match &mut self.node(inode)?.content {
            Content::File(bytes) => Ok(bytes),
            _ => Err(FsError::IsADirectory),
        }
    }

    pub fn children(&mut self, inode: Inode) -> FsResult<&mut BTreeMap<String, Inode>> {
        match &mut self.node(inode)?.content {
            Content::Directory(children) => Ok(children),
            _ => Err(FsError::NotADirectory),
        }
    }

    pub fn child(&mut self, parent: Inode, name: &FileName) -> FsResult<Option<Inode>> {
        let name = super::volume::text(name);
        let children = self.children(parent)?;
        Ok(name.and_then(|name| children.get(name)).copied())
    }

    /// The directory that has an entry for a directory; the root for itself.
    pub fn parent(&self, directory: Inode) -> FsResult<Inode> {
        let has_it = |node: &Node| match &node.content {
            Content::Directory(children) => children.values().any(|child| *child == directory),
            _ => false,
        };
        let mut nodes = self.nodes.iter();
        let found = nodes
            .find(|(_, node)| has_it(node))
            .map(|(inode, _)| *inode);
        found
            .or((directory == Inode::ROOT).then_some(directory))
            .ok_or(FsError::Stale)
    }

    /// An entry without a reference.
    pub fn entry(&mut self, inode: Inode) -> FsResult<Entry> {
        let node = self.node(inode)?;
        if let Content::File(bytes) = &node.content {
            node.attributes.size = bytes.len() as u64;
            node.attributes.allocated = node.attributes.size;
        }
        Ok(Entry {
            attributes: node.attributes.clone(),
            entry_ttl: self.ttl,
            attributes_ttl: self.ttl,
        })
    }

    /// An entry with a reference.
    pub fn refer(&mut self, inode: Inode) -> FsResult<Entry> {
        self.node(inode)?.references += 1;
        self.entry(inode)
    }

    pub fn forget(&mut self, inode: Inode, count: u64) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        if node.references < count {
            let text = format!("{inode:?}: {} forgotten of {}", count, node.references);
            self.violations.push(text);
        }
        node.references = node.references.saturating_sub(count);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}
