//! Names that this mount is changing in the store.
//!
//! The store carries out a change some time between the request and its answer, and the tree learns of
//! it after that. What the store says in between is true and of no use: the tree would take a file for
//! gone that is being renamed, and a copy for another client's file. So whoever changes a name in the
//! store marks it before the request ([`Namespace::begin_change`]) until the tree knows what became of
//! it. Nothing is believed of a marked name, nor of one that was marked since the store was asked;
//! what the tree holds goes on answering for it.
//!
//! Two kinds of names are marked by what is done in them. They may seem gone, and only that is not
//! believed:
//! - everything below a directory whose originals a rename deletes ([`Moving::begin_removal`]);
//! - a directory in or below which a name is marked: one that has no object of its own leaves the store
//!   with its last entry, and is back when its marker is written.
//!
//! [`Moving::begin_removal`]: crate::inode::gate::Moving::begin_removal

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Utf8Name, clock};
use penstock_vfs::Inode;

use crate::inode::{
    Dentry, Known, Namespace, Place, Tree,
    gate::{ENTER_WAIT_MAX, Waiting},
};

const BEING_CHANGED: FsError =
    FsError::Busy("the name is being changed here; try again when that is done");

impl Tree {
    /// Whether this mount is changing a name, or removing the originals of all that lies around it.
    pub(crate) fn is_changing(&self, parent: Inode, name: &Utf8Name) -> bool {
        self.is_marked(parent, name) || self.is_removing(parent)
    }

    fn is_marked(&self, parent: Inode, name: &Utf8Name) -> bool {
        let marked = self.moves.changing.get(&parent);
        marked.is_some_and(|names| names.contains(name))
    }

    /// Whether an answer about a name to a question asked at `epoch` is to be believed.
    pub(super) fn is_believable(
        &self,
        (parent, name): (Inode, &Utf8Name),
        epoch: u64,
        answer: Option<&Known>,
    ) -> bool {
        !self.is_marked(parent, name)
            && self.is_unchanged_since((parent, name), epoch)
            && (answer.is_some() || !self.may_seem_gone((parent, name), epoch))
    }

    /// Whether the store may have lacked a name since `epoch` only because of what is done here.
    fn may_seem_gone(&self, (parent, name): (Inode, &Utf8Name), epoch: u64) -> bool {
        let entry = self.entry(parent, name).and_then(Dentry::held);
        self.is_removing(parent) || entry.is_some_and(|inode| self.was_in_motion(inode, epoch))
    }

    /// Whether a name in or below a directory was being changed at `epoch` or later.
    fn was_in_motion(&self, top: Inode, epoch: u64) -> bool {
        let mut changing = self.moves.changing.keys();
        let directory = self.directory(top);
        directory.is_ok_and(|directory| {
            directory.changed_at > epoch || changing.any(|inode| self.is_below(*inode, top))
        })
    }

    fn mark(&mut self, place: &Place) {
        let marked = self.moves.changing.entry(place.parent).or_default();
        marked.push(place.name.clone());
    }

    /// Takes a mark away. Answers to questions that were asked before stay worthless.
    fn unmark(&mut self, place: &Place) {
        if let Some(marked) = self.moves.changing.get_mut(&place.parent) {
            if let Some(index) = marked.iter().position(|name| *name == place.name) {
                marked.swap_remove(index);
            }
            if marked.is_empty() {
                self.moves.changing.remove(&place.parent);
            }
        }
        self.epoch += 1;
        let epoch = self.epoch;
        if let Ok(directory) = self.directory_mut(place.parent) {
            directory.outdate(&place.name, epoch);
        }
        self.note_changed_below(place.parent);
    }

    fn note_changed_below(&mut self, directory: Inode) {
        let (mut at, epoch) = (Some(directory), self.epoch);
        while let Some(inode) = at {
            if let Ok(directory) = self.directory_mut(inode) {
                directory.changed_at = epoch;
            }
            at = self.parent(inode);
        }
    }
}

impl Namespace {
    /// Marks a name that is changed in the store from now on.
    pub(crate) fn begin_change(self: &Arc<Self>, place: Place) -> Change {
        self.lock().mark(&place);
        Change {
            namespace: Arc::clone(self),
            place,
            is_known: false,
        }
    }

    /// Marks the name of a file that is changed in the store from now on. Fails with `Stale` if it has
    /// none.
    pub(crate) fn begin_change_of(self: &Arc<Self>, inode: Inode) -> FsResult<Change> {
        let place = self.lock().node(inode)?.place.clone();
        Ok(self.begin_change(place.ok_or(FsError::Stale)?))
    }

    /// Waits while a name is being changed. Fails with `Busy` when that takes too long or too many wait
    /// already.
    pub(crate) async fn wait_for_change(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
    ) -> FsResult<()> {
        if !self.lock().is_changing(parent, name) {
            return Ok(());
        }
        let _waiting = Waiting::join(self).map_err(|_| BEING_CHANGED)?;
        clock::deadline(ENTER_WAIT_MAX, self.change_ended(parent, name))
            .await
            .map_err(|_| BEING_CHANGED)
    }

    async fn change_ended(&self, parent: Inode, name: &Utf8Name) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if !self.lock().is_changing(parent, name) {
                return;
            }
            moved.await;
        }
    }
}

/// A name is being changed in the store while this lives. Unless the change came to its end, nobody knows
/// what became of the name, and its next use asks the store.
#[derive(Debug)]
pub(crate) struct Change {
    namespace: Arc<Namespace>,
    place: Place,
    /// Whether the tree has what became of the name.
    is_known: bool,
}

impl Change {
    /// Ends the change after the tree was told what became of the name.
    pub(crate) fn end(mut self) {
        self.is_known = true;
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        {
            let mut tree = self.namespace.lock();
            if !self.is_known {
                tree.doubt(self.place.parent, &self.place.name);
            }
            tree.unmark(&self.place);
        }
        self.namespace.moved.notify_waiters();
    }
}
