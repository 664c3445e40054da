//! What becomes of a file that could not be saved when it was closed, or that an earlier mount left.
//!
//! The close was told. The file stays as it is, for every open that follows, and is tried
//! again and again, a few files at a time. When another client's version is in the way that is of
//! no use: then the content is put aside, the log says where, and the name shows their version.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use penstock_base::{clock, run_blocking};

use crate::{
    files::Files,
    mount::run_to_end,
    open_file::{FileHandle, OpenFile},
    staged::{StagedBody, save::SaveError},
};

/// How long to wait before the first attempt, and between the last ones.
pub(crate) const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// An attempt to save a file that failed.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) error: SaveError,
    /// When the file had been written last.
    pub(super) written: SystemTime,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retried {
    Saved,
    Aside,
    /// The volume shuts down; the next mount finds the file.
    Shut,
}

impl Files {
    /// The last descriptor of a handle of a staged file was closed.
    pub(crate) async fn release_staged(
        self: &Arc<Self>,
        handle: Arc<FileHandle>,
        body: Arc<StagedBody>,
    ) {
        let this = Arc::clone(self);
        let ended = run_to_end(async move {
            if this.may_save_later(&handle.file, &body).await {
                this.save_later(handle);
                return Ok(());
            }
            match this.attempt(&handle.file, &body).await {
                Ok(()) => {}
                Err(_) if body.retried.swap(true, Ordering::Relaxed) => {}
                Err(failed) => {
                    let (this, handle) = (Arc::clone(&this), Arc::clone(&handle));
                    let body = Arc::clone(&body);
                    tokio::spawn(async move { this.retry(handle, &body, Some(failed)).await });
                }
            }
            Ok(())
        });
        if let Err(error) = ended.await {
            tracing::error!("closing a file: {error}");
        }
    }

    pub(super) async fn attempt(
        self: &Arc<Self>,
        file: &OpenFile,
        body: &StagedBody,
    ) -> Result<(), FailedAttempt> {
        let written = file.view().modified;
        let saved = self.save_staged(file, body).await;
        saved.map_err(|error| FailedAttempt { error, written })
    }

    /// Tries to save a file, of which an attempt has `failed` or none was made, until that succeeds
    /// or the volume shuts down. The handle keeps the file, and its name until it was saved then. `retried` is
    /// set, and is so until nothing is left to try.
    pub(super) async fn retry(
        self: &Arc<Self>,
        handle: Arc<FileHandle>,
        body: &StagedBody,
        failed: Option<FailedAttempt>,
    ) -> Retried {
        let ended = self.retry_and_again(&handle.file, body, failed).await;
        if ended == Retried::Shut {
            self.behind.keep(handle);
        }
        ended
    }

    async fn retry_and_again(
        self: &Arc<Self>,
        file: &OpenFile,
        body: &StagedBody,
        mut failed: Option<FailedAttempt>,
    ) -> Retried {
        loop {
            let ended = self.retry_until_saved(file, body, failed.take()).await;
            body.retried.store(false, Ordering::Relaxed);
            if ended == Retried::Shut || !is_unsaved(file) {
                return ended;
            }
            // A close just before that left it to this.
            clock::sleep(PAUSES[0]).await;
            let is_left = is_unsaved(file) && file.view().handles() == 1;
            if !is_left || body.retried.swap(true, Ordering::Relaxed) {
                return ended;
            }
        }
    }

    async fn retry_until_saved(
        self: &Arc<Self>,
        file: &OpenFile,
        body: &StagedBody,
        mut failed: Option<FailedAttempt>,
    ) -> Retried {
        let mut pause = PAUSES[0];
        loop {
            if let Some(attempt) = &failed {
                let is_conflict = matches!(attempt.error, SaveError::Conflict(_));
                if is_conflict && self.put_aside(file, body, attempt.written).await {
                    return Retried::Aside;
                }
                clock::sleep(PAUSES[0]).await;
                // What is in conflict is put aside as soon as no other handle has it open.
                let rest = pause.saturating_sub(PAUSES[0]);
                match is_conflict {
                    true => drop(clock::deadline(rest, file.left_alone()).await),
                    false => clock::sleep(rest).await,
                }
                pause = (pause * 2).min(PAUSES[1]);
            }
            let _turn = body.mode.retrying.acquire().await;
            if self.mount.check_not_shut().is_err() {
                return Retried::Shut;
            }
            match self.attempt(file, body).await {
                Ok(()) => return Retried::Saved,
                Err(attempt) => failed = Some(attempt),
            }
        }
    }

    /// Puts aside what cannot be saved, and shows what the store has. Returns whether that was done:
    /// not while other handles have the file open, which are told themselves, and not when it was written
    /// since `written`, so that it may be saved by now.
    pub(super) async fn put_aside(
        &self,
        file: &OpenFile,
        body: &StagedBody,
        written: SystemTime,
    ) -> bool {
        let _turn = body.turn.lock().await;
        let _alone = body.content.hold_alone().await;
        let path = self.mount.namespace.lock().path(file.inode);
        let take = |empty: &mut dyn FnMut()| self.empty_if_alone(file, written, empty);
        let Some(kept) = run_blocking(|| body.content.put_aside(take)) else {
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

    /// Empties a file and shows what the store has, if no other handle has it open and it was not written since
    /// `written`. Returns whether that is so.
    fn empty_if_alone(
        &self,
        file: &OpenFile,
        written: SystemTime,
        empty: &mut dyn FnMut(),
    ) -> bool {
        // An open of the file needs the tree.
        let mut tree = self.mount.namespace.lock();
        let view = file.view().clone();
        if view.handles() != 1 || !view.dirty || view.modified != written {
            return false;
        }
        empty();
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
        // It believes what was shown of a file that was closed.
        tree.tell_content_changed(file.inode);
        true
    }
}

pub(super) fn is_unsaved(file: &OpenFile) -> bool {
    let view = file.view();
    view.dirty && !view.removed
}
