//! Reading a staged file: what is here from the disk, what is not from the store.

use std::{ops::Range, sync::Arc, time::Duration};

use penstock_base::{BLOCK_SIZE, BufferPool, FsError, FsResult, Payload, clock};
use penstock_transfer::{
    ObjectVersion, Reader, TransferError,
    staging::{HeldRange, Part, StagedFile, push_zeros},
};

use crate::{
    errors::{Purpose, is_outdated, transfer_failure},
    files::Files,
    open_file::FileHandle,
    staged::StagedBody,
};

/// How often a read is begun that meets a change of where its bytes are.
const ATTEMPTS_MAX: usize = 4;
/// How long a read that meets a version which this mount does not know waits for the save under way
/// that may be making it.
const SAVE_PATIENCE: Duration = Duration::from_secs(60);

/// The parts of an answer, and the version that those in the store are of.
struct Parts {
    parts: Vec<Part>,
    base: Option<ObjectVersion>,
}

impl Files {
    /// Reads up to `length` bytes at `offset`, from the staged content or, where the file is not engaged, from
    /// the version that its handles read. `None` if that changed under way.
    pub(crate) async fn read_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &StagedBody,
        offset: u64,
        length: u32,
    ) -> FsResult<Option<Payload>> {
        // Seen from before the read on, so that the content is not exchanged under way.
        let see = |_: &_| handle.file.view().seen = true;
        if body.content.look(see).is_ok() {
            let length = length.min(BLOCK_SIZE as u32);
            let range = offset..offset.saturating_add(length.into());
            return self.read_content(body, &range).await;
        }
        match handle.reader(&self.mount.transfer) {
            // Engaged since the look.
            Err(FsError::Busy(_)) => Ok(None),
            reader => self.read_version(handle, reader?, offset, length).await,
        }
    }

    /// Reads `range`; fewer bytes only at the end of the file. `None` when the staged content was given up: the
    /// store has what the file holds.
    async fn read_content(
        &self,
        body: &StagedBody,
        range: &Range<u64>,
    ) -> FsResult<Option<Payload>> {
        let content = &body.content;
        for attempt in 1..=ATTEMPTS_MAX {
            let Ok(held) = self.held_to_read(content, range).await else {
                return Ok(None);
            };
            let Parts { parts, base } = if held.pieces.iter().all(|piece| piece.held.is_none()) {
                let base = held.base.clone();
                let parts = held.in_store();
                Parts { parts, base }
            } else {
                let Some(here) = self.parts_here(content, range).await? else {
                    return Ok(None);
                };
                here
            };
            let reader = base.map(|base| content.reader(&self.mount.transfer, base));
            match join_parts(reader.as_deref(), parts).await {
                Err(error) if is_outdated(&error) && attempt < ATTEMPTS_MAX => {
                    await_save(body).await;
                }
                Err(error) => return Err(transfer_failure(&error, Purpose::Read)),
                Ok(payload) => return Ok(Some(payload)),
            }
        }
        Err(FsError::Stale)
    }

    /// The parts of `range`, after what the file lacks was fetched if a read is to do that.
    async fn held_to_read(&self, content: &StagedFile, range: &Range<u64>) -> FsResult<HeldRange> {
        let held = content.held(range.clone())?;
        if held.lacks() && content.fetch_before_save(&self.mount.transfer).await {
            return content.held(range.clone());
        }
        Ok(held)
    }

    /// The parts of `range`, those from the disk read.
    async fn parts_here(
        &self,
        content: &Arc<StagedFile>,
        range: &Range<u64>,
    ) -> FsResult<Option<Parts>> {
        let length = (range.end - range.start) as usize;
        // Before the lock: never wait for memory while holding it.
        let memory = self
            .mount
            .transfer
            .read_memory(BufferPool::cost(length))
            .await;
        let memory = memory.map_err(|error| transfer_failure(&error, Purpose::Read))?;
        let buffer = self.mount.transfer.pool().take_reserved(length, memory);
        let guard = content.hold_shared().await;
        let Ok(held) = content.held(range.clone()) else {
            return Ok(None);
        };
        let (is_on_disk, HeldRange { pieces, base }) = (held.is_on_disk(), held);
        if !is_on_disk {
            let parts = content.read_here(pieces, buffer)?;
            return Ok(Some(Parts { parts, base }));
        }
        let reading = Arc::clone(content);
        let read = move || {
            let _held = guard;
            reading.read_here(pieces, buffer)
        };
        let parts = content.staging().on_disk(true, read).await?;
        Ok(Some(Parts { parts, base }))
    }
}

/// Puts the parts of a read together; `reader` reads the version that they say is in the store.
async fn join_parts(reader: Option<&Reader>, parts: Vec<Part>) -> Result<Payload, TransferError> {
    let mut payload = Payload::new();
    for part in parts {
        match part {
            Part::Here(bytes) => payload.push(bytes),
            Part::InStore(range) => {
                let length = range.end - range.start;
                let bytes = match reader {
                    Some(reader) => reader.read(range.start, length as u32).await?,
                    None => Payload::new(),
                };
                let missing = length - bytes.len() as u64;
                payload.append(bytes);
                // Behind the end of that version.
                push_zeros(&mut payload, missing);
            }
        }
    }
    Ok(payload)
}

/// Waits until no save or rename of a file is under way. Each gives the base another version or name
/// in the store some time before it hears of that, and says so here.
async fn await_save(body: &StagedBody) {
    let _ = clock::deadline(SAVE_PATIENCE, body.turn.lock()).await;
}
