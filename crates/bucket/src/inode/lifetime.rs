//! How long nodes live: as long as somebody needs them.

use penstock_base::{FileName, clock};
use penstock_vfs::{FileKind, Inode};

use crate::inode::{Dentry, Known, Node, Place, Tree};

impl Tree {
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

    pub(super) fn insert(
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
    pub(super) fn clear_entry(&mut self, parent: Inode, name: &FileName) {
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
    pub(super) fn drop_unused(&mut self, inode: Inode) {
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
    pub(super) fn let_go(&mut self, place: &Place, known: Option<Known>) {
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
