//! What directories remember about names that nobody holds.

use penstock_base::{FileName, clock};
use penstock_vfs::Inode;

use crate::inode::{Dentry, Known, Tree};

impl Tree {
    /// Remembers a name that nobody holds. Returns `false` when there is no room for it.
    pub(super) fn remember(&mut self, parent: Inode, name: &FileName, known: Known) -> bool {
        let Ok(directory) = self.directory_mut(parent) else {
            return false;
        };
        directory.absent.remove(name);
        if let Some(entry @ Dentry::Remembered(_)) = directory.entries.get_mut(name) {
            *entry = Dentry::Remembered(known);
            return true;
        }
        if !self.make_room(parent) {
            if let Ok(directory) = self.directory_mut(parent) {
                directory.note_loss();
            }
            return false;
        }
        let place = self.cache_place(parent);
        let Ok(directory) = self.directory_mut(parent) else {
            return false;
        };
        directory.filled_at = place;
        directory.remembered += 1;
        directory
            .entries
            .insert(name.clone(), Dentry::Remembered(known));
        true
    }

    /// Accounts for one more name, forgetting other directories if need be.
    fn make_room(&mut self, parent: Inode) -> bool {
        while !self.cache.take() {
            match self.cache.victim(parent) {
                Some(victim) => self.forget_remembered(victim),
                None => return false,
            }
        }
        true
    }

    fn cache_place(&mut self, directory: Inode) -> Option<u64> {
        let place = self.directory(directory).ok()?.filled_at;
        Some(place.unwrap_or_else(|| self.cache.enqueue(directory)))
    }

    /// Forgets every name in a directory that nobody holds.
    pub(super) fn forget_remembered(&mut self, inode: Inode) {
        let Ok(directory) = self.directory_mut(inode) else {
            return;
        };
        if directory.remembered > 0 {
            directory.entries.retain(|_, entry| entry.held().is_some());
        }
        directory.note_loss();
        let count = std::mem::take(&mut directory.remembered);
        let place = directory.filled_at.take();
        self.cache.give_back(count);
        if let Some(place) = place {
            self.cache.dequeue(place);
        }
    }

    /// Forgets one name that nobody holds.
    pub(super) fn forget_entry(&mut self, parent: Inode, name: &FileName) {
        let Ok(directory) = self.directory_mut(parent) else {
            return;
        };
        if let Some(Dentry::Remembered(_)) = directory.entries.get(name) {
            directory.entries.remove(name);
            directory.remembered -= 1;
            self.cache.give_back(1);
        }
    }

    /// Notes that a name is free.
    pub(super) fn note_absence(&mut self, parent: Inode, name: &FileName) {
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
