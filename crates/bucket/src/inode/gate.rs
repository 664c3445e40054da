//! Keeps changes out of a directory while it is being renamed.
//!
//! Renaming a directory copies every object below it and then deletes the originals. Whatever
//! changed in between would be lost, so a change of this mount *enters* with the directories it
//! touches and waits while one of them is being moved; a move waits until those that entered
//! before have left. Reading and looking up go on.

use std::{collections::HashMap, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;
use smallvec::SmallVec;

use crate::inode::{Entered, Namespace, Tree};

/// Directories that a change touches: one, or both ends of a rename.
pub(crate) type Touched = SmallVec<[Inode; 2]>;

/// Changes and moves under way.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    moving: Vec<Inode>,
    entered: HashMap<u64, Touched>,
    last_id: u64,
}

impl Tree {
    fn is_moving(&self, touched: &[Inode]) -> bool {
        let moving = &self.moves.moving;
        touched
            .iter()
            .any(|inode| moving.iter().any(|top| self.is_below(*inode, *top)))
    }

    fn has_entered(&self, top: Inode) -> bool {
        let mut touched = self.moves.entered.values().flatten();
        touched.any(|inode| self.is_below(*inode, top))
    }

    fn try_enter(&mut self, touched: &[Inode]) -> Option<u64> {
        if self.is_moving(touched) {
            return None;
        }
        self.moves.last_id += 1;
        self.moves
            .entered
            .insert(self.moves.last_id, touched.into());
        Some(self.moves.last_id)
    }

    /// Forgets a change that entered.
    pub(super) fn leave(&mut self, id: u64) {
        self.moves.entered.remove(&id);
    }

    /// Forgets a move.
    pub(super) fn end_move(&mut self, top: Inode) {
        self.moves.moving.retain(|moving| *moving != top);
    }
}

impl Namespace {
    /// Waits until none of `touched` lies in a directory that is being renamed, and keeps such
    /// renames waiting until the guard is dropped.
    pub(crate) async fn enter(self: &Arc<Self>, touched: &[Inode]) -> Entered {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if let Some(id) = self.lock().try_enter(touched) {
                return Entered::new(self, id);
            }
            moved.await;
        }
    }

    /// Declares that everything below `top` is being moved and waits until changes that entered
    /// there before have left. Fails with `Busy` if it, or something above or below it, is being
    /// moved already.
    pub(crate) async fn begin_move(self: &Arc<Self>, top: Inode) -> FsResult<Moving> {
        let moving = {
            let mut tree = self.lock();
            let below = tree
                .moves
                .moving
                .iter()
                .any(|other| tree.is_below(*other, top));
            if below || tree.is_moving(&[top]) {
                return Err(FsError::Busy(
                    "another rename of this directory is under way",
                ));
            }
            tree.moves.moving.push(top);
            Moving {
                namespace: Arc::clone(self),
                top,
            }
        };
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if !self.lock().has_entered(top) {
                return Ok(moving);
            }
            moved.await;
        }
    }
}

/// A directory is being moved while this lives.
#[derive(Debug)]
pub(crate) struct Moving {
    namespace: Arc<Namespace>,
    top: Inode,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.namespace.lock().end_move(self.top);
        self.namespace.moved.notify_waiters();
    }
}
