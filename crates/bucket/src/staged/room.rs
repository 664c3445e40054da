//! Space for a write.
//!
//! Where there is none, what the store has already is given up first, of closed files and then of open
//! ones; then the file with the most unsaved bytes is saved, and its bytes given up. A write fails for want of space only when that
//! fails: the store does not take what would have to leave. Who finds room meanwhile, for a file was
//! removed or cut, waits for no save.

use std::{cmp::Reverse, ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult};

use crate::{
    core::{Core, run_to_end},
    open_file::OpenFile,
    staged::{
        StagedFile,
        disk::on_worker,
        space::{Payment, Place},
        staging::Staging,
    },
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
        let staging = staged.staging();
        match staging.space().try_take_known(bytes) {
            Some(payment) => Ok(payment),
            None => self.make_room(staging, bytes).await,
        }
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

    /// Takes `bytes` of staging space when there is room for them, and makes some if nobody does.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        staging: &Arc<Staging>,
        bytes: u64,
    ) -> FsResult<Payment> {
        let place = staging.space().line_up(bytes);
        tokio::select! {
            biased;
            payment = place.served() => Ok(payment),
            made = self.make_room_at(staging, &place) => made,
        }
    }

    async fn make_room_at(
        self: &Arc<Self>,
        staging: &Arc<Staging>,
        place: &Place,
    ) -> FsResult<Payment> {
        let _turn = staging.making_room.lock().await;
        let take = || on_worker(|| staging.take_at(place));
        if let Some(payment) = take().await {
            return Ok(payment);
        }
        // What is given up goes to those first who came before: who gets nothing of it goes on.
        while self.give_up_some(staging, place).await {
            if let Some(payment) = take().await {
                return Ok(payment);
            }
        }
        if self.notices.staging_full.first() {
            tracing::warn!(
                "the staging directory is full and nothing in it can be saved: writes fail until \
                 the store takes files again; give it more with staging-size (later cases are \
                 not told)"
            );
        }
        Err(FsError::NoSpace)
    }

    /// Gives up what the store has already, of all files, and of one that is saved for it. Says whether one
    /// was saved, or who waits at `place` is served.
    async fn give_up_some(self: &Arc<Self>, staging: &Arc<Staging>, place: &Place) -> bool {
        let mut files = staging.engaged();
        for staged in files.iter().filter_map(|file| file.staged.as_ref()) {
            self.evict(staged).await;
            if place.may_be_served() {
                return true;
            }
        }
        files.sort_by_cached_key(|file| Reverse(unsaved(file)));
        for file in files {
            if unsaved(&file) == 0 || file.view().removed {
                continue;
            }
            let path = self.namespace.lock().path(file.inode);
            tracing::debug!("`{path}` is saved because the staging directory is full");
            let saved = run_to_end(Arc::clone(self).save_shared(Arc::clone(&file))).await;
            if let (Ok(()), Some(staged)) = (saved, &file.staged) {
                self.evict(staged).await;
                return true;
            }
        }
        false
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
    /// Gives up what the store has as well. The caller has the file alone, so that nobody reads or writes
    /// there between the content and the disk.
    fn evict(&self) {
        let Some(disk) = self.disk_if_any() else {
            return;
        };
        for range in self.forget_local() {
            disk.punch(range);
        }
        if let Some(state) = self.state().as_mut() {
            state.payment.settle(&state.content);
        }
    }

    /// Forgets what the store has as well, and returns where that is in the staging file.
    fn forget_local(&self) -> Vec<Range<u64>> {
        let mut state = self.state();
        // The object of a removed file is gone.
        let state = state.as_mut().filter(|state| !state.abandoned);
        state.map_or_else(Vec::new, |state| state.content.evict())
    }
}
