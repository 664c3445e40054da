//! How long nodes live: as long as somebody needs them, and directories as long as they are
//! remembered; see [`super::idle`].

use penstock_base::{FsResult, Utf8Name, clock};
use penstock_vfs::{FileKind, Inode};

use crate::inode::{Dentry, Known, Node, Place, Tree};

impl Tree {
    /// The node that a name leads to, with one more reference to it.
    pub(crate) fn hold(&mut self, parent: Inode, name: &Utf8Name) -> Option<Inode> {
        let directory = self.directory_mut(parent).ok()?;
        let inode = match directory.entries.get(name)? {
            Dentry::Held(inode) => *inode,
            Dentry::Remembered(known) => {
                let (kind, known) = (known.kind, Some(Known::clone(known)));
                self.forget_entry(parent, name);
                self.insert(parent, name, kind, known)
            }
        };
        let node = self.node_mut(inode).ok()?;
        node.used = node.lookups > 0;
        node.lookups += 1;
        self.end_idleness(inode);
        Some(inode)
    }

    /// Takes one more reference to a node. Fails with `Stale` if there is none.
    pub(crate) fn hold_again(&mut self, inode: Inode) -> FsResult<()> {
        let node = self.node_mut(inode)?;
        node.lookups += 1;
        self.end_idleness(inode);
        Ok(())
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
        self.end_idleness(inode);
    }

    pub(crate) fn unpin(&mut self, inode: Inode) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.pins = node.pins.saturating_sub(1);
            self.drop_unused(inode);
        }
    }

    pub(super) fn insert(
        &mut self,
        parent: Inode,
        name: &Utf8Name,
        kind: FileKind,
        known: Option<Known>,
    ) -> Inode {
        self.last_inode += 1;
        let inode = Inode(self.last_inode);
        let place = Place {
            parent,
            name: name.clone(),
        };
        let mut node = Node::new(Some(place), kind, known);
        node.cost += self.kept_cost;
        self.begin_holding(inode, node.cost);
        self.nodes.insert(inode, Box::new(node));
        self.pin(parent);
        if let Ok(directory) = self.directory_mut(parent) {
            if !directory.absent.is_empty() {
                directory.absent.remove(name);
            }
            directory.entries.insert(name.clone(), Dentry::Held(inode));
        }
        inode
    }

    /// What a name leads to, if that is known.
    pub(crate) fn entry(&self, parent: Inode, name: &Utf8Name) -> Option<&Dentry> {
        self.directory(parent).ok()?.entries.get(name)
    }

    /// Takes away whatever a name leads to.
    pub(super) fn clear_entry(&mut self, parent: Inode, name: &Utf8Name) {
        match self.entry(parent, name).map(Dentry::held) {
            Some(Some(inode)) => self.orphan(inode),
            Some(None) => self.forget_entry(parent, name),
            None => {}
        }
    }

    /// Takes a new file off the tree that was not stored as far as is known: a save may have succeeded
    /// whose answer was lost, so the store is asked for the name.
    pub(crate) fn give_up(&mut self, inode: Inode) {
        let place = self.nodes.get(&inode).and_then(|node| node.place.clone());
        if let Some(place) = place {
            self.doubt(place.parent, &place.name);
        }
        self.orphan(inode);
    }

    /// Takes a node off the tree. Whoever holds it finds it stale.
    pub(crate) fn orphan(&mut self, inode: Inode) {
        let Some(place) = self.nodes.get(&inode).and_then(|node| node.place.clone()) else {
            return;
        };
        self.drop_idle_below(inode);
        let Some(node) = self.nodes.get_mut(&inode) else {
            return self.forget_entry(place.parent, &place.name);
        };
        node.place = None;
        if let Ok(directory) = self.directory_mut(place.parent) {
            directory.remove(&place.name);
        }
        self.unpin(place.parent);
    }

    /// Removes nodes that nobody uses and that remember nothing, from `inode` upwards.
    pub(super) fn drop_unused(&mut self, inode: Inode) {
        let mut at = Some(inode);
        while let Some(inode) = at.take() {
            if !self.is_unused(inode) {
                return;
            }
            at = if self.stays_idle(inode) {
                self.become_idle(inode)
            } else {
                self.drop_node(inode)
            };
        }
    }

    /// Removes a node and returns the directory above it, which may be unused now.
    fn drop_node(&mut self, inode: Inode) -> Option<Inode> {
        self.forget_remembered(inode);
        let node = *self.nodes.remove(&inode)?;
        let cost = node.cost;
        let was_idle = node.directory.is_some_and(|directory| directory.idle);
        let parent = node.place.as_ref().map(|place| place.parent);
        if was_idle {
            self.note_idle_below(parent, false);
        }
        match node.place {
            Some(place) => self.let_go(&place, node.known, was_idle),
            None if was_idle => self.cache.give_back_directory(),
            None => {}
        }
        if !was_idle {
            self.end_holding(cost);
        }
        let above = self.nodes.get_mut(&parent?)?;
        above.pins = above.pins.saturating_sub(1);
        parent
    }

    /// Turns the entry of a node that was dropped into a remembered one, if that is worth it. An
    /// idle directory leaves room for that.
    fn let_go(&mut self, place: &Place, known: Option<Known>, was_idle: bool) {
        if let Ok(directory) = self.directory_mut(place.parent) {
            directory.remove(&place.name);
        }
        let current = known.filter(|known| known.until > clock::now());
        let remembered = match current {
            Some(known) if was_idle => {
                self.cache.exchange_directory();
                self.insert_remembered(place.parent, &place.name, known);
                true
            }
            Some(known) => self.remember(place.parent, &place.name, known),
            None if was_idle => {
                self.cache.give_back_directory();
                false
            }
            None => false,
        };
        if !remembered && let Ok(directory) = self.directory_mut(place.parent) {
            directory.note_loss();
        }
    }
}
