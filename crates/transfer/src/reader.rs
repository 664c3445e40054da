//! Reads one version of one object.
//!
//! A read finds its bytes in one of three ways:
//!
//! 1. They are held: the read returns slices of the memory they were received into, at once.
//! 2. They are on their way: the read waits until its own bytes have arrived, not for the end of
//!    the GET.
//! 3. They are neither: a random read makes one GET of exactly its range and keeps nothing. A read
//!    that continues a sequential stream makes a GET of a whole part.
//!
//! A small file is always fetched whole, and one of some MiB if its start is read first and the last
//! such files were read to their end (`habit`).
//!
//! Only sequential streams fetch ahead: parts of 1 MiB that double up to the setting, as many as
//! fit into a window of about twice the bandwidth-delay product (`window`). Which reads make up
//! a stream is the business of `stream`; a handle can have several. What is held lies in `held`,
//! block by block, and each block is let go when it was read. Every GET asks for the pinned ETag.
//!
//! Memory: read-ahead takes only what is free at that moment and within the streams' share. A read
//! that finds none free waits in line for exactly its own range and holds nothing meanwhile, so
//! readers never wait for each other in a circle. Whoever waits makes idle readers drop what they
//! fetched ahead (`idle`).

mod habit;
mod held;
mod idle;
mod part;
mod receive;
mod share;
mod state;
mod stream;
mod window;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::{Payload, Reservation};
use smallvec::SmallVec;

pub(crate) use self::{habit::Habit, idle::Readers, share::ReadAhead};
use self::{
    held::Piece,
    part::Part,
    receive::Origin,
    state::{Plan, State},
    stream::InFlight,
};
use crate::{ObjectVersion, Transfer, TransferResult, lock::lock};

/// Reads one version of one object, on behalf of one open handle.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// A reader as those see it who want its memory.
#[derive(Debug)]
pub(crate) struct Shared {
    id: u64,
    transfer: Arc<Transfer>,
    version: Arc<ObjectVersion>,
    state: Mutex<State>,
    /// Whether a read has ended.
    was_read: AtomicBool,
    /// Whether those who want memory know this reader.
    is_known: AtomicBool,
    /// When the last read began, by [`Readers::now`].
    last_read: AtomicU64,
}

impl Reader {
    pub(crate) fn new(transfer: Arc<Transfer>, version: ObjectVersion) -> Self {
        let version = Arc::new(version);
        let state = State::new(Arc::clone(&transfer), Arc::clone(&version));
        let shared = Shared {
            id: transfer.readers().new_id(),
            transfer,
            version,
            state: Mutex::new(state),
            was_read: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The version that is read.
    pub fn version(&self) -> &ObjectVersion {
        &self.shared.version
    }

    /// Reads `length` bytes at `offset`; fewer only at the end of the object. Fails with
    /// `PreconditionFailed` when the object is another version now. May be called from many
    /// tasks at once; dropping the future gives up only this read. Bytes that are held already
    /// are returned without waiting. Must be called within a tokio runtime.
    pub async fn read(&self, offset: u64, length: u32) -> TransferResult<Payload> {
        let shared = &self.shared;
        let end = shared
            .version
            .size
            .min(offset.saturating_add(length.into()));
        if offset >= end {
            return Ok(Payload::new());
        }
        let range = offset..end;
        let in_flight = InFlight::new(());
        let result = match shared.plan(&range, &in_flight) {
            Plan::Ready(payload) => Ok(payload),
            Plan::Wait(pieces) => shared.wait(&range, pieces).await,
            Plan::Fetch(memory) => shared.fetch(&range, memory).await,
            Plan::Memory => shared.fetch_when_memory_is_free(&range).await,
        };
        shared.was_read.store(true, Ordering::Relaxed);
        result
    }
}

/// Receives a whole object, which must not be empty, into `memory`, from the store itself: what is
/// written after it must not be based on a version that is gone.
pub(crate) async fn fetch_whole(
    transfer: &Arc<Transfer>,
    version: ObjectVersion,
    memory: Reservation,
) -> TransferResult<Payload> {
    let range = 0..version.size;
    fetch(
        transfer,
        &Arc::new(version),
        &range,
        memory,
        Origin::TheStore,
    )
    .await
}

/// Receives a part of an object into `memory`, from wherever it is.
pub(crate) async fn fetch_range(
    transfer: &Arc<Transfer>,
    version: ObjectVersion,
    range: Range<u64>,
    memory: Reservation,
) -> TransferResult<Payload> {
    let version = Arc::new(version);
    fetch(transfer, &version, &range, memory, Origin::Anywhere).await
}

async fn fetch(
    transfer: &Arc<Transfer>,
    version: &Arc<ObjectVersion>,
    range: &Range<u64>,
    memory: Reservation,
    origin: Origin,
) -> TransferResult<Payload> {
    let part = Part::new(range.clone());
    let (transfer, version) = (Arc::clone(transfer), Arc::clone(version));
    receive::receive(transfer, version, Arc::clone(&part), memory, origin).await;
    part.arrival(range.end).await?;
    let mut payload = Payload::new();
    let complete = part.read(range, &mut payload);
    // If that were wrong a program would take a short read for the end of its file.
    assert!(complete, "nobody else releases the blocks of this part");
    Ok(payload)
}

impl Shared {
    fn plan(self: &Arc<Self>, range: &Range<u64>, in_flight: &InFlight) -> Plan {
        let readers = self.transfer.readers();
        self.last_read.store(readers.now(), Ordering::Relaxed);
        let first = !self.was_read.load(Ordering::Relaxed);
        let mut state = lock(&self.state);
        let plan = state.plan(range, in_flight, first);
        let holds = state.holds_anything();
        drop(state);
        if holds && !self.is_known.swap(true, Ordering::Relaxed) {
            readers.add(self.id, Arc::downgrade(self));
        }
        plan
    }

    async fn wait(
        &self,
        range: &Range<u64>,
        pieces: SmallVec<[Piece; 2]>,
    ) -> TransferResult<Payload> {
        match self.arrival(range, pieces).await? {
            Some(payload) => Ok(payload),
            None => self.fetch_when_memory_is_free(range).await,
        }
    }

    /// The bytes of `range` once `pieces` have arrived, or `None` when another read of the same
    /// bytes made them go away again.
    async fn arrival(
        &self,
        range: &Range<u64>,
        pieces: SmallVec<[Piece; 2]>,
    ) -> TransferResult<Option<Payload>> {
        for piece in &pieces {
            piece.arrival().await?;
        }
        Ok(lock(&self.state).arrived(range, pieces))
    }

    async fn fetch_when_memory_is_free(&self, range: &Range<u64>) -> TransferResult<Payload> {
        self.transfer.metrics().read_memory_waits.increment();
        let cost = receive::cost(&self.fetched_for(range));
        let memory = self.transfer.read_memory(cost).await?;
        let coming = lock(&self.state).coming(range);
        if let Some(pieces) = coming
            && let Some(payload) = self.arrival(range, pieces).await?
        {
            return Ok(payload);
        }
        self.fetch(range, memory).await
    }

    async fn fetch(&self, range: &Range<u64>, memory: Reservation) -> TransferResult<Payload> {
        let (fetched, origin) = (self.fetched_for(range), Origin::Anywhere);
        let payload = fetch(&self.transfer, &self.version, &fetched, memory, origin).await?;
        Ok(payload.slice(&(range.start - fetched.start..range.end - fetched.start)))
    }

    /// What is fetched for a read of `range` that finds nothing of it.
    fn fetched_for(&self, range: &Range<u64>) -> Range<u64> {
        if self.transfer.settings().comes_whole(self.version.size) {
            return 0..self.version.size;
        }
        range.clone()
    }

    fn last_read(&self) -> u64 {
        self.last_read.load(Ordering::Relaxed)
    }

    /// Drops what nobody waits for, about `bytes`; nothing when a read is being planned.
    fn reclaim(&self, bytes: u64) -> u64 {
        match self.state.try_lock() {
            Ok(mut state) => state.reclaim(bytes),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().reclaim(bytes),
            Err(TryLockError::WouldBlock) => 0,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.is_known.get_mut() {
            self.transfer.readers().remove(self.id);
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.tell_habit();
    }
}
