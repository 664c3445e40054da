//! From when on a file is staged.
//!
//! A file that is only read costs staging nothing: its handles read the store, as in streaming
//! mode. The first change *engages* it: the version that the store has now becomes the base. It
//! stays engaged until its last handle is closed, so that what was written is read from the disk,
//! or until somebody opens it and the store has a version by another client.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, MIB};
use penstock_transfer::ObjectVersion;

use crate::{
    core::Core,
    open_file::OpenFile,
    staged::{StagedFile, content::Content},
};

/// Bytes of a file that are fetched when it is removed or replaced while it is open, so that its
/// handles can read on. What is not fetched fails as stale.
const KEEP_MAX: u64 = 64 * MIB;
/// Bytes of a file that is fetched at once when it is engaged: what is put aside after a conflict is
/// whole.
const SMALL_MAX: u64 = MIB;

impl Core {
    /// Makes the staged content what a file holds, based on what the store has now.
    pub(crate) async fn engage(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        staged: &StagedFile,
    ) -> FsResult<()> {
        if self.namespace.lock().node(file.inode)?.lost_its_name() {
            return Err(FsError::Stale);
        }
        if staged.is_engaged() {
            return Ok(());
        }
        let _entered = self.namespace.enter(&[file.inode]).await?;
        let _stream = file.stream().await;
        if staged.is_engaged() {
            return Ok(());
        }
        if file.view().removed {
            return Err(FsError::Stale);
        }
        if !file.view().ours {
            self.refresh_open(file).await?;
        }
        let small = {
            // To the end, or an open takes another version in between.
            let tree = self.namespace.lock();
            let version = tree.version(file.inode).ok_or(FsError::Stale)?;
            let small = version.size <= SMALL_MAX;
            let is_another = file.view().take(version.clone())?;
            self.engage_with(file, staged, version);
            if is_another {
                tree.tell_content_changed(file.inode);
            }
            small
        };
        if small {
            self.fetch_before_save(staged).await;
        }
        Ok(())
    }

    fn engage_with(&self, file: &Arc<OpenFile>, staged: &StagedFile, version: ObjectVersion) {
        let key = version.key.clone();
        staged.engage_file(file, (Content::of(version), key), |_| ());
    }

    /// Fetches what the handles of a file would miss when its object goes away. The caller has the
    /// file's stream. What cannot be fetched is missed.
    pub(crate) async fn keep_for_handles(&self, file: &Arc<OpenFile>) {
        let Some(staged) = &file.staged else { return };
        if !staged.is_engaged() {
            let Some(version) = file.view().version.clone() else {
                return;
            };
            self.engage_with(file, staged, version);
        }
        if let Err(error) = self.fetch_lacking(staged, KEEP_MAX).await {
            let path = self.namespace.lock().path(file.inode);
            tracing::warn!(
                "`{path}` is open while its object goes away, and could not be fetched: {error}; \
                 reading it on may fail"
            );
        }
    }
}
