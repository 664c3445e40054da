//! Reads a file whose bytes lie in many objects.
//!
//! Who has the file says with each read how long it is and which edition of the map it means, a number that grows
//! whenever bytes may lie elsewhere than before. A read that finds that the reader does not know where its bytes lie says so,
//! is given the extents with [`ExtentReader::learn`], and is asked again: a file of any length costs no more memory
//! than what is read of it just now. With a newer edition the reader compares the places, and keeps what lies where it lay.
//!
//! Holes read as zeros. Everything else is as with one object: `reader` says it.

use std::{ops::Range, sync::Arc};

use penstock_base::Payload;
use penstock_object::ErrorKind;

use super::{
    Shared, extent::Extent, extent_map::ExtentMap, receive::Origin, source::Source,
    stream::InFlight,
};
use crate::{Transfer, TransferError, TransferResult};

/// A read of a file.
#[derive(Debug, Clone)]
pub struct FileRead {
    /// Which bytes; not empty, and none behind the end of the file.
    pub range: Range<u64>,
    /// Bytes in the file.
    pub size: u64,
    /// The edition of the map that is meant.
    pub edition: u64,
}

/// Where bytes of a file lie.
#[derive(Debug, Clone)]
pub struct MapPart {
    /// The edition of the map.
    pub edition: u64,
    /// Of which bytes this is all that is to be known.
    pub range: Range<u64>,
    /// In order, none overlapping; what lies between them is a hole.
    pub extents: Vec<Extent>,
}

/// Why a read was not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It is to be known first what lies here.
    Unknown(Range<u64>),
    /// The reader knows a newer edition.
    Outdated,
}

/// Reads a file whose bytes lie in many objects, on behalf of one open handle. Dropping it gives up what it fetches
/// ahead.
#[derive(Debug)]
pub struct ExtentReader {
    shared: Arc<Shared>,
}

impl ExtentReader {
    pub(crate) fn new(transfer: Arc<Transfer>) -> Self {
        let map = ExtentMap::new(transfer.settings().whole_file_max);
        Self {
            shared: Shared::new(transfer, Source::Extents(map)),
        }
    }

    /// Takes in where bytes lie: what a read was refused for. An older edition than the reader knows is passed over.
    pub fn learn(&self, part: &MapPart) {
        self.shared.under_lock(|state, _| state.learn(part));
    }

    /// Reads, or says what it needs for that. Fails with `ChecksumMismatch` where bytes are not those that were
    /// written; none of these is ever returned. May be called from many tasks at once; dropping the future gives up
    /// only this read. Bytes that are held already are returned without waiting. Must be called within a tokio
    /// runtime.
    pub async fn read(&self, asked: &FileRead) -> TransferResult<Result<Payload, Refused>> {
        let in_flight = InFlight::new(());
        let (mut rest, mut before) = (asked.clone(), Payload::new());
        loop {
            let (end, payload) = match self.read_some(&rest, &in_flight).await? {
                Ok(read) => read,
                Err(refused) => return Ok(Err(refused)),
            };
            let is_last = end == asked.range.end;
            if is_last && before.is_empty() {
                return Ok(Ok(payload));
            }
            // It may keep more memory than it shows: this read must not, while it waits for more.
            before.push(payload.to_vec().into());
            if is_last {
                return Ok(Ok(before));
            }
            rest.range.start = end;
        }
    }

    /// Reads as much as may take memory at once. Returns where that ends, too.
    async fn read_some(
        &self,
        asked: &FileRead,
        in_flight: &InFlight,
    ) -> TransferResult<Result<(u64, Payload), Refused>> {
        let planned = self.shared.under_lock(|state, first| {
            let range = state.admit(asked)?;
            let plan = state.plan(&range, in_flight, first);
            Ok((range, plan))
        });
        let (range, plan) = match planned {
            Ok(planned) => planned,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut read = self.shared.carry_out(&range, plan).await;
        if is_damaged(&read) {
            // What is damaged may be other bytes, which came before these, or what a cache has of them.
            read = self.shared.fetch_alone(&range, Origin::TheStore).await;
        }
        let read = read?.ok_or(Refused::Outdated);
        Ok(read.map(|payload| (range.end, payload)))
    }
}

fn is_damaged<T>(read: &TransferResult<T>) -> bool {
    matches!(read, Err(TransferError::Object(error)) if error.kind == ErrorKind::ChecksumMismatch)
}
