//! Saving a staged file.
//!
//! A save fails without a trace here: everything that was unsaved still is, so the next close, fsync or attempt
//! in the background begins anew. Under which locks it runs is said in [`crate::open_file::save`].

use std::sync::{Arc, atomic::Ordering};

use penstock_base::{FsError, FsResult, run_blocking};
use penstock_object::{ErrorKind, Key, ObjectError, ObjectKind};
use penstock_transfer::{
    ObjectVersion, TransferError,
    staging::{Base, Content, Replacing, Snapshot, StagedError},
};

use crate::{
    errors::{Purpose, for_writing, transfer_failure},
    files::Files,
    mount::run_to_end,
    open_file::{Body, OpenFile},
    staged::{StagedBody, lock, retry::is_unsaved},
};

/// Which snapshot the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// The one that was just taken.
    Now,
    /// Perhaps one before it, so that more may be unsaved.
    Earlier,
}

/// Why a file was not saved.
#[derive(Debug, Clone)]
pub(crate) enum SaveError {
    /// Another client changed the object: trying again is of no use.
    Conflict(FsError),
    /// Something that may pass.
    Failed(FsError),
}

impl SaveError {
    /// A failure to find out what the store has, which is no conflict.
    fn to_find(error: StagedError) -> Self {
        match Self::from(error) {
            Self::Conflict(error) | Self::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<SaveError> for FsError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Conflict(error) | SaveError::Failed(error) => error,
        }
    }
}

impl From<FsError> for SaveError {
    fn from(error: FsError) -> Self {
        Self::Failed(error)
    }
}

/// What is told of a file in whose way another client's version is.
pub(super) const CONFLICT: FsError = FsError::Busy(
    "another client changed the object meanwhile; theirs stays, and yours is in the staging directory",
);

impl From<StagedError> for SaveError {
    fn from(error: StagedError) -> Self {
        let error = match error {
            StagedError::Transfer(error) => error,
            StagedError::File(error) => return Self::Failed(error),
        };
        let is_conflict = matches!(&error, TransferError::Object(error) if is_conflict(error));
        let meaning = transfer_failure(&error, Purpose::Write);
        if is_conflict {
            return Self::Conflict(CONFLICT);
        }
        Self::Failed(meaning)
    }
}

/// Whether the store says that the object is not the version that was to be replaced.
fn is_conflict(error: &ObjectError) -> bool {
    match error.kind {
        ErrorKind::PreconditionFailed | ErrorKind::AlreadyExists | ErrorKind::InvalidRange => true,
        // Whatever stands before the store may answer so, and not know of any object.
        ErrorKind::NotFound => error.status.is_none() || !error.code.is_empty(),
        _ => false,
    }
}

impl Files {
    /// Saves a staged file if there is anything to save, on behalf of a caller that holds no lock.
    pub(crate) async fn save_staged(
        self: &Arc<Self>,
        file: &OpenFile,
        body: &StagedBody,
    ) -> Result<(), SaveError> {
        if !file.view().dirty && !self.metadata.has_unsaved_metadata(file.inode) {
            return Ok(());
        }
        let _entered = self.mount.namespace.enter(&[file.inode]).await?;
        let _turn = body.turn.lock().await;
        let stored = self.store_changes(file, body).await;
        let failed = stored.as_ref().err();
        *lock(&body.failure) = failed.map(|error| error.clone().into());
        if !is_unsaved(file) {
            self.behind.note_saved(file.inode);
        }
        stored
    }

    /// Stores what is unsaved. The caller has the file's turn, and no directory above is moved, or the caller
    /// moves it.
    pub(crate) async fn store_changes(
        &self,
        file: &OpenFile,
        body: &StagedBody,
    ) -> Result<(), SaveError> {
        if file.view().removed {
            return Ok(());
        }
        self.settle_description(file).await?;
        let replacing = match self.mount.save_behind() {
            Some(_) => Replacing::Nothing,
            None => Replacing::Anything,
        };
        while let Some(snapshot) = body.content.begin_snapshot(replacing).await {
            if self.store_snapshot(file, body, &snapshot).await? == Stored::Now {
                break;
            }
            if body.content.look(Content::is_dirty)? {
                // It is unsaved relative to what was found.
                run_blocking(|| body.content.trim_journal());
            }
        }
        // An earlier save may have stored the content and nothing else.
        self.metadata.store_unsaved_metadata(file).await?;
        // Not before: it tells how the file is to be described, as long as nothing else does.
        run_blocking(|| body.content.trim_journal());
        Ok(())
    }

    /// Lets fall away how the object was to be described that a save replaces, which says that itself. A copy of the
    /// object must not come between the save and the version that it replaces.
    async fn settle_description(&self, file: &OpenFile) -> FsResult<()> {
        let (key, is_said) = {
            let tree = self.mount.namespace.lock();
            let said = tree.node(file.inode).ok();
            let said = said.is_some_and(|node| node.is_dirty() && node.unsaved.is_some());
            (tree.file_key(file.inode), said)
        };
        match key {
            Ok(key) if is_said => self.mount.forgo_description(&key).await,
            Ok(key) => self.mount.settle(&key).await,
            Err(_) => Ok(()),
        }
    }

    async fn store_snapshot(
        &self,
        file: &OpenFile,
        body: &StagedBody,
        snapshot: &Snapshot,
    ) -> Result<Stored, SaveError> {
        let key = self.mount.namespace.lock().file_key(file.inode);
        let stored = match key {
            Ok(key) => match self.mount.settle(&key).await {
                Ok(()) => self.store_or_find(file, body, key, snapshot).await,
                Err(error) => Err(error.into()),
            },
            // Another client's file has the name by now, and nothing else will lead here again.
            Err(FsError::Stale) => Err(SaveError::Conflict(FsError::Stale)),
            Err(error) => Err(error.into()),
        };
        body.content.note_outcome(stored.is_err());
        match stored {
            Ok((version, stored)) => {
                self.publish_staged(file, body, version);
                Ok(stored)
            }
            Err(SaveError::Conflict(_)) if self.has_nothing_to_replace(file, body).await => {
                body.content.give_up_snapshot();
                body.content.forget_replaced();
                Ok(Stored::Earlier)
            }
            Err(error) => {
                body.content.give_up_snapshot();
                self.mount.metrics.failed_uploads.increment();
                let path = self.mount.namespace.lock().path(file.inode);
                let reason = FsError::from(error.clone());
                tracing::error!("`{path}` could not be saved: {reason}; it stays staged");
                Err(error)
            }
        }
    }

    /// Whether a file that replaces a version as a whole finds none there any more: to store it overwrites nothing.
    async fn has_nothing_to_replace(&self, file: &OpenFile, body: &StagedBody) -> bool {
        let replaces = |content: &Content| matches!(content.base(), Base::Emptied(Some(_)));
        let key = self.mount.namespace.lock().file_key(file.inode);
        match key {
            Ok(key) if body.content.look(replaces).unwrap_or(false) => {
                matches!(self.mount.head(&key).await, Ok(None))
            }
            _ => false,
        }
    }

    /// Stores a snapshot, or finds what an earlier save stored whose answer was lost.
    async fn store_or_find(
        &self,
        file: &OpenFile,
        body: &StagedBody,
        key: Key,
        snapshot: &Snapshot,
    ) -> Result<(ObjectVersion, Stored), SaveError> {
        let (content, transfer) = (&body.content, &self.mount.transfer);
        let found = content.find_among_many(transfer, &key).await;
        if let Some(version) = found.map_err(SaveError::to_find)? {
            content.evict().await;
            return Ok((version, Stored::Earlier));
        }
        let options = self
            .metadata
            .saved_description(content, file.inode, &key)
            .await?;
        let stored = content
            .store(transfer, key.clone(), options, snapshot)
            .await;
        let conflict = match stored.map_err(SaveError::from) {
            Err(SaveError::Conflict(conflict)) => conflict,
            stored => return stored.map(|version| (version, Stored::Now)),
        };
        // This very attempt among them: its answer may have been lost on the way.
        let found = content.find_attempt(transfer, &key).await;
        if let Some(version) = found.map_err(SaveError::to_find)? {
            // Only what was sent has been compared.
            content.evict().await;
            self.metadata.compare_sent(file.inode, &key).await;
            return Ok((version, Stored::Earlier));
        }
        // Older versions kept no checksums of what they sent.
        if content.look(Content::is_recovered)? {
            let found = content.find_snapshot(transfer, &key, snapshot).await;
            if let Some(version) = found.map_err(SaveError::to_find)? {
                content.evict().await;
                self.metadata.compare_sent(file.inode, &key).await;
                return Ok((version, Stored::Now));
            }
        }
        Err(SaveError::Conflict(conflict))
    }

    /// Whether the store has the version of a file that is known here, or that its changes are relative to, or what a save
    /// of it stored whose answer was lost.
    pub(crate) async fn is_ours_in_store(
        &self,
        file: &OpenFile,
        body: &StagedBody,
        key: &Key,
    ) -> FsResult<bool> {
        let Some(there) = for_writing(self.mount.head(key).await)? else {
            return Ok(false);
        };
        let known = self.mount.namespace.lock().version(file.inode);
        if known.is_some_and(|known| known.etag == there.etag) {
            return Ok(true);
        }
        let is_base = |content: &Content| content.base().etag() == Some(&there.etag);
        match body.content.look(is_base) {
            Ok(false) => {}
            is_base => return Ok(is_base.unwrap_or(false)),
        }
        let found = body.content.find_attempt(&self.mount.transfer, key).await;
        Ok(found.map_err(SaveError::from)?.is_some())
    }

    /// Shows what was saved to everybody on this mount.
    fn publish_staged(&self, file: &OpenFile, body: &StagedBody, version: ObjectVersion) {
        let mut tree = self.mount.namespace.lock();
        let known = self.mount.known_written(file, &version, ObjectKind::Normal);
        // Before the content is unlocked: a sync must not find that nothing is unsaved.
        body.content.end_snapshot(version.clone(), |content| {
            file.show_stored(version, content);
        });
        tree.publish(file.inode, known);
    }

    /// Saves a file that has much unsaved, while it is still being written.
    pub(super) fn save_in_background(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &Arc<StagedBody>,
    ) {
        if body.saving_back.swap(true, Ordering::Relaxed) {
            return;
        }
        let (this, file, body) = (Arc::clone(self), Arc::clone(file), Arc::clone(body));
        tokio::spawn(async move {
            // The close of the file tries again, and is told.
            let _ = run_to_end(this.save_shared(file)).await;
            body.saving_back.store(false, Ordering::Relaxed);
        });
    }

    /// Saves a staged file, in a task of its own.
    pub(crate) async fn save_shared(self: Arc<Self>, file: Arc<OpenFile>) -> FsResult<()> {
        match &file.body {
            Body::Staged(body) => Ok(self.save_staged(&file, body).await?),
            Body::Streamed(_) => Ok(()),
        }
    }
}
