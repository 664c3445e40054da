//! How changes made by this mount enter the tree.

use penstock_base::{
    FsError, FsResult, Utf8Name,
    clock::{self, Instant},
};
use penstock_object::Key;
use penstock_vfs::{FileKind, Inode};

use crate::inode::{Dentry, Known, Place, Tree};

impl Tree {
    /// Makes a new file under a name that was free or whose file this one replaces. The caller
    /// holds one reference.
    pub(crate) fn link(
        &mut self,
        (parent, name): (Inode, &Utf8Name),
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

    /// The place that a key leads to. Directories above it that memory lacks are made: the store is
    /// asked about them when they are used.
    pub(crate) fn place_of(&mut self, key: &Key) -> FsResult<Place> {
        let no_name = |_| FsError::InvalidArgument("no file can have such a name");
        let names = key.as_str().split('/').map(Utf8Name::new);
        let mut names: Vec<Utf8Name> = names.collect::<Result<_, _>>().map_err(no_name)?;
        let name = names.pop().ok_or(FsError::Stale)?;
        let mut parent = Inode::ROOT;
        for folder in names {
            parent = match self.directory(parent)?.entries.get(&folder) {
                Some(Dentry::Held(inode)) => *inode,
                _ => {
                    let asked = Known::directory(clock::now());
                    self.insert(parent, &folder, FileKind::Directory, Some(asked))
                }
            };
        }
        match self.directory(parent)?.entries.contains_key(&name) {
            true => Err(FsError::AlreadyExists),
            false => Ok(Place { parent, name }),
        }
    }

    /// Notes that a file or directory was removed, here and in the store.
    pub(crate) fn remove(&mut self, parent: Inode, name: &Utf8Name) {
        self.show_removed(parent, name);
        self.unlink(parent, name);
    }

    /// Notes that a name leads nowhere any more.
    pub(crate) fn unlink(&mut self, parent: Inode, name: &Utf8Name) {
        self.change(parent, name);
        self.clear_entry(parent, name);
        self.note_absence(parent, name);
    }

    /// Moves the node `inode` to another place, whose file it replaces. One that was taken off the tree
    /// comes back there.
    pub(crate) fn relocate(&mut self, inode: Inode, target: &Place) {
        self.change(target.parent, &target.name);
        self.show_removed(target.parent, &target.name);
        let Ok(node) = self.node(inode) else {
            return self.clear_entry(target.parent, &target.name);
        };
        let source = node.place.clone();
        self.pin(target.parent);
        self.clear_entry(target.parent, &target.name);
        if let Some(source) = source {
            self.unlink(source.parent, &source.name);
        }
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.place = Some(target.clone());
            node.times_mut().changed = Some(clock::wall_time());
        }
        if let Ok(directory) = self.directory_mut(target.parent) {
            directory
                .entries
                .insert(target.name.clone(), Dentry::Held(inode));
        }
    }

    /// Tells whoever has the file of a name open that it is gone.
    fn show_removed(&self, parent: Inode, name: &Utf8Name) {
        let inode = self.entry(parent, name).and_then(Dentry::held);
        let node = inode.and_then(|inode| self.nodes.get(&inode));
        if let Some(file) = node.and_then(|node| node.file.as_ref()) {
            file.show_removed();
        }
    }

    /// Forgets what is known of a name, so that the next use asks the store.
    pub(crate) fn doubt(&mut self, parent: Inode, name: &Utf8Name) {
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
    /// Metadata that `known` does not tell is what was sent along, or else what it was.
    pub(crate) fn publish(&mut self, inode: Inode, mut known: Known) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        node.take_sent(&mut known);
        node.known = Some(known);
        if let Some(place) = node.place.clone() {
            self.note_change(place.parent, &place.name);
        }
    }

    /// Makes the next use of everything at or below `top` ask the store.
    pub(crate) fn distrust_below(&mut self, top: Inode, now: Instant) {
        self.epoch += 1;
        let below = self.nodes_below(top);
        for inode in below.iter().copied() {
            self.forget_remembered(inode);
            self.outdate(inode);
            let Some(node) = self.nodes.get_mut(&inode) else {
                continue;
            };
            if let Some(known) = &mut node.known {
                // A copy has a time of its own.
                known.stored = None;
            }
            if inode != top {
                node.distrust(now);
            }
        }
        // What is idle among them has nothing to stay for.
        for inode in below.into_iter().rev() {
            self.drop_unused(inode);
        }
    }

    /// Makes every answer under way about a directory's names worthless.
    pub(super) fn outdate(&mut self, directory: Inode) {
        let epoch = self.epoch;
        if let Ok(directory) = self.directory_mut(directory) {
            directory.moved_at = epoch;
            directory.absent.clear();
        }
    }

    /// Notes a change of a name, which also changes its directory's time.
    pub(super) fn change(&mut self, parent: Inode, name: &Utf8Name) {
        self.note_change(parent, name);
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.times_mut().modified = Some(clock::wall_time());
        }
    }

    pub(super) fn note_change(&mut self, parent: Inode, name: &Utf8Name) {
        self.epoch += 1;
        let epoch = self.epoch;
        if let Ok(directory) = self.directory_mut(parent) {
            directory.note_change(name, epoch);
        }
    }
}
