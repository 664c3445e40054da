//! What becomes of a file that could not be saved when it was closed, or that an earlier mount left.
//!
//! Whoever closed it was told. The file stays as it is, for everybody who opens it, and is tried
//! again and again, a few files at a time. When another client's version is in the way that is of
//! no use: then the content is put aside, the log says where, and the name shows their version.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use penstock_base::{clock, run_blocking};

use crate::{
    core::{Core, run_to_end},
    open_file::{FileHandle, OpenFile},
    staged::{StagedFile, lock, save::SaveError},
};

/// How long to wait before the first attempt, and between the last ones.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// An attempt to save a file that failed.
#[derive(Debug)]
pub(super) struct Attempt {
    error: SaveError,
    /// When the file had been written last.
    written: SystemTime,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Saved,
    Aside,
    /// The volume shuts down; the next mount finds the file.
    Shut,
}

impl Core {
    /// The last descriptor of a handle of a staged file was closed.
    pub(crate) async fn release_staged(self: &Arc<Self>, handle: Arc<FileHandle>) {
        let core = Arc::clone(self);
        let ended = run_to_end(async move {
            let saved = core.attempt(&handle.file).await;
            let Some(staged) = &handle.file.staged else {
                return Ok(());
            };
            match saved {
                Ok(()) => {}
                Err(_) if staged.kept_trying.swap(true, Ordering::Relaxed) => {}
                Err(failed) => {
                    let (core, handle) = (Arc::clone(&core), Arc::clone(&handle));
                    tokio::spawn(async move { core.keep(&handle, Some(failed)).await });
                }
            }
            Ok(())
        });
        if let Err(error) = ended.await {
            tracing::error!("closing a file: {error}");
        }
    }

    async fn attempt(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<(), Attempt> {
        let written = file.view().modified;
        let saved = self.try_save(file).await;
        saved.map_err(|error| Attempt { error, written })
    }

    /// Tries to save a file, of which an attempt has `failed` or none was made, until that succeeds
    /// or the volume shuts down. The handle keeps the file. `kept_trying` is set, and is so until
    /// nothing is left to try.
    pub(super) async fn keep(
        self: &Arc<Self>,
        handle: &FileHandle,
        mut failed: Option<Attempt>,
    ) -> Kept {
        let file = &handle.file;
        let Some(staged) = &file.staged else {
            return Kept::Saved;
        };
        loop {
            let kept = self.keep_trying((file, staged), failed.take()).await;
            staged.kept_trying.store(false, Ordering::Relaxed);
            if kept == Kept::Shut || !is_unsaved(file) {
                return kept;
            }
            // Whoever closed the file just before that left it to this.
            clock::sleep(PAUSES[0]).await;
            let is_left = is_unsaved(file) && file.view().handles() == 1;
            if !is_left || staged.kept_trying.swap(true, Ordering::Relaxed) {
                return kept;
            }
        }
    }

    async fn keep_trying(
        self: &Arc<Self>,
        (file, staged): (&Arc<OpenFile>, &StagedFile),
        mut failed: Option<Attempt>,
    ) -> Kept {
        let mut pause = PAUSES[0];
        loop {
            if let Some(attempt) = &failed {
                let is_conflict = matches!(attempt.error, SaveError::Conflict(_));
                if is_conflict && self.put_aside(file, staged, attempt.written).await {
                    return Kept::Aside;
                }
                clock::sleep(PAUSES[0]).await;
                // What is in conflict is put aside as soon as nobody else has it open.
                let rest = pause.saturating_sub(PAUSES[0]);
                match is_conflict {
                    true => drop(clock::deadline(rest, file.left_alone()).await),
                    false => clock::sleep(rest).await,
                }
                pause = (pause * 2).min(PAUSES[1]);
            }
            let _turn = staged.staging().keeping.acquire().await;
            if self.check_not_shut().is_err() {
                return Kept::Shut;
            }
            match self.attempt(file).await {
                Ok(()) => return Kept::Saved,
                Err(attempt) => failed = Some(attempt),
            }
        }
    }

    /// Puts aside what cannot be saved, and shows what the store has. Returns whether that was done:
    /// not while others have the file open, who are told themselves, and not when it was written
    /// since `written`, so that it may be saved by now.
    async fn put_aside(&self, file: &OpenFile, staged: &StagedFile, written: SystemTime) -> bool {
        let _stream = file.stream().await;
        let _alone = staged.change.write().await;
        let path = self.namespace.lock().path(file.inode);
        let Some(kept) = run_blocking(|| self.take_aside(file, staged, written)) else {
            return false;
        };
        match kept {
            Ok(Some(kept)) => tracing::error!(
                "`{path}`: another client changed the object since what was written here began; \
                 theirs stays, and what was written here is kept in {}: compare the two, and \
                 remove it",
                kept.display()
            ),
            Ok(None) => {}
            Err(error) => tracing::error!(
                "`{path}`: another client changed the object, and what was written here cannot be \
                 put aside: {error}; it stays in the staging directory for the next mount"
            ),
        }
        true
    }

    /// Empties a file if nobody else has it open and it was not written since `written`, and moves
    /// its content out of the way; returns where to.
    fn take_aside(
        &self,
        file: &OpenFile,
        staged: &StagedFile,
        written: SystemTime,
    ) -> Option<std::io::Result<Option<PathBuf>>> {
        let mut journal = lock(&staged.journal);
        // Closed when the tree is free again.
        let _disk;
        {
            // Who opens the file needs the tree.
            let mut tree = self.namespace.lock();
            let view = file.view().clone();
            if view.handles() != 1 || !view.dirty || view.modified != written {
                return None;
            }
            _disk = lock(&staged.disk).take();
            *staged.state() = None;
            {
                let mut view = file.view();
                view.dirty = false;
                view.ours = false;
                view.is_shown = false;
            }
            if view.new {
                tree.give_up(file.inode);
            } else if let Ok(node) = tree.node_mut(file.inode) {
                node.distrust(clock::now());
            }
        }
        Some(match journal.take() {
            Some(_) => staged.staging().folder().keep(&staged.id).map(Some),
            None => Ok(None),
        })
    }
}

fn is_unsaved(file: &OpenFile) -> bool {
    let view = file.view();
    view.dirty && !view.removed
}
