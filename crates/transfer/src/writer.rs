//! Writes one object as a stream.
//!
//! What is written collects in a `tail`. A tail that never fills a part becomes the object in one
//! PUT. As soon as one is full an `upload` is begun and parts are sent in the background, several
//! at once, their sizes given by a `schedule`. [`Writer::finish`] sends the rest and completes the
//! upload; a writer that fails or is dropped removes it again (`clean_up`).
//!
//! Every byte in the tail and on its way is paid from the memory budget (`grant`), so a writer that
//! is faster than the store waits in [`Writer::write`]. A writer that finds no memory sends what it
//! has as a part, if that is enough for one; if not, see `memory` for why it gets on nevertheless.
//!
//! An object that is continued ([`WriteStart::After`]) is copied inside the store when the first
//! byte is written, or read back when it is smaller than a part (`begin`). What becomes visible
//! then replaces that very version, as after a [`Writer::sync`] the one that was made visible
//! before: if somebody else replaced it meanwhile, theirs stays and the writer fails.

mod append;
mod assembly;
mod begin;
mod clean_up;
mod copied;
mod grant;
mod schedule;
mod tail;
mod upload;

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, MIB};
use penstock_object::{CompleteOptions, ETag, Key, PutOptions, Stored, WriteCondition};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::append::Appender;
pub(crate) use self::clean_up::CleanUps;
pub(crate) use self::{
    assembly::{Assembly, Slot, Slots},
    upload::UploadNote,
};
use self::{
    grant::Grant,
    schedule::PartSchedule,
    tail::{Tail, paid},
    upload::Upload,
};
use crate::{ObjectVersion, Transfer, TransferError, TransferResult, memory::Turn};

/// A part may occupy this fraction of the memory budget.
const PARTS_PER_BUDGET: u64 = 8;

/// The smallest part that is sent or copied, where the store would take an even smaller one.
const PART_MIN: u64 = MIB;

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

impl Writer {
    pub(crate) fn new(
        transfer: Arc<Transfer>,
        key: Key,
        start: WriteStart,
        mut options: PutOptions,
    ) -> Self {
        if let WriteStart::After(version) = &start {
            options.condition = replaces(&version.etag);
        }
        let settings = transfer.settings();
        let capabilities = transfer.store().capabilities();
        let affordable = transfer.pool().budget().total() / PARTS_PER_BUDGET;
        let checksum = transfer.store().checksum_kind();
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
            tail: Tail::new(checksum),
            early_parts: 0,
            turn: None,
            room_is_set_aside: false,
            unchanged,
            failure: None,
        }
    }

    /// Says how the object is to be described from now on; the condition of `options` does not
    /// count. An upload that was begun keeps the description that it began with.
    pub fn describe(&mut self, options: PutOptions) {
        self.options.content_type = options.content_type;
        self.options.metadata = options.metadata;
    }

    /// Whether an upload was begun, whose description cannot be changed any more.
    pub fn is_begun(&self) -> bool {
        self.upload.is_some()
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
            // Whatever goes on after it copies all of it.
            sent_tells: true,
            ..CompleteOptions::default()
        };
        let upload = self.upload.take().expect("it was put there above");
        upload.complete(options).await
    }

    /// Prepares for writing on after the object was made visible. A small one stays in memory, to
    /// be sent again with what follows.
    fn continue_after(&mut self, finished: &Finished) {
        self.options.condition = replaces(&finished.stored.etag);
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

/// The condition of a write that goes on after a version: what somebody else made of the object
/// meanwhile is not in it and must not be lost.
fn replaces(tag: &ETag) -> WriteCondition {
    // A store that names no versions cannot be asked for one.
    if tag.as_str().is_empty() {
        WriteCondition::Always
    } else {
        WriteCondition::IfMatch(tag.clone())
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
