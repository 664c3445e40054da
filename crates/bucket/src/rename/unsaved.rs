//! Renaming staged files that the store never had: those that wait to be saved behind the close, and those that a program
//! renames before it closes them.
//!
//! Such a rename changes memory and the journal, and asks the store
//! nothing: the one PUT that follows goes to the last name. What the name led to before is replaced by that
//! PUT, on the condition that the store still has the version that was known here; a file that is unsaved itself
//! is dropped. The journal of the moved file names the new place before memory does, and the file that it took it from
//! before that one's journal goes: a kill in between leaves both, of which only the first counts. What the disk does not
//! note is not moved: the file is saved where it is, and copied.
//!
//! A file of which an earlier save failed may be in the store all the same: it is saved and copied as any other.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, run_blocking};
use penstock_object::{ETag, Key, ObjectKind};
use penstock_transfer::staging::{FileId, NewPlace};
use penstock_vfs::{FileKind, Inode, RenameMode};

use crate::{
    inode::Known,
    key,
    open_file::{Body, OpenFile, Turn},
    rename::{Rename, Renames},
    staged::StagedBody,
};

/// The place that an unsaved file is moved to.
pub(super) struct Free {
    key: Key,
    /// What the store has there.
    known: Option<Known>,
    replaces: Option<FileId>,
}

impl Free {
    fn place(&self) -> NewPlace {
        NewPlace {
            key: self.key.clone(),
            version: self.known.as_ref().and_then(|known| known.etag.clone()),
            replaces: self.replaces.clone(),
        }
    }
}

impl Renames {
    /// Whether a rename of this file needs nothing of the store, as far as the file goes. Where files are saved at their
    /// close that must be still to come, and a rename that replaces nothing asks the store: what is told of that at the close
    /// comes too late for who believes that the name is his.
    pub(super) fn is_moved_unsaved(&self, inode: Inode, mode: RenameMode) -> bool {
        let is_saved_later = |file: &OpenFile| match self.mount.save_behind() {
            Some(_) => true,
            None => mode == RenameMode::Replace && file.view().writers() > 0,
        };
        let file = self.mount.open_file(inode);
        file.is_some_and(|file| never_stored(&file).is_some() && is_saved_later(&file))
    }

    /// Where a file is moved that the store never had, if it is one and the place is known well enough. The caller
    /// has the turns of both files.
    pub(super) fn unsaved_place(
        &self,
        rename: &Rename,
        replaced: Option<&Arc<OpenFile>>,
    ) -> Option<Free> {
        if !self.is_moved_unsaved(rename.moved.inode(), rename.mode) {
            return None;
        }
        let tree = self.mount.namespace.lock();
        let prefix = tree.prefix(rename.target.parent).ok()?;
        let key = key::file_key(&prefix, &rename.target.name).ok()?;
        let nothing = Free {
            key,
            known: None,
            replaces: None,
        };
        let Some(target) = &rename.replaced else {
            return Some(nothing);
        };
        let node = tree.node(target.inode()).ok()?;
        let body = replaced.and_then(|file| file.body.staged());
        if node.kind != FileKind::Regular || body.is_some_and(|body| body.content.may_be_stored()) {
            return None;
        }
        let replaces = body.map(|body| body.content.id().clone());
        if replaced.is_some_and(|file| file.view().new) {
            return Some(Free {
                replaces,
                ..nothing
            });
        }
        let known = node.known.as_ref()?;
        let is_named = |etag: &ETag| !etag.as_str().is_empty();
        if known.object == ObjectKind::Symlink || !known.etag.as_ref().is_some_and(is_named) {
            return None;
        }
        let known = Some(Known {
            kept: None,
            ..known.clone()
        });
        Some(Free {
            known,
            replaces,
            ..nothing
        })
    }

    /// Moves a file that the store never had to a place that is free, or whose file it replaces. Returns whether the disk
    /// noted that; if not, nothing is changed.
    pub(super) async fn rename_unsaved(
        &self,
        rename: &Rename,
        file: &Arc<OpenFile>,
        replaced: &mut Option<(&Arc<OpenFile>, Turn<'_>)>,
        free: Free,
    ) -> FsResult<bool> {
        let Body::Staged(body) = &file.body else {
            return Err(FsError::Stale);
        };
        if let Some((file, _)) = &replaced {
            self.files.keep_for_handles(file).await;
        }
        let change = self.mount.namespace.begin_change_of(file.inode)?;
        let key = free.key.clone();
        let place = free.place();
        let noted = run_blocking(|| {
            body.content.take_place(&place, || {
                self.move_in_memory(rename, (file, body), free);
            })
        });
        change.end();
        if let Err(error) = noted {
            tracing::warn!(
                "`{key}` could not be noted as the new name of an unsaved file: {error}"
            );
            return Ok(false);
        }
        self.mount.mode.forget_left(&key);
        if let Some((file, turn)) = replaced {
            file.discard(turn).await;
            self.files.behind.forget(file.inode);
        }
        Ok(true)
    }

    fn move_in_memory(
        &self,
        rename: &Rename,
        (file, body): (&Arc<OpenFile>, &StagedBody),
        free: Free,
    ) {
        let mut tree = self.mount.namespace.lock();
        tree.relocate(file.inode, &rename.target);
        let place = free.place();
        body.content.with_state(|state| {
            let mut view = file.view();
            view.new = place.version.is_none();
            if let Some(state) = state {
                state.take_place(place);
            }
        });
        if let Ok(node) = tree.node_mut(file.inode) {
            node.known = free.known;
        }
        let version = tree.version(file.inode);
        file.view().version = version;
    }
}

/// What was written to a file, if the store has nothing of it for certain.
fn never_stored(file: &OpenFile) -> Option<&Arc<StagedBody>> {
    let view = file.view();
    let is_new = view.new && view.dirty && !view.removed;
    drop(view);
    let body = file.body.staged()?;
    (is_new && body.content.is_engaged() && !body.content.may_be_stored()).then_some(body)
}
