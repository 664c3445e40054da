//! Receives one part: the GET, and the memory that its body goes straight into.

use std::{mem::MaybeUninit, ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{
    BLOCK_SIZE, BufferPool, BufferView, BufferWriter, Reservation,
    clock::{self, Instant},
};
use penstock_object::{BodySink, ErrorKind, GetOptions, Got, ObjectError, ObjectResult, Operation};

use super::{
    grains::Comparison,
    part::{BLOCK, Part},
    source::Errand,
    unpacking::Unpacking,
};
use crate::{ObjectVersion, Transfer, TransferError};

/// Where the bytes of a version may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Wherever they are.
    Anywhere,
    /// From the store alone, which thereby says that the version is still the present one.
    TheStore,
}

/// Receives `part`, which `errand` brings, into memory that `reservation` pays for.
///
/// When the future is dropped the part fails with `Interrupted`.
pub(crate) async fn receive(
    transfer: Arc<Transfer>,
    errand: Errand,
    part: Arc<Part>,
    reservation: Reservation,
    origin: Origin,
) {
    let version = &errand.version;
    // Stores tell a checksum over the whole object only to those who ask for all of it. Grains have theirs, and are
    // shown before all has arrived.
    let is_whole = errand.range == (0..version.size) && errand.grains.is_none();
    let options = GetOptions {
        range: (!is_whole).then(|| stored(&errand)),
        if_match: version.pinned().cloned(),
        fresh: origin == Origin::TheStore,
        unchanging: false,
    };
    let store = Arc::clone(transfer.store());
    let key = version.key.clone();
    let mut sink = PartSink::new(transfer, errand, part, reservation);
    let mut result = store.get(&key, options.clone(), &mut sink).await;
    if is_damaged(&result) && sink.begin_again().await {
        result = store.get(&key, options, &mut sink).await;
    }
    sink.finish(result.map(|_| ()));
}

/// Which bytes of the object an errand brings.
fn stored(errand: &Errand) -> Range<u64> {
    match &errand.grains {
        Some(grains) => grains.stored(&errand.range),
        None => errand.range.clone(),
    }
}

fn is_damaged(result: &ObjectResult<Got>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind == ErrorKind::ChecksumMismatch)
}

/// The memory of one part while it is being filled. Blocks are taken from the pool only when
/// their first byte is about to arrive, so that few are in use and those are in the CPU's cache.
struct PartSink {
    transfer: Arc<Transfer>,
    version: Arc<ObjectVersion>,
    /// What arrives of the object.
    range: Range<u64>,
    /// Bytes that become of it.
    length: u64,
    /// What arrives is compressed.
    unpacking: Option<Unpacking>,
    comparison: Option<Comparison>,
    part: Arc<Part>,
    reservation: Reservation,
    writer: Option<BufferWriter>,
    /// What the writer fills.
    view: Option<BufferView>,
    /// Plain bytes that are there.
    received: u64,
    sent: Instant,
    began: Option<Instant>,
    refusal: Option<ObjectError>,
    /// The store compares a checksum over all of this part when it has arrived; until then nobody
    /// may read any of it.
    is_checked_at_end: bool,
    finished: bool,
}

impl PartSink {
    fn new(
        transfer: Arc<Transfer>,
        errand: Errand,
        part: Arc<Part>,
        reservation: Reservation,
    ) -> Self {
        transfer.metrics().gets_in_flight.add(1);
        let (range, place) = (stored(&errand), errand.range.start);
        let unpacking = errand.grains.as_ref();
        let unpacking = unpacking.and_then(|grains| Unpacking::new(grains, &errand.range));
        let comparison = errand.grains.map(|grains| Comparison::new(grains, place));
        Self {
            transfer,
            version: errand.version,
            length: errand.range.end - place,
            range,
            unpacking,
            comparison,
            part,
            reservation,
            writer: None,
            view: None,
            received: 0,
            sent: clock::now(),
            began: None,
            refusal: None,
            is_checked_at_end: false,
            finished: false,
        }
    }

    /// Bytes of the object that arrived.
    fn arrived(&self) -> u64 {
        let unpacking = self.unpacking.as_ref();
        unpacking.map_or(self.received, Unpacking::arrived)
    }

    /// What is wrong with a response, if anything.
    fn refuse(&self, got: &Got) -> Option<ObjectError> {
        let (kind, message) = if !self.version.is(&got.info.etag, got.info.size) {
            let message = "the store sent another version than the one that was asked for";
            (ErrorKind::PreconditionFailed, message)
        } else if got.range.start != self.range.start + self.arrived() {
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

    fn next_block(&mut self, pool: &Arc<BufferPool>) {
        let capacity = BLOCK.min(self.length - self.received) as usize;
        let reservation = self
            .reservation
            .split(BufferPool::cost(capacity))
            .expect("the whole part was reserved");
        let room = penstock_object::room_for_seals(capacity);
        let buffer = pool.take_with_room(capacity, room, reservation);
        let (writer, view) = buffer.share();
        self.view = Some(view.clone());
        self.part
            .begin_block((self.received / BLOCK) as usize, view);
        self.writer = Some(writer);
    }

    fn finish(mut self, result: ObjectResult<()>) {
        self.finished = true;
        let failure = match (result, self.refusal.take()) {
            (_, Some(refusal)) => Some(refusal),
            (Err(error), None) => Some(error),
            (Ok(()), None) if self.received < self.length => {
                Some(self.error(ErrorKind::Interrupted, "the body ended early"))
            }
            (Ok(()), None) => None,
        };
        match failure {
            Some(failure) => self.part.fail(TransferError::Object(failure)),
            None => {
                self.part.advance(self.length);
                self.record_rate();
            }
        }
    }

    /// Makes room for the whole part once more, if nobody has read any of it.
    async fn begin_again(&mut self) -> bool {
        if !self.is_checked_at_end {
            return false;
        }
        self.writer = None;
        self.view = None;
        self.part.forget_received();
        self.received = 0;
        let cost = Transfer::cost(self.length);
        match self.transfer.read_memory(cost).await {
            Ok(memory) => self.reservation = memory,
            Err(_) => return false,
        }
        true
    }

    /// Shows what arrived, as far as it may be.
    fn show(&mut self) {
        if self.comparison.is_some() {
            self.compare();
        } else if !self.is_checked_at_end {
            self.part.advance(self.received);
        }
    }

    /// Compares what arrived since the last time, and shows the grains that are complete.
    fn compare(&mut self) {
        let (Some(comparison), Some(writer), Some(view)) =
            (&mut self.comparison, &self.writer, &self.view)
        else {
            return;
        };
        let end = writer.filled();
        let new = (self.received - comparison.seen()) as usize;
        let is_right = comparison.add(&view.slice(end - new..end));
        self.part.advance(comparison.compared());
        if !is_right {
            self.refuse_damaged();
        }
    }

    /// Takes in some of the next frame.
    ///
    /// # Safety
    ///
    /// As for [`BodySink::advance`].
    #[allow(unsafe_code)]
    unsafe fn unpack(&mut self, unpacking: &mut Unpacking, count: usize) {
        // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which are those of the frame.
        match unsafe { unpacking.advance(count) } {
            Ok(None) => {}
            Ok(Some(grain)) => self.take(grain),
            Err(_) => self.refuse_damaged(),
        }
    }

    /// Takes in the plain bytes of a grain.
    fn take(&mut self, mut plain: &[u8]) {
        while !plain.is_empty() && self.refusal.is_none() {
            self.begin_block_if_due();
            let Some(writer) = &mut self.writer else {
                return;
            };
            let copied = writer.copy_from(plain);
            plain = &plain[copied..];
            self.received += copied as u64;
            self.show();
        }
    }

    fn refuse_damaged(&mut self) {
        let message = "bytes of the object are not those that were written";
        self.refusal = Some(self.error(ErrorKind::ChecksumMismatch, message));
    }

    fn begin_block_if_due(&mut self) {
        if self.received.is_multiple_of(BLOCK) && self.writer.as_ref().is_none_or(is_full) {
            let pool = Arc::clone(self.transfer.pool());
            self.next_block(&pool);
        }
    }

    fn record_rate(&self) {
        if let Some(began) = self.began {
            let path = self.transfer.path();
            path.received(self.arrived(), clock::now().duration_since(began));
        }
    }
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for PartSink {
    fn begin(&mut self, got: &Got) {
        if self.began.is_none() {
            let now = clock::now();
            self.began = Some(now);
            self.transfer.path().began(now.duration_since(self.sent));
        }
        self.begin_at_hand(got);
    }

    fn begin_at_hand(&mut self, got: &Got) {
        self.refusal = self.refuse(got);
        let is_whole = got.range.end - got.range.start == got.info.size;
        self.is_checked_at_end =
            got.info.checksum.is_some() && is_whole && self.comparison.is_none();
    }

    fn filled(&self) -> u64 {
        self.arrived()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.received == self.length || self.refusal.is_some() {
            return &mut [];
        }
        if self.unpacking.is_none() {
            self.begin_block_if_due();
        }
        if let Some(unpacking) = &mut self.unpacking {
            return unpacking.unfilled();
        }
        self.writer
            .as_mut()
            .expect("a block was begun at the first byte")
            .unfilled()
    }

    fn shared(&self, range: Range<u64>) -> Option<Bytes> {
        if self.unpacking.is_some() {
            return None;
        }
        let (writer, view) = (self.writer.as_ref()?, self.view.as_ref()?);
        let start = self.received - writer.filled() as u64;
        let within = range.start >= start && range.end <= self.received;
        within.then(|| view.slice((range.start - start) as usize..(range.end - start) as usize))
    }

    unsafe fn advance(&mut self, count: usize) {
        if let Some(mut unpacking) = self.unpacking.take() {
            // SAFETY: as the caller says.
            unsafe { self.unpack(&mut unpacking, count) };
            self.unpacking = Some(unpacking);
        } else if let Some(writer) = &mut self.writer {
            debug_assert!(
                count as u64 <= self.length - self.received,
                "more came than was announced"
            );
            // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which are
            // those of the writer's memory.
            unsafe { writer.advance(count) };
            self.received += count as u64;
            self.show();
        }
    }
}

/// Whether a writer's block is full.
fn is_full(writer: &BufferWriter) -> bool {
    writer.filled() == BLOCK_SIZE
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
