//! What becomes of a file that could not be saved when it was closed.
//!
//! Whoever closed it was told. The file stays as it is, for everybody who opens it, and is tried
//! again and again. When another client's version is in the way that is of no use: then the content
//! is put aside, the log says where, and the name shows their version.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use penstock_base::{clock, run_blocking};

use crate::{
    core::{Core, run_to_end},
    open_file::{FileHandle, OpenFile},
    staged::{StagedFile, save::SaveError},
};

/// How long to wait before the first attempt, and between the last ones.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

impl Core {
    /// The last descriptor of a handle of a staged file was closed.
    pub(crate) async fn release_staged(self: &Arc<Self>, handle: Arc<FileHandle>) {
        let core = Arc::clone(self);
        let ended = run_to_end(async move {
            let saved = core.try_save(&handle.file).await;
            let Some(staged) = &handle.file.staged else {
                return Ok(());
            };
            match saved {
                Ok(()) => {}
                Err(_) if staged.kept_trying.swap(true, Ordering::Relaxed) => {}
                Err(error) => {
                    tokio::spawn(Arc::clone(&core).keep_trying(Arc::clone(&handle), error));
                }
            }
            Ok(())
        });
        if let Err(error) = ended.await {
            tracing::error!("closing a file: {error}");
        }
    }

    /// Tries to save a file until that succeeds, or the volume shuts down: then the next mount
    /// finds it. The handle keeps the file.
    async fn keep_trying(self: Arc<Self>, handle: Arc<FileHandle>, mut error: SaveError) {
        let file = &handle.file;
        let Some(staged) = &file.staged else { return };
        let mut pause = PAUSES[0];
        loop {
            // While others have it open, they are told themselves.
            if matches!(error, SaveError::Conflict(_)) && self.is_only_handle(file) {
                self.put_aside(file, staged).await;
                break;
            }
            clock::sleep(pause).await;
            if self.check_not_shut().is_err() {
                break;
            }
            pause = (pause * 2).min(PAUSES[1]);
            match self.try_save(file).await {
                Ok(()) => break,
                Err(next) => error = next,
            }
        }
        staged.kept_trying.store(false, Ordering::Relaxed);
    }

    fn is_only_handle(&self, file: &OpenFile) -> bool {
        file.view().handles() == 1
    }

    /// Puts aside what cannot be saved, and shows what the store has.
    async fn put_aside(&self, file: &OpenFile, staged: &StagedFile) {
        let _stream = file.stream().await;
        let _alone = staged.change.write().await;
        let path = self.namespace.lock().path(file.inode);
        match run_blocking(|| staged.put_aside()) {
            Ok(Some(kept)) => tracing::error!(
                "`{path}`: another client changed the object while it was written here; theirs \
                 stays, and what was written here is kept in {}: compare the two, and remove it",
                kept.display()
            ),
            Ok(None) => {}
            Err(error) => tracing::error!("`{path}`: what was written cannot be kept: {error}"),
        }
        let mut tree = self.namespace.lock();
        {
            let mut view = file.view();
            view.dirty = false;
            view.ours = false;
            view.generation += 1;
        }
        if file.view().new {
            tree.orphan(file.inode);
        } else if let Ok(node) = tree.node_mut(file.inode) {
            node.distrust(clock::now());
        }
    }
}

impl StagedFile {
    /// Moves the staging file and its journal out of the way; returns where to.
    fn put_aside(&self) -> std::io::Result<Option<std::path::PathBuf>> {
        let mut journal = super::lock(&self.journal);
        *super::lock(&self.disk) = None;
        *self.state() = None;
        match journal.take() {
            Some(_) => self.staging.folder().keep(&self.id).map(Some),
            None => Ok(None),
        }
    }
}
