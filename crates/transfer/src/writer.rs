//! Writes one object as a stream.
//!
//! What is written collects in a `tail`. A tail that never fills a part becomes the object in one
//! PUT. As soon as one is full an `upload` is begun and parts are sent in the background, several
//! at once, their sizes given by a `schedule`. [`Writer::finish`] sends the rest and completes the
//! upload; a writer that fails or is dropped removes it again (`clean_up`).
//!
//! Every byte in the tail and on its way is paid from the memory budget, so a writer that is faster
//! than the store waits in [`Writer::write`]. A writer that finds no memory sends what it has as a
//! part, if that is enough for one; if not, see `memory` for why it gets on nevertheless.
//!
//! An object that is continued ([`WriteStart::After`]) is copied inside the store when the first
//! byte is written, or read back when it is smaller than a part.

mod clean_up;
mod schedule;
mod tail;
mod upload;

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, BufferPool, MIB, Reservation};
use penstock_object::{CompleteOptions, Key, PartCopy, PutOptions, Stored, WriteCondition};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::clean_up::CleanUps;
use self::{
    schedule::PartSchedule,
    tail::{KEEP_MIN, Tail, paid},
    upload::Upload,
};
use crate::{
    ObjectVersion, Transfer, TransferError, TransferResult,
    memory::{self, Turn, WriteMemory},
    reader::fetch_whole,
};

/// A part may occupy this fraction of the memory budget.
const PARTS_PER_BUDGET: u64 = 8;

/// The smallest part that is sent or copied, where the store would take an even smaller one.
const PART_MIN: u64 = MIB;

/// Bytes in a part that the store copies from an existing object: enough that a request more does
/// not matter, and little enough that the parts of a large object are copied at the same time.
const COPY_PART: u64 = 256 * MIB;

/// Pieces that lie in blocks of the pool are kept for nothing as long as this fraction of the budget
/// is free. When less is free the block may be one that its giver needs back to receive anything
/// at all, so the piece is copied.
const FREE_PER_BUDGET: u64 = 16;

/// What a written object begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStart {
    /// Nothing.
    Empty,
    /// All of an existing object, copied inside the store.
    After(ObjectVersion),
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What the store says of it.
    pub stored: Stored,
    /// Bytes in the whole object.
    pub size: u64,
}

/// A sequential stream of bytes into one object. Nothing is visible until [`Writer::finish`] or
/// [`Writer::sync`]; a writer that is dropped before leaves nothing behind.
#[derive(Debug)]
pub struct Writer {
    transfer: Arc<Transfer>,
    key: Key,
    options: PutOptions,
    schedule: PartSchedule,
    slots: Arc<Semaphore>,
    /// What the object begins with and is not taken in yet.
    start: WriteStart,
    /// Bytes in the whole object.
    size: u64,
    upload: Option<Upload>,
    tail: Tail,
    early_parts: u32,
    turn: Option<Turn>,
    /// Whether the tail's buffer for small pieces is of the memory that the turn gives.
    room_is_set_aside: bool,
    /// The object as the store has it, while nothing was written since.
    unchanged: Option<Finished>,
    failure: Option<TransferError>,
}

/// What is to happen to a piece.
#[derive(PartialEq)]
enum Treatment {
    Copy,
    Keep,
    /// Keep it; it is paid for.
    KeepFree,
}

/// Memory for one piece.
enum Grant {
    /// There is room in the tail.
    None,
    /// The piece is kept and paid for.
    Free,
    Keep(Reservation),
    Copy(Buffer),
}

impl Writer {
    pub(crate) fn new(
        transfer: Arc<Transfer>,
        key: Key,
        start: WriteStart,
        options: PutOptions,
    ) -> Self {
        let settings = transfer.settings();
        let capabilities = transfer.store().capabilities();
        let affordable = transfer.pool().budget().total() / PARTS_PER_BUDGET;
        let unchanged = unchanged(&start);
        Self {
            schedule: PartSchedule::new(capabilities, settings.upload_part_size, affordable),
            slots: Arc::new(Semaphore::new(settings.uploads_in_flight)),
            transfer,
            key,
            options,
            size: unchanged.as_ref().map_or(0, |object| object.size),
            start,
            upload: None,
            tail: Tail::default(),
            early_parts: 0,
            turn: None,
            room_is_set_aside: false,
            unchanged,
            failure: None,
        }
    }

    /// Bytes that the object would have if it were finished now.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds `data` at the end. Returns when the bytes are accepted, which waits for memory while
    /// uploads are behind. After an error the writer only ever fails again, with that error.
    ///
    /// Dropping the future adds nothing, if `data` has at most one mebibyte.
    pub async fn write(&mut self, mut data: Bytes) -> TransferResult<()> {
        while !data.is_empty() {
            self.check()?;
            let part_size = usize::try_from(self.part_size()).unwrap_or(BLOCK_SIZE);
            let piece = data.split_to(data.len().min(part_size).min(BLOCK_SIZE));
            let added = self.add(piece).await;
            self.remember(added)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable and visible, and goes on after it. Without a
    /// change since the last time no request is made. Must not be cancelled half way.
    ///
    /// A small object is sent again from memory; a large one is continued by copying it inside
    /// the store at the next write.
    pub async fn sync(&mut self) -> TransferResult<Finished> {
        self.check()?;
        let concluded = self.conclude().await;
        self.remember(concluded)
    }

    /// Sends what is left and makes the object visible. Must not be cancelled half way: run it
    /// in a task of its own.
    pub async fn finish(mut self) -> TransferResult<Finished> {
        self.sync().await
    }

    /// Gives the object up and removes what was sent.
    pub async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            upload.abort().await;
        }
    }

    fn check(&self) -> TransferResult<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// After a failure nothing is kept but the error.
    fn remember<T>(&mut self, result: TransferResult<T>) -> TransferResult<T> {
        if let Err(error) = &result {
            self.failure = Some(error.clone());
            self.upload = None;
            self.tail = Tail::default();
            self.turn = None;
        }
        result
    }

    async fn add(&mut self, piece: Bytes) -> TransferResult<()> {
        let limit = self.schedule.limit();
        if self.size + piece.len() as u64 > limit {
            return Err(TransferError::TooLarge(limit));
        }
        self.begin().await?;
        if let Some(upload) = &mut self.upload {
            upload.collect()?;
        }
        let grant = self.grant(&piece).await?;
        let fills_part = self.tail.len() + piece.len() as u64 >= self.part_size();
        let slot = if fills_part {
            Some(self.slot().await)
        } else {
            None
        };
        self.accept(piece, grant, slot);
        Ok(())
    }

    /// Takes in what the object begins with, once.
    async fn begin(&mut self) -> TransferResult<()> {
        let budget = self.transfer.pool().budget();
        let prepared = self.transfer.set_aside().prepare(budget);
        memory::in_time(self.transfer.settings().memory_wait, prepared).await?;
        let WriteStart::After(version) = &self.start else {
            return Ok(());
        };
        let version = version.clone();
        if version.size >= self.part_min() {
            self.copy_all(&version);
        } else if version.size > 0 {
            self.read_back(version).await?;
        }
        self.start = WriteStart::Empty;
        Ok(())
    }

    async fn read_back(&mut self, version: ObjectVersion) -> TransferResult<()> {
        let cost = memory::cost(version.size);
        let memory = match self.wait_for_memory(cost).await? {
            WriteMemory::Shared(memory) | WriteMemory::SetAside(memory) => memory,
        };
        let beginning = fetch_whole(&self.transfer, version, memory).await?;
        for slice in beginning.slices() {
            self.tail.keep(slice.clone());
        }
        Ok(())
    }

    fn copy_all(&mut self, version: &ObjectVersion) {
        let capabilities = self.transfer.store().capabilities();
        let parts_max = u64::from(capabilities.parts_max / 4).max(1);
        let longest = COPY_PART
            .max(version.size.div_ceil(parts_max))
            .min(capabilities.part_size_max);
        let parts = version.size.div_ceil(longest);
        let mut start = 0;
        for part in 1..=parts {
            // Equal parts: a short last one could be below the store's minimum.
            let end = (u128::from(version.size) * u128::from(part) / u128::from(parts)) as u64;
            self.upload().copy(PartCopy {
                source: version.key.clone(),
                range: start..end,
                if_match: Some(version.etag.clone()),
            });
            start = end;
        }
    }

    /// Waits for the memory that `piece` needs.
    async fn grant(&mut self, piece: &Bytes) -> TransferResult<Grant> {
        let treatment = self.treatment(piece);
        if treatment == Treatment::KeepFree {
            return Ok(Grant::Free);
        }
        let keep = treatment == Treatment::Keep;
        if !keep && piece.len() <= self.tail.room() {
            return Ok(Grant::None);
        }
        let capacity = if keep {
            BLOCK_SIZE
        } else {
            self.tail.next_capacity(piece.len())
        };
        let memory = self.wait_for_memory(BufferPool::cost(capacity)).await?;
        let pool = self.transfer.pool();
        Ok(match memory {
            WriteMemory::Shared(memory) if keep => Grant::Keep(memory),
            WriteMemory::Shared(memory) => {
                self.room_is_set_aside = false;
                Grant::Copy(pool.take_reserved(capacity, memory))
            }
            WriteMemory::SetAside(memory) => {
                self.room_is_set_aside = true;
                Grant::Copy(pool.take_reserved(capacity, memory))
            }
        })
    }

    fn treatment(&self, piece: &Bytes) -> Treatment {
        let pool = self.transfer.pool();
        let free = (pool.budget().total() / FREE_PER_BUDGET).max(2 * MIB);
        if piece.len() < KEEP_MIN {
            Treatment::Copy
        } else if !pool.holds(piece) {
            Treatment::Keep
        } else if pool.budget().available() >= free {
            Treatment::KeepFree
        } else {
            Treatment::Copy
        }
    }

    async fn wait_for_memory(&mut self, cost: u64) -> TransferResult<WriteMemory> {
        let budget = Arc::clone(self.transfer.pool().budget());
        if let Some(memory) = budget.try_reserve(cost) {
            return Ok(WriteMemory::Shared(memory));
        }
        self.transfer.metrics().write_memory_waits.increment();
        let early = self.early_parts < self.schedule.early_max();
        if early && self.tail.len() >= self.part_min() {
            let slot = self.slot().await;
            self.early_parts += 1;
            self.tail.close();
            self.send(slot);
        }
        let limit = self.transfer.settings().memory_wait;
        let set_aside = self.transfer.set_aside();
        memory::in_time(limit, set_aside.for_write(&budget, cost, &mut self.turn)).await
    }

    async fn slot(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    /// Adds `piece`, at most one block, and sends the part that it fills. Does not wait: a write
    /// is accepted as a whole or not at all.
    fn accept(&mut self, mut piece: Bytes, grant: Grant, slot: Option<OwnedSemaphorePermit>) {
        let mut keep = false;
        match grant {
            Grant::None => (),
            Grant::Free => keep = true,
            Grant::Copy(buffer) => self.tail.provide(buffer),
            Grant::Keep(memory) => {
                piece = paid(piece, memory);
                keep = true;
            }
        }
        self.unchanged = None;
        let missing = self.part_size() - self.tail.len();
        if let Some(slot) = slot {
            let last = piece.split_to(usize::try_from(missing).unwrap_or(piece.len()));
            self.append(last, keep);
            self.send(slot);
        }
        self.append(piece, keep);
    }

    fn append(&mut self, piece: Bytes, keep: bool) {
        self.size += piece.len() as u64;
        if keep {
            self.tail.keep(piece);
        } else {
            self.tail.copy(&piece);
        }
    }

    /// Sends the tail as the next part.
    fn send(&mut self, slot: OwnedSemaphorePermit) {
        let body = self.tail.take();
        self.upload().send(body, slot);
        if self.tail.room() == 0 || !self.room_is_set_aside {
            self.turn = None;
        }
    }

    fn upload(&mut self) -> &mut Upload {
        let (transfer, key, options) = (&self.transfer, &self.key, &self.options);
        self.upload
            .get_or_insert_with(|| Upload::begin(transfer, key, options.clone()))
    }

    /// Bytes in the part that is being collected.
    fn part_size(&self) -> u64 {
        self.schedule.size_at(self.size - self.tail.len())
    }

    /// Bytes in the smallest part that is worth sending.
    fn part_min(&self) -> u64 {
        let capabilities = self.transfer.store().capabilities();
        let worth_it = PART_MIN.min(capabilities.part_size_max);
        capabilities.part_size_min.max(worth_it)
    }

    /// Makes the object of everything that was written.
    async fn conclude(&mut self) -> TransferResult<Finished> {
        if let Some(unchanged) = &self.unchanged {
            return Ok(unchanged.clone());
        }
        let stored = match self.upload.take() {
            Some(upload) => self.complete(upload).await?,
            None => self.put().await?,
        };
        let finished = Finished {
            stored,
            size: self.size,
        };
        self.continue_after(&finished);
        Ok(finished)
    }

    async fn put(&mut self) -> TransferResult<Stored> {
        let store = Arc::clone(self.transfer.store());
        let body = self.tail.snapshot();
        Ok(store.put(&self.key, body, self.options.clone()).await?)
    }

    async fn complete(&mut self, upload: Upload) -> TransferResult<Stored> {
        self.upload = Some(upload);
        if self.tail.len() > 0 {
            let slot = self.slot().await;
            self.send(slot);
        }
        self.tail.close();
        self.turn = None;
        let options = CompleteOptions {
            condition: self.options.condition.clone(),
            checksum: None,
        };
        let upload = self.upload.take().expect("it was put there above");
        Ok(upload.complete(options).await?)
    }

    /// Prepares for writing on after the object was made visible. A small one stays in memory, to
    /// be sent again with what follows.
    fn continue_after(&mut self, finished: &Finished) {
        self.options.condition = WriteCondition::Always;
        self.unchanged = Some(finished.clone());
        self.early_parts = 0;
        let small = self.tail.len() == self.size && self.size < self.part_min();
        if !small || self.turn.is_some() {
            self.tail.take();
            self.tail.close();
            self.turn = None;
            self.start = WriteStart::After(ObjectVersion {
                key: self.key.clone(),
                etag: finished.stored.etag.clone(),
                size: self.size,
            });
        }
    }
}

/// The object that the store has already, if the writer continues one.
fn unchanged(start: &WriteStart) -> Option<Finished> {
    match start {
        WriteStart::Empty => None,
        WriteStart::After(version) => Some(Finished {
            stored: Stored {
                etag: version.etag.clone(),
                checksum: None,
            },
            size: version.size,
        }),
    }
}
