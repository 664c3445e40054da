//! Reading: what is pending over what is saved.
//!
//! `changes` of what is pending is the edition of the map of extents: it moves whenever bytes may lie elsewhere than
//! before, and what was written to a file is pending until it has. So what a read sees pending and a map of that
//! edition are the file at one moment, however long ago the map was read.

use std::{ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult, Payload};
use penstock_transfer::{FileRead, MapPart, Refused};
use penstock_vfs::{Access, Inode, Position};

use super::{Files, Handle, pending::Seen};
use crate::{
    data::{Piece, saved_extent},
    errors::transfer_failure,
    operations, snapshots,
};

/// How often a read begins again since somebody cut the file or stored it anew meanwhile.
const ATTEMPTS: usize = 10;

impl Files {
    /// Reads. Fewer bytes than `length` only at the end of the file.
    pub(crate) async fn read(self: &Arc<Self>, at: Position, length: u32) -> FsResult<Payload> {
        let handle = self.handle(at.handle)?;
        if handle.access == Access::Write {
            return Err(FsError::BadHandle);
        }
        let mut attempts = 0;
        loop {
            let range = at.offset..at.offset.saturating_add(u64::from(length));
            let seen = handle.file.pending.lock().see(&range);
            let range = range.start..range.end.min(seen.size);
            if range.is_empty() {
                return Ok(Payload::new());
            }
            let read = self.read_seen(&handle, &range, &seen).await;
            // Another read saw a later state of the file: so does this one, now.
            let Some(read) = read.transpose() else {
                continue;
            };
            attempts += 1;
            let changes = handle.file.pending.lock().changes();
            if changes == seen.changes || attempts == ATTEMPTS {
                return read;
            }
        }
    }

    /// Reads of the state that was `seen`; `None` if the reader knows a later one.
    async fn read_seen(
        &self,
        handle: &Handle,
        range: &Range<u64>,
        seen: &Seen,
    ) -> FsResult<Option<Payload>> {
        let pending = seen.pieces.iter().map(|piece| piece.bytes.len() as u64);
        if pending.sum::<u64>() == range.end - range.start {
            return Ok(Some(shown(range, &seen.pieces, Payload::new())));
        }
        let asked = FileRead {
            range: range.clone(),
            size: seen.size,
            edition: seen.changes,
        };
        loop {
            let read = handle.reader.read(&asked).await;
            match read.map_err(|error| transfer_failure(&error))? {
                Ok(saved) => return Ok(Some(shown(range, &seen.pieces, saved))),
                Err(Refused::Outdated) => return Ok(None),
                Err(Refused::Unknown(range)) => {
                    let part = self.look_up(handle.file.inode, range, seen.changes).await?;
                    handle.reader.learn(&part);
                }
            }
        }
    }

    /// Where bytes of a file lie.
    async fn look_up(&self, inode: Inode, range: Range<u64>, edition: u64) -> FsResult<MapPart> {
        let look = |reads: &dyn crate::engine::Reads| operations::extents_in(reads, inode, &range);
        let found = snapshots::look(&*self.engine, look).await?;
        let extents = found.iter();
        let extents = extents.map(|written| saved_extent(written.offset, &written.extent));
        Ok(MapPart {
            edition,
            extents: extents.collect::<FsResult<_>>()?,
            range,
        })
    }
}

/// What is pending over what is `saved`, all of `range`.
fn shown(range: &Range<u64>, pending: &[Piece], saved: Payload) -> Payload {
    if pending.is_empty() {
        return saved;
    }
    let mut payload = Payload::new();
    let mut at = range.start;
    let saved = |start: u64, end: u64| saved.slice(&(start - range.start..end - range.start));
    for Piece { offset, bytes } in pending {
        payload.append(saved(at, *offset));
        payload.push(bytes.clone());
        at = offset + bytes.len() as u64;
    }
    payload.append(saved(at, range.end));
    payload
}
