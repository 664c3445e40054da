//! Fetching what a staged file lacks: the bytes that only the store has.
//!
//! A file that was changed and is then read where only the store has it is fetched whole, if it is of
//! a size that may be saved in one request: once, instead of in as many requests as there are
//! reads. Unless little of it was changed, the save sends all its bytes, and finds them here.

use std::{ops::Range, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{FsError, FsResult, MIB, Payload};

use crate::{
    ObjectVersion, Transfer,
    staging::{
        content::Content,
        disk::{disk_failure, on_worker},
        error::StagedError,
        file::{NOT_ENGAGED, StagedFile, State},
        spans::to_fetch,
    },
};

/// Bytes that one request fetches, at most.
const REQUEST: u64 = 2 * MIB;
/// Requests for one file at once.
const REQUESTS_MAX: usize = 4;

impl StagedFile {
    /// Fetches what is lacking if the file may be saved in one request. Tried once, while other
    /// reads of what is lacking wait; what could not be fetched is read from the store piece by piece.
    /// Returns whether it was tried now, here or by a read that this waited for.
    pub async fn fetch_before_save(&self, transfer: &Arc<Transfer>) -> bool {
        let put_max = self.staging().put_max();
        let is_sent_whole = self.look(|content| content.size() <= put_max);
        if !is_sent_whole.unwrap_or(false) || self.was_fetched() {
            return false;
        }
        let _turn = self.fetching.lock().await;
        if self.was_fetched() {
            return true;
        }
        if let Err(error) = self.fetch_lacking(transfer, put_max).await {
            tracing::warn!(%error, "a file is staged without all of its content");
        }
        self.note_fetched(true);
        true
    }

    /// Fetches what is lacking, unless that is more than `limit` bytes.
    pub async fn fetch_lacking(
        &self,
        transfer: &Arc<Transfer>,
        limit: u64,
    ) -> Result<(), StagedError> {
        let (base, lacking) = self.look(|content| {
            let base = content.base().version().cloned();
            (base, content.clean(0..content.size()))
        })?;
        let Some(base) = base else { return Ok(()) };
        let bytes: u64 = lacking.iter().map(|range| range.end - range.start).sum();
        if bytes > limit {
            let text = format!("{bytes} bytes are too many to fetch; the limit is {limit}");
            return Err(FsError::Io(text).into());
        }
        let requests = to_fetch(transfer, &base, lacking, REQUEST);
        let requests = requests.into_iter();
        stream::iter(requests.map(|range| self.fetch(transfer, &base, range)))
            .buffer_unordered(REQUESTS_MAX)
            .try_collect()
            .await
    }

    async fn fetch(
        &self,
        transfer: &Arc<Transfer>,
        base: &ObjectVersion,
        range: Range<u64>,
    ) -> Result<(), StagedError> {
        let length = range.end - range.start;
        let space = self.staging().take(Content::cost_of_write(length)).await;
        let _payment = space.ok_or(FsError::NoSpace)?;
        let memory = transfer.read_memory(Transfer::cost(length)).await?;
        let bytes = transfer.fetch(base.clone(), range.clone(), memory).await?;
        // Alone: a write that is in the staging file may not be in the map yet.
        let _alone = self.hold_alone().await;
        on_worker(|| self.take_fetched(base, range.start, &bytes)).await?;
        Ok(())
    }

    /// Takes in `bytes` of `base`, which begin at `at`, where nothing was written meanwhile. The caller
    /// has the file alone, so that no write comes between the look and the note of what is there.
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
                    state.settle_payment();
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
        let state = state.as_mut().ok_or(NOT_ENGAGED)?;
        let is_same = state.content.base().version() == Some(base);
        Ok(is_same.then(|| look(state)))
    }
}
