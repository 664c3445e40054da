//! Reads one version of one object, or a file whose bytes lie in many ([`extents`]).
//!
//! A read finds its bytes in one of three ways:
//!
//! 1. They are held: the read returns slices of the memory they were received into, at once.
//!    So are grains that a cache has in memory, after they were compared.
//! 2. They are on their way: the read waits until its own bytes have arrived, not for the end of
//!    the GET.
//! 3. They are neither: a random read makes one GET of exactly its range, or of the grains that it touches, and
//!    keeps nothing but some grains. A read that continues a sequential stream makes a GET of a whole part.
//!
//! A small file is always fetched whole, and one of some MiB if its start is read first and the last
//! such files were read to their end (`habit`).
//!
//! Only sequential streams fetch ahead: parts of 1 MiB that double up to the setting, as many as
//! fit into a window of about twice the bandwidth-delay product (`window`). Which reads make up
//! a stream is the business of `stream`; a handle can have several. What is held lies in `held`,
//! block by block, and each block is let go when it was read. Every GET asks for the pinned ETag.
//!
//! All of this goes by offsets. Where the bytes lie is asked only when something has to be fetched (`source`): a part lies
//! in one object, and what has checksums of its own is compared as it arrives, before anybody sees it (`grains`); what is
//! compressed is unpacked before that (`unpacking`).
//!
//! Memory: read-ahead takes only what is free at that moment and within the streams' share. A read
//! that finds none free waits in line for exactly its own range and holds nothing meanwhile, so
//! readers never wait for each other in a circle. Whoever waits makes idle readers drop what they
//! fetched ahead (`idle`).

mod extent;
mod extent_map;
mod extents;
mod grains;
mod habit;
mod held;
mod idle;
mod part;
mod receive;
mod share;
mod source;
mod state;
mod stream;
mod unpacking;
mod window;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures_util::future::try_join_all;
use penstock_base::{Payload, Reservation};
use smallvec::SmallVec;

pub use self::{
    extent::{Extent, Frames, Grains},
    extents::{ExtentReader, FileRead, MapPart, Refused},
};
pub(crate) use self::{habit::Habit, idle::Readers, receive::Origin, share::ReadAhead};
use self::{
    held::{Piece, push_zeros},
    part::Part,
    source::{Errand, Errands, Source},
    state::{Plan, State},
    stream::InFlight,
};
use crate::{ObjectVersion, Transfer, TransferError, TransferResult, lock::lock};

/// Reads one version of one object, on behalf of one open handle.
#[derive(Debug)]
pub struct Reader {
    version: Arc<ObjectVersion>,
    shared: Arc<Shared>,
}

/// A reader as those see it who want its memory.
#[derive(Debug)]
pub(crate) struct Shared {
    id: u64,
    transfer: Arc<Transfer>,
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
        let source = Source::Object {
            version: Arc::clone(&version),
            comes_whole: transfer.settings().comes_whole(version.size),
        };
        Self {
            version,
            shared: Shared::new(transfer, source),
        }
    }

    /// The version that is read.
    pub fn version(&self) -> &ObjectVersion {
        &self.version
    }

    /// Reads `length` bytes at `offset`; fewer only at the end of the object. Fails with
    /// `PreconditionFailed` when the object is another version now. May be called from many
    /// tasks at once; dropping the future gives up only this read. Bytes that are held already
    /// are returned without waiting. Must be called within a tokio runtime.
    pub async fn read(&self, offset: u64, length: u32) -> TransferResult<Payload> {
        let shared = &self.shared;
        let end = self.version.size.min(offset.saturating_add(length.into()));
        if offset >= end {
            return Ok(Payload::new());
        }
        let range = offset..end;
        let in_flight = InFlight::new(());
        let plan = shared.under_lock(|state, first| state.plan(&range, &in_flight, first));
        let read = shared.carry_out(&range, plan).await?;
        Ok(read.expect("where an object's bytes lie is always known"))
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
    let errand = Errand::of_object(Arc::new(version), &range);
    fetch(transfer, &range, (errand, memory), Origin::TheStore).await
}

/// Receives a part of an object into `memory`.
pub(crate) async fn fetch_range(
    transfer: &Arc<Transfer>,
    version: ObjectVersion,
    range: Range<u64>,
    (memory, origin): (Reservation, Origin),
) -> TransferResult<Payload> {
    let errand = Errand::of_object(Arc::new(version), &range);
    fetch(transfer, &range, (errand, memory), origin).await
}

/// Receives `range` of what an errand brings.
async fn fetch(
    transfer: &Arc<Transfer>,
    range: &Range<u64>,
    (errand, memory): (Errand, Reservation),
    origin: Origin,
) -> TransferResult<Payload> {
    let part = Part::new(range.clone(), &errand);
    let transfer = Arc::clone(transfer);
    receive::receive(transfer, errand, Arc::clone(&part), memory, origin).await;
    part.arrival(range.end).await?;
    let mut payload = Payload::new();
    let complete = part.read(range, &mut payload);
    // If that were wrong a program would take a short read for the end of its file.
    assert!(complete, "nobody else releases the blocks of this part");
    Ok(payload)
}

impl Shared {
    fn new(transfer: Arc<Transfer>, source: Source) -> Arc<Self> {
        Arc::new(Self {
            id: transfer.readers().new_id(),
            state: Mutex::new(State::new(Arc::clone(&transfer), source)),
            transfer,
            was_read: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
        })
    }

    /// Does something for a read, which is the first as long as none has ended.
    fn under_lock<T>(self: &Arc<Self>, work: impl FnOnce(&mut State, bool) -> T) -> T {
        let readers = self.transfer.readers();
        self.last_read.store(readers.now(), Ordering::Relaxed);
        let first = !self.was_read.load(Ordering::Relaxed);
        let mut state = lock(&self.state);
        let done = work(&mut state, first);
        let holds = state.holds_anything();
        drop(state);
        if holds && !self.is_known.swap(true, Ordering::Relaxed) {
            readers.add(self.id, Arc::downgrade(self));
        }
        done
    }

    /// Reads `range` as planned. `None` when it is not known any more where its bytes lie.
    async fn carry_out(&self, range: &Range<u64>, plan: Plan) -> TransferResult<Option<Payload>> {
        let result = match plan {
            Plan::Ready(payload) => Ok(Some(payload)),
            Plan::Compare(found) => match found.compared(range.end - range.start) {
                Some(payload) => Ok(Some(payload)),
                None => self.fetch_alone(range, Origin::TheStore).await,
            },
            Plan::Wait(pieces) => self.wait(range, pieces).await,
            Plan::Fetch(memory, errand) => {
                let brought = (errand, memory);
                let fetched = fetch(&self.transfer, range, brought, Origin::Anywhere).await;
                fetched.map(Some)
            }
            Plan::Memory => self.fetch_when_memory_is_free(range).await,
        };
        self.was_read.store(true, Ordering::Relaxed);
        result
    }

    async fn wait(
        &self,
        range: &Range<u64>,
        pieces: SmallVec<[Piece; 2]>,
    ) -> TransferResult<Option<Payload>> {
        match self.arrival(range, pieces).await? {
            Some(payload) => Ok(Some(payload)),
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

    async fn fetch_when_memory_is_free(
        &self,
        range: &Range<u64>,
    ) -> TransferResult<Option<Payload>> {
        self.transfer.metrics().read_memory_waits.increment();
        self.fetch_alone(range, Origin::Anywhere).await
    }

    /// Reads `range` by itself, as soon as there is memory for it, unless all of it is coming by then from where it may come.
    async fn fetch_alone(
        &self,
        range: &Range<u64>,
        origin: Origin,
    ) -> TransferResult<Option<Payload>> {
        let Some(errands) = lock(&self.state).errands(range) else {
            return Ok(None);
        };
        let cost = errands.iter().map(|(_, errand)| errand.cost()).sum();
        let memory = self.transfer.read_memory(cost).await?;
        let coming = match origin {
            Origin::Anywhere => lock(&self.state).coming(range),
            Origin::TheStore => None,
        };
        if let Some(pieces) = coming
            && let Some(payload) = self.arrival(range, pieces).await?
        {
            return Ok(Some(payload));
        }
        let fetched = self.fetch_all(range, (errands, memory), origin);
        fetched.await.map(Some)
    }

    /// Receives all of `range`, in which there are holes where no errand brings anything.
    async fn fetch_all(
        &self,
        range: &Range<u64>,
        (errands, mut memory): (Errands, Reservation),
        origin: Origin,
    ) -> TransferResult<Payload> {
        let fetches = errands.into_iter().map(|(part, errand)| {
            let paid = memory.split(errand.cost());
            let brought = (errand, paid.expect("all errands were paid for"));
            async {
                let payload = fetch(&self.transfer, &part, brought, origin).await?;
                Ok::<_, TransferError>((part, payload))
            }
        });
        let fetched = try_join_all(fetches.collect::<Vec<_>>()).await?;
        let (mut payload, mut at) = (Payload::new(), range.start);
        for (part, bytes) in fetched {
            push_zeros(&mut payload, part.start - at);
            payload.append(bytes);
            at = part.end;
        }
        push_zeros(&mut payload, range.end - at);
        Ok(payload)
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
