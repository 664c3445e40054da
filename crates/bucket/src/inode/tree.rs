//! The tree of nodes: walking it, and what it says of a node.

use std::{collections::HashMap, sync::Arc};

use penstock_base::{FsError, FsResult, MemoryBudget, Utf8Name, clock};
use penstock_object::Key;
use penstock_transfer::ObjectVersion;
use penstock_vfs::{FileKind, Inode};
use smallvec::SmallVec;

use crate::{
    inode::{
        cache::Cache,
        directory::{Dentry, Directory},
        holding::Holding,
        node::{Node, Place},
        numbers::ByInode,
    },
    key,
    open_file::OpenFile,
    write_back::Late,
};

/// All nodes of a volume. See [`crate::inode`].
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) nodes: ByInode<Box<Node>>,
    pub(super) last_inode: u64,
    /// Counts local changes, to tell older answers of the store from newer ones.
    pub(super) epoch: u64,
    pub(super) cache: Cache,
    pub(super) holding: Holding,
    pub(crate) moves: Moves,
    /// See [`TreeSettings::replaces`].
    pub(super) replaces: bool,
    pub(super) kept_cost: u64,
}

/// Directories that a change touches: one, or both ends of a rename.
pub(crate) type Touched = SmallVec<[Inode; 2]>;

/// Changes and moves under way; see [`super::gate`].
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(super) moving: Vec<Inode>,
    /// Those among them whose originals are being deleted.
    pub(super) removing: Vec<Inode>,
    /// Names that are being changed; see [`super::changing`].
    pub(super) changing: HashMap<Inode, Vec<Utf8Name>>,
    pub(super) entered: HashMap<u64, Touched>,
    pub(super) last_id: u64,
    /// Changes that wait to enter.
    pub(super) waiting: usize,
}

/// What a tree is told when it is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TreeSettings {
    /// Names remembered at most though nobody holds their files.
    pub(crate) remembered_max: usize,
    /// A file that another client changed gets another node, also if it is open and nothing of it was seen.
    pub(crate) replaces: bool,
    /// Bytes of what is kept of a file beside its node.
    pub(crate) kept_cost: u64,
}

impl Tree {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, settings: TreeSettings) -> Self {
        let mut root = Node::new(None, FileKind::Directory, None);
        root.lookups = 1;
        Self {
            nodes: ByInode::from_iter([(Inode::ROOT, Box::new(root))]),
            last_inode: Inode::ROOT.0,
            epoch: 0,
            cache: Cache::new(Arc::clone(budget), settings.remembered_max),
            holding: Holding::new(Arc::clone(budget)),
            moves: Moves::default(),
            replaces: settings.replaces,
            kept_cost: settings.kept_cost,
        }
    }

    /// Nodes that somebody holds, with those above them.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.cache.idle()
    }

    /// Directories that nobody holds and that stay for what they remember.
    pub(crate) fn idle(&self) -> usize {
        self.cache.idle()
    }

    /// Names that are remembered though nobody holds their files.
    pub(crate) fn remembered(&self) -> usize {
        self.cache.remembered()
    }

    /// Every node.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Inode, &Node)> {
        self.nodes.iter().map(|(inode, node)| (*inode, &**node))
    }

    /// A node, or `Stale` if nobody holds that number.
    pub(crate) fn node(&self, inode: Inode) -> FsResult<&Node> {
        self.nodes
            .get(&inode)
            .map(|node| &**node)
            .ok_or(FsError::Stale)
    }

    pub(crate) fn node_mut(&mut self, inode: Inode) -> FsResult<&mut Node> {
        self.nodes
            .get_mut(&inode)
            .map(|node| &mut **node)
            .ok_or(FsError::Stale)
    }

    /// The names in a directory. Fails with `NotADirectory`.
    pub(crate) fn directory(&self, inode: Inode) -> FsResult<&Directory> {
        let node = self.node(inode)?;
        node.directory.as_deref().ok_or(FsError::NotADirectory)
    }

    pub(crate) fn directory_mut(&mut self, inode: Inode) -> FsResult<&mut Directory> {
        let node = self.node_mut(inode)?;
        node.directory.as_deref_mut().ok_or(FsError::NotADirectory)
    }

    /// The prefix of the keys in a directory. Fails with `Stale` if it was removed or replaced.
    pub(crate) fn prefix(&self, directory: Inode) -> FsResult<String> {
        let mut names = Vec::new();
        let mut at = directory;
        while at != Inode::ROOT {
            let place = self.node(at)?.place.as_ref().ok_or(FsError::Stale)?;
            names.push(place.name.as_str());
            at = place.parent;
        }
        Ok(names
            .into_iter()
            .rev()
            .flat_map(|name| [name, "/"])
            .collect())
    }

    /// The key of a file. Fails with `Stale` if it was removed or replaced.
    pub(crate) fn file_key(&self, inode: Inode) -> FsResult<Key> {
        let place = self.node(inode)?.place.as_ref().ok_or(FsError::Stale)?;
        key::file_key(&self.prefix(place.parent)?, &place.name)
    }

    /// The directory that a directory is in; that of the root is itself. Fails with `Stale` if it is out of the
    /// tree.
    pub(crate) fn directory_above(&self, directory: Inode) -> FsResult<Inode> {
        if directory == Inode::ROOT {
            return Ok(Inode::ROOT);
        }
        self.directory(directory)?;
        self.parent(directory).ok_or(FsError::Stale)
    }

    /// The version of a file that the store is known to have.
    pub(crate) fn version(&self, inode: Inode) -> Option<ObjectVersion> {
        let known = self.node(inode).ok()?.known.as_ref()?;
        let (etag, size) = (known.etag.clone()?, known.size);
        let key = self.file_key(inode).ok()?;
        Some(ObjectVersion { key, etag, size })
    }

    /// The path of a file for messages to people.
    pub(crate) fn path(&self, inode: Inode) -> String {
        let key = self.file_key(inode);
        key.map_or_else(
            |_| format!("(removed file, inode {})", inode.0),
            |key| key.to_string(),
        )
    }

    /// The place that a key leads to, if memory holds all directories above it.
    pub(crate) fn place_in_memory(&self, key: &Key) -> Option<Place> {
        let path = key.as_str();
        let mut names = path.strip_suffix('/').unwrap_or(path).split('/');
        let name = Utf8Name::new(names.next_back()?).ok()?;
        let parent = names.try_fold(Inode::ROOT, |parent, name| {
            let name = Utf8Name::new(name).ok()?;
            self.entry(parent, &name)?.held()
        });
        Some(Place {
            parent: parent?,
            name,
        })
    }

    /// Whether `inode` is `ancestor` or lies below it.
    pub(crate) fn is_below(&self, inode: Inode, ancestor: Inode) -> bool {
        let mut at = Some(inode);
        while let Some(inode) = at {
            if inode == ancestor {
                return true;
            }
            at = self
                .nodes
                .get(&inode)
                .and_then(|node| node.place.as_ref())
                .map(|up| up.parent);
        }
        false
    }

    /// `top` and every node below it.
    pub(crate) fn nodes_below(&self, top: Inode) -> Vec<Inode> {
        let mut found = vec![top];
        let mut next = 0;
        while let Some(inode) = found.get(next) {
            let directory = self
                .nodes
                .get(inode)
                .and_then(|node| node.directory.as_ref());
            let children: Vec<Inode> = directory
                .iter()
                .flat_map(|directory| directory.entries.values())
                .filter_map(Dentry::held)
                .collect();
            found.extend(children);
            next += 1;
        }
        found
    }

    /// Whether an entry leads to something that stays here whatever the store has under its name: it is new, or
    /// something of it is unsaved, and the object that this replaces may be gone.
    pub(crate) fn is_ours(&self, entry: &Dentry) -> bool {
        let node = entry.held().and_then(|inode| self.nodes.get(&inode));
        let is_new = |file: &Arc<OpenFile>| file.view().new;
        node.is_some_and(|node| node.is_unsaved() || node.file.as_ref().is_some_and(is_new))
    }

    /// Whether an entry leads to something of which the store lacks something.
    pub(crate) fn is_unsaved(&self, entry: &Dentry) -> bool {
        let node = entry.held().and_then(|inode| self.nodes.get(&inode));
        node.is_some_and(|node| node.is_unsaved())
    }

    /// Whether an entry leads to something that the store is known to have.
    pub(crate) fn is_in_store(&self, entry: &Dentry) -> bool {
        let now = clock::now();
        match entry {
            Dentry::Remembered(known) => known.until > now,
            Dentry::Held(inode) => {
                let node = self.nodes.get(inode);
                let stored = node.filter(|node| node.late != Some(Late::New));
                let known = stored.and_then(|node| node.known.as_ref());
                known.is_some_and(|known| known.until > now)
            }
        }
    }
}
