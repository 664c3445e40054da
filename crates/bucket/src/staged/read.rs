//! Reading a staged file: what is here from the disk, what is not from the store.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, BufferPool, FsError, FsResult, Payload, clock};
use penstock_transfer::{ObjectVersion, Reader, TransferError};

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

/// Where the bytes of a range are, at one moment: what is in the store is there of `base`.
#[derive(Debug)]
struct HeldRange {
    pieces: Vec<Piece>,
    base: Option<ObjectVersion>,
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
    fn held(&self, range: Range<u64>) -> FsResult<HeldRange> {
        self.look(|content| HeldRange {
            pieces: content.pieces(range),
            base: content.base().version().cloned(),
        })
    }

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
            let Ok(held) = self.held_to_read(staged, &range).await else {
                return Ok(None);
            };
            let (parts, base) = if held.pieces.iter().all(|piece| piece.held.is_none()) {
                let in_store = |piece: Piece| Part::InStore(piece.range);
                (held.pieces.into_iter().map(in_store).collect(), held.base)
            } else {
                let Some(here) = self.parts_here(&handle.file, staged, &range).await? else {
                    return Ok(None);
                };
                here
            };
            let reader = base.map(|base| staged.reader(&self.transfer, base));
            match join_parts(reader.as_deref(), parts).await {
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
    async fn held_to_read(&self, staged: &StagedFile, range: &Range<u64>) -> FsResult<HeldRange> {
        let held = staged.held(range.clone())?;
        let lacks = held.pieces.iter().any(|piece| piece.held.is_none());
        if lacks && self.fetch_before_save(staged).await {
            return staged.held(range.clone());
        }
        Ok(held)
    }

    /// The parts of `range`, those from the disk read.
    async fn parts_here(
        &self,
        file: &Arc<OpenFile>,
        staged: &StagedFile,
        range: &Range<u64>,
    ) -> FsResult<Option<(Vec<Part>, Option<ObjectVersion>)>> {
        let length = (range.end - range.start) as usize;
        // Before the lock: see the module above.
        let memory = self.transfer.read_memory(BufferPool::cost(length)).await;
        let memory = memory.map_err(|error| transfer_failure(&error, Purpose::Read))?;
        let buffer = self.transfer.pool().take_reserved(length, memory);
        let held = Arc::clone(&staged.change).read_owned().await;
        let Ok(HeldRange { pieces, base }) = staged.held(range.clone()) else {
            return Ok(None);
        };
        let is_on_disk = |piece: &Piece| piece.held.is_some_and(Held::is_backed);
        if !pieces.iter().any(is_on_disk) {
            let parts = staged.read_here(pieces, buffer)?;
            return Ok(Some((parts, base)));
        }
        let file = Arc::clone(file);
        let read = move || {
            let _held = held;
            let staged = file.staged.as_ref().ok_or(FsError::BadHandle)?;
            staged.read_here(pieces, buffer)
        };
        let parts = staged.staging().on_disk(true, read).await?;
        Ok(Some((parts, base)))
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
async fn await_save(file: &OpenFile) {
    let _ = clock::deadline(SAVE_PATIENCE, file.stream()).await;
}
