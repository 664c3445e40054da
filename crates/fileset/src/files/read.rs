//! Reading.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use penstock_base::{FsError, FsResult, Payload};
use penstock_vfs::{Access, Position};

use super::{File, Files, pending::Seen};
use crate::{
    data::Piece,
    engine::query,
    operations::{self, Written},
    schema::BLOCK_SIZE,
};

/// A read goes on where the last one ended if it begins this near to that: the kernel reads ahead in several requests,
/// which overtake each other.
const NEAR: u64 = 2 << 20;
/// Chunks that are fetched ahead of who reads in sequence.
const CHUNKS_AHEAD: u64 = 4;
/// How often a read begins again since somebody cut the file or stored it anew meanwhile.
const ATTEMPTS: usize = 10;

/// What holes read as.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Files {
    /// Reads. Fewer bytes than `length` only at the end of the file.
    pub(crate) async fn read(self: &Arc<Self>, at: Position, length: u32) -> FsResult<Payload> {
        let handle = self.handle(at.handle)?;
        if handle.access == Access::Write {
            return Err(FsError::BadHandle);
        }
        let file = handle.file;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let range = at.offset..at.offset.saturating_add(u64::from(length));
            let seen = file.pending.lock().see(&range);
            let range = range.start..range.end.min(seen.size);
            if range.is_empty() {
                return Ok(Payload::new());
            }
            let changes = seen.changes;
            let read = self.read_seen(&file, range, seen).await;
            if file.pending.lock().changes() == changes || attempts == ATTEMPTS {
                return read;
            }
        }
    }

    async fn read_seen(
        self: &Arc<Self>,
        file: &File,
        range: Range<u64>,
        seen: Seen,
    ) -> FsResult<Payload> {
        let pending: u64 = seen
            .pieces
            .iter()
            .map(|piece| piece.bytes.len() as u64)
            .sum();
        if pending == range.end - range.start {
            return Ok(assemble(&range, &seen.pieces, &[]));
        }
        let last = file.read_to.swap(range.end, Ordering::Relaxed);
        let in_sequence = range.start.abs_diff(last) <= NEAR;
        let ahead = match in_sequence {
            true => range.end.saturating_add(CHUNKS_AHEAD * BLOCK_SIZE),
            false => range.end,
        };
        let look = |reads: &dyn crate::engine::Reads| {
            operations::extents_in(reads, file.inode, &(range.start..ahead))
        };
        let found = query(&*self.engine, look).await?;
        let (wanted, later) = split(found, range.end);
        later
            .iter()
            .for_each(|later| self.blocks.prefetch(&later.extent));
        let fetched = try_join_all(wanted.iter().map(|written| async {
            let payload = self.blocks.read(&written.extent, in_sequence).await?;
            Ok::<_, FsError>((written.offset, payload))
        }));
        Ok(assemble(&range, &seen.pieces, &fetched.await?))
    }
}

/// What lies before `end`, and what lies behind it.
fn split(found: Vec<Written>, end: u64) -> (Vec<Written>, Vec<Written>) {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for mut written in found {
        if written.offset >= end {
            behind.push(written);
            continue;
        }
        let length = (end - written.offset).min(u64::from(written.extent.length));
        written.extent.length = length as u32;
        before.push(written);
    }
    (before, behind)
}

/// Joins what is pending, what was fetched below it, and zeros where there is neither.
fn assemble(range: &Range<u64>, pending: &[Piece], fetched: &[(u64, Payload)]) -> Payload {
    let mut payload = Payload::new();
    let mut at = range.start;
    for Piece { offset, bytes } in pending {
        below(&mut payload, &(at..*offset), fetched);
        payload.push(bytes.clone());
        at = offset + bytes.len() as u64;
    }
    below(&mut payload, &(at..range.end), fetched);
    payload
}

/// The same of a range in which nothing is pending.
fn below(payload: &mut Payload, range: &Range<u64>, fetched: &[(u64, Payload)]) {
    let mut at = range.start;
    for (offset, bytes) in fetched {
        let end = offset + bytes.len() as u64;
        let (start, end) = ((*offset).max(at), end.min(range.end));
        if start >= end {
            continue;
        }
        zeros(payload, start - at);
        payload.append(bytes.slice(&(start - offset..end - offset)));
        at = end;
    }
    zeros(payload, range.end.saturating_sub(at));
}

fn zeros(payload: &mut Payload, mut count: u64) {
    while count > 0 {
        let some = count.min(ZEROS.len() as u64);
        payload.push(Bytes::from_static(&ZEROS[..some as usize]));
        count -= some;
    }
}
