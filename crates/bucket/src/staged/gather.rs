//! Puts the bytes of a part together for a save: from the staging file what it has, from the base
//! version what widens a change to a part.
//!
//! What is found is the file as it is now. Where it was changed since the save began that does not
//! matter: those ranges are unsaved still, and the next save sends them.

use std::ops::Range;

use penstock_base::{
    BLOCK_SIZE, BufferPool, BufferWriter, FsError, FsResult, KIB, MIB, Payload, clock, run_blocking,
};
use penstock_transfer::{ObjectVersion, TransferError, TransferResult};

use crate::{
    core::Core,
    staged::{
        StagedFile,
        disk::{DiskFile, disk_failure},
        extents::{Held, Piece},
        read::push_zeros,
    },
};

/// Bytes of the base version that are fetched at once.
const FETCH: u64 = 8 * MIB;
/// Zeros from this many bytes on take no buffer.
const LONG_ZEROS: u64 = 64 * KIB;

/// Why bytes could not be put together.
#[derive(Debug)]
pub(super) enum GatherError {
    Transfer(TransferError),
    File(FsError),
}

impl From<TransferError> for GatherError {
    fn from(error: TransferError) -> Self {
        Self::Transfer(error)
    }
}

impl From<FsError> for GatherError {
    fn from(error: FsError) -> Self {
        Self::File(error)
    }
}

/// What comes next.
enum Next {
    InBase(u64),
    Zeros(u64),
    /// On the disk, perhaps with short runs of zeros between.
    OnDisk(u64),
}

fn next(pieces: &[Piece], at: u64, end: u64) -> Next {
    let Some(first) = pieces.first() else {
        // Beyond the end of a file that was truncated meanwhile.
        return Next::Zeros(end - at);
    };
    let length = first.range.end - at;
    match first.held {
        None => Next::InBase(length.min(FETCH)),
        Some(Held::Zero) if length >= LONG_ZEROS => Next::Zeros(length),
        Some(_) => {
            let run = pieces.iter().take_while(|piece| {
                let long = piece.range.end - piece.range.start >= LONG_ZEROS;
                piece.held.is_some() && !(piece.held == Some(Held::Zero) && long)
            });
            let run_end = run.last().map_or(first.range.end, |piece| piece.range.end);
            Next::OnDisk((run_end - at).min(BLOCK_SIZE as u64))
        }
    }
}

impl Core {
    /// The bytes `range` of a file that is being saved on `base`.
    pub(super) async fn gather(
        &self,
        staged: &StagedFile,
        base: Option<&ObjectVersion>,
        range: Range<u64>,
    ) -> Result<Payload, GatherError> {
        let _turn = staged.staging().gathering.lock().await;
        let (mut payload, mut at) = (Payload::new(), range.start);
        while at < range.end {
            let pieces = staged.pieces(at..range.end)?;
            at += match next(&pieces, at, range.end) {
                Next::Zeros(length) => {
                    push_zeros(&mut payload, length);
                    length
                }
                Next::InBase(length) => {
                    let bytes = self.fetch_base(base, at, length).await?;
                    let missing = length - bytes.len() as u64;
                    payload.append(bytes);
                    push_zeros(&mut payload, missing);
                    length
                }
                Next::OnDisk(length) => self.load(staged, &mut payload, at..at + length).await?,
            };
        }
        Ok(payload)
    }

    async fn fetch_base(
        &self,
        base: Option<&ObjectVersion>,
        offset: u64,
        length: u64,
    ) -> TransferResult<Payload> {
        match base {
            // A reader of its own: this is no stream to read ahead of.
            Some(base) => {
                self.transfer
                    .reader(base.clone())
                    .read(offset, length as u32)
                    .await
            }
            None => Ok(Payload::new()),
        }
    }

    /// Adds what the disk has of `range`, from its start, and returns how much that was.
    async fn load(
        &self,
        staged: &StagedFile,
        payload: &mut Payload,
        range: Range<u64>,
    ) -> FsResult<u64> {
        let length = (range.end - range.start) as usize;
        let pool = self.transfer.pool();
        let memory = staged
            .staging()
            .save_memory(pool.budget(), BufferPool::cost(length));
        let memory = clock::deadline(self.transfer.settings().memory_wait, memory)
            .await
            .map_err(|_| FsError::OutOfMemory)??;
        let (mut writer, view) = pool.take_reserved(length, memory).share();
        let _held = staged.change.read().await;
        let pieces = staged.pieces(range)?;
        let disk = staged.disk_if_any();
        run_blocking(|| fill(&mut writer, &pieces, disk.as_deref()))?;
        let filled = writer.filled();
        payload.push(view.slice(0..filled));
        Ok(filled as u64)
    }
}

/// Fills in `pieces` up to the first that is not here.
fn fill(writer: &mut BufferWriter, pieces: &[Piece], disk: Option<&DiskFile>) -> FsResult<()> {
    for Piece { range, held } in pieces {
        let length = (range.end - range.start) as usize;
        match (held, disk) {
            (None, _) => return Ok(()),
            (Some(held), Some(disk)) if held.is_backed() => {
                let read = disk.read(writer, range.start, length);
                read.map_err(|error| disk_failure(&error))?;
            }
            _ => {
                let zeros = [0; 4096];
                let mut left = length;
                while left > 0 {
                    left -= writer.copy_from(&zeros[..left.min(zeros.len())]);
                }
            }
        }
    }
    Ok(())
}
