//! From when on a file is staged.
//!
//! A file that is only read costs staging nothing: its handles read the store, as in streaming
//! mode. The first change *engages* it: the version that the store has now becomes the base. It
//! stays engaged until its last handle is closed, so that what was written is read from the disk,
//! or until it is opened and the store has a version by another client.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, MIB};
use penstock_transfer::{
    ObjectVersion,
    staging::{Content, StagedError},
};

use crate::{
    errors::{Purpose, transfer_failure},
    files::Files,
    open_file::{Body, OpenFile},
    staged::StagedBody,
};

/// Bytes of a file that are fetched when it is removed or replaced while it is open, so that its
/// handles can read on. What is not fetched fails as stale.
const KEEP_MAX: u64 = 64 * MIB;
/// Bytes of a file that is fetched at once when it is engaged: what is put aside after a conflict is
/// whole.
const SMALL_MAX: u64 = MIB;

impl Files {
    /// Makes the staged content what a file holds, based on what the store has now.
    pub(crate) async fn engage(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &StagedBody,
    ) -> FsResult<()> {
        self.mount.check_keeps_name(file.inode)?;
        if body.content.is_engaged() {
            return Ok(());
        }
        let _entered = self.mount.namespace.enter(&[file.inode]).await?;
        let _turn = body.turn.lock().await;
        if body.content.is_engaged() {
            return Ok(());
        }
        if file.view().removed {
            return Err(FsError::Stale);
        }
        if !file.view().ours {
            self.lookups.refresh_open(file).await?;
        }
        let small = {
            // To the end, or an open takes another version in between.
            let tree = self.mount.namespace.lock();
            let version = tree.version(file.inode).ok_or(FsError::Stale)?;
            let small = version.size <= SMALL_MAX;
            let is_another = file.view().take(version.clone())?;
            engage_with(file, body, version);
            if is_another {
                tree.tell_content_changed(file.inode);
            }
            small
        };
        if small {
            body.content.fetch_before_save(&self.mount.transfer).await;
        }
        Ok(())
    }

    /// Fetches what the handles of a file would miss when its object goes away. The caller has the
    /// file's turn. What cannot be fetched is missed; a streamed file misses everything.
    pub(crate) async fn keep_for_handles(&self, file: &Arc<OpenFile>) {
        let Body::Staged(body) = &file.body else {
            return;
        };
        if !body.content.is_engaged() {
            let Some(version) = file.view().version.clone() else {
                return;
            };
            engage_with(file, body, version);
        }
        if let Err(error) = body
            .content
            .fetch_lacking(&self.mount.transfer, KEEP_MAX)
            .await
        {
            let error = match error {
                StagedError::Transfer(error) => transfer_failure(&error, Purpose::Read),
                StagedError::File(error) => error,
            };
            let path = self.mount.namespace.lock().path(file.inode);
            tracing::warn!(
                "`{path}` is open while its object goes away, and could not be fetched: {error}; \
                 reading it on may fail"
            );
        }
    }
}

fn engage_with(file: &Arc<OpenFile>, body: &StagedBody, version: ObjectVersion) {
    let key = version.key.clone();
    body.engage(file, Content::of(version), key, |_| ());
}
