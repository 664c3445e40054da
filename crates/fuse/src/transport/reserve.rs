//! Memory for requests that are being received and for WRITEs that are being handled.
//!
//! All of it is taken out of the mount's budget at the start and never grows:
//!
//! - A block of one mebibyte per receiving thread, to receive into.
//! - Memory for the data of WRITEs *in hand*: from their arrival until the volume has accepted
//!   them. A volume that keeps the data pays for it before it accepts, so memory is paid for
//!   once and at every moment, and what is in hand comes back as fast as the volume accepts.
//!
//! When a store is slower than its writers, volumes accept slowly and what is in hand adds up: one
//! WRITE per writer. Then the budget is asked for more. A mount that has a disk of its own leaves a part
//! of it to who reads and saves, and puts the WRITE on the disk ([`Spill`]), whole. One after the other
//! they are handled when there is memory. Room for as many as the kernel sends of its page cache at once
//! is held on the disk from the start, and for nothing else ([`ReceiveReserve::background_max`]).
//!
//! A mount without a disk, or with a full one, *shortens* the WRITE of a program: its first
//! [`SHORT_WRITE`] bytes are handled and the rest is left to the program to write again, as write(2)
//! allows. So many more writers can wait at the same time, and a writer that could free memory is not
//! stuck behind those that wait for it. When
//! even the memory for short WRITEs is out, no more than [`TINY_WRITE`] bytes are kept, which count
//! as bookkeeping, and the WRITE waits as a task of its own until there is memory, at most
//! [`MEMORY_WAIT_MAX`]. What the kernel writes back from its page cache is never shortened: nobody
//! would write the rest, so it fails, and fsync says so.
//!
//! The thread that received a WRITE never waits for memory: somebody must hear the INTERRUPT of who
//! is to die, and the close that frees the memory that all others wait for.

use std::{
    io::ErrorKind,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{
    BLOCK_SIZE, Buffer, BufferPool, FsError, FsResult, KIB, MemoryBudget, Reservation, clock,
    metrics::{Counter, Registry, table},
    run_blocking,
};
use tracing::warn;

use super::{
    WriteData,
    spill::{Spill, Spilled},
};
use crate::protocol::WriteOrigin;

/// The fewest and the most blocks for WRITEs in hand.
const IN_HAND_MIN: u64 = 4;
const IN_HAND_MAX: u64 = 32;
/// The part of the budget that WRITEs in hand may take between those: one in this many.
const IN_HAND_SHARE: u64 = 16;
/// Bytes of a WRITE that are handled when there is no memory for all of it.
const SHORT_WRITE: usize = 64 * KIB as usize;
/// Short WRITEs that may be in hand.
const SHORT_WRITES_MAX: u64 = 32;
/// Bytes of a WRITE that are kept when there is no memory for a short one either: no more than
/// what any request costs that waits.
const TINY_WRITE: usize = 512;
/// How long a WRITE waits for memory before it fails with `ENOMEM`.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(20);
/// The same for a WRITE that waits on the disk. It outlasts those in front of it, each of which a volume may keep for as long as it tries to reach a store that is away.
const SPILLED_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// Memory for requests that are being received and for WRITEs that are being handled.
#[derive(Debug)]
pub(crate) struct ReceiveReserve {
    pool: Arc<BufferPool>,
    /// Hands out parts of `held`.
    in_hand: Arc<MemoryBudget>,
    /// Hands out parts of `held`, to short WRITEs.
    short: Arc<MemoryBudget>,
    shortened: Arc<Counter>,
    spill: Option<Arc<Spill>>,
    spilled: Arc<Counter>,
    /// WRITEs that wait on the disk.
    line: tokio::sync::Mutex<()>,
    _held: Reservation,
}

/// What is to be done with the data of a WRITE.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// The first `length` bytes may be handled: all, or the first few.
    InMemory { length: usize, memory: WriteMemory },
    /// All of it goes to [`ReceiveReserve::spill`], which refuses where there is no disk.
    OnDisk,
}

/// What pays for the data of a WRITE until the volume has accepted it.
#[derive(Debug)]
pub(crate) enum WriteMemory {
    /// It is paid for.
    Paid(Reservation),
    /// Memory has to be waited for first.
    Owed(Arc<ReceiveReserve>),
}

impl Admitted {
    fn paid(length: usize, memory: Reservation) -> Self {
        Self::InMemory {
            length,
            memory: WriteMemory::Paid(memory),
        }
    }
}

impl WriteMemory {
    /// Waits for the memory if it is owed. Fails with [`FsError::OutOfMemory`] when none has come
    /// back for [`MEMORY_WAIT_MAX`].
    pub(crate) async fn paid(self) -> FsResult<Reservation> {
        match self {
            Self::Paid(memory) => Ok(memory),
            Self::Owed(reserve) => reserve.wait().await,
        }
    }
}

impl ReceiveReserve {
    /// Bytes that a mount with `threads` takes out of a budget of `total`.
    pub(crate) fn size(threads: usize, total: u64) -> u64 {
        (threads as u64 + in_hand_blocks(total)) * BLOCK_SIZE as u64 + short_size()
    }

    /// Takes the memory out of the pool's budget, or `None` when that has no room.
    pub(crate) fn new(pool: &Arc<BufferPool>, threads: usize, metrics: &Registry) -> Option<Self> {
        let total = pool.budget().total();
        Some(Self {
            pool: Arc::clone(pool),
            in_hand: MemoryBudget::new(in_hand_blocks(total) * BLOCK_SIZE as u64),
            short: MemoryBudget::new(short_size()),
            shortened: metrics.counter(&table::FUSE_WRITES_SHORTENED, &[]),
            spill: None,
            spilled: metrics.counter(&table::FUSE_WRITES_SPILLED, &[]),
            line: tokio::sync::Mutex::default(),
            _held: pool.budget().try_reserve(Self::size(threads, total))?,
        })
    }

    /// Adds a file in `directory` for WRITEs that find no memory.
    pub(crate) fn spilling_to(mut self, directory: &Path) -> std::io::Result<Self> {
        self.spill = Some(Spill::new(directory)?);
        Ok(self)
    }

    /// How many requests the kernel may send at once of which each may be a WRITE of its page cache, where
    /// `wanted` are: no more than the disk has place for, whatever else is written. With nothing held on a
    /// disk, as many as are wanted; never none.
    pub(crate) fn background_max(&self, wanted: u16) -> u16 {
        let certain = self.spill.as_ref().and_then(|spill| spill.certain());
        let certain = certain.map(|places| places.try_into().unwrap_or(u16::MAX));
        wanted.min(certain.unwrap_or(u16::MAX).max(1))
    }

    /// A buffer that is paid for otherwise: by what is held for threads, or by an [`Admitted`].
    pub(crate) fn buffer(&self, capacity: usize) -> Buffer {
        let nothing = self.in_hand.try_reserve(0);
        let nothing = nothing.expect("nothing is always there");
        self.pool.take_reserved(capacity, nothing)
    }

    /// Admits a WRITE of `length` bytes. Never waits.
    pub(crate) fn admit(self: &Arc<Self>, length: usize, origin: WriteOrigin) -> Admitted {
        if let Some(memory) = self.for_all_of(length) {
            return Admitted::paid(length, memory);
        }
        if self.spill.is_some() || origin == WriteOrigin::PageCache {
            return Admitted::OnDisk;
        }
        let (length, memory) = self.admit_short(length);
        Admitted::InMemory { length, memory }
    }

    /// Memory for all of a WRITE, if there is some.
    fn for_all_of(&self, length: usize) -> Option<Reservation> {
        let held = self.in_hand_or_asked_for(length);
        if held.is_some() || length > SHORT_WRITE {
            return held;
        }
        self.short.try_reserve(BufferPool::cost(length))
    }

    /// Admits the beginning of a WRITE, of so many bytes.
    fn admit_short(self: &Arc<Self>, length: usize) -> (usize, WriteMemory) {
        let (taken, memory) = match self.short.try_reserve(SHORT_WRITE as u64) {
            Some(memory) => (SHORT_WRITE.min(length), WriteMemory::Paid(memory)),
            None => (TINY_WRITE.min(length), WriteMemory::Owed(Arc::clone(self))),
        };
        self.shortened.add(u64::from(taken < length));
        (taken, memory)
    }

    /// Puts the data of a WRITE on the disk until there is memory for it. Where the disk does not take it,
    /// that of a program is shortened.
    pub(crate) fn spill(self: &Arc<Self>, bytes: &[u8], origin: WriteOrigin) -> WriteData {
        let Some(spill) = &self.spill else {
            return WriteData::Refused(FsError::OutOfMemory);
        };
        match (spill.put(bytes, origin), origin) {
            (Ok(spilled), _) => {
                self.spilled.increment();
                WriteData::Spilled(spilled, Arc::clone(self))
            }
            (Err(_), WriteOrigin::Program) => self.shorten(bytes),
            (Err(error), WriteOrigin::PageCache | WriteOrigin::Direct) => {
                warn!(%error, "memory is short, and the disk does not take a write that waits for it");
                WriteData::Refused(match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FsError::NoSpace,
                    _ => FsError::OutOfMemory,
                })
            }
        }
    }

    fn shorten(self: &Arc<Self>, bytes: &[u8]) -> WriteData {
        let (length, memory) = self.admit_short(bytes.len());
        self.hold(&bytes[..length], memory)
    }

    /// A copy of the data of a WRITE that `memory` pays for.
    pub(crate) fn hold(&self, bytes: &[u8], memory: WriteMemory) -> WriteData {
        let (mut writer, view) = self.buffer(bytes.len()).share();
        let copied = writer.copy_from(bytes);
        WriteData::Held {
            bytes: view.slice(0..copied),
            memory,
        }
    }

    /// Reads back what waited on the disk when there is memory for it, and what pays for that.
    pub(crate) async fn fetch(&self, spilled: Spilled) -> FsResult<(Bytes, Reservation)> {
        let memory = self.wait_in_line(BufferPool::cost(spilled.length()));
        let memory = clock::deadline(SPILLED_WAIT_MAX, memory).await;
        let memory = memory.unwrap_or(Err(FsError::OutOfMemory))?;
        // Elsewhere than on the thread that received it: the disk may take its time.
        tokio::task::yield_now().await;
        let (mut writer, view) = self.buffer(spilled.length()).share();
        run_blocking(|| spilled.fetch(&mut writer))
            .map_err(|error| FsError::Io(format!("what waited on the disk for memory: {error}")))?;
        Ok((view.slice(0..spilled.length()), memory))
    }

    /// Memory that is held for this, or of the whole budget if there is some or if others give
    /// some back when asked.
    fn in_hand_or_asked_for(&self, length: usize) -> Option<Reservation> {
        let cost = BufferPool::cost(length);
        if let Some(memory) = self.in_hand.try_reserve(cost) {
            return Some(memory);
        }
        if self.spill.is_some() {
            return self.pool.budget().try_reserve_spare(cost);
        }
        let asked = pin!(self.pool.budget().reserve(cost));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(memory) => memory.ok(),
            Poll::Pending => None,
        }
    }

    /// Waits until there is memory for a WRITE that waits on the disk. They do not stand in the line of the
    /// whole budget: who reads or saves would wait behind all of them.
    async fn wait_in_line(&self, cost: u64) -> FsResult<Reservation> {
        let _first = self.line.lock().await;
        tokio::select! {
            biased;
            memory = self.in_hand.reserve(cost) => memory,
            memory = self.pool.budget().reserve_spare(cost) => Ok(memory),
        }
    }

    /// Waits until there is memory for a short WRITE. It is not taken from what is held for whole
    /// ones, which bring a store more for the same memory.
    async fn wait(&self) -> FsResult<Reservation> {
        let cost = SHORT_WRITE as u64;
        let memory = async {
            tokio::select! {
                biased;
                memory = self.short.reserve(cost) => memory,
                memory = self.pool.budget().reserve(cost) => memory,
            }
        };
        let waited = clock::deadline(MEMORY_WAIT_MAX, memory).await;
        waited.unwrap_or(Err(FsError::OutOfMemory))
    }
}

fn in_hand_blocks(total: u64) -> u64 {
    (total / IN_HAND_SHARE / BLOCK_SIZE as u64).clamp(IN_HAND_MIN, IN_HAND_MAX)
}

fn short_size() -> u64 {
    SHORT_WRITES_MAX * SHORT_WRITE as u64
}

#[cfg(test)]
mod tests;
