//! Space for a write.
//!
//! Where there is none, what the store has already is given up first, of closed files and then of open
//! ones; then the file with the most
//! unsaved bytes is saved, and its bytes given up. A write fails for want of space only when that
//! fails: the store does not take what would have to leave.

use std::{cmp::Reverse, sync::Arc};

use penstock_base::{FsError, FsResult};

use crate::{
    core::{Core, run_to_end},
    open_file::OpenFile,
    staged::{StagedFile, disk::on_worker, space::Payment},
};

/// Extents of a file beyond which it is saved and given up. Each takes about 60 bytes of memory.
const EXTENTS_MAX: usize = 1 << 16;
/// The same for all files together.
const ALL_EXTENTS_MAX: usize = 1 << 18;
/// Extents of a file that are not worth a save.
const FEW_EXTENTS: usize = 1 << 10;

impl Core {
    /// Takes staging space for a change of a file. Fails with `NoSpace`.
    pub(super) async fn pay(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        staged: &StagedFile,
        bytes: u64,
    ) -> FsResult<Payment> {
        self.bound_extents(file, staged).await?;
        if let Some(payment) = staged.staging().try_take(bytes) {
            return Ok(payment);
        }
        self.make_room(staged.staging(), bytes).await
    }

    /// Before a change that makes extents: saves a file that has too many.
    pub(super) async fn bound_extents(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        staged: &StagedFile,
    ) -> FsResult<()> {
        let extents = staged.look(|content| content.extents().count())?;
        let all = staged.staging().space().extents();
        if extents > EXTENTS_MAX || all > ALL_EXTENTS_MAX && extents > FEW_EXTENTS {
            run_to_end(Arc::clone(self).save_shared(Arc::clone(file))).await?;
            self.evict(staged).await;
        }
        Ok(())
    }

    pub(super) async fn make_room(
        self: &Arc<Self>,
        staging: &Arc<crate::staged::staging::Staging>,
        bytes: u64,
    ) -> FsResult<Payment> {
        let _turn = staging.making_room.lock().await;
        let mut files = staging.engaged();
        for staged in files.iter().filter_map(|file| file.staged.as_ref()) {
            if let Some(payment) = staging.try_take(bytes) {
                return Ok(payment);
            }
            self.evict(staged).await;
        }
        files.sort_by_cached_key(|file| Reverse(unsaved(file)));
        for file in files {
            if let Some(payment) = staging.try_take(bytes) {
                return Ok(payment);
            }
            if unsaved(&file) == 0 || file.view().removed {
                continue;
            }
            let path = self.namespace.lock().path(file.inode);
            tracing::debug!("`{path}` is saved because the staging directory is full");
            let saved = run_to_end(Arc::clone(self).save_shared(Arc::clone(&file))).await;
            if let (Ok(()), Some(staged)) = (saved, &file.staged) {
                self.evict(staged).await;
            }
        }
        let payment = staging.try_take(bytes);
        if payment.is_none() && self.notices.staging_full.first() {
            tracing::warn!(
                "the staging directory is full and nothing in it can be saved: writes fail until \
                 the store takes files again; give it more with staging-size (later cases are \
                 not told)"
            );
        }
        payment.ok_or(FsError::NoSpace)
    }

    /// Gives up what the store has as well.
    pub(super) async fn evict(&self, staged: &StagedFile) {
        let _alone = staged.change.write().await;
        on_worker(|| staged.evict()).await;
    }
}

/// Bytes of a file that the store lacks.
pub(super) fn unsaved(file: &OpenFile) -> u64 {
    let staged = file.staged.as_ref();
    let dirty = staged.map(|staged| staged.look(|content| content.extents().dirty()));
    dirty.and_then(Result::ok).unwrap_or_default()
}

impl StagedFile {
    fn evict(&self) {
        let Some(disk) = self.disk_if_any() else {
            return;
        };
        let mut state = self.state();
        let Some(state) = state.as_mut() else { return };
        // The object of a removed file is gone.
        if state.abandoned {
            return;
        }
        for range in state.content.evict() {
            disk.punch(range);
        }
        state.payment.settle(&state.content);
    }
}
