//! Fetching what a staged file lacks: the bytes that only the store has.
//!
//! A file that was changed and is then read where only the store has it is fetched whole, if it is of
//! a size that may be saved in one request: once, instead of in as many requests as there are
//! reads. Unless little of it was changed, the save sends all its bytes, and finds them here.

use std::ops::Range;

use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{FsError, FsResult, MIB, Payload};
use penstock_transfer::{ObjectVersion, Transfer};

use crate::{
    core::Core,
    errors::{Purpose, transfer_failure},
    staged::{
        StagedFile, State,
        content::Content,
        disk::{disk_failure, on_worker},
    },
};

/// Bytes that one request fetches, at most.
const REQUEST: u64 = 2 * MIB;
/// Requests for one file at once.
const REQUESTS_MAX: usize = 4;

impl Core {
    /// Fetches what `staged` lacks if it may be saved in one request. Tried once, while other
    /// reads of what is lacking wait; what could not be fetched is read from the store piece by piece.
    /// Returns whether it was tried now, here or by whom this waited for.
    pub(super) async fn fetch_before_save(&self, staged: &StagedFile) -> bool {
        let put_max = staged.staging().put_max();
        let is_sent_whole = staged.look(|content| content.size() <= put_max);
        if !is_sent_whole.unwrap_or(false) || staged.was_fetched() {
            return false;
        }
        let _turn = staged.fetching.lock().await;
        if staged.was_fetched() {
            return true;
        }
        if let Err(error) = self.fetch_lacking(staged, put_max).await {
            tracing::debug!(%error, "a file is staged without all of its content");
        }
        staged.note_fetched(true);
        true
    }

    /// Fetches what `staged` lacks, unless that is more than `limit` bytes.
    pub(super) async fn fetch_lacking(&self, staged: &StagedFile, limit: u64) -> FsResult<()> {
        let (base, lacking) = staged.look(|content| {
            let base = content.base().version().cloned();
            (base, content.clean(0..content.size()))
        })?;
        let Some(base) = base else { return Ok(()) };
        let bytes: u64 = lacking.iter().map(|range| range.end - range.start).sum();
        if bytes > limit {
            let text = format!("{bytes} bytes are too many to fetch; the limit is {limit}");
            return Err(FsError::Io(text));
        }
        let requests = self.to_fetch(&base, lacking, REQUEST);
        stream::iter(
            requests
                .into_iter()
                .map(|range| self.fetch(staged, &base, range)),
        )
        .buffer_unordered(REQUESTS_MAX)
        .try_collect()
        .await
    }

    async fn fetch(
        &self,
        staged: &StagedFile,
        base: &ObjectVersion,
        range: Range<u64>,
    ) -> FsResult<()> {
        let length = range.end - range.start;
        let cost = Content::cost_of_write(length);
        let space = staged.staging().take(cost).await;
        let _payment = space.ok_or(FsError::NoSpace)?;
        let failure = |error| transfer_failure(&error, Purpose::Read);
        let memory = self.transfer.read_memory(Transfer::cost(length)).await;
        let bytes = self
            .transfer
            .fetch(base.clone(), range.clone(), memory.map_err(failure)?)
            .await
            .map_err(failure)?;
        // Alone: a write that is in the staging file may not be in the map yet.
        let _alone = staged.change.write().await;
        on_worker(|| staged.take_fetched(base, range.start, &bytes)).await
    }
}

impl StagedFile {
    /// Takes in `bytes` of `base`, which begin at `at`, where nothing was written meanwhile. The caller
    /// has the file alone, so that nobody writes between the look and the note of what is there.
    fn take_fetched(&self, base: &ObjectVersion, mut at: u64, bytes: &Payload) -> FsResult<()> {
        let disk = self.disk()?;
        for slice in bytes.slices() {
            let range = at..at + slice.len() as u64;
            let lacking = self.of_base(base, |state| state.content.clean(range))?;
            for clean in lacking.unwrap_or_default() {
                let within = (clean.start - at) as usize..(clean.end - at) as usize;
                disk.write(&slice[within], clean.start)
                    .map_err(|error| disk_failure(&error))?;
                self.of_base(base, |state| {
                    state.content.fetched(clean);
                    state.payment.settle(&state.content);
                })?;
            }
            at += slice.len() as u64;
        }
        Ok(())
    }

    /// What `look` says, unless the base is another one by now.
    fn of_base<T>(
        &self,
        base: &ObjectVersion,
        look: impl FnOnce(&mut State) -> T,
    ) -> FsResult<Option<T>> {
        let mut state = self.state();
        let state = state.as_mut().ok_or(FsError::Stale)?;
        let is_same = state.content.base().version() == Some(base);
        Ok(is_same.then(|| look(state)))
    }
}
