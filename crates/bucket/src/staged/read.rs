//! Reading a staged file: what is here from the disk, what is not from the store.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, FsError, FsResult, Payload, clock};
use penstock_transfer::TransferError;

use crate::{
    core::Core,
    errors::{Purpose, is_outdated, transfer_failure},
    open_file::{FileHandle, OpenFile},
    staged::{
        StagedFile,
        disk::disk_failure,
        extents::{Held, Piece},
    },
};

/// How often a read is begun that meets a change of where its bytes are.
const ATTEMPTS_MAX: usize = 4;
/// How long a read that meets a version which this mount does not know waits for the save under way
/// that may be making it.
const SAVE_PATIENCE: Duration = Duration::from_secs(60);

/// As many zeros as a buffer has bytes.
pub(super) static ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];

/// A part of an answer.
#[derive(Debug)]
enum Part {
    Here(Bytes),
    InStore(Range<u64>),
}

/// Adds `length` zeros.
pub(super) fn push_zeros(payload: &mut Payload, mut length: u64) {
    while length > 0 {
        let count = length.min(BLOCK_SIZE as u64) as usize;
        payload.push(Bytes::from_static(&ZEROS[..count]));
        length -= count as u64;
    }
}

impl StagedFile {
    /// Reads `pieces` as far as they are here, into `buffer` where the disk has them.
    fn read_here(&self, pieces: Vec<Piece>, buffer: Buffer) -> FsResult<Vec<Part>> {
        let (mut writer, view) = buffer.share();
        let disk = self.disk_if_any();
        let mut parts = Vec::new();
        for Piece { range, held } in pieces {
            let length = (range.end - range.start) as usize;
            parts.push(match (held, &disk) {
                (None, _) => Part::InStore(range),
                (Some(held), Some(disk)) if held.is_backed() => {
                    let start = writer.filled();
                    let read = disk.read(&mut writer, range.start, length);
                    read.map_err(|error| disk_failure(&error))?;
                    Part::Here(view.slice(start..start + length))
                }
                _ => Part::Here(Bytes::from_static(&ZEROS[..length])),
            });
        }
        Ok(parts)
    }
}

impl Core {
    /// Reads up to `length` bytes at `offset`; fewer only at the end of the file. `None` when the
    /// staged content was given up: the store has what the file holds.
    pub(crate) async fn read_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        staged: &StagedFile,
        (offset, length): (u64, u32),
    ) -> FsResult<Option<Payload>> {
        let length = length.min(BLOCK_SIZE as u32);
        let range = offset..offset.saturating_add(length.into());
        for attempt in 1..=ATTEMPTS_MAX {
            let Ok(pieces) = self.pieces_to_read(staged, &range).await else {
                return Ok(None);
            };
            let parts = if pieces.iter().all(|piece| piece.held.is_none()) {
                pieces
                    .into_iter()
                    .map(|piece| Part::InStore(piece.range))
                    .collect()
            } else {
                let Some(parts) = self.parts_here(&handle.file, staged, &range).await? else {
                    return Ok(None);
                };
                parts
            };
            match self.join_parts(staged, parts).await {
                Err(error) if is_outdated(&error) && attempt < ATTEMPTS_MAX => {
                    await_save(&handle.file).await;
                }
                Err(error) => return Err(transfer_failure(&error, Purpose::Read)),
                Ok(payload) => return Ok(Some(payload)),
            }
        }
        Err(FsError::Stale)
    }

    /// The parts of `range`, after what the file lacks was fetched if a read is to do that.
    async fn pieces_to_read(
        &self,
        staged: &StagedFile,
        range: &Range<u64>,
    ) -> FsResult<Vec<Piece>> {
        let pieces = staged.pieces(range.clone())?;
        let lacks = pieces.iter().any(|piece| piece.held.is_none());
        if lacks && self.fetch_before_save(staged).await {
            return staged.pieces(range.clone());
        }
        Ok(pieces)
    }

    /// The parts of `range`, those from the disk read.
    async fn parts_here(
        &self,
        file: &Arc<OpenFile>,
        staged: &StagedFile,
        range: &Range<u64>,
    ) -> FsResult<Option<Vec<Part>>> {
        let length = (range.end - range.start) as usize;
        // Before the lock: see the module above.
        let memory = self.transfer.pool().take(length);
        let buffer = clock::deadline(self.transfer.settings().memory_wait, memory)
            .await
            .map_err(|_| FsError::OutOfMemory)??;
        let held = Arc::clone(&staged.change).read_owned().await;
        let Ok(pieces) = staged.pieces(range.clone()) else {
            return Ok(None);
        };
        let is_on_disk = |piece: &Piece| piece.held.is_some_and(Held::is_backed);
        if !pieces.iter().any(is_on_disk) {
            return staged.read_here(pieces, buffer).map(Some);
        }
        let file = Arc::clone(file);
        let read = move || {
            let _held = held;
            let staged = file.staged.as_ref().ok_or(FsError::BadHandle)?;
            staged.read_here(pieces, buffer)
        };
        staged.staging().on_disk(true, read).await.map(Some)
    }

    async fn join_parts(
        &self,
        staged: &StagedFile,
        parts: Vec<Part>,
    ) -> Result<Payload, TransferError> {
        let mut payload = Payload::new();
        for part in parts {
            match part {
                Part::Here(bytes) => payload.push(bytes),
                Part::InStore(range) => {
                    let length = range.end - range.start;
                    let bytes = match staged.reader(&self.transfer) {
                        Some(reader) => reader.read(range.start, length as u32).await?,
                        None => Payload::new(),
                    };
                    let missing = length - bytes.len() as u64;
                    payload.append(bytes);
                    // Truncated and extended since the look.
                    push_zeros(&mut payload, missing);
                }
            }
        }
        Ok(payload)
    }
}

/// Waits until no save or rename of a file is under way. Each gives the base another version or name
/// in the store some time before it hears of that, and says so here.
async fn await_save(file: &OpenFile) {
    let _ = clock::deadline(SAVE_PATIENCE, file.stream()).await;
}
