//! Space for a write.
//!
//! Where there is none, what the store has already is given up first, of closed files and then of open
//! ones; then the file with the most unsaved bytes is saved, and its bytes given up. A write fails for want of
//! space only when that fails: the store does not take what would have to leave. Then the next file is tried, but a store
//! that is away is not waited for once for each: not beyond [`FAILING_MAX`], and not by the writes that waited meanwhile. A
//! write that finds room meanwhile, for a file was removed or cut, waits for no save.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use penstock_base::{FsError, FsResult, clock};
use penstock_transfer::staging::{Payment, Place, on_worker};

use crate::{
    files::Files,
    mount::run_to_end,
    open_file::{Body, OpenFile},
    staged::{StagedBody, StagedMode},
};

/// How long file after file is tried while none can be saved.
const FAILING_MAX: Duration = Duration::from_secs(30);
/// Extents of a file beyond which it is saved and given up. Each takes about 60 bytes of memory.
const EXTENTS_MAX: usize = 1 << 16;
/// The same for all files together.
const ALL_EXTENTS_MAX: usize = 1 << 18;
/// Extents of a file that are not worth a save.
const FEW_EXTENTS: usize = 1 << 10;

impl Files {
    /// Takes staging space for a change of a file. Fails with `NoSpace`.
    pub(super) async fn pay(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &StagedBody,
        bytes: u64,
    ) -> FsResult<Payment> {
        self.bound_extents(file, body).await?;
        match body.staging().space().try_take_known(bytes) {
            Some(payment) => Ok(payment),
            None => self.make_room(&body.mode, bytes).await,
        }
    }

    /// Before a change that makes extents: saves a file that has too many.
    pub(super) async fn bound_extents(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &StagedBody,
    ) -> FsResult<()> {
        let extents = body.content.look(|content| content.extents().count())?;
        let all = body.staging().space().extents();
        if extents > EXTENTS_MAX || all > ALL_EXTENTS_MAX && extents > FEW_EXTENTS {
            run_to_end(Arc::clone(self).save_shared(Arc::clone(file))).await?;
            body.content.evict().await;
        }
        Ok(())
    }

    /// Takes `bytes` of staging space when there is room for them, and makes some if there is none.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        mode: &StagedMode,
        bytes: u64,
    ) -> FsResult<Payment> {
        let place = mode.staging.space().line_up(bytes);
        tokio::select! {
            biased;
            payment = place.served() => Ok(payment),
            made = self.make_room_at(mode, &place) => made,
        }
    }

    async fn make_room_at(self: &Arc<Self>, mode: &StagedMode, place: &Place) -> FsResult<Payment> {
        let began = clock::now();
        let mut came_to_nothing = mode.making_room.lock().await;
        let take = || on_worker(|| mode.staging.take_at(place));
        if let Some(payment) = take().await {
            return Ok(payment);
        }
        if came_to_nothing.is_some_and(|at| at > began) {
            return Err(FsError::NoSpace);
        }
        // What is given up goes to those first that came before: a write that gets nothing of it goes on.
        while self.give_up_some(mode, place).await {
            if let Some(payment) = take().await {
                return Ok(payment);
            }
        }
        *came_to_nothing = Some(clock::now());
        if self.mount.notices.staging_full.first() {
            tracing::warn!(
                "the staging directory is full and nothing in it can be saved: writes fail until \
                 the store takes files again; give it more with staging-size (later cases are \
                 not told)"
            );
        }
        Err(FsError::NoSpace)
    }

    /// Gives up what the store has already, of all files, and of one that is saved for it. Returns whether one
    /// was saved, or what waits at `place` is served.
    async fn give_up_some(self: &Arc<Self>, mode: &StagedMode, place: &Place) -> bool {
        let mut files = mode.engaged.all();
        for body in files.iter().filter_map(|file| file.body.staged()) {
            body.content.evict().await;
            if place.may_be_served() {
                return true;
            }
        }
        files.sort_by_cached_key(|file| Reverse(dirty_bytes(file)));
        let until = clock::now() + FAILING_MAX;
        for file in files {
            if dirty_bytes(&file) == 0 || file.view().removed {
                continue;
            }
            if clock::now() > until {
                return false;
            }
            let path = self.mount.namespace.lock().path(file.inode);
            tracing::debug!("`{path}` is saved because the staging directory is full");
            let saved = run_to_end(Arc::clone(self).save_shared(Arc::clone(&file))).await;
            if let (Ok(()), Body::Staged(body)) = (saved, &file.body) {
                body.content.evict().await;
                return true;
            }
        }
        false
    }
}

/// Bytes of a file that lie in its staging file and that the store lacks.
pub(super) fn dirty_bytes(file: &OpenFile) -> u64 {
    let body = file.body.staged();
    let dirty = body.map(|body| body.content.look(|content| content.extents().dirty()));
    dirty.and_then(Result::ok).unwrap_or_default()
}
