//! A disk that nobody stores: a read of its blocks is a read of objects.
//!
//! [`StreamDisk`] finds the objects behind the blocks ([`ObjectMap`]); [`DataPath`] reads an object
//! in one of three ways. It is also what the plain FUSE volume reads through.
//!
//! 1. **Small objects**, up to [`SMALL_OBJECT_MAX`], are fetched whole, in one GET that everybody
//!    shares who wants any byte of them, and kept in the memory cache. When objects are read in
//!    order the next ones are fetched ahead (`prefetch`).
//! 2. **Large objects** are read through [`penstock_transfer::Reader`]: exact ranges for random
//!    reads, windows of large parts for sequential ones.
//! 3. **In direct mode** each read is one GET of exactly its range of each object; nothing is
//!    shared, fetched ahead or kept. But a small object that arrived damaged is fetched whole from
//!    then on, as in 1 (`damaged`).
//!
//! Every GET insists on the tag that the snapshot saw. When the object is another one by now, or
//! gone, the read fails with `Stale` and is counted: bytes of two versions never meet.
//!
//! **One GET for a small file in direct mode** takes one request of the kernel. A program that
//! opens a file with `O_DIRECT` and reads all of it makes one bio of up to 256 pages, since a file
//! is one extent. The loop device takes requests of up to 1280 KiB, in at most 128 segments: pages
//! that do not lie side by side in the program's memory take one each, so 512 KiB always fit. FUSE
//! passes on READs of up to 1 MiB. Hence a file of up to 512 KiB that is read whole is one
//! request; one of 100 KB is 25 blocks, the last of which is cut to the object's end here. A
//! buffered read goes through the kernel's read-ahead, which asks for 128 KiB at once unless the
//! device was given more, and a program that reads by 4 KiB begins with less: such programs want
//! the cache, not direct mode.

mod damaged;
mod data;
mod failure;
mod metrics;

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use penstock_base::{FsError, FsResult, KIB, Payload};
use penstock_vfs::Disk;
use tokio::sync::Semaphore;

pub use self::data::{DataPath, DataSettings, SMALL_OBJECT_MAX};
pub(crate) use self::{failure::damaged_map, metrics::Metrics};
use crate::{BLOCK_SIZE, MappedObject, PlacedObject};

/// Reads of several objects that are served at once, on each disk. Each holds the bytes of one
/// object while it waits for memory for the next; few of them cannot hold all of it.
const SPANNING_READS_MAX: usize = 8;

/// Zeros in one slice of what no file occupies.
static ZEROS: [u8; 64 * KIB as usize] = [0; 64 * KIB as usize];

/// One of the disks over which a snapshot is spread.
#[derive(Debug)]
pub struct StreamDisk {
    data: Arc<DataPath>,
    disk: u16,
    spanning: Semaphore,
}

/// Bytes of an object that a read wants, and where they lie on the disk.
#[derive(Debug)]
struct Piece {
    object: MappedObject,
    range: Range<u64>,
    start: u64,
}

impl StreamDisk {
    /// The disk of that number.
    pub fn new(data: Arc<DataPath>, disk: u16) -> Self {
        Self {
            data,
            disk,
            spanning: Semaphore::new(SPANNING_READS_MAX),
        }
    }

    fn pieces(&self, wanted: &Range<u64>) -> FsResult<Vec<Piece>> {
        let blocks = wanted.start / BLOCK_SIZE..wanted.end.div_ceil(BLOCK_SIZE);
        let map = self.data.map();
        let found = map.overlapping(self.disk, blocks);
        let found = found.map_err(|error| failure::damaged_map(&error))?;
        let pieces = found.into_iter().map(|placed| Piece::of(placed, wanted));
        Ok(pieces.filter(|piece| !piece.range.is_empty()).collect())
    }

    async fn read_piece(&self, piece: &Piece) -> FsResult<Payload> {
        self.data.read(&piece.object, piece.range.clone()).await
    }

    async fn read_pieces(&self, pieces: &[Piece]) -> FsResult<Vec<Payload>> {
        if let [piece] = pieces {
            return Ok(vec![self.read_piece(piece).await?]);
        }
        let turn = self.spanning.acquire().await;
        let _turn = turn.map_err(|_| FsError::Interrupted)?;
        try_join_all(pieces.iter().map(|piece| self.read_piece(piece))).await
    }
}

impl Piece {
    fn of(placed: PlacedObject, wanted: &Range<u64>) -> Self {
        let PlacedObject { block, object } = placed;
        let start = block * BLOCK_SIZE;
        let end = start.saturating_add(object.size);
        let range = wanted.start.clamp(start, end)..wanted.end.clamp(start, end);
        Self {
            start: range.start,
            range: range.start - start..range.end - start,
            object,
        }
    }
}

#[async_trait]
impl Disk for StreamDisk {
    fn size(&self) -> u64 {
        self.data.map().disk_blocks(self.disk).max(1) * BLOCK_SIZE
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        let end = offset.checked_add(length.into());
        let Some(end) = end.filter(|end| *end <= self.size()) else {
            return Err(FsError::InvalidArgument("read within the disk"));
        };
        let pieces = self.pieces(&(offset..end))?;
        let parts = self.read_pieces(&pieces).await?;
        let mut payload = Payload::new();
        for (piece, part) in pieces.iter().zip(parts) {
            push_zeros(&mut payload, piece.start - offset);
            payload.append(part);
        }
        push_zeros(&mut payload, length.into());
        Ok(payload)
    }
}

/// Adds zeros until there are `length` bytes.
fn push_zeros(payload: &mut Payload, length: u64) {
    while (payload.len() as u64) < length {
        let missing = length - payload.len() as u64;
        let count = missing.min(ZEROS.len() as u64) as usize;
        payload.push(Bytes::from_static(&ZEROS[..count]));
    }
}
