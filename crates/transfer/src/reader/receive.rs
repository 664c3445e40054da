//! Receives one part: the GET, and the memory or the pipes that its body goes straight into.

use std::{mem::MaybeUninit, ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{
    BufferPool, BufferView, BufferWriter, PIPED_MAX, Pipe, Pipes, Reservation,
    clock::{self, Instant},
};
use penstock_object::{
    BodySink, ErrorKind, GetOptions, Got, Moved, ObjectError, ObjectResult, Operation,
};

use super::{
    block::Place,
    part::{BLOCK, Part},
};
use crate::{ObjectVersion, Transfer, TransferError, memory};

/// Where the bytes of a version may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Wherever they are.
    Anywhere,
    /// From the store alone, which thereby says that the version is still the present one.
    TheStore,
}

/// What a part may be received into.
#[derive(Debug)]
pub(crate) struct Room {
    /// Pays for all of it.
    pub(crate) memory: Reservation,
    /// Where pipes come from that may stand in for memory.
    pub(crate) pipes: Option<Arc<Pipes>>,
}

impl From<Reservation> for Room {
    fn from(memory: Reservation) -> Self {
        Self {
            memory,
            pipes: None,
        }
    }
}

/// Receives `part` of `version` into `room`.
///
/// When the future is dropped the part fails with `Interrupted`.
pub(crate) async fn receive(
    transfer: Arc<Transfer>,
    version: Arc<ObjectVersion>,
    part: Arc<Part>,
    room: Room,
    origin: Origin,
) {
    // Stores tell a checksum over the whole object only to those who ask for all of it.
    let is_whole = *part.range() == (0..version.size);
    let options = GetOptions {
        range: (!is_whole).then(|| part.range().clone()),
        if_match: version.pinned().cloned(),
        fresh: origin == Origin::TheStore,
    };
    let store = Arc::clone(transfer.store());
    let key = version.key.clone();
    let mut sink = PartSink::new(transfer, version, part, room);
    let mut result = store.get(&key, options.clone(), &mut sink).await;
    if is_damaged(&result) && sink.begin_again().await {
        result = store.get(&key, options, &mut sink).await;
    }
    sink.finish(result.map(|_| ()));
}

fn is_damaged(result: &ObjectResult<Got>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind == ErrorKind::ChecksumMismatch)
}

/// Bytes of the budget that [`receive`] needs for `range`.
pub(crate) fn cost(range: &Range<u64>) -> u64 {
    memory::cost(range.end - range.start)
}

/// The memory of one part while it is being filled. Blocks are taken from the pool only when
/// their first byte is about to arrive, so that few are in use and those are in the CPU's cache.
struct PartSink {
    transfer: Arc<Transfer>,
    version: Arc<ObjectVersion>,
    part: Arc<Part>,
    room: Room,
    filling: Option<Filling>,
    received: u64,
    /// Bytes that have been received when what is filled at present is full.
    full_at: u64,
    sent: Instant,
    began: Option<Instant>,
    refusal: Option<ObjectError>,
    /// The store compares a checksum over all of this part when it has arrived; until then nobody
    /// may read any of it.
    is_checked_at_end: bool,
    finished: bool,
}

/// What the present block is received into.
enum Filling {
    Buffer {
        writer: BufferWriter,
        /// What the writer fills.
        view: BufferView,
        /// Bytes that had been received when it began.
        start: u64,
    },
    Pipe(Arc<Pipe>),
}

impl PartSink {
    fn new(
        transfer: Arc<Transfer>,
        version: Arc<ObjectVersion>,
        part: Arc<Part>,
        room: Room,
    ) -> Self {
        transfer.metrics().gets_in_flight.add(1);
        Self {
            transfer,
            version,
            part,
            room,
            filling: None,
            received: 0,
            full_at: 0,
            sent: clock::now(),
            began: None,
            refusal: None,
            is_checked_at_end: false,
            finished: false,
        }
    }

    fn takes_more(&self) -> bool {
        self.received < self.length() && self.refusal.is_none()
    }

    fn length(&self) -> u64 {
        let range = self.part.range();
        range.end - range.start
    }

    /// What is wrong with a response, if anything.
    fn refuse(&self, got: &Got) -> Option<ObjectError> {
        let (kind, message) = if !self.version.is(&got.info.etag, got.info.size) {
            let message = "the store sent another version than the one that was asked for";
            (ErrorKind::PreconditionFailed, message)
        } else if got.range.start != self.part.range().start + self.received {
            let message = "the store sent another range than the one that was asked for";
            (ErrorKind::Protocol, message)
        } else {
            return None;
        };
        Some(self.error(kind, message))
    }

    fn error(&self, kind: ErrorKind, message: &str) -> ObjectError {
        ObjectError::new(kind, Operation::Get, message).about(&self.version.key)
    }

    /// Begins the next block, or goes on with the present one if a pipe took but a piece of it, when
    /// what is filled is full; returns whether it was.
    fn next_block(&mut self) -> bool {
        let is_full = self.received == self.full_at;
        if is_full {
            self.filling = None;
            let end = (self.received / BLOCK + 1) * BLOCK;
            self.full_at = self.length().min(end);
        }
        is_full
    }

    /// Receives what is left of the present block into memory.
    fn fill_buffer(&mut self) {
        let repaid = match self.filling.take() {
            Some(Filling::Pipe(pipe)) => pipe.stop_paying(),
            _ => None,
        };
        let capacity = (self.full_at - self.received) as usize;
        let memory = repaid.unwrap_or_else(|| self.pay(capacity));
        let buffer = self.transfer.pool().take_reserved(capacity, memory);
        let (writer, view) = buffer.share();
        self.show(Place::Buffer(view.clone()));
        self.filling = Some(Filling::Buffer {
            writer,
            view,
            start: self.received,
        });
    }

    /// Receives the next bytes into a pipe, if there is one.
    fn fill_pipe(&mut self) {
        let Some(pipe) = self.room.pipes.as_ref().and_then(Pipes::take) else {
            return self.fill_buffer();
        };
        self.full_at = self.full_at.min(self.received + PIPED_MAX as u64);
        if let Some(memory) = self.room.memory.split(self.full_at - self.received) {
            pipe.pay(memory);
        }
        let pipe = Arc::new(pipe);
        self.show(Place::Pipe(Arc::clone(&pipe)));
        self.filling = Some(Filling::Pipe(pipe));
    }

    fn show(&self, place: Place) {
        let start = self.part.range().start + self.received;
        let index = self.received / BLOCK;
        self.part.receive_into(index as usize, start, place);
    }

    /// Memory for a buffer of `capacity`. After a pipe there may be less left than it costs.
    fn pay(&mut self, capacity: usize) -> Reservation {
        let memory = &mut self.room.memory;
        let cost = BufferPool::cost(capacity).min(memory.bytes());
        memory.split(cost).expect("that much is there")
    }

    fn arrived(&mut self, count: usize) {
        self.received += count as u64;
        if !self.is_checked_at_end {
            self.part.advance(self.part.range().start + self.received);
        }
    }

    fn finish(mut self, result: ObjectResult<()>) {
        self.finished = true;
        let failure = match (result, self.refusal.take()) {
            (_, Some(refusal)) => Some(refusal),
            (Err(error), None) => Some(error),
            (Ok(()), None) if self.received < self.length() => {
                Some(self.error(ErrorKind::Interrupted, "the body ended early"))
            }
            (Ok(()), None) => None,
        };
        match failure {
            Some(failure) => self.part.fail(TransferError::Object(failure)),
            None => {
                self.part.advance(self.part.range().end);
                self.record_rate();
            }
        }
    }

    /// Makes room for the whole part once more, if nobody has read any of it.
    async fn begin_again(&mut self) -> bool {
        if !self.is_checked_at_end {
            return false;
        }
        self.filling = None;
        self.part.forget_received();
        self.received = 0;
        self.full_at = 0;
        match self.transfer.read_memory(cost(self.part.range())).await {
            Ok(memory) => self.room = memory.into(),
            Err(_) => return false,
        }
        true
    }

    fn record_rate(&self) {
        if let Some(began) = self.began {
            let path = self.transfer.path();
            path.received(self.received, clock::now().duration_since(began));
        }
    }
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for PartSink {
    fn begin(&mut self, got: &Got) {
        self.refusal = self.refuse(got);
        let is_whole = got.range.end - got.range.start == got.info.size;
        self.is_checked_at_end = got.info.checksum.is_some() && is_whole;
        if self.began.is_none() {
            let now = clock::now();
            self.began = Some(now);
            self.transfer.path().began(now.duration_since(self.sent));
        }
    }

    fn filled(&self) -> u64 {
        self.received
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        if !self.takes_more() {
            return &mut [];
        }
        if self.next_block() || !matches!(self.filling, Some(Filling::Buffer { .. })) {
            self.fill_buffer();
        }
        match &mut self.filling {
            Some(Filling::Buffer { writer, .. }) => {
                let left = (self.full_at - self.received) as usize;
                let room = writer.unfilled();
                let count = room.len().min(left);
                &mut room[..count]
            }
            _ => unreachable!("a buffer was begun"),
        }
    }

    fn shared(&self, range: Range<u64>) -> Option<Bytes> {
        let Some(Filling::Buffer { view, start, .. }) = &self.filling else {
            return None;
        };
        let within = range.start >= *start && range.end <= self.received;
        within.then(|| view.slice((range.start - start) as usize..(range.end - start) as usize))
    }

    unsafe fn advance(&mut self, count: usize) {
        if let Some(Filling::Buffer { writer, .. }) = &mut self.filling {
            // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which are
            // those of the writer's memory.
            unsafe { writer.advance(count) };
            self.arrived(count);
        }
    }

    fn pipe(&mut self) -> Option<(&Pipe, usize)> {
        if !self.takes_more() || self.is_checked_at_end {
            return None;
        }
        if self.next_block() {
            self.fill_pipe();
        }
        match &self.filling {
            Some(Filling::Pipe(pipe)) => Some((pipe, (self.full_at - self.received) as usize)),
            _ => None,
        }
    }

    fn piped(&mut self, outcome: Moved) {
        match outcome {
            Moved::Bytes(count) => {
                self.transfer.metrics().piped_bytes.add(count as u64);
                self.arrived(count);
            }
            Moved::Nothing => {
                if let Some(pipes) = self.room.pipes.take() {
                    pipes.missed();
                }
                self.fill_buffer();
            }
        }
    }
}

impl Drop for PartSink {
    fn drop(&mut self) {
        self.transfer.metrics().gets_in_flight.subtract(1);
        if !self.finished {
            let failure = self.error(ErrorKind::Interrupted, "the request was given up");
            self.part.fail(TransferError::Object(failure));
        }
    }
}
