//! A volume: files whose content is made when it is read.
//!
//! The nodes stand in one list, and the number of an inode is a place in it: so an inode lives as long as the volume,
//! no reference is counted, and the handle of an open file is the number of its inode. What a volume says itself is
//! below; whatever changes files is refused by the defaults of [`Volume`].

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, NameError, Payload};
use penstock_vfs::{
    Attributes, Dentry, DirectorySink, Entry, Features, FileKind, HandleId, Identity, Inode,
    ListFrom, Lookup, Position, Volume,
};

/// How long a door may believe what it is told: no longer than the next look, for a generator may make something else.
const TTL: Duration = Duration::ZERO;

/// Makes the content of a file.
pub type Generator = Box<dyn Fn() -> Bytes + Send + Sync>;

/// Files that are made when somebody reads them.
pub struct GeneratedVolume {
    /// The first is the root, which has number 1.
    nodes: Vec<Node>,
    made_at: SystemTime,
}

/// A file if something generates it, else a directory.
struct Node {
    parent: Inode,
    generator: Option<Generator>,
    names: BTreeMap<FileName, Inode>,
}

impl GeneratedVolume {
    /// A volume that holds nothing, whose files and directories all bear the time `made_at`.
    pub fn new(made_at: SystemTime) -> Self {
        let nodes = vec![Node::in_directory(Inode::ROOT)];
        Self { nodes, made_at }
    }

    /// The same with a file at `path`, whose directories are made with it. Of two files with one path the last counts.
    pub fn with(mut self, path: &str, generator: Generator) -> Result<Self, NameError> {
        let place = |inode: Inode| inode.0 as usize - 1;
        let mut at = Inode::ROOT;
        for part in path.split('/') {
            let name = FileName::new(part.as_bytes())?;
            let next = Inode(self.nodes.len() as u64 + 1);
            let child = *self.nodes[place(at)].names.entry(name).or_insert(next);
            if child == next {
                self.nodes.push(Node::in_directory(at));
            }
            at = child;
        }
        self.nodes[place(at)].generator = Some(generator);
        Ok(self)
    }

    fn node(&self, inode: Inode) -> FsResult<&Node> {
        let place = inode.0.checked_sub(1).ok_or(FsError::Stale)?;
        self.nodes.get(place as usize).ok_or(FsError::Stale)
    }

    fn names(&self, directory: Inode) -> FsResult<&BTreeMap<FileName, Inode>> {
        let node = self.node(directory)?;
        let is_directory = node.generator.is_none();
        is_directory
            .then_some(&node.names)
            .ok_or(FsError::NotADirectory)
    }

    fn entry(&self, inode: Inode) -> FsResult<Entry> {
        let (kind, permissions, size) = match &self.node(inode)?.generator {
            None => (FileKind::Directory, 0o555, 0),
            Some(generate) => (FileKind::Regular, 0o444, generate().len() as u64),
        };
        Ok(Entry {
            attributes: Attributes {
                permissions,
                size,
                ..Attributes::new(inode, kind, self.made_at)
            },
            entry_ttl: TTL,
            attributes_ttl: TTL,
        })
    }
}

impl Node {
    fn in_directory(parent: Inode) -> Self {
        Self {
            parent,
            generator: None,
            names: BTreeMap::new(),
        }
    }
}

#[async_trait]
impl Volume for GeneratedVolume {
    fn features(&self) -> Features {
        Features::READ_ONLY
    }

    async fn lookup(&self, _by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let found = self.names(dentry.parent)?.get(dentry.name);
        let found = found.map(|inode| self.entry(*inode).map(Lookup::Found));
        found.unwrap_or(Ok(Lookup::Absent(TTL)))
    }

    async fn parent(&self, _by: &Identity, directory: Inode) -> FsResult<Entry> {
        self.entry(self.node(directory)?.parent)
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.entry(inode)
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let file = self.node(Inode(at.handle.0))?;
        let generate = file.generator.as_ref().ok_or(FsError::IsADirectory)?;
        let end = at.offset.saturating_add(length.into());
        Ok(Payload::from(generate()).slice(&(at.offset..end)))
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let names = self.names(Inode(handle.0))?;
        let first = match from {
            ListFrom::Position(position) => position as usize,
            ListFrom::After(last) => names.keys().take_while(|name| *name <= last).count(),
        };
        for (place, (name, inode)) in names.iter().enumerate().skip(first) {
            let entry = self.entry(*inode)?;
            if sink.push(place as u64 + 1, name, &entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}
