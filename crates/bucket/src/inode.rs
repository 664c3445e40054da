//! The inode table: which number is which name, and what is known about it.
//!
//! A node knows its parent and its name there, so the key of a file is found by walking up, and
//! renaming a directory changes one node however much lies below it. Nodes exist only while
//! somebody needs them: a door holds references, handles and running operations pin, and a node
//! pins its parent. When the last of these goes, so does the node; what it knew may be
//! *remembered* by its directory, within the limit of the [`Cache`], so that the next lookup
//! costs nothing. Numbers are never given out twice.
//!
//! The store's answers enter through [`Tree::settle`], local changes through [`Tree::link`],
//! [`Tree::unlink`], [`Tree::relocate`] and [`Tree::publish`]; the latter win over answers to
//! questions that were asked before them (see [`Directory`]).
//!
//! # Locks
//!
//! From the outside in; a later lock may be taken while an earlier one is held, never the
//! reverse:
//! 1. the gate ([`Namespace::enter`], [`Namespace::begin_move`]): asynchronous, long;
//! 2. a file's write stream ([`OpenFile::stream`]): asynchronous, held during uploads; of two
//!    files the one with the lower inode number first;
//! 3. a directory handle's listing: asynchronous, held during LIST requests;
//! 4. the tree ([`Namespace::lock`]): a mutex held for some map operations, never across await;
//! 5. a file's view ([`OpenFile::view`]) and a handle's reader: mutexes held for a few loads.
//!
//! [`OpenFile::stream`]: crate::open_file::OpenFile::stream
//! [`OpenFile::view`]: crate::open_file::OpenFile::view

mod cache;
mod charge;
mod directory;
mod gate;
mod guards;
mod node;
mod remembering;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use penstock_base::{
    FileName, FsError, FsResult, MemoryBudget,
    clock::{self, Instant},
};
use penstock_object::Key;
use penstock_vfs::{FileKind, Inode};

use crate::key;

use cache::Cache;
use charge::Charge;
pub(crate) use directory::{Dentry, Directory, Patience};
pub(crate) use gate::Moves;
pub(crate) use guards::{Entered, Namespace, Observation, Reference, Resolved};
pub(crate) use node::{Known, LastOpen, Node, Place};

/// What memory says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recall {
    /// It leads to a file.
    Present,
    /// It is free.
    Absent,
    /// Ask the store.
    Unknown,
}

/// All nodes of a volume. See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<Inode, Node>,
    last_inode: u64,
    /// Counts local changes, to tell older answers of the store from newer ones.
    epoch: u64,
    cache: Cache,
    charge: Charge,
    pub(crate) moves: Moves,
}

/// Bytes that a node occupies, about, with its entry in its directory. Nodes are paid for as far
/// as memory is free: a door that holds one cannot be refused.
const NODE_COST: u64 = 512;

impl Tree {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, remembered_max: usize) -> Self {
        let mut root = Node::new(None, FileKind::Directory, None);
        root.lookups = 1;
        Self {
            nodes: HashMap::from([(Inode::ROOT, root)]),
            last_inode: Inode::ROOT.0,
            epoch: 0,
            cache: Cache::new(Arc::clone(budget), remembered_max),
            charge: Charge::new(Arc::clone(budget), NODE_COST),
            moves: Moves::default(),
        }
    }

    /// Nodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Names that are remembered though nobody holds their files.
    pub(crate) fn remembered(&self) -> usize {
        self.cache.remembered()
    }

    /// Every node.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Inode, &Node)> {
        self.nodes.iter().map(|(inode, node)| (*inode, node))
    }

    /// A node, or `Stale` if nobody holds that number.
    pub(crate) fn node(&self, inode: Inode) -> FsResult<&Node> {
        self.nodes.get(&inode).ok_or(FsError::Stale)
    }

    pub(crate) fn node_mut(&mut self, inode: Inode) -> FsResult<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(FsError::Stale)
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

    /// The path of a file for messages to people.
    pub(crate) fn path(&self, inode: Inode) -> String {
        let key = self.file_key(inode);
        key.map_or_else(
            |_| format!("(removed file, inode {})", inode.0),
            |key| key.to_string(),
        )
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

    /// Whether an entry leads to a file that was made here and is not in the store yet.
    pub(crate) fn is_unsaved(&self, entry: &Dentry) -> bool {
        let node = entry.held().and_then(|inode| self.nodes.get(&inode));
        let file = node.and_then(|node| node.file.as_ref());
        file.is_some_and(|file| file.view().new)
    }

    /// Whether an entry leads to something that the store is known to have.
    pub(crate) fn is_in_store(&self, entry: &Dentry) -> bool {
        let now = clock::now();
        match entry {
            Dentry::Remembered(known) => known.until > now,
            Dentry::Held(inode) => {
                let known = self.nodes.get(inode).and_then(|node| node.known.as_ref());
                known.is_some_and(|known| known.until > now)
            }
        }
    }

    /// What memory says about a name.
    pub(crate) fn recall(
        &self,
        parent: Inode,
        name: &FileName,
        patience: Patience,
    ) -> FsResult<Recall> {
        let directory = self.directory(parent)?;
        let now = clock::now();
        let current = match directory.entries.get(name) {
            Some(Dentry::Held(inode)) => self.node(*inode)?.is_current(now),
            Some(Dentry::Remembered(known)) => known.until > now,
            None if directory.is_absent(name, patience) => return Ok(Recall::Absent),
            None => false,
        };
        Ok(if current {
            Recall::Present
        } else {
            Recall::Unknown
        })
    }

    /// The node that a name leads to, with one more reference to it.
    pub(crate) fn hold(&mut self, parent: Inode, name: &FileName) -> Option<Inode> {
        let directory = self.directory_mut(parent).ok()?;
        let inode = match directory.entries.get(name)? {
            Dentry::Held(inode) => *inode,
            Dentry::Remembered(known) => {
                let (kind, known) = (known.kind, Some(known.clone()));
                self.forget_entry(parent, name);
                self.insert(parent, name, kind, known)
            }
        };
        self.node_mut(inode).ok()?.lookups += 1;
        Some(inode)
    }

    /// Gives back `count` references.
    pub(crate) fn forget(&mut self, inode: Inode, count: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.lookups = node.lookups.saturating_sub(count);
            self.drop_unused(inode);
        }
    }

    /// Keeps a node while something uses it.
    pub(crate) fn pin(&mut self, inode: Inode) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.pins += 1;
        }
    }

    pub(crate) fn unpin(&mut self, inode: Inode) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.pins = node.pins.saturating_sub(1);
            self.drop_unused(inode);
        }
    }

    /// Begins a question to the store about names in `directory` and returns its epoch.
    fn begin_observation(&mut self, directory: Inode) -> FsResult<u64> {
        let epoch = self.epoch;
        self.directory_mut(directory)?.begin_observation(epoch);
        Ok(epoch)
    }

    fn end_observation(&mut self, directory: Inode, epoch: u64) {
        if let Ok(directory) = self.directory_mut(directory) {
            directory.end_observation(epoch);
        }
    }

    /// Whether an answer about a name to a question asked at `epoch` still holds.
    pub(crate) fn is_unchanged_since(
        &self,
        (parent, name): (Inode, &FileName),
        epoch: u64,
    ) -> bool {
        let directory = self.directory(parent);
        directory.is_ok_and(|directory| directory.is_unchanged_since(name, epoch))
    }

    /// Applies what the store said about a name in answer to a question asked at `epoch`, unless
    /// the name was changed here since.
    pub(crate) fn settle(
        &mut self,
        (parent, name): (Inode, &FileName),
        epoch: u64,
        answer: Option<Known>,
    ) {
        match self.unsettled((parent, name), epoch, answer) {
            Some(Some(known)) => drop(self.remember(parent, name, known)),
            Some(None) => self.note_absence(parent, name),
            None => {}
        }
    }

    /// Applies an answer like [`Tree::settle`] and returns the node that the name then leads to,
    /// with one more reference.
    pub(crate) fn settle_and_hold(
        &mut self,
        (parent, name): (Inode, &FileName),
        epoch: u64,
        answer: Option<Known>,
    ) -> Option<Inode> {
        match self.unsettled((parent, name), epoch, answer) {
            Some(Some(known)) => {
                self.forget_entry(parent, name);
                self.insert(parent, name, known.kind, Some(known));
            }
            Some(None) => self.note_absence(parent, name),
            None => {}
        }
        self.hold(parent, name)
    }

    /// Applies an answer to the node that a name leads to, and returns the answer if there is
    /// none or it was replaced.
    fn unsettled(
        &mut self,
        (parent, name): (Inode, &FileName),
        epoch: u64,
        answer: Option<Known>,
    ) -> Option<Option<Known>> {
        if !self.is_unchanged_since((parent, name), epoch) {
            return None;
        }
        let directory = self.directory(parent).ok()?;
        let held = directory.entries.get(name).and_then(Dentry::held);
        match held {
            Some(inode) if self.settle_held(inode, answer.as_ref()) => None,
            _ => Some(answer),
        }
    }

    /// Applies an answer to a node. Returns whether the name still leads to it.
    fn settle_held(&mut self, inode: Inode, answer: Option<&Known>) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return false;
        };
        if node.is_dirty() {
            return true;
        }
        match answer {
            Some(known) if known.kind == node.kind => {
                let etag = node.known.as_ref().map(|known| &known.etag);
                if etag.is_some_and(|etag| *etag != known.etag) {
                    node.times = node::LocalTimes::default();
                }
                node.known = Some(known.clone());
                true
            }
            _ => {
                self.orphan(inode);
                false
            }
        }
    }

    /// Makes a new file under a name that was free or whose file this one replaces. The caller
    /// holds one reference.
    pub(crate) fn link(
        &mut self,
        (parent, name): (Inode, &FileName),
        kind: FileKind,
        known: Option<Known>,
    ) -> Inode {
        self.change(parent, name);
        self.clear_entry(parent, name);
        let inode = self.insert(parent, name, kind, known);
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.lookups = 1;
        }
        inode
    }

    /// Notes that a name was removed, here and in the store.
    pub(crate) fn unlink(&mut self, parent: Inode, name: &FileName) {
        self.change(parent, name);
        self.clear_entry(parent, name);
        self.note_absence(parent, name);
    }

    /// Moves the node `inode` to another place, whose file it replaces.
    pub(crate) fn relocate(&mut self, inode: Inode, target: &Place) {
        let Some(source) = self.nodes.get(&inode).and_then(|node| node.place.clone()) else {
            return;
        };
        self.pin(target.parent);
        self.change(target.parent, &target.name);
        self.clear_entry(target.parent, &target.name);
        self.unlink(source.parent, &source.name);
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.place = Some(target.clone());
        }
        if let Ok(directory) = self.directory_mut(target.parent) {
            directory
                .entries
                .insert(target.name.clone(), Dentry::Held(inode));
        }
    }

    /// Forgets what is known of a name, so that the next use asks the store.
    pub(crate) fn doubt(&mut self, parent: Inode, name: &FileName) {
        self.note_change(parent, name);
        let Ok(directory) = self.directory_mut(parent) else {
            return;
        };
        directory.note_loss();
        let held = directory.entries.get(name).and_then(Dentry::held);
        match held.and_then(|inode| self.nodes.get_mut(&inode)) {
            Some(node) => node.distrust(clock::now()),
            None => self.forget_entry(parent, name),
        }
    }

    /// Notes what the store has of a file after it was written here.
    pub(crate) fn publish(&mut self, inode: Inode, known: Known) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        node.known = Some(known);
        if let Some(place) = node.place.clone() {
            self.note_change(place.parent, &place.name);
        }
    }

    /// Makes the next use of everything at or below `top` ask the store.
    pub(crate) fn distrust_below(&mut self, top: Inode, now: Instant) {
        self.epoch += 1;
        for inode in self.nodes_below(top) {
            self.forget_remembered(inode);
            self.outdate(inode);
            if inode != top
                && let Some(node) = self.nodes.get_mut(&inode)
            {
                node.distrust(now);
            }
        }
    }

    /// Makes every answer under way about a directory's names worthless.
    fn outdate(&mut self, directory: Inode) {
        let epoch = self.epoch;
        if let Ok(directory) = self.directory_mut(directory) {
            directory.moved_at = epoch;
            directory.absent.clear();
        }
    }

    /// Notes a change of a name, which also changes its directory's time.
    fn change(&mut self, parent: Inode, name: &FileName) {
        self.note_change(parent, name);
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.times.modified = Some(clock::wall_time());
        }
    }

    fn note_change(&mut self, parent: Inode, name: &FileName) {
        self.epoch += 1;
        let epoch = self.epoch;
        if let Ok(directory) = self.directory_mut(parent) {
            directory.note_change(name, epoch);
        }
    }

    fn insert(
        &mut self,
        parent: Inode,
        name: &FileName,
        kind: FileKind,
        known: Option<Known>,
    ) -> Inode {
        self.last_inode += 1;
        let inode = Inode(self.last_inode);
        let place = Place {
            parent,
            name: name.clone(),
        };
        self.nodes
            .insert(inode, Node::new(Some(place), kind, known));
        self.charge.cover(self.nodes.len());
        self.pin(parent);
        if let Ok(directory) = self.directory_mut(parent) {
            directory.absent.remove(name);
            directory.entries.insert(name.clone(), Dentry::Held(inode));
        }
        inode
    }

    /// Takes away whatever a name leads to.
    fn clear_entry(&mut self, parent: Inode, name: &FileName) {
        let entry = self
            .directory(parent)
            .ok()
            .and_then(|directory| directory.entries.get(name));
        match entry.map(Dentry::held) {
            Some(Some(inode)) => self.orphan(inode),
            Some(None) => self.forget_entry(parent, name),
            None => {}
        }
    }

    /// Takes a node off the tree. Whoever holds it finds it stale.
    pub(crate) fn orphan(&mut self, inode: Inode) {
        let Some(place) = self
            .nodes
            .get_mut(&inode)
            .and_then(|node| node.place.take())
        else {
            return;
        };
        if let Ok(directory) = self.directory_mut(place.parent) {
            directory.entries.remove(&place.name);
        }
        self.unpin(place.parent);
    }

    /// Removes nodes that nobody uses, from `inode` upwards.
    fn drop_unused(&mut self, inode: Inode) {
        let mut at = Some(inode);
        while let Some(inode) = at.take() {
            let unused = |node: &Node| node.lookups == 0 && node.pins == 0;
            if inode == Inode::ROOT || !self.nodes.get(&inode).is_some_and(unused) {
                return;
            }
            self.forget_remembered(inode);
            let Some(node) = self.nodes.remove(&inode) else {
                return;
            };
            self.charge.cover(self.nodes.len());
            let Some(place) = node.place else { return };
            self.let_go(&place, node.known);
            if let Some(parent) = self.nodes.get_mut(&place.parent) {
                parent.pins = parent.pins.saturating_sub(1);
                at = Some(place.parent);
            }
        }
    }

    /// Turns the entry of a node that was dropped into a remembered one, if that is worth it.
    fn let_go(&mut self, place: &Place, known: Option<Known>) {
        if let Ok(directory) = self.directory_mut(place.parent) {
            directory.entries.remove(&place.name);
        }
        let current = known.filter(|known| known.until > clock::now());
        let remembered =
            current.is_some_and(|known| self.remember(place.parent, &place.name, known));
        if !remembered && let Ok(directory) = self.directory_mut(place.parent) {
            directory.note_loss();
        }
    }
}
