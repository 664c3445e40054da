//! Keeps changes out of a directory while it is being renamed.
//!
//! Renaming a directory copies every object below it and then deletes the originals. Whatever
//! changed in between would be lost, so a change of this mount *enters* with the directories it
//! touches and waits while one of them is being moved; a move waits until those that entered
//! before have left. Reading, looking up and saving go on: what is unsaved when a move begins is
//! saved by the move itself, in the file's turn.
//!
//! A move may take minutes, and whoever waits occupies its door. So only so many wait, and not for
//! long; the others are refused as busy, before anything was changed.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::Inode;

use crate::inode::{Entered, Namespace, Tree};

const UNDER_WAY: FsError = FsError::Busy("another rename of this directory is under way");
const STILL_CHANGED: FsError =
    FsError::Busy("files below this directory are still being saved; try again when that is done");
const BEING_RENAMED: FsError =
    FsError::Busy("a directory above is being renamed; try again when that is done");

/// How long a change waits for a rename of a directory above it.
pub(super) const ENTER_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a rename of a directory waits for changes below it, saves of large files among them.
/// Meanwhile no others may begin there.
const MOVE_WAIT_MAX: Duration = Duration::from_secs(300);
/// Changes that wait at once: a part of the requests that a door keeps open, so that others go on.
const WAITING_MAX: usize = 1024;

impl Tree {
    fn is_moving(&self, touched: &[Inode]) -> bool {
        let moving = &self.moves.moving;
        touched
            .iter()
            .any(|inode| moving.iter().any(|top| self.is_below(*inode, *top)))
    }

    /// Whether a directory lies in one whose originals are being deleted.
    pub(super) fn is_removing(&self, directory: Inode) -> bool {
        let mut removing = self.moves.removing.iter();
        removing.any(|top| self.is_below(directory, *top))
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
        self.moves.removing.retain(|removing| *removing != top);
    }
}

impl Namespace {
    /// Waits until none of `touched` lies in a directory that is being renamed, and keeps such
    /// renames waiting until the guard is dropped. Fails with `Busy` when that takes too long or
    /// too many wait already.
    pub(crate) async fn enter(self: &Arc<Self>, touched: &[Inode]) -> FsResult<Entered> {
        if let Some(id) = self.lock().try_enter(touched) {
            return Ok(Entered::new(self, id));
        }
        let _waiting = Waiting::join(self)?;
        clock::deadline(ENTER_WAIT_MAX, self.enter_after_moves(touched))
            .await
            .map_err(|_| BEING_RENAMED)
    }

    async fn enter_after_moves(self: &Arc<Self>, touched: &[Inode]) -> Entered {
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
    /// there before have left. The caller itself entered with `entered`. Fails with `Busy` if
    /// `top`, or something above or below it, is being moved already, if both would wait for each
    /// other, or if it takes too long.
    pub(crate) async fn begin_move(
        self: &Arc<Self>,
        top: Inode,
        entered: &[Inode],
    ) -> FsResult<Moving> {
        let moving = self.declare_move(top)?;
        let left = clock::deadline(MOVE_WAIT_MAX, self.wait_for_changes(top, entered)).await;
        left.unwrap_or(Err(STILL_CHANGED)).map(|()| moving)
    }

    async fn wait_for_changes(&self, top: Inode, entered: &[Inode]) -> FsResult<()> {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let (must_wait, is_waited_for) = {
                let tree = self.lock();
                (tree.has_entered(top), tree.is_moving(entered))
            };
            match (must_wait, is_waited_for) {
                (false, _) => return Ok(()),
                (true, true) => return Err(UNDER_WAY),
                (true, false) => moved.await,
            }
        }
    }

    fn declare_move(self: &Arc<Self>, top: Inode) -> FsResult<Moving> {
        let mut tree = self.lock();
        let moving = &tree.moves.moving;
        let below = moving.iter().any(|other| tree.is_below(*other, top));
        if below || tree.is_moving(&[top]) {
            return Err(UNDER_WAY);
        }
        tree.moves.moving.push(top);
        Ok(Moving {
            namespace: Arc::clone(self),
            top,
        })
    }
}

/// A change that waits to enter.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Namespace>);

impl Waiting {
    pub(super) fn join(namespace: &Arc<Namespace>) -> FsResult<Self> {
        let mut tree = namespace.lock();
        if tree.moves.waiting >= WAITING_MAX {
            return Err(BEING_RENAMED);
        }
        tree.moves.waiting += 1;
        drop(tree);
        Ok(Self(Arc::clone(namespace)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().moves.waiting -= 1;
    }
}

/// A directory is being moved while this lives.
#[derive(Debug)]
pub(crate) struct Moving {
    namespace: Arc<Namespace>,
    top: Inode,
}

impl Moving {
    /// Declares that the originals are being deleted from now on: what lies below may seem gone.
    pub(crate) fn begin_removal(&self) {
        self.namespace.lock().moves.removing.push(self.top);
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.namespace.lock().end_move(self.top);
        self.namespace.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_base::{MIB, MemoryBudget, Utf8Name};
    use penstock_vfs::FileKind;

    use super::*;
    use crate::inode::TreeSettings;

    /// `mv a b/` and `mv b a/` at the same time: each entered below what the other moves.
    #[tokio::test(start_paused = true)]
    async fn two_renames_into_each_other_do_not_wait_for_ever() {
        let namespace = Namespace::new(&MemoryBudget::new(MIB), TreeSettings::default());
        let [a, b] = ["a", "b"].map(|name| {
            let name = Utf8Name::new(name).expect("valid");
            let mut tree = namespace.lock();
            tree.link((Inode::ROOT, &name), FileKind::Directory, None)
        });
        let (of_a, of_b) = ([Inode::ROOT, b], [Inode::ROOT, a]);
        let enter = async |touched| {
            namespace
                .enter(touched)
                .await
                .expect("nothing is moved yet")
        };
        let (entered_a, entered_b) = (enter(&of_a).await, enter(&of_b).await);
        let rename = async |top, touched: [Inode; 2], entered: Entered| {
            let moved = namespace.begin_move(top, &touched).await.map(drop);
            drop(entered);
            moved
        };
        let both = async { tokio::join!(rename(a, of_a, entered_a), rename(b, of_b, entered_b)) };
        let both = clock::deadline(Duration::from_secs(60), both).await;
        assert_eq!(both, Ok((Ok(()), Err(UNDER_WAY))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rename_does_not_wait_for_ever_for_changes_below() {
        let namespace = Namespace::new(&MemoryBudget::new(MIB), TreeSettings::default());
        let name = Utf8Name::new("a").expect("valid");
        let top = {
            let mut tree = namespace.lock();
            tree.link((Inode::ROOT, &name), FileKind::Directory, None)
        };
        let changing = namespace.enter(&[top]).await.expect("nothing is moved");
        let of_rename = [Inode::ROOT];
        let moved = namespace.begin_move(top, &of_rename);
        let moved = clock::deadline(2 * MOVE_WAIT_MAX, moved).await;
        assert_eq!(moved.map(|moved| moved.map(drop)), Ok(Err(STILL_CHANGED)));
        // Changes go on: nothing is being moved any more.
        namespace.enter(&[top]).await.expect("nothing is moved");
        drop(changing);
        let moved = namespace.begin_move(top, &of_rename).await;
        moved.expect("nothing is changed any more");
    }
}
