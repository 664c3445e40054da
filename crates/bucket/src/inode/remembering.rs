//! What directories remember about names that nobody holds.

use penstock_base::{Utf8Name, clock};
use penstock_vfs::Inode;

use crate::inode::{Dentry, Known, Tree, cache::Cache};

impl Tree {
    /// Remembers a name that nobody holds. Returns `false` when there is no room for it.
    pub(super) fn remember(&mut self, parent: Inode, name: &Utf8Name, known: Known) -> bool {
        let Ok(directory) = self.directory_mut(parent) else {
            return false;
        };
        if let Some(entry @ Dentry::Remembered(_)) = directory.entries.get_mut(name) {
            directory.absent.remove(name);
            directory.remembered_until = directory.remembered_until.max(Some(known.until));
            *entry = Dentry::Remembered(Box::new(known));
            return true;
        }
        if !self.make_room(parent, Cache::take) {
            if let Ok(directory) = self.directory_mut(parent) {
                directory.absent.remove(name);
                directory.note_loss();
            }
            self.drop_unused(parent);
            return false;
        }
        self.insert_remembered(parent, name, known);
        true
    }

    /// Remembers a name that is accounted for already.
    pub(super) fn insert_remembered(&mut self, parent: Inode, name: &Utf8Name, known: Known) {
        self.enqueue(parent);
        let Ok(directory) = self.directory_mut(parent) else {
            self.cache.give_back(1);
            return;
        };
        directory.absent.remove(name);
        directory.remembered += 1;
        directory.remembered_until = directory.remembered_until.max(Some(known.until));
        directory
            .entries
            .insert(name.clone(), Dentry::Remembered(Box::new(known)));
    }

    /// Accounts for something more that `spared` remembers, forgetting other directories if need
    /// be.
    pub(super) fn make_room(&mut self, spared: Inode, take: fn(&mut Cache) -> bool) -> bool {
        // It must not go because what it has below goes.
        let pin = |tree: &mut Self, pinned: bool| {
            if let Some(node) = tree.nodes.get_mut(&spared) {
                node.pins = if pinned { node.pins + 1 } else { node.pins - 1 };
            }
        };
        pin(self, true);
        let mut made = take(&mut self.cache);
        while !made && let Some(victim) = self.cache.victim(spared) {
            self.forget_remembered(victim);
            self.drop_unused(victim);
            made = take(&mut self.cache);
        }
        pin(self, false);
        made
    }

    /// Gives a directory its place in the order of eviction.
    pub(super) fn enqueue(&mut self, inode: Inode) {
        if self
            .directory(inode)
            .is_ok_and(|directory| directory.filled_at.is_none())
        {
            let place = self.cache.enqueue(inode);
            if let Ok(directory) = self.directory_mut(inode) {
                directory.filled_at = Some(place);
            }
        }
    }

    /// Forgets every name in a directory that nobody holds.
    pub(super) fn forget_remembered(&mut self, inode: Inode) {
        let Ok(directory) = self.directory_mut(inode) else {
            return;
        };
        if directory.remembered > 0 {
            directory.entries.retain(|_, entry| entry.held().is_some());
            directory.shrink();
        }
        directory.note_loss();
        directory.remembered_until = None;
        let count = std::mem::take(&mut directory.remembered);
        let place = directory.filled_at.take();
        self.cache.give_back(count);
        if let Some(place) = place {
            self.cache.dequeue(place);
        }
    }

    /// Forgets one name that nobody holds.
    pub(super) fn forget_entry(&mut self, parent: Inode, name: &Utf8Name) {
        let Ok(directory) = self.directory_mut(parent) else {
            return;
        };
        if let Some(Dentry::Remembered(_)) = directory.entries.get(name) {
            directory.remove(name);
            directory.remembered -= 1;
            self.cache.give_back(1);
        }
    }

    /// Notes that a name is free.
    pub(super) fn note_absence(&mut self, parent: Inode, name: &Utf8Name) {
        self.forget_entry(parent, name);
        let Ok(directory) = self.directory_mut(parent) else {
            return;
        };
        directory.absent.insert(name.clone(), clock::now());
        if let Some((forgotten, name)) = self.cache.note_absence(parent, name)
            && let Ok(directory) = self.directory_mut(forgotten)
        {
            directory.absent.remove(&name);
        }
    }
}

impl Dentry {
    /// The node, if somebody holds it.
    pub(crate) fn held(&self) -> Option<Inode> {
        match self {
            Self::Held(inode) => Some(*inode),
            Self::Remembered(_) => None,
        }
    }
}
