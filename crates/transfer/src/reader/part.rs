//! A run of consecutive bytes that one GET receives.
//!
//! Its offsets are those of whoever reads: of the object, or of a file of which the object has a part. More may
//! arrive than is shown: bytes of grains or of a small object, before and behind.
//!
//! The bytes lie in buffers of at most one block each. A part is read from while it arrives:
//! whoever needs bytes up to some offset waits for just those, and is woken once, when they are
//! there. Blocks can be let go one by one as they are consumed.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use penstock_base::{BLOCK_SIZE, BufferView, Payload};
use smallvec::SmallVec;

use super::{share::Ahead, source::Errand};
use crate::{TransferError, TransferResult, lock::lock, memory};

/// Bytes in a block, as offsets are counted.
pub(crate) const BLOCK: u64 = BLOCK_SIZE as u64;

/// Wakers of those who wait.
type Wakers = SmallVec<[Waker; 2]>;

#[derive(Debug)]
pub(crate) struct Part {
    range: Range<u64>,
    /// Bytes that arrive before the first that is shown.
    lead: u64,
    /// Bytes that arrive.
    length: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What it has of the limit of read-ahead.
    ahead: Ahead,
    /// The end of what arrived, as an offset.
    filled: u64,
    blocks: SmallVec<[Block; 8]>,
    waiting: SmallVec<[(u64, Waker); 2]>,
    failure: Option<TransferError>,
}

#[derive(Debug, Clone)]
enum Block {
    /// Nothing of it arrived yet.
    Coming,
    Held(BufferView),
    /// Consumed, or not wanted any more.
    Released,
}

impl Part {
    /// A part that shows `range` of what an errand brings.
    pub(crate) fn new(range: Range<u64>, errand: &Errand) -> Arc<Self> {
        Self::ahead(range, errand, Ahead::default())
    }

    /// A part that is fetched ahead of whoever reads it.
    pub(crate) fn ahead(range: Range<u64>, errand: &Errand, ahead: Ahead) -> Arc<Self> {
        let length = errand.range.end - errand.range.start;
        let blocks = length.div_ceil(BLOCK);
        let state = State {
            ahead,
            filled: range.start,
            blocks: (0..blocks).map(|_| Block::Coming).collect(),
            waiting: SmallVec::new(),
            failure: None,
        };
        Arc::new(Self {
            range,
            lead: errand.lead,
            length,
            state: Mutex::new(state),
        })
    }

    /// The bytes that this part is to show.
    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Blocks of it.
    pub(super) fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK) as usize
    }

    /// What block `index` shows; empty if that is nothing.
    pub(crate) fn block_range(&self, index: usize) -> Range<u64> {
        let start = index as u64 * BLOCK;
        let place = |received: u64| {
            let offset = self.range.start + received.saturating_sub(self.lead);
            offset.min(self.range.end)
        };
        place(start)..place(start + BLOCK)
    }

    /// Bytes of the budget that block `index` has.
    pub(super) fn block_cost(&self, index: usize) -> u64 {
        let start = index as u64 * BLOCK;
        memory::cost(BLOCK.min(self.length.saturating_sub(start)))
    }

    /// The end of what arrived, as an offset.
    pub(crate) fn filled(&self) -> u64 {
        lock(&self.state).filled
    }

    /// Whether the GET failed before everything arrived.
    pub(crate) fn failed(&self) -> bool {
        lock(&self.state).failure.is_some()
    }

    /// The bytes of `range`, which must lie within the part, added to `payload`; `false` when they
    /// have not all arrived or have been let go.
    pub(crate) fn read(&self, range: &Range<u64>, payload: &mut Payload) -> bool {
        let state = lock(&self.state);
        if state.filled < range.end {
            return false;
        }
        let mut start = range.start;
        while start < range.end {
            let place = start - self.range.start + self.lead;
            let Block::Held(view) = &state.blocks[(place / BLOCK) as usize] else {
                return false;
            };
            let from = place % BLOCK;
            let count = (range.end - start).min(BLOCK - from);
            payload.push(view.slice(from as usize..(from + count) as usize));
            start += count;
        }
        true
    }

    /// Waits until everything before `end` has arrived, or the GET has failed.
    pub(crate) async fn arrival(&self, end: u64) -> TransferResult<()> {
        std::future::poll_fn(|task| {
            let mut state = lock(&self.state);
            if state.filled >= end {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = &state.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            state.register(end, task.waker());
            Poll::Pending
        })
        .await
    }

    /// Lets go of the memory of block `index`. Slices that were read from it stay valid.
    pub(crate) fn release(&self, index: usize) {
        let mut state = lock(&self.state);
        let released = std::mem::replace(&mut state.blocks[index], Block::Released);
        if !matches!(released, Block::Released) {
            state.ahead.release(self.block_cost(index));
        }
        drop(state);
        drop(released);
    }

    /// Block `index` is being received into what `view` shows.
    pub(super) fn begin_block(&self, index: usize, view: BufferView) {
        let block = &mut lock(&self.state).blocks[index];
        if matches!(block, Block::Coming) {
            *block = Block::Held(view);
        }
    }

    /// What was received is damaged and was shown to nobody: it will be received again.
    pub(super) fn forget_received(&self) {
        let mut state = lock(&self.state);
        let held = state.blocks.iter_mut();
        let damaged: SmallVec<[Block; 8]> = held
            .filter(|block| matches!(block, Block::Held(_)))
            .map(|block| std::mem::replace(block, Block::Coming))
            .collect();
        drop(state);
        drop(damaged);
    }

    /// The first `received` bytes have arrived and may be shown.
    pub(super) fn advance(&self, received: u64) {
        let filled = self.range.start + received.saturating_sub(self.lead);
        let filled = filled.min(self.range.end);
        let ready = {
            let mut state = lock(&self.state);
            state.filled = filled;
            state.take_ready(filled)
        };
        ready.into_iter().for_each(Waker::wake);
    }

    /// The GET has failed: nothing more will arrive.
    pub(super) fn fail(&self, failure: TransferError) {
        let ready = {
            let mut state = lock(&self.state);
            state.failure = Some(failure);
            state.take_ready(u64::MAX)
        };
        ready.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn register(&mut self, end: u64, waker: &Waker) {
        let known = self
            .waiting
            .iter()
            .any(|(until, known)| *until == end && known.will_wake(waker));
        if !known {
            self.waiting.push((end, waker.clone()));
        }
    }

    fn take_ready(&mut self, filled: u64) -> Wakers {
        let mut ready = Wakers::new();
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 <= filled {
                ready.push(self.waiting.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        ready
    }
}
