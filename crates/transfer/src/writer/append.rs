//! Writes to the end of an appendable object.
//!
//! What is written collects in a `tail`, paid from the memory budget like that of a [`super::Writer`],
//! and is appended in chunks. An append may have any size, so an appender that finds no memory never
//! waits for it: it appends what it holds, and then, if there is still none, what it is given.
//!
//! An append that was sent cannot be taken back, so each runs in a task of its own. When the caller
//! leaves meanwhile, the next call learns first how it ended.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, BufferPool, MIB};
use penstock_object::{
    Appended, ErrorKind, HeadOptions, Key, ObjectError, ObjectResult, Operation, PutOptions,
};
use tokio::task::JoinHandle;

use super::{
    tail::{KEEP_MIN, Tail, paid},
    upload::gave_up,
};
use crate::{ObjectVersion, Transfer, TransferResult};

/// Bytes that are collected before they are appended.
const CHUNK: u64 = 8 * MIB;

/// Appends to an object in chunks. What was appended is visible at once.
#[derive(Debug)]
pub struct Appender {
    transfer: Arc<Transfer>,
    key: Key,
    /// Bytes that the object has.
    position: u64,
    /// Whether an object of another content must be removed first.
    replaces: bool,
    /// Whether the object does not exist yet.
    absent: bool,
    tail: Tail,
    /// How the object is described when it is begun.
    options: PutOptions,
    /// All of the tail is being appended.
    under_way: Option<JoinHandle<ObjectResult<Appended>>>,
}

impl Appender {
    /// Says how the object is to be described if it does not exist yet; the condition of `options`
    /// does not count.
    pub fn describe(&mut self, options: PutOptions) {
        self.options.content_type = options.content_type;
        self.options.metadata = options.metadata;
    }

    /// Goes on after an appendable object of `position` bytes. No request is made yet.
    pub fn continuing(transfer: &Arc<Transfer>, key: Key, position: u64) -> Self {
        Self {
            transfer: Arc::clone(transfer),
            key,
            position,
            replaces: false,
            absent: false,
            tail: Tail::new(transfer.store().checksum_kind()),
            options: PutOptions::default(),
            under_way: None,
        }
    }

    /// Begins a new appendable object. If `replaces`, the one that is there is removed first,
    /// since only then can appending begin at 0.
    pub fn beginning(transfer: &Arc<Transfer>, key: Key, replaces: bool) -> Self {
        Self {
            replaces,
            absent: true,
            ..Self::continuing(transfer, key, 0)
        }
    }

    /// Bytes that the object would have if it were finished now.
    pub fn size(&self) -> u64 {
        self.position + self.tail.len()
    }

    /// Bytes that are in the object already, as far as that is known.
    pub fn stored(&self) -> u64 {
        self.position
    }

    /// Adds `data` at the end. After an error the appender must be dropped.
    ///
    /// Dropping the future adds nothing if `data` has at most one mebibyte; without memory it may
    /// add all of it, which [`Appender::size`] tells.
    pub async fn write(&mut self, mut data: Bytes) -> TransferResult<()> {
        self.settle().await?;
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(BLOCK_SIZE));
            if self.tail.len() + piece.len() as u64 > CHUNK {
                self.append().await?;
            }
            self.add(piece).await?;
        }
        Ok(())
    }

    /// Appends what is left and describes the object. Fails with `PositionMismatch` if somebody
    /// else appended to it.
    pub async fn finish(mut self) -> TransferResult<ObjectVersion> {
        self.settle().await?;
        if self.absent || self.tail.len() > 0 {
            self.append().await?;
        }
        // Not every answer to an append names the version, and the next reader needs it.
        let store = self.transfer.store();
        let info = store.head(&self.key, HeadOptions::default()).await?;
        if info.size != self.position {
            let message = "another client appended to the object";
            let kind = ErrorKind::PositionMismatch;
            let error = ObjectError::new(kind, Operation::Append, message);
            return Err(error.about(&self.key).into());
        }
        Ok(ObjectVersion {
            key: self.key,
            etag: info.etag,
            size: info.size,
        })
    }

    /// Adds `piece`, at most one block.
    async fn add(&mut self, piece: Bytes) -> TransferResult<()> {
        let keep = piece.len() >= KEEP_MIN;
        if !keep && piece.len() <= self.tail.room() {
            self.tail.copy(&piece);
            return Ok(());
        }
        if self.try_add(&piece, keep) {
            return Ok(());
        }
        self.transfer.metrics().write_memory_waits.increment();
        if self.tail.len() > 0 {
            self.append().await?;
        }
        self.tail.close();
        if self.try_add(&piece, keep) {
            return Ok(());
        }
        // It stays in the memory that it came in, which somebody else has paid for, until it is
        // sent.
        self.tail.keep(piece);
        self.append().await
    }

    fn try_add(&mut self, piece: &Bytes, keep: bool) -> bool {
        let pool = Arc::clone(self.transfer.pool());
        let capacity = if keep {
            BLOCK_SIZE
        } else {
            self.tail.next_capacity(piece.len())
        };
        let Some(memory) = pool.budget().try_reserve(BufferPool::cost(capacity)) else {
            return false;
        };
        if keep {
            self.tail.keep(paid(piece.clone(), memory));
        } else {
            self.tail.provide(pool.take_reserved(capacity, memory));
            self.tail.copy(piece);
        }
        true
    }

    async fn append(&mut self) -> TransferResult<()> {
        if self.under_way.is_none() {
            self.under_way = Some(self.begin_append());
        }
        self.settle().await
    }

    fn begin_append(&mut self) -> JoinHandle<ObjectResult<Appended>> {
        let (store, key) = (Arc::clone(self.transfer.store()), self.key.clone());
        let (position, replaces) = (self.position, self.replaces);
        let body = self.tail.snapshot();
        let options = self.options.clone();
        tokio::spawn(async move {
            if replaces {
                store.delete(&key).await?;
            }
            store.append(&key, position, body, options).await
        })
    }

    /// Waits for the append that is under way, if there is one: a caller may have left meanwhile.
    pub async fn settle(&mut self) -> TransferResult<()> {
        let Some(under_way) = &mut self.under_way else {
            return Ok(());
        };
        let ended = under_way.await;
        self.under_way = None;
        let appended = ended.unwrap_or_else(|_| Err(gave_up(Operation::Append)))?;
        self.tail.take();
        self.position = appended.next_position;
        self.replaces = false;
        self.absent = false;
        Ok(())
    }
}
