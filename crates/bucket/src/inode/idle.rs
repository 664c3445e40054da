//! Directories that stay though nobody holds them.
//!
//! A kernel that needs memory forgets directories together with what is in them, and looks it up
//! again soon after. If a directory went with its last reference, everything that it remembers, a
//! whole listing perhaps, would be asked for again name by name. So a directory whose memory still
//! answers questions becomes *idle* instead: it stays, pays from the cache's account as long as it
//! does, and stands in the cache's order of eviction. The directories above stay with it.
//!
//! A directory is idle exactly if no door holds it and nothing pins it but idle directories.

use penstock_vfs::Inode;

use crate::inode::{cache::Cache, tree::Tree};

impl Tree {
    /// Whether nobody needs a node, except for what it and what is below it remembers.
    pub(super) fn is_unused(&self, inode: Inode) -> bool {
        let Some(node) = self.nodes.get(&inode) else {
            return false;
        };
        let below = node.directory.as_ref();
        let idle_below = below.map_or(0, |directory| directory.idle_below);
        inode != Inode::ROOT && node.lookups == 0 && node.pins == idle_below
    }

    /// Whether an unused node stays for what it remembers. Pays for that, if need be by forgetting
    /// others.
    pub(super) fn stays_idle(&mut self, inode: Inode) -> bool {
        let Ok(node) = self.node(inode) else {
            return false;
        };
        let Some(directory) = &node.directory else {
            return false;
        };
        if node.place.is_none() {
            self.drop_idle_below(inode);
            return false;
        }
        if directory.idle_below == 0 && !directory.has_answers() {
            return false;
        }
        // Paying may cost all that is idle below, so that it can go after all.
        directory.idle || self.make_room(inode, Cache::take_directory)
    }

    /// Makes an unused node idle and returns the directory above it if that may be unused now.
    pub(super) fn become_idle(&mut self, inode: Inode) -> Option<Inode> {
        let cost = self.node(inode).ok()?.cost;
        let directory = self.directory_mut(inode).ok()?;
        let was_idle = std::mem::replace(&mut directory.idle, true);
        // Otherwise those below go first.
        if directory.idle_below == 0 {
            self.enqueue(inode);
        }
        if was_idle {
            return None;
        }
        self.end_holding(cost);
        let parent = self.parent(inode);
        self.note_idle_below(parent, true);
        parent
    }

    /// Notes that somebody uses a node, and with it everything above.
    pub(super) fn end_idleness(&mut self, inode: Inode) {
        let mut at = Some(inode);
        while let Some(inode) = at.take() {
            let Ok(cost) = self.node(inode).map(|node| node.cost) else {
                return;
            };
            let Ok(directory) = self.directory_mut(inode) else {
                return;
            };
            if !std::mem::replace(&mut directory.idle, false) {
                return;
            }
            if directory.remembered == 0
                && let Some(place) = directory.filled_at.take()
            {
                self.cache.dequeue(place);
            }
            self.cache.give_back_directory();
            self.resume_holding(cost);
            at = self.parent(inode);
            self.note_idle_below(at, false);
        }
    }

    /// Removes the idle directories at and below `top`.
    pub(super) fn drop_idle_below(&mut self, top: Inode) {
        // From below: a directory goes after those in it.
        for inode in self.nodes_below(top).into_iter().rev() {
            if self.directory(inode).is_ok_and(|directory| directory.idle) {
                self.forget_remembered(inode);
                self.drop_unused(inode);
            }
        }
    }

    /// Notes that a directory in `parent` became idle, or no longer is.
    pub(super) fn note_idle_below(&mut self, parent: Option<Inode>, idle: bool) {
        if let Some(Ok(directory)) = parent.map(|parent| self.directory_mut(parent)) {
            let now = if idle { 1 } else { -1 };
            directory.idle_below = directory.idle_below.saturating_add_signed(now);
        }
    }

    pub(super) fn parent(&self, inode: Inode) -> Option<Inode> {
        let place = self.nodes.get(&inode)?.place.as_ref()?;
        Some(place.parent)
    }
}
