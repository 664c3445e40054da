//! Removing files and directories.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Utf8Name};
use penstock_object::Key;
use penstock_vfs::{FileKind, Inode, RemoveKind};

use crate::{
    errors::for_writing,
    inode::{Change, Known, Reference},
    key,
    mount::Mount,
    mount::run_to_end,
    names::Names,
    open_file::{Body, OpenFile, turn_of},
    write_back::Late,
};

impl Names {
    /// Removes a file or an empty directory.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
        kind: RemoveKind,
    ) -> FsResult<()> {
        self.mount.check_writable()?;
        let (this, name) = (Arc::clone(self), name.clone());
        run_to_end(async move {
            let _entered = this.mount.namespace.enter(&[parent]).await?;
            let found = this
                .lookups
                .find(parent, &name, this.mount.change_patience())
                .await?;
            let found = found.ok_or(FsError::NotFound)?;
            let node_kind = this.mount.namespace.lock().node(found.inode())?.kind;
            let change = match (kind, node_kind) {
                (RemoveKind::File, FileKind::Directory) => return Err(FsError::IsADirectory),
                (RemoveKind::File, _) => this.remove_file((parent, &name), &found).await?,
                (RemoveKind::Directory, FileKind::Directory) => {
                    Some(this.remove_directory((parent, &name), &found).await?)
                }
                (RemoveKind::Directory, _) => return Err(FsError::NotADirectory),
            };
            // What the store never had kept no directory there.
            if let Some(change) = change {
                this.metadata.keep_directory(parent).await;
                change.end();
            }
            Ok(())
        })
        .await
    }

    /// Deletes a file's object and drops what was written to it. Returns the change of the name, unless it is one
    /// of a file that is saved behind and that the store never had.
    async fn remove_file(
        &self,
        (parent, name): (Inode, &Utf8Name),
        found: &Reference,
    ) -> FsResult<Option<Change>> {
        let _alone = self.metadata.metadata_locks.lock(&[found.inode()]).await;
        let file = self.mount.open_file(found.inode());
        // Waits for an upload under way, which would bring the object back.
        let mut turn = turn_of(file.as_deref()).await;
        self.check_place((parent, name), found)?;
        let may_be_stored = match &mut turn {
            Some(turn) => turn.may_be_stored().await,
            None => false,
        };
        let unsaved = file.as_ref().is_some_and(|file| file.view().new);
        if let Some(file) = &file {
            self.files.keep_for_handles(file).await;
        }
        let change = self.mount.namespace.begin_change_of(found.inode())?;
        let mut is_gone = true;
        if !unsaved || may_be_stored {
            let key = self.mount.namespace.lock().file_key(found.inode())?;
            match (may_be_stored, &file) {
                (true, Some(file)) => is_gone = self.remove_unannounced(file, &key).await?,
                _ => self.mount.remove_object(found.inode(), &key).await?,
            }
            self.mount.mode.forget_left(&key);
        }
        // Before the name is free: a kill would leave its journal beside that of the next file of the name.
        if let (Some(file), Some(turn)) = (&file, &mut turn) {
            file.discard(turn).await;
        }
        self.mount.namespace.lock().remove(parent, name);
        if let Some(file) = &file {
            self.files.behind.forget(file.inode);
        }
        if !is_gone {
            // Whoever looks at the name asks the store.
            drop(change);
            return Ok(None);
        }
        if unsaved && !may_be_stored && self.mount.save_behind().is_some() {
            change.end();
            return Ok(None);
        }
        Ok(Some(change))
    }

    /// Removes the object of a file of which a save failed that may have stored it. Where files are saved behind, another
    /// client's version stays, which that save may have met. Returns whether the store has nothing under the name then.
    async fn remove_unannounced(&self, file: &OpenFile, key: &Key) -> FsResult<bool> {
        if let Body::Staged(body) = &file.body
            && self.mount.save_behind().is_some()
        {
            self.mount.settle(key).await?;
            if !self.files.is_ours_in_store(file, body, key).await? {
                return Ok(false);
            }
        }
        self.mount.delete_now(key).await?;
        Ok(true)
    }

    /// Fails when a file was renamed meanwhile: its object has another name now, and stays.
    fn check_place(&self, (parent, name): (Inode, &Utf8Name), found: &Reference) -> FsResult<()> {
        let tree = self.mount.namespace.lock();
        let place = tree.node(found.inode())?.place.as_ref();
        if place.is_some_and(|place| place.parent == parent && place.name == *name) {
            Ok(())
        } else {
            Err(FsError::NotFound)
        }
    }

    /// Deletes the object that marks a directory, if the store has nothing else there.
    async fn remove_directory(
        &self,
        (parent, name): (Inode, &Utf8Name),
        found: &Reference,
    ) -> FsResult<Change> {
        let (prefix, late, version) = {
            let tree = self.mount.namespace.lock();
            let entries = &tree.directory(found.inode())?.entries;
            if entries.values().any(|entry| tree.is_unsaved(entry)) {
                return Err(FsError::DirectoryNotEmpty);
            }
            let node = tree.node(found.inode())?;
            let version = node.known.as_ref().map(Known::removal);
            (tree.prefix(found.inode())?, node.late, version)
        };
        let is_marked = self.check_empty(found.inode(), &prefix).await?;
        let _alone = self.metadata.metadata_locks.lock(&[found.inode()]).await;
        let change = self.mount.namespace.begin_change_of(found.inode())?;
        if late != Some(Late::New) {
            let old = self.metadata.old_markers(found.inode())?;
            self.metadata.delete_old_markers(&old).await?;
        }
        if is_marked || late.is_some() {
            let (key, version) = (key::marker_key(&prefix)?, version.unwrap_or_default());
            self.mount.remove_version(&key, version).await?;
        }
        self.mount.namespace.lock().remove(parent, name);
        Ok(change)
    }

    /// Fails unless a directory is empty. Says whether an object may mark it. Where names are changed behind, memory
    /// is believed.
    async fn check_empty(&self, directory: Inode, prefix: &str) -> FsResult<bool> {
        if self.mount.write_back().is_some_and(|names| names.takes())
            && self
                .mount
                .namespace
                .lock()
                .directory(directory)?
                .is_known_empty()
        {
            return Ok(true);
        }
        let keys = for_writing(self.mount.first_keys_below(prefix, 2).await)?;
        match keys.iter().any(|key| key != prefix) {
            true => Err(FsError::DirectoryNotEmpty),
            false => Ok(!keys.is_empty()),
        }
    }
}

impl Mount {
    /// What the handles of a file share, if it is open.
    pub(crate) fn open_file(&self, inode: Inode) -> Option<Arc<OpenFile>> {
        self.namespace.lock().node(inode).ok()?.file.clone()
    }
}
